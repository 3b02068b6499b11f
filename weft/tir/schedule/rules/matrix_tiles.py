"""Matrix products on a processor's matrix tiles: bytes, true bfloat16 and float32.

Both operands are copied into tiles once, side by side as they are multiplied; a task then takes some rows and 32
columns, sums 32 x 32 elements at a time in four tiles, and writes them back through the epilogue.

float32 is split into three parts of bfloat16, ``x = x0 + x1 + x2`` without rest, and six products of parts are summed
in float32: the three that are left out are below 2**-23 of what one product is. The five small ones come first, for a
stretch of the sum, so that the large sum is rounded once a step; stretches are added up in float32. The error against
exact arithmetic is below that of a chain of fused multiply-adds (docs/decisions/015-matrix-tiles.md has figures).

Parts are denormal below 2**-102 and overflow near the largest number, and infinity has no parts: rows or columns that
hold such a number, which packing notes, are multiplied as written, by multiply-adds in float32.

Bytes are summed in int32, where a product with zero is zero: a last step that is not whole begins earlier, so that it
ends with the sum, and has zeros for what the step before it had. Of bfloat16 only what is padded with zeros to whole
steps is read where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from weft import ir
from weft.arith import Analyzer
from weft.error import ScheduleError
from weft.ir import int64
from weft.tir.analysis.access import whole_region
from weft.tir.analysis.pattern import contraction_of
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.intrin import bitwise_or, fabs, reinterpret, shift_left
from weft.tir.schedule.cache import top_child
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.epilogue import attach_epilogue
from weft.tir.schedule.rules.tile_problem import FEW, LANES, SIDE, TileProblem, are_words, tile_problem, tiles_pay
from weft.tir.stmt import AllocBuffer, Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.tiles import TILE_BYTES, TILE_ROWS, tile_intrinsic

SPLIT_SMALLEST, SPLIT_LARGEST = 2.0**-102, 2.0**50
"""Magnitudes, other than zero, that split into three normal parts whose products do not overflow."""

_STRETCH = 16
"""Tile products of floats that are added up before their sum goes to float32 in memory."""


def schedule_matrix_tiles(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a contraction with its epilogue on matrix tiles. Returns the names of the blocks that are done.

    Raises
    ------
    ScheduleError
        Where the target has no tiles for its types, or they would not pay.
    """
    rv = BlockRV(name)
    problem = tile_problem(ctx, rv)
    if not ctx.choose("matrix_tiles", (True, False), tiles_pay(ctx.machine, problem, are_words(problem))):
        raise ScheduleError("matrix tiles: too small to gain")
    sink, loop_of = attach_epilogue(ctx, rv)
    found = contraction_of(ctx.block(rv))
    assert found is not None
    problem = problem._replace(c=found)
    return _Tiles(ctx, rv, problem).build(sink, loop_of)


def _loop(name: str, extent: ir.PrimExpr | int, body: Callable[[ir.Var], Stmt], kind: ForKind = ForKind.SERIAL) -> Stmt:
    var = ir.Var(name, "int64")
    return For(var, int64(0), int64(extent) if isinstance(extent, int) else extent, kind, body(var))


def _lanes(body: Callable[[ir.PrimExpr], Stmt], wide: int = SIDE, lanes: int = LANES) -> Stmt:
    """Run `body` for numbers from 0 on, as vectors that are written out."""
    return _loop(
        "v",
        wide // lanes,
        lambda v: _loop("lane", lanes, lambda lane: body(v * int64(lanes) + lane), ForKind.VECTORIZED),
        ForKind.UNROLLED,
    )


def _when(condition: ir.PrimExpr | None, body: Stmt, otherwise: Stmt | None = None) -> Stmt:
    return body if condition is None else IfThenElse(condition, body, otherwise)


def _address(buffer: Buffer, *indices: ir.PrimExpr | int) -> ir.PrimExpr:
    places = tuple(int64(i) if isinstance(i, int) else i for i in indices)
    return ir.CallIntrin("handle", ir.Op.get("tir.address_of"), (BufferLoad(buffer, places),))


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

    def __init__(self, ctx: RuleContext, rv: BlockRV, problem: TileProblem) -> None:
        self.ctx, self.sch, self.rv, self.p = ctx, ctx.sch, rv, problem
        p, name = problem, rv.name
        parts = int64(p.parts)
        self.guarded = p.parts > 1
        self.words = are_words(p)
        self.overlaps = self.words and p.bytes and p.depth % p.step != 0
        types = (str(p.c.a.dtype), str(p.c.b.dtype), p.sums, LANES)
        self.multiplies_few = self.words and types in ctx.machine.dot_forms
        self.together = self._row_tiles_together()
        self.own_columns = not self.words and self.together == ir.as_int(p.row_tiles)  # each task packs what it reads
        panels = 1 if self.own_columns else p.column_tiles
        steps, two, rows, lanes = int64(p.steps), int64(2), int64(TILE_ROWS), int64(LANES)
        self.left = _buffer(f"{name}_rows", (p.row_tiles, steps, parts, two, rows, int64(p.step)), p.element)
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
        operands = [whole_region(p.c.a.buffer), whole_region(p.c.b.buffer)]
        left = [self.left, *([self.odd_rows] if self.guarded else [])]
        right = [] if self.words or self.own_columns else [self.right, *([self.odd_columns] if self.guarded else [])]
        packed = [whole_region(b) for b in (*left, *right)]
        writes = tuple(whole_region(w.buffer) for w in epilogue.writes)
        reads = (*operands, *packed, *[whole_region(r.buffer) for r in others])
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
        """Copy the first operand: 32 rows of a step's summands one after another, each part by itself."""
        p, zero = self.p, ir.const(0, self.p.element)
        odd = _buffer("odd", (int64(p.step),), "int32", "local")

        def element(tile: ir.Var, step: ir.PrimExpr, first: ir.PrimExpr, r: ir.Var, lane: ir.PrimExpr) -> Stmt:
            row, k = tile * int64(SIDE) + r, first + lane

            def store(values: list[ir.PrimExpr]) -> Stmt:
                half, at = ir.floordiv(r, int64(TILE_ROWS)), ir.floormod(r, int64(TILE_ROWS))
                return seq(
                    *[BufferStore(self.left, v, (tile, step, int64(n), half, at, lane)) for n, v in enumerate(values)]
                )

            x = p.left(row, k)
            filled = _parts(x, p.parts, store)
            if self.guarded:
                filled = seq(filled, BufferStore(odd, ir.max_(BufferLoad(odd, (lane,)), _is_odd(x)), (lane,)))
            inside = k >= step * int64(p.step) if self.overlaps else k < int64(p.depth)
            return _when(inside, filled, store([zero] * p.parts)) if p.depth % p.step else filled

        def one_row(tile: ir.Var, step: ir.PrimExpr, first: ir.PrimExpr, r: ir.Var) -> Stmt:
            full = _lanes(lambda lane: element(tile, step, first, r, lane), p.step, p.lanes)
            empty = _lanes(lambda lane: self._zero_row(tile, step, r, lane), p.step, p.lanes)
            return _when(self._row_exists(tile, r), full, empty)

        def one_tile(tile: ir.Var) -> Stmt:
            def steps(r: ir.Var) -> Stmt:  # inside of rows, whose places are found once
                return self._each_step("step", int64(0), p.steps, lambda s, first: one_row(tile, s, first, r))

            return self._noting(_loop("r", SIDE, steps), odd, self.odd_rows, tile)

        kind = ForKind.PARALLEL if self.ctx.machine.cores > 1 and ir.as_int(p.row_tiles) != 1 else ForKind.SERIAL
        return _loop("tile", p.row_tiles, one_tile, kind)

    def _each_step(
        self, name: str, begin: ir.PrimExpr, n: int, body: Callable[[ir.PrimExpr, ir.PrimExpr], Stmt]
    ) -> Stmt:
        """Run `body` for steps and their first summands."""
        size, whole = int64(self.p.step), n - 1 if self.overlaps else n
        parts = [_loop(name, whole, lambda s: body(begin + s, (begin + s) * size))] if whole else []
        last = [body(int64(whole), int64(self.p.depth - self.p.step))] if self.overlaps else []
        return seq(*parts, *last)

    def _zero_row(self, tile: ir.Var, step: ir.PrimExpr, r: ir.Var, lane: ir.PrimExpr) -> Stmt:
        at = (ir.floordiv(r, int64(TILE_ROWS)), ir.floormod(r, int64(TILE_ROWS)), lane)
        zero = ir.const(0, self.p.element)
        return seq(*[BufferStore(self.left, zero, (tile, step, int64(n), *at)) for n in range(self.p.parts)])

    def _row_exists(self, tile: ir.PrimExpr, r: ir.PrimExpr) -> ir.PrimExpr | None:
        m = ir.as_int(self.p.rows)
        return None if m is not None and m % SIDE == 0 else tile * int64(SIDE) + r < self.p.rows

    def _pack_columns(self, only: ir.PrimExpr | None = None) -> Stmt:
        """Copy the second operand: words of summands, 16 columns of 16 words one after another.

        Either all of it or, where a task packs its own, only some 32 columns.
        """
        p, group = self.p, self.p.group
        odd = _buffer("odd", (int64(SIDE),), "int32", "local")
        zero = ir.const(0, p.c.b.dtype)

        def element(tile: ir.Var, step: ir.Var, word: ir.Var, lane: ir.PrimExpr) -> Stmt:
            column = (tile if only is None else only) * int64(SIDE) + lane
            first = step * int64(p.step) + word * int64(group)
            at = (ir.floordiv(lane, int64(LANES)), word, ir.floormod(lane, int64(LANES)))
            x: list[ir.PrimExpr] = []
            for k in (first + int64(g) for g in range(group)):
                load = p.right(k, column)
                inside = k < int64(p.depth)
                guard = x and p.depth % group  # of a word that is there, the first summand is
                x.append(
                    ir.CallIntrin(load.dtype, ir.Op.get("tir.if_then_else"), (inside, load, zero)) if guard else load
                )

            def store(values: list[list[ir.PrimExpr]]) -> Stmt:
                words = [_word(summands) for summands in zip(*values, strict=True)]
                return seq(*[BufferStore(self.right, w, (tile, step, int64(n), *at)) for n, w in enumerate(words)])

            def split(found: list[list[ir.PrimExpr]]) -> Stmt:
                if len(found) == group:
                    return store(found)
                return _parts(x[len(found)], p.parts, lambda parts: split([*found, parts]))

            filled = split([])
            if self.guarded:
                noted = ir.max_(BufferLoad(odd, (lane,)), ir.max_(_is_odd(x[0]), _is_odd(x[1])))
                filled = seq(filled, BufferStore(odd, noted, (lane,)))
            empty = seq(
                *[BufferStore(self.right, ir.const(0, "uint32"), (tile, step, int64(n), *at)) for n in range(p.parts)]
            )
            inside = column < int64(p.columns) if p.columns % SIDE else None
            return filled if inside is None else IfThenElse(inside, filled, empty)

        def one_word(tile: ir.Var, step: ir.Var, word: ir.Var) -> Stmt:
            full = _lanes(lambda lane: element(tile, step, word, lane))
            if p.depth % p.step == 0:
                return full
            at = step * int64(p.step) + word * int64(group)

            def clear(lane: ir.PrimExpr) -> Stmt:
                place = (ir.floordiv(lane, int64(LANES)), word, ir.floormod(lane, int64(LANES)))
                nothing = ir.const(0, "uint32")
                return seq(*[BufferStore(self.right, nothing, (tile, step, int64(n), *place)) for n in range(p.parts)])

            return _when(at < int64(p.depth), full, _lanes(clear))

        def one_tile(tile: ir.Var) -> Stmt:
            words = _loop("step", p.steps, lambda s: _loop("word", TILE_ROWS, lambda i: one_word(tile, s, i)))
            return self._noting(words, odd, self.odd_columns, tile)

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
            "lane",
            SIDE,
            lambda i: BufferStore(noted, ir.max_(BufferLoad(noted, (tile,)), BufferLoad(odd, (i,))), (tile,)),
        )
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
                local = _buffer("sums", (int64(SIDE), int64(SIDE)), p.sums, "local", strides=True)
                body = seq(
                    self._tile_sums(tile, column, local),
                    self._write_back(tile, column, local, epilogue, realize, loop_of, sums),
                )
                exists = None if m is not None and m % together == 0 else tile < p.row_tiles
                return _when(exists, AllocBuffer(local, body))

            shapes = [TILE_ROWS, TILE_BYTES] * 8
            few = self.multiplies_few and ir.as_int(p.rows) is None
            needed = p.rows > int64(p.few) if few else None
            configure, release = tile_intrinsic("configure", *shapes), tile_intrinsic("release")
            configure, release = (_when(needed, s) for s in (configure, release))
            body = seq(configure, _loop("i", together, rows), release)
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
        most = max(1, self.ctx.machine.packed_rows_bytes // (SIDE * p.steps * TILE_BYTES * p.parts))
        m = ir.as_int(p.row_tiles)
        if m is None:
            return min(most, 4)
        while most > 1 and m > 1 and -(-m // most) * p.column_tiles < 4 * self.ctx.machine.cores:
            most -= 1
        return max((n for n in range(1, min(m, most) + 1) if m % n == 0 and 2 * n > min(m, most)), default=min(m, most))

    def _tile_sums(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer) -> Stmt:
        """Sum 32 x 32 elements into a buffer."""
        fast = self._stretches(tile, column, local)
        if self.multiplies_few:
            return self._unless_few(tile, column, local, fast)
        if not self.guarded:
            return fast
        panel = int64(0) if self.own_columns else column
        odd = bitwise_or(BufferLoad(self.odd_rows, (tile,)), BufferLoad(self.odd_columns, (panel,)))
        return IfThenElse(odd == ir.const(0, "int32"), fast, self._as_written(tile, column, local))

    def _unless_few(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer, otherwise: Stmt) -> Stmt:
        """Sum few rows that a last tile has without tiles."""
        rows, left = ir.as_int(self.p.rows), self.p.rows - tile * int64(SIDE)
        counts = [n for n in (1, FEW) if n <= self.p.few and (rows is None or 0 < rows % SIDE <= n)]
        counts = counts if rows is None else counts[:1]
        for n in reversed(counts):
            otherwise = IfThenElse(left <= int64(n), self._few_sums(tile, column, local, n), otherwise)
        return otherwise

    def _few_sums(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer, n: int) -> Stmt:
        """Sum `n` packed rows by products of four bytes."""
        p, chains, zero = self.p, FEW // n, ir.const(0, self.p.sums)
        sums = _buffer("chains", (int64(FEW), int64(SIDE)), p.sums, "local")

        def add(step: ir.PrimExpr, first: ir.PrimExpr, word: ir.PrimExpr, r: int, chain: int) -> Stmt:
            def one(lane: ir.PrimExpr, g: ir.Var) -> Stmt:
                k, at = word * int64(p.group) + g, (int64(r * chains + chain), lane)
                left = BufferLoad(self.left, (tile, step, int64(0), int64(0), int64(r), k))
                x, w = (ir.Cast(p.sums, v) for v in (left, p.right(first + k, column * int64(SIDE) + lane)))
                return BufferStore(sums, BufferLoad(sums, at) + x * w, at)

            return _lanes(lambda lane: _loop("g", p.group, lambda g: one(lane, g)))

        def words(step: ir.PrimExpr, first: ir.PrimExpr) -> Stmt:
            def some(w: ir.Var) -> Stmt:
                return seq(
                    *[add(step, first, w * int64(chains) + int64(c), r, c) for c in range(chains) for r in range(n)]
                )

            return _loop("w", TILE_ROWS // chains, some)

        def total(r: int, j: ir.PrimExpr) -> Stmt:
            found = [BufferLoad(sums, (int64(r * chains + c), j)) for c in range(chains)]
            return BufferStore(local, reduce(lambda a, b: a + b, found[1:], found[0]), (int64(r), j))

        clear = [_lanes(lambda j, c=c: BufferStore(sums, zero, (int64(c), j))) for c in range(FEW)]
        last = [_lanes(lambda j, r=r: total(r, j)) for r in range(n)]
        return AllocBuffer(sums, seq(*clear, self._each_step("step", int64(0), p.steps, words), *last))

    def _stretches(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer) -> Stmt:
        steps = self.p.steps
        whole, rest = divmod(steps, _STRETCH)
        if steps <= _STRETCH or self.p.bytes:
            return self._stretch(tile, column, int64(0), steps, local)
        part = _buffer("part", (int64(SIDE), int64(SIDE)), "float32", "local", strides=True)

        def more(first: ir.PrimExpr, n: int) -> Stmt:
            def add(r: ir.Var) -> Stmt:
                return _lanes(
                    lambda j: BufferStore(local, BufferLoad(local, (r, j)) + BufferLoad(part, (r, j)), (r, j))
                )

            return seq(self._stretch(tile, column, first, n, part), _loop("r", SIDE, add))

        body = [self._stretch(tile, column, int64(0), _STRETCH, local)]
        if whole > 1:
            body.append(_loop("stretch", whole - 1, lambda i: more((i + int64(1)) * int64(_STRETCH), _STRETCH)))
        if rest:
            body.append(more(int64(whole * _STRETCH), rest))
        return AllocBuffer(part, seq(*body))

    def _stretch(self, tile: ir.PrimExpr, column: ir.PrimExpr, first: ir.PrimExpr, n: int, to: Buffer) -> Stmt:
        """Multiply a stretch of the sum: the small products of all steps, then the large ones."""
        stride = int64(TILE_BYTES)

        def right(s: ir.PrimExpr, summand: ir.PrimExpr, part: int, h: int) -> Stmt:
            if not self.words:
                panel = int64(0) if self.own_columns else column
                return tile_intrinsic("load", 6 + h, _address(self.right, panel, s, part, h, 0, 0), stride)
            load = self.p.right(summand, column * int64(SIDE) + int64(h * LANES))
            return tile_intrinsic("load", 6 + h, _address(load.buffer, *load.indices), int64(2 * TILE_BYTES))

        def step(s: ir.PrimExpr, summand: ir.PrimExpr, order: Sequence[tuple[int, int]]) -> Stmt:
            body: list[Stmt] = []
            held: tuple[int, int] = (-1, -1)
            for a, b in order:
                for h in (0, 1):
                    if a != held[0]:
                        address = _address(self.left, tile, s, a, h, 0, 0)
                        body.append(tile_intrinsic("load", 4 + h, address, stride))
                for h in (0, 1):
                    if b != held[1]:
                        body.append(right(s, summand, b, h))
                held = (a, b)
                body += [tile_intrinsic("dot", self.p.kind, 2 * i + j, 4 + i, 6 + j) for i in (0, 1) for j in (0, 1)]
            return seq(*body)

        small, large = self.p.order[:-1], self.p.order[-1:]
        loops = [self._each_step("k", first, n, lambda s, k, o=o: step(s, k, o)) for o in (small, large) if o]
        stored = [
            tile_intrinsic("store", 2 * i + j, _address(to, i * TILE_ROWS, j * LANES), int64(4 * SIDE))
            for i in (0, 1)
            for j in (0, 1)
        ]
        return seq(*[tile_intrinsic("zero", t) for t in range(4)], *loops, *stored)

    def _as_written(self, tile: ir.PrimExpr, column: ir.PrimExpr, local: Buffer) -> Stmt:
        """Sum the products as the block says, for numbers that have no parts."""
        p = self.p
        zero = ir.FloatImm("float32", 0.0)

        def row(r: ir.Var) -> Stmt:
            def add(k: ir.Var) -> Stmt:
                def element(lane: ir.PrimExpr) -> Stmt:
                    j = column * int64(SIDE) + lane
                    product = p.left(tile * int64(SIDE) + r, k) * p.right(k, j)
                    store = BufferStore(local, BufferLoad(local, (r, lane)) + product, (r, lane))
                    return _when(j < int64(p.columns) if p.columns % SIDE else None, store)

                return _lanes(element)

            clear = _lanes(lambda lane: BufferStore(local, zero, (r, lane)))
            return seq(clear, _when(self._row_exists(tile, r), _loop("k", p.depth, add)))

        return _loop("r", SIDE, row)

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
            row, j = tile * int64(SIDE) + r, column * int64(SIDE) + lane
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
            return _when(j < int64(p.columns) if p.columns % SIDE else None, body)

        def row(r: ir.PrimExpr) -> Stmt:
            return _when(self._row_exists(tile, r), _lanes(lambda lane: element(r, lane)))

        four = 4
        return _loop(
            "r", SIDE // four, lambda r: _loop("u", four, lambda u: row(r * int64(four) + u), ForKind.UNROLLED)
        )


def _word(summands: Sequence[ir.PrimExpr]) -> ir.PrimExpr:
    """The bits of neighbouring summands, the first lowest."""
    bits = ir.DataType(summands[0].dtype).bits
    words = [ir.cast("uint32", reinterpret(f"uint{bits}", x)) for x in summands]
    shifted = [shift_left(w, ir.const(bits * n, "uint32")) for n, w in enumerate(words) if n]
    return reduce(bitwise_or, shifted, words[0])


def _buffer(
    name: str, shape: tuple[ir.PrimExpr, ...], dtype: str, scope: str = "global", *, strides: bool = False
) -> Buffer:
    """Declare a buffer; one with strides keeps its shape, as what tiles store in it needs."""
    steps = tuple(int64(prod(ir.as_int(d) or 0 for d in shape[i + 1 :])) for i in range(len(shape))) if strides else ()
    return Buffer(ir.Var(name, "handle"), ir.DataType(dtype), shape, steps, None, name, scope)
