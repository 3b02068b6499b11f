"""Depthwise products: each output channel sums over its own taps.

Channels are lanes, neighbouring pixels accumulators. Padding of rows of known width is not copied: the tiles at both
ends of a row get code of their own, in which taps outside are left out, and a row of taps outside is skipped.
"""

from __future__ import annotations

from math import prod

from weft import error, ir
from weft.arith import Analyzer
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.dependence import is_plain_store, producers_of
from weft.tir.analysis.pattern import Contraction, contraction_of, stride_along
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.guards import guard_of
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.elementwise import vectorize_spatial
from weft.tir.schedule.rules.epilogue import attach_epilogue, loop_over
from weft.tir.stmt import Block

_ROWS_TOGETHER = 8
"""Output rows a task: their padded input rows are copied once."""


def schedule_depthwise(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a product whose output channel is a variable of both operands. Returns the blocks that are done."""
    rv = BlockRV(name)
    c = contraction_of(ctx.block(rv))
    if c is None or c.vector not in c.batch:
        raise error.ScheduleError("depthwise: not a sum of products of which each channel has its own")
    if stride_along(c.a, c.vector) != 1 or stride_along(c.b, c.vector) not in (0, 1):
        raise error.ScheduleError("depthwise: an operand is not contiguous along the channel")
    return _Depthwise(ctx, rv, c).schedule()


class _Depthwise:
    """One depthwise product on its way through the rule; the methods are its steps."""

    def __init__(self, ctx: RuleContext, rv: BlockRV, c: Contraction) -> None:
        self.ctx, self.sch, self.rv, self.c = ctx, ctx.sch, rv, c
        self.taps = _taps(c)
        self.lanes = ctx.lanes(c.output.buffer.dtype)

    def schedule(self) -> set[str]:
        """Apply the rule."""
        ctx, sch, c = self.ctx, self.sch, self.c
        padding = padding_block(ctx, ctx.block(self.rv))
        sink, loop_of = attach_epilogue(ctx, self.rv)
        column = loop_over(loop_of, c.vector, "depthwise")
        loops = [x for x in sch.get_loops(sink) if x.var is not column.var]
        pixels = ctx.drop_unit_loops(loops)
        row = pixels[-1] if pixels else None
        guarded = padding is not None and self._inline(padding, row)
        if guarded:
            padding = None
        width = ctx.constant(column)
        rest = [x for x in loops if row is None or x.var is not row.var]
        if row is None:
            sch.reorder(*rest, column)
            tiles = [(block, place, None, lane) for block, place, lane in self._vectors(sink, column, None)]
        else:
            tiles = self._tiles(sink, rest, row, column, guarded)
        anchors = [self.rv] if len(tiles) == 1 else sch.split_consumers(self.rv, [t[0] for t in tiles])
        for anchor, (_, place, row_inner, lane) in zip(anchors, tiles, strict=True):
            sch.compute_at(anchor, place)
            sch.set_scope(anchor, 0, "local")
            order_sum(ctx, anchor, place, c)
            if guarded:
                sch.skip_zeros(anchor)
            sch.vectorize(lane)
            if row_inner is not None:
                sch.unroll(row_inner)
        done = {a.name for a in anchors} | {t[0].name for t in tiles}
        task = _task_loop(ctx, sink, rest, padding)
        if task is not None:
            if padding is not None:
                sch.compute_at(padding, task)
                vectorize_spatial(ctx, padding, len(sch.get_loops(padding)) - len(ctx.below(padding, task)))
                done.add(padding.name)
            ctx.parallel(task, self._work(task, pixels, width))
        return done

    def _inline(self, padding: BlockRV, row: LoopRV | None) -> bool:
        """Read the unpadded data, where padding is zeros around a stored tensor and rows have a known width."""
        store = is_plain_store(self.ctx.block(padding))
        found = guard_of(store.value) if store is not None else None
        if row is None or self.ctx.constant(row) is None or found is None or not isinstance(found[1], BufferLoad):
            return False
        if self.taps > 49 or loads_of(found[0]):
            return False
        self.sch.compute_inline(padding)
        return True

    def _tiles(
        self, sink: BlockRV, rest: list[LoopRV], row: LoopRV, column: LoopRV, guarded: bool
    ) -> list[tuple[BlockRV, LoopRV, LoopRV | None, LoopRV]]:
        """Cut rows into tiles of pixels, and those into vectors of channels.

        Returns, for each stretch of a row, its block, the loop around a tile, the loop over its pixels and the lanes.
        """
        sch, ctx = self.sch, self.ctx
        lengths = row_stretches(ctx.extent(row), _pixel_tile(ctx, row), guarded)
        sch.reorder(*rest, row, column)
        pieces = sch.loop_partition(row, [x for x, _ in lengths]) if len(lengths) > 1 else [row]
        result: list[tuple[BlockRV, LoopRV, LoopRV | None, LoopRV]] = []
        for piece, (_, height) in zip(pieces, lengths, strict=True):
            block = sch.get_child_blocks(piece)[0] if len(pieces) > 1 else sink
            channels = sch.get_loops(block)[-1]
            _, inner = sch.split(piece, [None, height])
            sch.reorder(channels, inner)
            result += [
                (vectors, place, sch.get_loops(vectors)[-2], lane)
                for vectors, place, lane in self._vectors(block, channels, inner)
            ]
        return result

    def _vectors(self, sink: BlockRV, column: LoopRV, inner: LoopRV | None) -> list[tuple[BlockRV, LoopRV, LoopRV]]:
        """Cut channels into whole vectors, and a shorter one for what is left.

        Returns blocks with the loop over vectors, which the tile of pixels, loop `inner`, is below, and the lanes.
        """
        sch = self.sch
        n = self.ctx.constant(column)
        pieces = [column]
        if n is not None and n > self.lanes and n % self.lanes:
            pieces = sch.loop_partition(column, [n // self.lanes * self.lanes, None])
        result = []
        for piece in pieces:
            block = sink if len(pieces) == 1 else sch.get_child_blocks(piece)[0]
            size = self.ctx.constant(piece)
            vectors, lane = sch.split(
                piece, [1, size] if size is not None and size < self.lanes else [None, self.lanes]
            )
            if inner is not None:
                sch.reorder(vectors, sch.get_loops(block)[-1], lane)
            result.append((block, vectors, lane))
        return result

    def _work(self, task: LoopRV, pixels: list[LoopRV], width: int | None) -> int | None:
        """Estimate the work of a task, in vectors."""
        counts = [ir.as_int(e) for v, e in self._extents().items() if v in self.c.rows or v in self.c.batch]
        tasks = self.ctx.constant(task)
        if tasks is None or None in counts:
            return None
        return max(1, self.taps * 3 * prod(n or 1 for n in counts) // tasks // 8)

    def _extents(self) -> dict[ir.Var, object]:
        return {iv.var: iv.dom.extent for iv in self.c.block.iter_vars if iv.dom is not None}  # type: ignore[misc]


def row_stretches(extent: ir.PrimExpr, tile: int, guarded: bool) -> list[tuple[ir.PrimExpr | int, int]]:
    """Cut a row into (length, pixels a tile): whole tiles, and what is left where that can be anything.

    Where tiles at the ends touch padding, they are stretches of their own.
    """
    n = ir.as_int(extent)
    if n is None:
        rest = Analyzer().simplify(extent % tile)
        return [(extent, tile)] if ir.is_const_int(rest, 0) else [(extent // tile * tile, tile), (rest, 1)]
    if n <= tile:
        return [(n, n)]
    first, last = tile if guarded else 0, (n - 1) % tile + 1
    middle = n - first - last
    if not guarded and last == tile:
        return [(n, tile)]
    return [(x, min(x, tile)) for x in (first, middle, last) if x]


def padding_block(ctx: RuleContext, block: Block) -> BlockRV | None:
    """Return the element-wise stage that only this block reads."""
    found = [p for p in producers_of(block, ctx.sch.state.root) if is_plain_store(p.block) is not None]
    return BlockRV(found[0].block.name_hint) if len(found) == 1 and not ctx.is_output(found[0].block) else None


def _taps(c: Contraction) -> int:
    reducing = (iv.dom for iv in c.block.iter_vars if iv.iter_type == "reduce" and iv.dom is not None)
    return prod(ir.as_int(dom.extent) or 16 for dom in reducing)


def _pixel_tile(ctx: RuleContext, row: LoopRV | None) -> int:
    """Choose how many pixels share the loads of a row of taps: a divisor of the width where there is one."""
    if row is None:
        return 1
    n = ctx.constant(row)
    most = 7 if ctx.machine.vector_registers >= 32 else 4
    if n is None:
        best = 4
    elif n <= most:
        best = n
    else:
        best = next((t for t in range(most, 2, -1) if n % t == 0), 4)
    return ctx.choose("pixels", [t for t in (2, 3, 4, 5, 6, 7, 8, 10, 14) if n is None or t <= n], best)


def order_sum(ctx: RuleContext, rv: BlockRV, place: LoopRV, c: Contraction) -> None:
    """Order the sum of a tile, below loop `place`: taps outside, then pixels, written out, and the lanes."""
    sch = ctx.sch
    inner = ctx.below(rv, place)
    owner = ctx.owners(rv, inner)
    reducing = [x for x in inner if owner[x.var].iter_type == "reduce"]
    spatial = [x for x in inner if x not in reducing]
    sch.reorder(*reducing, *spatial)
    lane = next((x for x in spatial if owner[x.var].var.name == c.vector.name), None)
    for x in spatial:
        if lane is not None and x.var is lane.var:
            sch.vectorize(x)
        else:
            sch.unroll(x)
    if reducing:
        sch.decompose_reduction(rv, reducing[0])
        last = ctx.constant(reducing[-1])
        if last is not None and last <= 7:
            sch.unroll(reducing[-1])


def _task_loop(ctx: RuleContext, sink: BlockRV, rest: list[LoopRV], padding: BlockRV | None) -> LoopRV | None:
    """Make the loop whose iterations are tasks: stretches of output rows where padding is copied along, else rows."""
    outer = ctx.drop_unit_loops(rest)
    if not outer:
        return None
    if padding is None:
        return ctx.fuse(_nested(ctx, sink, outer))
    n = ctx.constant(outer[-1])
    together = _ROWS_TOGETHER if n is None or n >= 2 * _ROWS_TOGETHER else max(1, -(-n // (2 * ctx.machine.cores)))
    together = ctx.choose("rows_a_task", [t for t in (2, 4, 8, 16, 32) if n is None or t <= n], together)
    row_task, _ = ctx.sch.split(outer[-1], [None, together])
    return ctx.fuse(_nested(ctx, sink, [*outer[:-1], row_task]))


def _nested(ctx: RuleContext, sink: BlockRV, loops: list[LoopRV]) -> list[LoopRV]:
    """Return the loops with those of one iteration that stand between them."""
    everything = ctx.sch.get_loops(sink)
    positions = [i for i, x in enumerate(everything) if x.var in {y.var for y in loops}]
    return everything[positions[0] : positions[-1] + 1]
