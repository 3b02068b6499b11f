"""Matrix products on a processor's matrix tiles, true bfloat16 and float32.

Both operands are copied into tiles once, side by side as they are multiplied; a task then takes some rows and 32
columns, sums 32 x 32 elements at a time in four tiles, and writes them back through the epilogue.

float32 is split into three parts of bfloat16, ``x = x0 + x1 + x2`` without rest, and six products of parts are summed
in float32: the three that are left out are below 2**-23 of what one product is. The five small ones come first, for a
stretch of the sum, so that the large sum is rounded once a step; stretches are added up in float32. The error against
exact arithmetic is below that of a chain of fused multiply-adds (docs/decisions/015-matrix-tiles.md has figures).

Parts are denormal below 2**-102 and overflow near the largest number, and infinity has no parts: rows or columns that
hold such a number, which packing notes, are multiplied as written, by multiply-adds in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from weft import ir
from weft.arith import Analyzer
from weft.error import ScheduleError
from weft.ir import int64
from weft.machine import Machine
from weft.tir.analysis.pattern import Contraction, contraction_of
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.intrin import bitwise_or, fabs, reinterpret, shift_left
from weft.tir.schedule.cache import top_child
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.epilogue import attach_epilogue
from weft.tir.stmt import AllocBuffer, Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.tiles import TILE_BYTES, TILE_ROWS, tile_intrinsic

SPLIT_SMALLEST, SPLIT_LARGEST = 2.0**-102, 2.0**50
"""Magnitudes, other than zero, that split into three normal parts whose products do not overflow."""

_SIDE = 2 * TILE_ROWS
"""Rows and columns that are summed at a time: two by two tiles."""

_STEP = TILE_BYTES // 2
"""Summands of one tile product of bfloat16."""

_STRETCH = 16
"""Tile products that are added up before their sum goes to float32 in memory."""

_LANES = 16

_SPLIT_ORDER = ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0))
"""Which parts of both operands are multiplied, small products first; each loads one operand anew."""

_PACK_CYCLES, _PACK_NEAR_CYCLES, _GAIN = 1.5, 0.5, 0.85
"""Cycles for splitting and packing a number into three parts, which goes to the second cache and further, or is read
by the task that packed it; and the share of the time below which tiles pay."""


class _Problem(NamedTuple):
    """A contraction as a plain product of ``rows`` by ``depth`` by ``columns``."""

    c: Contraction
    row_vars: list[ir.Var]
    rows: ir.PrimExpr
    columns: int
    depth: int
    parts: int

    @property
    def row_tiles(self) -> ir.PrimExpr:
        return Analyzer().simplify(ir.floordiv(self.rows + int64(_SIDE - 1), int64(_SIDE)))

    @property
    def column_tiles(self) -> int:
        return -(-self.columns // _SIDE)

    @property
    def steps(self) -> int:
        return -(-self.depth // _STEP)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        return _SPLIT_ORDER if self.parts == 3 else ((0, 0),)

    def left(self, row: ir.PrimExpr, k: ir.PrimExpr) -> BufferLoad:
        """An element of the first operand."""
        return ir.substitute(self.c.a, self.places(row, k))

    def right(self, k: ir.PrimExpr, column: ir.PrimExpr) -> BufferLoad:
        """An element of the second operand."""
        vector = self.c.vector
        return ir.substitute(self.c.b, {vector: ir.cast(vector.dtype, column), **self.places(int64(0), k)})

    def places(self, row: ir.PrimExpr, k: ir.PrimExpr) -> dict[ir.Var, ir.PrimExpr]:
        """The values of the variables for a row and a summand."""
        extents = {iv.var: iv.dom.extent for iv in self.c.block.iter_vars if iv.dom is not None}
        return _unravel(self.row_vars, extents, row) | _unravel(self.c.reduce, extents, k)


def schedule_matrix_tiles(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a contraction with its epilogue on matrix tiles. Returns the names of the blocks that are done.

    Raises
    ------
    ScheduleError
        Where the target has no tiles for its types, or they would not pay.
    """
    rv = BlockRV(name)
    problem = _problem(ctx, rv)
    if not ctx.choose("matrix_tiles", (True, False), _pays(ctx.machine, problem, _are_words(problem))):
        raise ScheduleError("matrix tiles: too small to gain")
    sink, loop_of = attach_epilogue(ctx, rv)
    found = contraction_of(ctx.block(rv))
    assert found is not None
    problem = problem._replace(c=found)
    return _Tiles(ctx, rv, problem).build(sink, loop_of)


def _problem(ctx: RuleContext, rv: BlockRV) -> _Problem:
    c = contraction_of(ctx.block(rv))
    if c is None or c.vector not in c.columns or not c.reduce or c.group is not None:
        raise ScheduleError("matrix tiles: not a product of two matrices")
    types = (str(c.a.dtype), str(c.b.dtype), str(c.output.buffer.dtype))
    if types not in ctx.machine.tile_forms:
        raise ScheduleError(f"matrix tiles: the target has none for {' x '.join(types[:2])}")
    extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
    if any(not ir.is_const_int(extents[v], 1) for v in (*c.batch, *c.columns) if v is not c.vector):
        raise ScheduleError("matrix tiles: more than one product")
    order = [i for i in c.output.indices if isinstance(i, ir.Var) and i in c.rows]
    if set(order) != set(c.rows):
        raise ScheduleError("matrix tiles: rows are not plain")
    columns, depth = ir.as_int(extents[c.vector]), [ir.as_int(extents[v]) for v in c.reduce]
    if columns is None or None in depth:
        raise ScheduleError("matrix tiles: the columns or the sum have no constant size")
    inner = [v for v in c.reduce if v in used_vars(c.a.indices[-1])]
    summed = [*[v for v in c.reduce if v not in inner], *inner]
    if len(summed) > 1 and (ir.as_int(extents[summed[-1]]) or 1) % _STEP:
        raise ScheduleError("matrix tiles: channels are no multiple of 32")
    c.reduce = summed
    rows: ir.PrimExpr = int64(1)
    for v in order:
        rows = rows * ir.cast("int64", extents[v])
    return _Problem(
        c, order, Analyzer().simplify(rows), columns, prod(n or 0 for n in depth), 3 if types[0] == "float32" else 1
    )


def _pays(machine: Machine, p: _Problem, words: bool) -> bool:
    """Estimate the cycles of both ways; unknown rows may be too few to pack the columns for."""
    rows = ir.as_int(p.rows)
    if rows is None or rows < TILE_ROWS or p.depth < _STEP or p.columns < TILE_ROWS:
        return False
    blocks = -(-rows // _SIDE) * p.column_tiles * p.steps
    products, loads = 4 * len(p.order), 4 if p.parts == 1 else 16
    near = rows * p.depth * 2 * p.parts <= machine.packed_rows_bytes  # a task takes all rows, and packs its columns
    packed = _PACK_CYCLES * rows + (0 if words else (_PACK_NEAR_CYCLES if near else _PACK_CYCLES) * p.columns)
    cycles = blocks * (products * machine.tile_product_cycles + loads * machine.tile_load_cycles)
    cycles += packed * p.depth * p.parts / 3
    return cycles < _GAIN * rows * p.columns * p.depth / (
        machine.product_elements_per_cycle * (1 if p.parts == 3 else 2)
    )


def _are_words(p: _Problem) -> bool:
    """Whether the second operand already lies as tiles read it: pairs of summands side by side, 32 columns a row."""
    if p.parts > 1 or p.depth % _STEP:
        return False
    panel, pair, lane, odd = (ir.Var(n, "int64") for n in ("panel", "pair", "lane", "odd"))
    analyzer = Analyzer()
    for v, n in ((panel, p.column_tiles), (pair, p.depth // 2), (lane, _SIDE), (odd, 2)):
        analyzer.bind(v, ir.Range.from_min_extent(int64(0), int64(n)))
    load = p.right(pair * int64(2) + odd, panel * int64(_SIDE) + lane)
    place: ir.PrimExpr = int64(0)
    for i, d in zip(load.indices, load.buffer.shape, strict=True):
        place = place * ir.cast("int64", d) + ir.cast("int64", i)
    wanted = ((panel * int64(p.depth // 2) + pair) * int64(_SIDE) + lane) * int64(2) + odd
    return not load.buffer.strides and analyzer.can_prove_equal(place, wanted)


def _unravel(
    variables: Sequence[ir.Var], extents: dict[ir.Var, ir.PrimExpr], flat: ir.PrimExpr
) -> dict[ir.Var, ir.PrimExpr]:
    """Give values to variables, the last of which runs fastest."""
    found: dict[ir.Var, ir.PrimExpr] = {}
    for n, v in reversed(list(enumerate(variables))):
        size = ir.cast("int64", extents[v])
        found[v] = ir.cast(v.dtype, flat if n == 0 else ir.floormod(flat, size))
        flat = ir.floordiv(flat, size)
    return found


def _loop(name: str, extent: ir.PrimExpr | int, body: Callable[[ir.Var], Stmt], kind: ForKind = ForKind.SERIAL) -> Stmt:
    var = ir.Var(name, "int64")
    return For(var, int64(0), int64(extent) if isinstance(extent, int) else extent, kind, body(var))


def _lanes(body: Callable[[ir.PrimExpr], Stmt], wide: int = _SIDE) -> Stmt:
    """Run `body` for numbers from 0 on, as vectors that are written out."""
    return _loop(
        "v",
        wide // _LANES,
        lambda v: _loop("lane", _LANES, lambda lane: body(v * int64(_LANES) + lane), ForKind.VECTORIZED),
        ForKind.UNROLLED,
    )


def _when(condition: ir.PrimExpr | None, body: Stmt, otherwise: Stmt | None = None) -> Stmt:
    return body if condition is None else IfThenElse(condition, body, otherwise)


def _address(buffer: Buffer, *indices: ir.PrimExpr | int) -> ir.PrimExpr:
    places = tuple(int64(i) if isinstance(i, int) else i for i in indices)
    return ir.CallIntrin("handle", ir.Op.get("tir.address_of"), (BufferLoad(buffer, places),))


def _whole(buffer: Buffer) -> BufferRegion:
    return BufferRegion(buffer, tuple(ir.Range.from_min_extent(ir.const(0, d.dtype), d) for d in buffer.shape))


def _is_odd(x: ir.PrimExpr) -> ir.PrimExpr:
    """Whether a float32 number has no three normal parts with products in range."""
    size, zero = fabs(x), ir.FloatImm("float32", 0.0)
    inside = ir.all_of(size < ir.FloatImm("float32", SPLIT_LARGEST), size >= ir.FloatImm("float32", SPLIT_SMALLEST))
    return ir.Select(ir.any_of(inside, size == zero), ir.const(0, "int32"), ir.const(1, "int32"))


def _parts(x: ir.PrimExpr, count: int, use: Callable[[list[ir.PrimExpr]], Stmt]) -> Stmt:
    """Bind the parts of a number to variables, the largest first."""
    if count == 1:
        return use([x])
    names = [ir.Var(f"x{n}", "bfloat16") for n in range(count)]
    whole = [ir.Var(f"r{n}", "float32") for n in range(count)]
    body = use(list(names))
    for n in reversed(range(count)):
        rest = x if n == 0 else whole[n - 1] - ir.cast("float32", names[n - 1])
        body = LetStmt(whole[n], rest, LetStmt(names[n], ir.Cast("bfloat16", whole[n]), body))
    return body


class _Tiles:
    """One product on its way to tiles."""

    def __init__(self, ctx: RuleContext, rv: BlockRV, problem: _Problem) -> None:
        self.ctx, self.sch, self.rv, self.p = ctx, ctx.sch, rv, problem
        p, name = problem, rv.name
        parts = int64(p.parts)
        self.guarded = p.parts > 1
        self.words = _are_words(p)
        self.together = self._row_tiles_together()
        self.own_columns = not self.words and self.together == ir.as_int(p.row_tiles)  # each task packs what it reads
        panels = 1 if self.own_columns else p.column_tiles
        steps, two, rows, lanes = int64(p.steps), int64(2), int64(TILE_ROWS), int64(_LANES)
        self.left = _buffer(f"{name}_rows", (p.row_tiles, steps, parts, two, rows, int64(_STEP)), "bfloat16")
        self.right = _buffer(f"{name}_columns", (int64(panels), steps, parts, two, rows, lanes), "uint32")
        self.odd_rows = _buffer(f"{name}_odd_rows", (p.row_tiles,), "int32")
        self.odd_columns = _buffer(f"{name}_odd_columns", (int64(panels),), "int32")

    def build(self, sink: BlockRV, loop_of: dict[ir.Var, LoopRV]) -> set[str]:
        """Replace the contraction and its epilogue by packing and tile products."""
        state, p = self.sch.state, self.p
        realize = state.realize(sink.name)
        sums = self.ctx.block(self.rv).writes[0].buffer
        epilogue = realize.block
        others = [r for r in epilogue.reads if r.buffer is not sums]
        body = self._products(epilogue, realize, loop_of, sums)
        operands = [_whole(p.c.a.buffer), _whole(p.c.b.buffer)]
        left = [self.left, *([self.odd_rows] if self.guarded else [])]
        right = [] if self.words or self.own_columns else [self.right, *([self.odd_columns] if self.guarded else [])]
        packed = [_whole(b) for b in (*left, *right)]
        writes = tuple(_whole(w.buffer) for w in epilogue.writes)
        reads = (*operands, *packed, *[_whole(r.buffer) for r in others])
        names = [state.fresh_name(f"{self.rv.name}_{what}") for what in ("rows", "columns", "tiles")]
        blocks = [Block((), (operands[0],), tuple(packed[: len(left)]), names[0], self._pack_rows())]
        if right:
            blocks.append(Block((), (operands[1],), tuple(packed[len(left) :]), names[1], self._pack_columns()))
        blocks.append(Block((), reads, writes, names[2], body))
        anchor_top = top_child(state.root, state.path_to_block(self.rv.name))
        state.remove(anchor_top)
        sink_top = top_child(state.root, state.path_to_block(sink.name))
        state.replace(sink_top, seq(*[BlockRealize((), ir.TRUE, b) for b in blocks]))
        state.dealloc(sums)
        state.alloc(state.root, *left, *right)
        return {self.rv.name, sink.name, *names}

    # --- packing ---

    def _pack_rows(self) -> Stmt:
        """Copy the first operand: 32 rows of 32 summands one after another, each part by itself."""
        p, zero = self.p, ir.FloatImm("bfloat16", 0.0)
        odd = _buffer("odd", (int64(_SIDE),), "int32", "local")

        def element(tile: ir.Var, step: ir.Var, r: ir.Var, lane: ir.PrimExpr) -> Stmt:
            row, k = tile * int64(_SIDE) + r, step * int64(_STEP) + lane

            def store(values: list[ir.PrimExpr]) -> Stmt:
                half, at = ir.floordiv(r, int64(TILE_ROWS)), ir.floormod(r, int64(TILE_ROWS))
                return seq(
                    *[BufferStore(self.left, v, (tile, step, int64(n), half, at, lane)) for n, v in enumerate(values)]
                )

            x = p.left(row, k)
            filled = _parts(x, p.parts, store)
            if self.guarded:
                filled = seq(filled, BufferStore(odd, ir.max_(BufferLoad(odd, (lane,)), _is_odd(x)), (lane,)))
            inside = k < int64(p.depth) if p.depth % _STEP else None
            return _when(inside, filled, store([zero] * p.parts)) if inside is not None else filled

        def one_row(tile: ir.Var, step: ir.Var, r: ir.Var) -> Stmt:
            full = _lanes(lambda lane: element(tile, step, r, lane))
            empty = _lanes(lambda lane: self._zero_row(tile, step, r, lane))
            return _when(self._row_exists(tile, r), full, empty)

        def one_tile(tile: ir.Var) -> Stmt:
            rows = _loop("step", p.steps, lambda s: _loop("r", _SIDE, lambda r: one_row(tile, s, r)))
            return self._noting(rows, odd, self.odd_rows, tile)

        kind = ForKind.PARALLEL if self.ctx.machine.cores > 1 and ir.as_int(p.row_tiles) != 1 else ForKind.SERIAL
        return _loop("tile", p.row_tiles, one_tile, kind)

    def _zero_row(self, tile: ir.Var, step: ir.Var, r: ir.Var, lane: ir.PrimExpr) -> Stmt:
        at = (ir.floordiv(r, int64(TILE_ROWS)), ir.floormod(r, int64(TILE_ROWS)), lane)
        zero = ir.FloatImm("bfloat16", 0.0)
        return seq(*[BufferStore(self.left, zero, (tile, step, int64(n), *at)) for n in range(self.p.parts)])

    def _row_exists(self, tile: ir.PrimExpr, r: ir.PrimExpr) -> ir.PrimExpr | None:
        m = ir.as_int(self.p.rows)
        return None if m is not None and m % _SIDE == 0 else tile * int64(_SIDE) + r < self.p.rows

    def _pack_columns(self, only: ir.PrimExpr | None = None) -> Stmt:
        """Copy the second operand: pairs of summands as words, 16 columns of 16 pairs one after another.

        Either all of it or, where a task packs its own, only some 32 columns.
        """
        p = self.p
        odd = _buffer("odd", (int64(_SIDE),), "int32", "local")
        zero = ir.FloatImm(str(p.c.b.dtype), 0.0)

        def element(tile: ir.Var, step: ir.Var, pair: ir.Var, lane: ir.PrimExpr) -> Stmt:
            column, k = (tile if only is None else only) * int64(_SIDE) + lane, step * int64(_STEP) + pair * int64(2)
            at = (ir.floordiv(lane, int64(_LANES)), pair, ir.floormod(lane, int64(_LANES)))
            x: list[ir.PrimExpr] = [p.right(k, column), p.right(k + int64(1), column)]
            if p.depth % 2:
                x[1] = ir.CallIntrin(
                    x[1].dtype, ir.Op.get("tir.if_then_else"), (k + int64(1) < int64(p.depth), x[1], zero)
                )

            def store(low: list[ir.PrimExpr], high: list[ir.PrimExpr]) -> Stmt:
                words = [
                    bitwise_or(_bits(a), shift_left(_bits(b), ir.const(16, "uint32")))
                    for a, b in zip(low, high, strict=True)
                ]
                return seq(*[BufferStore(self.right, w, (tile, step, int64(n), *at)) for n, w in enumerate(words)])

            filled = _parts(x[0], p.parts, lambda low: _parts(x[1], p.parts, lambda high: store(low, high)))
            if self.guarded:
                noted = ir.max_(BufferLoad(odd, (lane,)), ir.max_(_is_odd(x[0]), _is_odd(x[1])))
                filled = seq(filled, BufferStore(odd, noted, (lane,)))
            empty = seq(
                *[BufferStore(self.right, ir.const(0, "uint32"), (tile, step, int64(n), *at)) for n in range(p.parts)]
            )
            inside = column < int64(p.columns) if p.columns % _SIDE else None
            return filled if inside is None else IfThenElse(inside, filled, empty)

        def one_pair(tile: ir.Var, step: ir.Var, pair: ir.Var) -> Stmt:
            full = _lanes(lambda lane: element(tile, step, pair, lane))
            if p.depth % _STEP == 0:
                return full
            at = step * int64(_STEP) + pair * int64(2)

            def clear(lane: ir.PrimExpr) -> Stmt:
                place = (ir.floordiv(lane, int64(_LANES)), pair, ir.floormod(lane, int64(_LANES)))
                word = ir.const(0, "uint32")
                return seq(*[BufferStore(self.right, word, (tile, step, int64(n), *place)) for n in range(p.parts)])

            return _when(at < int64(p.depth), full, _lanes(clear))

        def one_tile(tile: ir.Var) -> Stmt:
            pairs = _loop("step", p.steps, lambda s: _loop("pair", TILE_ROWS, lambda i: one_pair(tile, s, i)))
            return self._noting(pairs, odd, self.odd_columns, tile)

        kind = (
            ForKind.PARALLEL if only is None and self.ctx.machine.cores > 1 and p.column_tiles > 1 else ForKind.SERIAL
        )
        return _loop("tile", p.column_tiles if only is None else 1, one_tile, kind)

    def _noting(self, body: Stmt, odd: Buffer, noted: Buffer, tile: ir.Var) -> Stmt:
        """Put around the packing of a tile what notes numbers that have no parts."""
        if not self.guarded:
            return body
        zero = ir.const(0, "int32")
        clear = _lanes(lambda lane: BufferStore(odd, zero, (lane,)))
        gather = _loop(
            "lane", _SIDE,
            lambda i: BufferStore(noted, ir.max_(BufferLoad(noted, (tile,)), BufferLoad(odd, (i,))), (tile,)),
        )  # fmt: skip
        return AllocBuffer(odd, seq(clear, body, BufferStore(noted, zero, (tile,)), gather))

    # --- products ---

    def _products(self, epilogue: Block, realize: BlockRealize, loop_of: dict[ir.Var, LoopRV], sums: Buffer) -> Stmt:
        """Multiply: tasks of some row tiles by 32 columns, each with the epilogue."""
        p, together, m = self.p, self.together, ir.as_int(self.p.row_tiles)
        groups = p.row_tiles if together == 1 else ir.floordiv(p.row_tiles + int64(together - 1), int64(together))
        columns = int64(p.column_tiles)

        def task(t: ir.Var) -> Stmt:
            group, column = ir.floordiv(t, columns), ir.floormod(t, columns)

            def rows(i: ir.Var) -> Stmt:
                tile = group * int64(together) + i
                local = _buffer("sums", (int64(_SIDE), int64(_SIDE)), "float32", "local", strides=True)
                body = seq(
                    self._tile_sums(tile, column, local),
                    self._write_back(tile, column, local, epilogue, realize, loop_of, sums),
                )
                exists = None if m is not None and m % together == 0 else tile < p.row_tiles
                return _when(exists, AllocBuffer(local, body))

            shapes = [TILE_ROWS, TILE_BYTES] * 8
            body = seq(tile_intrinsic("configure", *shapes), _loop("i", together, rows), tile_intrinsic("release"))
            if not self.own_columns:
                return body
            body = AllocBuffer(self.right, seq(self._pack_columns(column), body))
            return AllocBuffer(self.odd_columns, body) if self.guarded else body

        total = groups * columns
        known = ir.as_int(Analyzer().simplify(total))
        kind = ForKind.PARALLEL if self.ctx.machine.cores > 1 and known != 1 else ForKind.SERIAL
        return _loop("task", Analyzer().simplify(total), task, kind)

    def _row_tiles_together(self) -> int:
        """Choose how many row tiles a task takes: what the cache keeps, and enough tasks for all cores."""
        p = self.p
        most = max(1, self.ctx.machine.packed_rows_bytes // (_SIDE * p.steps * _STEP * 2 * p.parts))
        m = ir.as_int(p.row_tiles)
        if m is None:
            return min(most, 4)
        while most > 1 and m > 1 and -(-m // most) * p.column_tiles < 4 * self.ctx.machine.cores:
            most -= 1
        return max((n for n in range(1, min(m, most) + 1) if m % n == 0 and 2 * n > min(m, most)), default=min(m, most))

    def _tile_sums(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer) -> Stmt:
        """Sum 32 x 32 elements into a buffer."""
        fast = self._stretches(tile, column, local)
        if not self.guarded:
            return fast
        panel = int64(0) if self.own_columns else column
        odd = bitwise_or(BufferLoad(self.odd_rows, (tile,)), BufferLoad(self.odd_columns, (panel,)))
        return IfThenElse(odd == ir.const(0, "int32"), fast, self._as_written(tile, column, local))

    def _stretches(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer) -> Stmt:
        steps = self.p.steps
        whole, rest = divmod(steps, _STRETCH)
        if steps <= _STRETCH:
            return self._stretch(tile, column, int64(0), steps, local)
        part = _buffer("part", (int64(_SIDE), int64(_SIDE)), "float32", "local", strides=True)

        def more(first: ir.PrimExpr, n: int) -> Stmt:
            def add(r: ir.Var) -> Stmt:
                return _lanes(
                    lambda j: BufferStore(local, BufferLoad(local, (r, j)) + BufferLoad(part, (r, j)), (r, j))
                )

            return seq(self._stretch(tile, column, first, n, part), _loop("r", _SIDE, add))

        body = [self._stretch(tile, column, int64(0), _STRETCH, local)]
        if whole > 1:
            body.append(_loop("stretch", whole - 1, lambda i: more((i + int64(1)) * int64(_STRETCH), _STRETCH)))
        if rest:
            body.append(more(int64(whole * _STRETCH), rest))
        return AllocBuffer(part, seq(*body))

    def _stretch(self, tile: ir.PrimExpr, column: ir.PrimExpr, first: ir.PrimExpr, n: int, to: Buffer) -> Stmt:
        """Multiply a stretch of the sum: the small products of all steps, then the large ones."""
        stride = int64(TILE_BYTES)

        def right(s: ir.PrimExpr, part: int, h: int) -> Stmt:
            if not self.words:
                panel = int64(0) if self.own_columns else column
                return tile_intrinsic("load", 6 + h, _address(self.right, panel, s, part, h, 0, 0), stride)
            load = self.p.right(s * int64(_STEP), column * int64(_SIDE) + int64(h * _LANES))
            return tile_intrinsic("load", 6 + h, _address(load.buffer, *load.indices), int64(2 * TILE_BYTES))

        def step(s: ir.PrimExpr, order: Sequence[tuple[int, int]]) -> Stmt:
            body: list[Stmt] = []
            held: tuple[int, int] = (-1, -1)
            for a, b in order:
                for h in (0, 1):
                    if a != held[0]:
                        address = _address(self.left, tile, s, a, h, 0, 0)
                        body.append(tile_intrinsic("load", 4 + h, address, stride))
                for h in (0, 1):
                    if b != held[1]:
                        body.append(right(s, b, h))
                held = (a, b)
                body += [tile_intrinsic("dot", "bf16", 2 * i + j, 4 + i, 6 + j) for i in (0, 1) for j in (0, 1)]
            return seq(*body)

        small, large = self.p.order[:-1], self.p.order[-1:]
        loops = [_loop("k", n, lambda k, o=o: step(first + k, o)) for o in (small, large) if o]
        stored = [
            tile_intrinsic("store", 2 * i + j, _address(to, i * TILE_ROWS, j * _LANES), int64(4 * _SIDE))
            for i in (0, 1) for j in (0, 1)
        ]  # fmt: skip
        return seq(*[tile_intrinsic("zero", t) for t in range(4)], *loops, *stored)

    def _as_written(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer) -> Stmt:
        """Sum the products as the block says, for numbers that have no parts."""
        p = self.p
        zero = ir.FloatImm("float32", 0.0)

        def row(r: ir.Var) -> Stmt:
            def add(k: ir.Var) -> Stmt:
                def element(lane: ir.PrimExpr) -> Stmt:
                    j = column * int64(_SIDE) + lane
                    product = p.left(tile * int64(_SIDE) + r, k) * p.right(k, j)
                    store = BufferStore(local, BufferLoad(local, (r, lane)) + product, (r, lane))
                    return _when(j < int64(p.columns) if p.columns % _SIDE else None, store)

                return _lanes(element)

            clear = _lanes(lambda lane: BufferStore(local, zero, (r, lane)))
            return seq(clear, _when(self._row_exists(tile, r), _loop("k", p.depth, add)))

        return _loop("r", _SIDE, row)

    def _write_back(
        self,
        tile: ir.PrimExpr,
        column: ir.PrimExpr,
        local: Buffer,
        epilogue: Block,
        realize: BlockRealize,
        loop_of: dict[ir.Var, LoopRV],
        sums: Buffer,
    ) -> Stmt:
        """Run the epilogue on a finished tile."""
        p = self.p
        zeros = {x.loop_var: ir.const(0, x.loop_var.dtype) for x in self.sch.state.loops_of(epilogue.name_hint)}

        def element(r: ir.PrimExpr, lane: ir.PrimExpr) -> Stmt:
            row, j = tile * int64(_SIDE) + r, column * int64(_SIDE) + lane
            places = p.places(row, int64(0)) | {p.c.vector: j}
            loops = zeros | {
                loop_of[v].var: ir.cast(loop_of[v].var.dtype, x) for v, x in places.items() if v in loop_of
            }
            values = {
                iv.var: ir.substitute(v, loops) for iv, v in zip(epilogue.iter_vars, realize.iter_values, strict=True)
            }

            def here(node: object) -> object:
                return BufferLoad(local, (r, lane)) if isinstance(node, BufferLoad) and node.buffer is sums else node

            body = ir.substitute(ir.rewrite(epilogue.body, here), values)
            return _when(j < int64(p.columns) if p.columns % _SIDE else None, body)

        def row(r: ir.PrimExpr) -> Stmt:
            return _when(self._row_exists(tile, r), _lanes(lambda lane: element(r, lane)))

        four = 4
        return _loop(
            "r", _SIDE // four, lambda r: _loop("u", four, lambda u: row(r * int64(four) + u), ForKind.UNROLLED)
        )


def _bits(x: ir.PrimExpr) -> ir.PrimExpr:
    return ir.cast("uint32", reinterpret("uint16", x))


def _buffer(
    name: str, shape: tuple[ir.PrimExpr, ...], dtype: str, scope: str = "global", *, strides: bool = False
) -> Buffer:
    """Declare a buffer; one with strides keeps its shape, as what tiles store in it needs."""
    steps = tuple(int64(prod(ir.as_int(d) or 0 for d in shape[i + 1 :])) for i in range(len(shape))) if strides else ()
    return Buffer(ir.Var(name, "handle"), ir.DataType(dtype), shape, steps, None, name, scope)
