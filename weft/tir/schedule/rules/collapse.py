"""Collapse: neighbouring dimensions that are always walked together become one.

``out[b, s, j] = sum(k, x[b, s, k] * w[k, j])`` is a product of ``b * s`` rows, and element-wise work on four
dimensions is work on one; tiles then need not end where an inner dimension ends, and no index needs a division.
Buffers are viewed under the shorter shape; whoever schedules the result gives the parameters their declared buffers
back, which share the views' memory.

A variable that is shifted or compared, as those of concatenations, slices and frames are, is merged with a short
dimension behind it: ``v - 23 < 12`` of rows of 4 is ``m - 92 < 48``. Where it is compared, another index that it
decides alone, as beyond the border of an image that is reflected, becomes ``f(m // 4) * 4 + m % 4``.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis.pattern import contraction_of
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.function import PrimFunc
from weft.tir.schedule.rules.tile import reads_far
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt, seq

Nest = tuple[list[For], BlockRealize]

_SHORT = 64
"""Elements of an inner dimension from which on it is worth no more to walk over its end."""

_LONG_SUM = 256
"""Summands of an element from which on finding the place of its pixel by a division costs little beside them."""


def collapse_dims(func: PrimFunc) -> PrimFunc:
    """Merge dimensions of a function in the form that ``te.create_prim_func`` makes.

    Another function is returned as it is.
    """
    nests = _nests(func)
    if nests is None:
        return func
    state = _Collapse(nests)
    state.solve()
    if not state.pairs:
        return func
    root = func.body.block  # type: ignore[attr-defined]
    body = seq(*[state.rewrite(loops, realize) for loops, realize in nests])
    views = tuple(state.view(b) for b in root.alloc_buffers)
    new_root = replace_node(root, iter_vars=(), reads=(), writes=(), body=body, init=None, alloc_buffers=views)
    return func.replace(
        body=BlockRealize((), func.body.predicate, new_root),  # type: ignore[attr-defined]
        buffer_map=tuple((p, state.view(b)) for p, b in func.buffer_map),
    )


def _nests(func: PrimFunc) -> list[Nest] | None:
    """List the loop nests of a function.

    Loops one inside another around one block each, block variables equal to loops.
    """
    if not isinstance(func.body, BlockRealize) or func.body.block.init is not None:
        return None
    body = func.body.block.body
    out: list[Nest] = []
    for stmt in body.seq if isinstance(body, SeqStmt) else (body,):
        loops: list[For] = []
        while isinstance(stmt, For):
            loops.append(stmt)
            stmt = stmt.body
        if (
            not isinstance(stmt, BlockRealize)
            or len(loops) != len(stmt.block.iter_vars)
            or stmt.block.alloc_buffers
            or stmt.block.match_buffers
        ):
            return None
        plain = all(v is f.loop_var and ir.as_int(f.min) == 0 for v, f in zip(stmt.iter_values, loops, strict=True))
        if not plain or ir.find(stmt.block.body, For, BlockRealize):
            return None
        out.append((loops, _without_single_taps(stmt)))
    return out


def _without_single_taps(realize: BlockRealize) -> BlockRealize:
    """Drop variables of sums with one summand where they are added: what a 1x1 convolution reads does not move."""
    domains = [(iv.var, iv.dom) for iv in realize.block.iter_vars if iv.iter_type == "reduce" and iv.dom is not None]
    single = {v for v, dom in domains if ir.is_const_int(dom.extent, 1) and ir.is_const_int(dom.min, 0)}

    def visit(node: ir.Node) -> Any:
        if isinstance(node, ir.Add) and node.b in single:
            return visit(node.a)
        return node if isinstance(node, (ir.Var, Buffer)) else ir.rebuild(node, visit)

    return visit(realize) if single else realize


class _Collapse:
    """Which neighbouring iteration variables, and which neighbouring buffer dimensions, can be merged.

    The greatest consistent choice.
    """

    def __init__(self, nests: list[Nest]) -> None:
        self.nests = nests
        self.analyzer = Analyzer()
        self.pairs: set[tuple[int, int]] = set()  # (nest, i): variables i and i + 1 become one
        self.dims: set[tuple[Buffer, int]] = set()  # (buffer, d): dimensions d and d + 1 become one
        self.views: dict[Buffer, Buffer] = {}
        self.accesses: list[tuple[int, Buffer, tuple[ir.PrimExpr, ...]]] = []
        self.loose: list[set[ir.Var]] = []
        self.edged: list[set[ir.Var]] = []  # variables that are shifted or compared
        self.inner: dict[ir.Var, ir.PrimExpr] = {}  # of those, how many elements the dimensions behind have
        self.windows: list[dict[Buffer, dict[ir.Var, ir.PrimExpr]]] = []  # what they read, and parts of merged pixels
        for n, (_, realize) in enumerate(nests):
            block = realize.block
            for i in range(len(block.iter_vars) - 1):
                if block.iter_vars[i].iter_type == block.iter_vars[i + 1].iter_type:
                    self.pairs.add((n, i))
            self._collect(n, block)

    def _collect(self, n: int, block: Block) -> None:
        """Record accesses, and the variables that occur anywhere but as a whole index."""
        loose: set[ir.Var] = set()
        edged: set[ir.Var] = set()
        mapped: set[ir.Var] = set()
        compared: set[ir.Var] = set()
        own = {iv.var for iv in block.iter_vars}
        windows = _pixels_of_windows(block, self.analyzer)
        self.windows.append(windows)
        stack: list[Any] = [block.body, block.init]
        while stack:
            node = stack.pop()
            if isinstance(node, BufferLoad) and node.buffer in windows:
                moved = set(windows[node.buffer])
                at = tuple(ir.const(-1, i.dtype) if moved & used_vars(i) else i for i in node.indices)
                self.accesses.append((n, node.buffer, at))
                loose |= used_vars(*(i for i in node.indices if not isinstance(i, ir.Var))) - moved
            elif isinstance(node, (BufferLoad, BufferStore)):
                stack.extend(self._access(n, node, own, edged, mapped))
            elif isinstance(node, ir.Var):
                loose.add(node)
            elif (at := _compared(node, own)) is not None:
                edged.add(at)
                compared.add(at)
            elif isinstance(node, Buffer):
                continue
            elif hasattr(node, "__struct_fields__"):
                stack.extend(getattr(node, f) for f in node.__struct_fields__ if f != "span")
            elif isinstance(node, tuple):
                stack.extend(node)
        self.loose.append(loose | (mapped - compared))
        self.edged.append(edged)
        short = [0 < (ir.as_int(iv.dom.extent) or 0) < _SHORT for iv in block.iter_vars]  # type: ignore[union-attr]
        for i, iv in enumerate(block.iter_vars):
            if iv.var in edged:
                self.pairs -= {(n, i - 1), *([] if short[i + 1 : i + 2] == [True] else [(n, i)])}

    def _access(
        self, n: int, node: BufferLoad | BufferStore, own: set[ir.Var], edged: set[ir.Var], mapped: set[ir.Var]
    ) -> list[ir.PrimExpr]:
        """Record an access; returns what else is to be looked at."""
        self.accesses.append((n, node.buffer, node.indices))
        self.dims.update((node.buffer, d) for d in range(len(node.buffer.shape) - 1))
        if node.predicate is not None or node.buffer.strides:
            self.dims.difference_update((node.buffer, d) for d in range(len(node.buffer.shape)))
        rest = [node.value] if isinstance(node, BufferStore) else []
        for d, index in enumerate(node.indices):
            at = _along(index, node.indices[d + 1 : d + 2], own)
            if at is None:
                rest.append(index)
            elif at is not index:
                (mapped if _shifted(index, own) is None else edged).add(at)
        return rest

    def solve(self) -> None:
        """Remove what is inconsistent until nothing changes."""
        before = -1
        while before != len(self.pairs) + len(self.dims):
            before = len(self.pairs) + len(self.dims)
            for n, buffer, indices in self.accesses:
                position: dict[ir.PrimExpr, int] = {iv.var: i for i, iv in enumerate(self.nests[n][1].block.iter_vars)}
                for d in range(len(indices) - 1):
                    if (buffer, d) in self.dims and not self._mergeable(n, buffer, indices, d, position):
                        self.dims.discard((buffer, d))
                self._drop_pairs(n, buffer, indices, position)
            for n, loose in enumerate(self.loose):
                ivs = self.nests[n][1].block.iter_vars
                self.pairs -= {
                    (n, i) for i in range(len(ivs)) for k in (i, i + 1) if k < len(ivs) and ivs[k].var in loose
                }

    def _mergeable(
        self, n: int, buffer: Buffer, indices: tuple[ir.PrimExpr, ...], d: int, position: dict[ir.PrimExpr, int]
    ) -> bool:
        a, b = indices[d], indices[d + 1]
        if ir.as_int(a) == 0 and ir.as_int(b) == 0:
            return ir.as_int(buffer.shape[d]) == 1 and ir.as_int(buffer.shape[d + 1]) == 1
        at = _along(a, (b,), set(position))
        i, k = None if at is None else position[at], position.get(b)
        if i is None or k != i + 1 or (n, i) not in self.pairs:
            return False
        ivs = self.nests[n][1].block.iter_vars
        ends = (1,) if at in self.edged[n] else (0, 1)
        return all(self._same(ivs[i + e].dom.extent, buffer.shape[d + e]) for e in ends)  # type: ignore[union-attr]

    def _same(self, a: ir.PrimExpr, b: ir.PrimExpr) -> bool:
        if isinstance(a, ir.IntImm) and isinstance(b, ir.IntImm):
            return a.value == b.value
        return a is b or self.analyzer.can_prove_equal(a, b)

    def _drop_pairs(
        self, n: int, buffer: Buffer, indices: tuple[ir.PrimExpr, ...], position: dict[ir.PrimExpr, int]
    ) -> None:
        """A pair survives where both variables index neighbouring dimensions that merge, or neither occurs."""
        found = [_along(index, indices[d + 1 : d + 2], set(position)) for d, index in enumerate(indices)]
        at = [None if v is None else position[v] for v in found]
        for d, i in enumerate(at):
            if i is None:
                continue
            if not ((buffer, d) in self.dims and at[d + 1] == i + 1):
                self.pairs.discard((n, i))
            if not (d > 0 and (buffer, d - 1) in self.dims and at[d - 1] == i - 1):
                self.pairs.discard((n, i - 1))

    def _wider(self, e: Any, at: ir.Var) -> Any:
        """Count elements of the dimensions behind, too, where an expression shifts or compares a variable."""
        if isinstance(e, (ir.Add, ir.Sub, ir.GE, ir.GT, ir.LE, ir.LT)):
            return type(e)(self._wider(e.a, at), self._wider(e.b, at))
        return e if e is at else self.analyzer.simplify(e * ir.cast(e.dtype, self.inner[at]))

    # --- rewriting ----------------------------------------------------------------------------------------------------

    def view(self, buffer: Buffer) -> Buffer:
        """The buffer under its merged shape."""
        view = self.views.get(buffer)
        if view is None:
            shape: list[ir.PrimExpr] = []
            for d, extent in enumerate(buffer.shape):
                if d and (buffer, d - 1) in self.dims:
                    shape[-1] = self.analyzer.simplify(shape[-1] * extent)
                else:
                    shape.append(extent)
            view = buffer
            if len(shape) != len(buffer.shape):
                view = replace_node(buffer, shape=tuple(shape), strides=(), offset_factor=0, axis_separators=())
            self.views[buffer] = view
        return view

    def rewrite(self, loops: list[For], realize: BlockRealize) -> Stmt:
        """Rewrite one nest."""
        n = next(i for i, (_, r) in enumerate(self.nests) if r is realize)
        block = realize.block
        new_loops: list[tuple[ir.Var, ir.PrimExpr]] = []
        block_vars: list[ir.IterVar] = []
        merged: dict[ir.Var, ir.PrimExpr] = {}
        for i, (f, iv) in enumerate(zip(loops, block.iter_vars, strict=True)):
            if i and (n, i - 1) in self.pairs:
                extent = self.analyzer.simplify(new_loops[-1][1] * f.extent)
                new_loops[-1] = (new_loops[-1][0], extent)
                last = block_vars[-1]
                block_vars[-1] = ir.IterVar(ir.Range.from_min_extent(last.dom.min, extent), last.var, last.iter_type)  # type: ignore[union-attr]
            else:
                new_loops.append((f.loop_var, f.extent))
                block_vars.append(iv)
            merged[iv.var] = block_vars[-1].var
            if i and (n, i - 1) in self.pairs and block_vars[-1].var in self.edged[n]:
                at = block_vars[-1].var
                self.inner[at] = self.analyzer.simplify(self.inner[at] * f.extent) if at in self.inner else f.extent

        windows = {b: parts for b, parts in self.windows[n].items() if len({merged[v] for v in parts}) == 1}

        def visit(node: ir.Node) -> Any:
            if not isinstance(node, ir.Var):
                for at in (_compared(node, set(self.inner)), _shifted(node, set(self.inner))):
                    if at is not None:
                        return self._wider(node, at)
            if isinstance(node, (BufferLoad, BufferStore)):
                at = self._indices(node.buffer, node.indices, merged, visit)
                at = tuple(ir.substitute(i, windows.get(node.buffer, {})) for i in at)
                value = {"value": visit(node.value)} if isinstance(node, BufferStore) else {}
                return replace_node(node, buffer=self.view(node.buffer), indices=at, **value)
            return node if isinstance(node, (ir.Var, Buffer)) else ir.rebuild(node, visit)

        regions = tuple(
            tuple(self._region(r, windows.get(r.buffer, {})) for r in rs) for rs in (block.reads, block.writes)
        )
        body, init = visit(block.body), None if block.init is None else visit(block.init)
        bare = replace_node(block, iter_vars=tuple(block_vars), alloc_buffers=(), match_buffers=())
        new_block = replace_node(bare, reads=regions[0], writes=regions[1], body=body, init=init)
        stmt: Stmt = BlockRealize(tuple(v for v, _ in new_loops), realize.predicate, new_block)
        for f, (var, extent) in zip(reversed(loops[: len(new_loops)]), reversed(new_loops), strict=True):
            stmt = For(var, ir.const(0, var.dtype), extent, f.kind, stmt)
        return stmt

    def _indices(
        self, buffer: Buffer, indices: tuple[ir.PrimExpr, ...], merged: dict[ir.Var, ir.PrimExpr], visit: Any
    ) -> tuple[ir.PrimExpr, ...]:
        out: list[ir.PrimExpr] = []
        for d, index in enumerate(indices):
            if d and (buffer, d - 1) in self.dims:
                continue
            if isinstance(index, ir.Var):
                out.append(merged.get(index, index))
            else:
                mapped = self._mapped(index, indices[d + 1 : d + 2], merged)
                out.append(visit(index) if mapped is None else mapped)
        return tuple(out)

    def _mapped(
        self, index: ir.PrimExpr, behind: tuple[ir.PrimExpr, ...], own: Collection[ir.PrimExpr]
    ) -> ir.PrimExpr | None:
        """An index that a merged variable decides in another way than by moving, as one of both dimensions."""
        at = _along(index, behind, own)
        if at is None or at not in self.inner or _shifted(index, own) is not None:
            return None
        size = ir.cast(at.dtype, self.inner[at])
        row = ir.substitute(index, {at: ir.floordiv(at, size)})
        return self.analyzer.simplify(row * ir.cast(row.dtype, size) + ir.floormod(at, size))

    def _region(self, region: BufferRegion, parts: dict[ir.Var, ir.PrimExpr]) -> BufferRegion:
        buffer, out = region.buffer, []
        for d, r in enumerate(region.region):
            if d and (buffer, d - 1) in self.dims:
                last = out[-1]
                if ir.as_int(last.extent) != 1 or ir.as_int(r.extent) != 1:
                    whole = self.analyzer.simplify(last.extent * r.extent)
                    out[-1] = ir.Range.from_min_extent(ir.const(0, last.min.dtype), whole)
                    continue
                mapped = self._mapped(last.min, (r.min,), {r.min, *self.inner})
                if mapped is None and (at := _shifted(last.min, set(self.inner))) is not None:
                    mapped = self._wider(last.min, at)
                out[-1] = last if mapped is None else ir.Range.from_min_extent(mapped, last.extent)
            else:
                out.append(ir.Range.from_min_extent(ir.substitute(r.min, parts), r.extent))
        return BufferRegion(self.view(buffer), tuple(out))


def _pixels_of_windows(block: Block, analyzer: Analyzer) -> dict[Buffer, dict[ir.Var, ir.PrimExpr]]:
    """What windows of a long sum read, and the rows and columns of pixels, of unknown number, as parts of one variable.

    Tiles then go over the ends of rows: short ones would be left to tiles of two pixels and of one.
    """
    c = contraction_of(block, products=False)
    if c is None or c.group is not None or ir.find(block.body, ir.CallIntrin):
        return {}
    pixels = [v for v in c.output.indices if isinstance(v, ir.Var) and v in c.rows][-2:]
    if len(pixels) < 2:
        return {}
    extents = {iv.var: iv.dom.extent for iv in block.iter_vars if iv.dom is not None}
    row, column = pixels
    width, summands = extents[column], prod(ir.as_int(extents[v]) or 0 for v in c.reduce)
    moved = [i for i in c.a.indices if not isinstance(i, ir.Var) and column in used_vars(i)]
    few = summands < _LONG_SUM or ir.as_int(width) is not None or ir.is_const_int(extents[row], 1)
    if few or not moved or reads_far(c, extents, analyzer):
        return {}
    return {c.a.buffer: {row: ir.floordiv(row, width), column: ir.floormod(row, width)}}


def _shifted(index: ir.Node, own: Collection[Any]) -> ir.Var | None:
    """The variable of an index that is one, or one and what does not change."""
    if isinstance(index, (ir.Add, ir.Sub)) and index.a in own and not any(x in own for x in ir.walk(index.b)):
        return index.a  # type: ignore[return-value]
    return index if index in own else None  # type: ignore[return-value]


def _along(index: ir.PrimExpr, behind: tuple[Any, ...], own: Collection[Any]) -> ir.Var | None:
    """The variable that an index moves with, or that alone decides it in front of an index that is a variable."""
    shifted = _shifted(index, own)
    if shifted is not None or not behind or behind[0] not in own:
        return shifted
    if ir.find(index, BufferLoad):
        return None
    found = {x for x in ir.find(index, ir.Var) if x in own}
    return found.pop() if len(found) == 1 and behind[0] not in found else None


def _compared(e: Any, own: set[Any]) -> ir.Var | None:
    """The variable of ``v < c`` or ``v >= c``, which may be shifted: both sides may be multiplied."""
    a, b = (
        (e.a, e.b) if isinstance(e, (ir.LT, ir.GE)) else (e.b, e.a) if isinstance(e, (ir.GT, ir.LE)) else (None, None)
    )
    return _shifted(a, own) if a is not None and not any(x in own for x in ir.walk(b)) else None
