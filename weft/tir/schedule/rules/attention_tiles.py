"""The loops of an attention kernel: blocks of queries in parallel, blocks of keys with an online softmax.

Neighbouring queries are lanes. A block's queries are turned once, so that both sums are register tiles that broadcast
keys and values from where they lie, the softmax is element-wise over lanes, and only the result is turned back. Nothing
but a block's scores is ever stored, and those in a near cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import (
    TRUE,
    Attrs,
    CallIntrin,
    Max,
    Min,
    PrimExpr,
    Range,
    Select,
    Var,
    as_int,
    cast,
    const,
    rewrite,
    structural_equal,
    substitute,
)
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.pattern import stride_along
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.intrin import exp
from weft.tir.schedule.rules.attention import AttentionParts, attention_of
from weft.tir.schedule.rules.context import MIN_TASK, RuleContext
from weft.tir.schedule.schedule import Schedule
from weft.tir.stmt import AllocBuffer, Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.transform.transpose_tiles import TILE_MARK

__all__ = ["schedule_attention"]

_LONGEST = 256
"""Keys up to this number, where it is constant, are one block."""

_BLOCK = 192
"""Keys of a block otherwise, about."""

_SHORT = 4
"""Keys of the tiles behind the last whole one."""

_LOWEST = -3.4028234663852886e38


def schedule_attention(func: PrimFunc, target: Any) -> PrimFunc | None:
    """Return a function that is an attention as one tiled kernel; None for any other function.

    Parameters
    ----------
    target : Target
        Asked for ``vector_bits``, ``num_vector_registers`` and ``num_cores``.
    """
    parts = attention_of(func)
    if parts is None:
        return None
    ctx = RuleContext(Schedule(func), target)
    loops = _Kernel(parts, ctx.lanes("float32"), ctx.registers).tasks(ctx.cores)
    inputs = [b for _, b in func.buffer_map if b is not parts.store.buffer]
    block = Block((), whole_regions(inputs), whole_regions([parts.store.buffer]), "attention", loops)
    root = func.root
    return func.replace(body=BlockRealize((), TRUE, Block((), (), (), root.name_hint, BlockRealize((), TRUE, block))))


def whole_regions(buffers: Sequence[Buffer]) -> tuple[BufferRegion, ...]:
    """Return the regions that are all of some buffers."""
    return tuple(BufferRegion(b, tuple(Range.from_min_extent(const(0, d.dtype), d) for d in b.shape)) for b in buffers)


class _Kernel:
    """What all pieces of a kernel know: its operands, the machine, where the present block begins."""

    def __init__(self, parts: AttentionParts, lanes: int, registers: int) -> None:
        self.parts, self.lanes, self.registers = parts, lanes, registers
        self.index = parts.query[0].dtype
        self.n_queries, self.n_keys = (cast(self.index, e) for e in (parts.query[1], parts.key[1]))
        self.depth, self.columns = as_int(parts.depth[1]) or 0, as_int(parts.column[1]) or 0
        self.first = Var("first_query", self.index)
        keys = as_int(parts.key[1])
        self.tile = _tile_height(keys, self._tallest(2))
        self.whole = keys is not None and keys <= _LONGEST
        blocks = 1 if keys is None or self.whole else -(-keys // _BLOCK)
        even = keys if keys is not None and self.whole else -(-keys // blocks) if keys is not None else _BLOCK
        self.block = even if self.whole else -(-even // self.tile) * self.tile

    def _tallest(self, vectors: int) -> int:
        return max(1, min(self.registers - vectors - 1, self.registers * 7 // 8) // vectors)

    def number(self, value: int) -> PrimExpr:
        """An index."""
        return const(value, self.index)

    def loop(
        self, name: str, extent: Any, body: Callable[[Var], Stmt], kind: ForKind = ForKind.SERIAL, **notes: Any
    ) -> Stmt:
        """Make a loop from zero; of one iteration, only its body."""
        extent = self.number(extent) if isinstance(extent, int) else extent
        var = Var(name, self.index)
        return For(var, self.number(0), extent, kind, body(var), None, Attrs.of(notes))

    def vector(self, body: Callable[[Var], Stmt]) -> Stmt:
        """Make a loop over the lanes of a vector."""
        return self.loop("lane", self.lanes, body, ForKind.VECTORIZED)

    def at(self, expr: Any, query: PrimExpr | None = None, key: Any = None, depth: Any = None, col: Any = None) -> Any:
        """Put places in for the variables of a sum."""
        p = self.parts
        given = ((p.query[0], query), (p.key[0], key), (p.depth[0], depth), (p.column[0], col))
        return substitute(expr, {v: cast(v.dtype, x) for v, x in given if x is not None})

    # --- tasks ---

    def tasks(self, cores: int) -> Stmt:
        """Split batches, heads and blocks of queries into tasks."""
        known = as_int(self.n_queries)
        width = self.lanes if known is not None and known <= self.lanes else 2 * self.lanes
        n_blocks = (self.n_queries + self.number(width - 1)) // self.number(width)
        total = n_blocks
        for _, extent in self.parts.outer:
            total = total * cast(self.index, extent)
        rest = self.n_queries - self.first
        if width == self.lanes:
            body = self.queries(1)
        elif known is not None and (known % width == 0 or known % width > self.lanes):
            body = self.queries(2)
        else:
            body = IfThenElse(rest > self.number(self.lanes), self.queries(2), self.queries(1))

        def task(var: Var) -> Stmt:
            result: Stmt = LetStmt(self.first, var % n_blocks * self.number(width), body)
            place: PrimExpr = var // n_blocks
            for i, (v, extent) in enumerate(reversed(self.parts.outer)):
                e = cast(self.index, extent)
                own = place if i == len(self.parts.outer) - 1 else place % e
                result = LetStmt(v, cast(v.dtype, own), result)
                place = place // e
            return result

        keys, n_tasks = as_int(self.n_keys), as_int(total)
        work = None if keys is None else max(1, keys * (self.depth + self.columns) * width // self.lanes)
        alone = cores < 2 or (n_tasks is not None and (n_tasks < 2 or (work or MIN_TASK) * n_tasks < 2 * MIN_TASK))
        grain = 1 if work is None else max(1, MIN_TASK // work)
        notes = {"pragma_grain": grain} if grain > 1 and not alone else {}
        return self.loop("task", total, task, ForKind.SERIAL if alone else ForKind.PARALLEL, **notes)

    def queries(self, vectors: int) -> Stmt:
        """Compute the result of one block of queries, `vectors` vectors wide."""
        return _Block(self, vectors).body()


def _tile_height(keys: int | None, tallest: int) -> int:
    """Choose how many keys a tile has, so that little of the last one is in vain."""
    if keys is None:
        return max(1, tallest - tallest % _SHORT)
    choices = range(max(1, tallest * 5 // 7), tallest + 1)

    def computed(height: int) -> tuple[int, int]:
        return keys // height * height + -(-(keys % height) // _SHORT) * _SHORT, -height

    return min(choices, key=computed)


class _Block:
    """The statements for one block of queries."""

    def __init__(self, kernel: _Kernel, vectors: int) -> None:
        self.kernel, self.vectors = kernel, vectors
        self.width = vectors * kernel.lanes
        rows = kernel.block + max(_SHORT, kernel.lanes)
        self.queries = self._buffer("queries", kernel.depth)
        self.scores = self._buffer("scores", rows)
        self.sums = self._buffer("sums", kernel.columns)
        self.top, self.top_before, self.total = (self._buffer(n, 1) for n in ("top", "top_before", "total"))
        self.turned: list[tuple[BufferLoad, Buffer]] = []
        for load in self._turning():
            self.turned.append((load, self._buffer(load.buffer.name + "_turned", rows)))

    def _buffer(self, name: str, rows: int) -> Buffer:
        return decl_buffer((self.kernel.number(rows), self.kernel.number(self.width)), "float32", name, scope="local")

    def _turning(self) -> list[BufferLoad]:
        """List what is added to scores from rows of keys, whose columns have to become lanes."""
        p = self.kernel.parts
        found: list[BufferLoad] = []
        for load in loads_of(p.masked):
            i, j = p.query[0], p.key[0]
            known = any(structural_equal(load, x) for x in found)
            if load.buffer is not p.score.buffer and not known and load.dtype == "float32":
                if stride_along(load, j) == 1 and i in used_vars(load.indices) and not loads_of(load.indices):
                    found.append(load)
        return found

    # --- pieces ---

    def lanes_loop(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Run something for all lanes of all vectors; its argument is the lane within the block."""
        k = self.kernel
        return k.loop(
            "v", self.vectors, lambda v: k.vector(lambda lane: body(v * k.number(k.lanes) + lane)), ForKind.UNROLLED
        )

    def body(self) -> Stmt:
        """Turn the queries, go through the keys, write the result."""
        k = self.kernel
        zero, lowest = const(0.0, "float32"), const(_LOWEST, "float32")
        start: list[Stmt] = [
            self.lanes_loop(lambda x: BufferStore(self.total, zero, (k.number(0), x))),
            self.lanes_loop(lambda x: BufferStore(self.top, lowest, (k.number(0), x))),
        ]
        if k.whole:
            keys: Stmt = self.keys(k.number(0), k.n_keys)
        else:
            start.append(
                k.loop("d", k.columns, lambda d: self.lanes_loop(lambda x: BufferStore(self.sums, zero, (d, x))))
            )
            size = k.number(k.block)
            n_blocks = (k.n_keys + k.number(k.block - 1)) // size

            def block(b: Var) -> Stmt:
                left = k.n_keys - b * size
                return self.keys(b * size, Min(left, size))

            keys = k.loop("block", n_blocks, block)
        result = seq(self.turn_queries(), *start, keys, self.write())
        for buffer in (self.queries, self.scores, self.sums, self.top, self.top_before, self.total,
                       *[b for _, b in self.turned]):  # fmt: skip
            result = AllocBuffer(buffer, result)
        return result

    def turn(self, rows: int | PrimExpr, cell: Callable[[PrimExpr, PrimExpr], Stmt], guard: Any = None) -> Stmt:
        """Fill `rows` rows of lanes from where lanes are rows: in square tiles that turn in registers.

        `cell(row, lane)` is one assignment. With `guard`, a condition on the row, the last tile may go beyond.
        """
        k, n = self.kernel, self.kernel.lanes
        static = rows if isinstance(rows, int) else None
        tiles = static // n if static is not None else (rows + k.number(n - 1)) // k.number(n)

        def tile(t: Var) -> Stmt:
            def row(r: Var) -> Stmt:
                place = t * k.number(n) + r
                inner = self.by_vector(v, lambda lane: cell(place, lane))
                return inner if guard is None else IfThenElse(guard(place), inner)

            v = Var("v", k.index)
            marked = k.loop("r", n, row, **{TILE_MARK: 1})
            return For(v, k.number(0), k.number(self.vectors), ForKind.SERIAL, marked)

        whole = k.loop("t", tiles, tile)
        if static is None or static % n == 0:
            return whole
        left = k.loop("r", static % n, lambda r: self.lanes_loop(lambda x: cell(r + k.number(static // n * n), x)))
        return seq(whole, left) if static >= n else left

    def by_vector(self, v: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Run something for the lanes of vector `v`."""
        k = self.kernel
        return k.vector(lambda lane: body(v * k.number(k.lanes) + lane))

    def query(self, lane: PrimExpr) -> PrimExpr:
        """The query of a lane; lanes behind the last one repeat it."""
        k = self.kernel
        return Min(k.first + lane, k.n_queries - k.number(1))

    def turn_queries(self) -> Stmt:
        """Copy the queries so that they are lanes."""
        k = self.kernel

        def cell(d: PrimExpr, lane: PrimExpr) -> Stmt:
            return BufferStore(self.queries, k.at(k.parts.q, query=self.query(lane), depth=d), (d, lane))

        return self.turn(k.depth, cell)

    def keys(self, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Go through one block of keys."""
        pieces: list[Stmt] = []
        k = self.kernel
        for load, buffer in self.turned:

            def cell(j: PrimExpr, lane: PrimExpr, load: BufferLoad = load, buffer: Buffer = buffer) -> Stmt:
                return BufferStore(buffer, k.at(load, query=self.query(lane), key=begin + j), (j, lane))

            pieces.append(self.turn(count, cell, lambda j: begin + j < k.n_keys))
        pieces += [self.score_tiles(begin, count), self.mask(begin, count), self.exponentials(count)]
        return seq(*pieces, self.sum_tiles(begin, count))

    def score_tiles(self, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Multiply keys with queries, a register tile of keys at a time."""
        k = self.kernel
        height = k.tile
        whole = count // k.number(height)
        done = whole * k.number(height)
        left = (count - done + k.number(_SHORT - 1)) // k.number(_SHORT)
        last = k.n_keys - k.number(1)
        main = k.loop("t", whole, lambda t: self.score_tile(height, t * k.number(height), lambda j: begin + j))
        rest = k.loop(
            "t", left,
            lambda t: self.score_tile(_SHORT, done + t * k.number(_SHORT), lambda j: Min(begin + j, last)),
        )  # fmt: skip
        return seq(main, rest)

    def score_tile(self, height: int, start: PrimExpr, key: Callable[[PrimExpr], PrimExpr]) -> Stmt:
        """Compute the scores of `height` keys."""
        k = self.kernel
        return self.product(
            height, k.depth, lambda d, r: k.at(k.parts.k, key=key(start + r), depth=d), self.queries,
            lambda r, x, value: BufferStore(self.scores, value, (start + r, x)), const(0.0, "float32"),
        )  # fmt: skip

    def product(
        self, height: int, steps: Any, a: Callable[[Any, Any], PrimExpr], b: Buffer, put: Callable[..., Stmt],
        initial: Any,
    ) -> Stmt:  # fmt: skip
        """Add up ``a(step, row) * b[step]`` in registers for `height` rows, and hand the sums on."""
        k = self.kernel
        tile = self._buffer("tile", height)

        def rows(body: Callable[[Var, PrimExpr], Stmt]) -> Stmt:
            return k.loop("r", height, lambda r: self.lanes_loop(lambda x: body(r, x)), ForKind.UNROLLED)

        def step(s: Any) -> Stmt:
            return rows(lambda r, x: BufferStore(tile, tile[r, x] + a(s, r) * b[s, x], (r, x)))

        together = next((n for n in (4, 2) if isinstance(steps, int) and steps % n == 0), 1)
        n_steps = steps // together if isinstance(steps, int) else steps
        loop = k.loop("s", n_steps, lambda s: k.loop(
            "u", together, lambda u: step(s * k.number(together) + u), ForKind.UNROLLED))  # fmt: skip
        begin = rows(lambda r, x: BufferStore(tile, initial(r, x) if callable(initial) else initial, (r, x)))
        return AllocBuffer(tile, seq(begin, loop, rows(lambda r, x: put(r, x, tile[r, x]))))

    def mask(self, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Scale and mask the scores, and find the largest of each query."""
        k = self.kernel
        zero = k.number(0)
        top = lambda x: self.top[zero, x]  # noqa: E731

        def cell(j: PrimExpr, x: PrimExpr) -> Stmt:
            value = self.masked(begin, j, x)
            store = BufferStore(self.scores, value, (j, x))
            return seq(store, BufferStore(self.top, Max(top(x), self.scores[j, x]), (zero, x)))

        keep = self.lanes_loop(lambda x: BufferStore(self.top_before, top(x), (zero, x)))
        return seq(keep, k.loop("j", count, lambda j: self.lanes_loop(lambda x: cell(j, x))))

    def masked(self, begin: PrimExpr, j: PrimExpr, x: PrimExpr) -> PrimExpr:
        """What the softmax is taken of, for key `j` of a block and a lane."""
        k = self.kernel

        def put_in(node: Any) -> Any:
            if isinstance(node, BufferLoad):
                if node.buffer is k.parts.score.buffer:
                    return self.scores[j, x]
                for load, buffer in self.turned:
                    if structural_equal(node, load):
                        return buffer[j, x]
            if isinstance(node, CallIntrin) and node.op.name == "tir.if_then_else":
                return Select(*node.args)
            return node

        return k.at(rewrite(k.parts.masked, put_in), query=self.query(x), key=begin + j)

    def exponentials(self, count: PrimExpr) -> Stmt:
        """Take exponentials, add them up, and shrink what was added up before by the growth of the maximum."""
        k = self.kernel
        zero = k.number(0)

        def shrink(x: PrimExpr) -> Stmt:
            by = exp(self.top_before[zero, x] - self.top[zero, x])
            return seq(
                BufferStore(self.top_before, by, (zero, x)),
                BufferStore(self.total, self.total[zero, x] * self.top_before[zero, x], (zero, x)),
            )

        def cell(j: PrimExpr, x: PrimExpr) -> Stmt:
            weight = exp(self.scores[j, x] - self.top[zero, x])
            return seq(
                BufferStore(self.scores, weight, (j, x)),
                BufferStore(self.total, self.total[zero, x] + self.scores[j, x], (zero, x)),
            )

        added = k.loop("j", count, lambda j: self.lanes_loop(lambda x: cell(j, x)))
        return added if k.whole else seq(self.lanes_loop(shrink), added)

    def sum_tiles(self, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Add up values by weight, a register tile of columns at a time."""
        k = self.kernel
        tallest = min(k._tallest(self.vectors), 14)
        n = -(-k.columns // tallest)
        short, more = divmod(k.columns, n)
        zero = k.number(0)

        def tile(height: int, start: PrimExpr) -> Stmt:
            before: Any = const(0.0, "float32")
            if not k.whole:
                before = lambda r, x: self.sums[start + r, x] * self.top_before[zero, x]  # noqa: E731
            return self.product(
                height, count, lambda j, r: k.at(k.parts.v, key=begin + j, col=start + r), self.scores,
                lambda r, x, value: BufferStore(self.sums, value, (start + r, x)), before,
            )  # fmt: skip

        longer = [k.loop("t", more, lambda t: tile(short + 1, t * k.number(short + 1)))] if more else []
        rest = [k.loop("t", n - more, lambda t: tile(short, t * k.number(short) + k.number(more * (short + 1))))]
        return seq(*longer, *rest)

    def write(self) -> Stmt:
        """Divide by the sums of weights and turn the result back."""
        k = self.kernel
        zero, n = k.number(0), k.lanes
        out = k.parts.store

        def inverse(x: PrimExpr) -> Stmt:
            value = const(1.0, "float32") / self.total[zero, x]  # without keys the result is zero
            safe = Select(k.n_keys > zero, value, const(0.0, "float32"))
            return BufferStore(self.total, safe, (zero, x))

        def place(x: PrimExpr, d: PrimExpr) -> Stmt:
            value = self.sums[d, x] * self.total[zero, x]
            indices = tuple(k.at(i, query=k.first + x, col=d) for i in out.indices)
            return BufferStore(out.buffer, value, indices)

        def tile(v: Var, begin: PrimExpr, size: int, mark: bool) -> Stmt:
            def row(r: Var) -> Stmt:
                x = v * k.number(n) + r
                inner = k.loop("d", size, lambda d: place(x, begin + d), ForKind.VECTORIZED)
                known = as_int(k.n_queries)
                whole = known is not None and known % self.width == 0
                return inner if whole else IfThenElse(k.first + x < k.n_queries, inner)

            return k.loop("r", n, row, **({TILE_MARK: 1} if mark else {}))

        tiles = k.columns // n
        pieces = [self.lanes_loop(inverse)]
        if tiles:
            pieces.append(
                k.loop("v", self.vectors, lambda v: k.loop("t", tiles, lambda t: tile(v, t * k.number(n), n, True)))
            )
        if k.columns % n:
            pieces.append(k.loop("v", self.vectors, lambda v: tile(v, k.number(tiles * n), k.columns % n, False)))
        return seq(*pieces)
