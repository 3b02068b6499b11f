"""Grouped convolutions whose groups are narrower than a vector: each lane is an output channel, whatever its group.

The first operand is spread: ``spread[y, x, r, o] = data[y, x, o // g * c + r]`` holds, side by side, what each output
channel `o` multiplies its r-th weight with. The sum is then a depthwise product, each of whose multiply-adds takes one
operand from memory as it lies. A task spreads some rows for one vector of output channels, which stay in its cache;
each element that it copies is used by all taps of the kernel.
"""

from __future__ import annotations

from math import gcd, prod
from typing import NamedTuple

from weft import ir
from weft.error import ScheduleError
from weft.ir import DataType, PrimExpr, Var, as_int
from weft.tir.analysis.dependence import consumers_of, is_plain_store, producers_of
from weft.tir.analysis.pattern import Contraction, contraction_of, stride_along
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.schedule.cache import put_stage
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.depthwise import order_sum, row_stretches
from weft.tir.schedule.rules.epilogue import attach_epilogue, loop_over

_MOST_ROWS = 16
_WIDTH = 64
"""What a row of unknown length is taken to be."""


def schedule_grouped(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a product of groups that are no whole vectors. Returns the names of the blocks that are done.

    Raises
    ------
    ScheduleError
        Where columns do not share rows in groups, or an operand is not laid out for it.
    """
    rv = BlockRV(name)
    c = contraction_of(ctx.block(rv))
    if c is None or not is_grouped(c):
        raise ScheduleError("grouped: not a sum of products in groups")
    lanes = ctx.lanes(c.output.buffer.dtype)
    if c.group is not None and c.group % lanes == 0:
        raise ScheduleError(f"grouped: groups of {c.group} columns are whole vectors")
    if stride_along(c.b, c.vector) != 1:
        raise ScheduleError("grouped: the second operand is not contiguous along the output channels")
    extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
    width = as_int(extents[c.vector])
    if width is None or any(as_int(e) == 0 for e in extents.values()):
        raise ScheduleError("grouped: the output channels have no known number, or a dimension no elements")
    return _Grouped(ctx, rv, c, lanes, extents).schedule()


def is_grouped(c: Contraction) -> bool:
    """Whether output channels share elements of the first operand in groups; a group of one has a few by itself."""
    if c.group is not None:
        return c.vector in c.columns
    return c.vector in c.batch and stride_along(c.a, c.vector) not in (None, 0, 1)


class _Piece(NamedTuple):
    """A stretch of output channels: its epilogue, the loops whose iterations are tasks, and the one over pixels."""

    sink: BlockRV
    tasks: list[LoopRV]
    row: LoopRV


class _Grouped:
    """One grouped product on its way through the rule; the methods are its steps."""

    def __init__(self, ctx: RuleContext, rv: BlockRV, c: Contraction, lanes: int, extents: dict[Var, PrimExpr]) -> None:
        self.ctx, self.sch, self.rv, self.c, self.lanes, self.extents = ctx, ctx.sch, rv, c, lanes, extents
        self.unit = gcd(c.group or 1, lanes)

    def schedule(self) -> set[str]:
        """Apply the rule."""
        ctx, sch, c = self.ctx, self.sch, self.c
        padding = _padding_of(ctx, c)
        spread = spread_groups(ctx, self.rv, c)
        if padding is not None:
            sch.compute_inline(padding)
        sink, loop_of = attach_epilogue(ctx, self.rv)
        column = loop_over(loop_of, c.vector, "grouped")
        others = [x for x in sch.get_loops(sink) if x.var is not column.var]
        pixels = ctx.drop_unit_loops(others)
        row = pixels[-1] if pixels else others[-1] if others else None
        if row is None:
            raise ScheduleError("grouped: the output has no pixels")
        rest = [x for x in others if x.var is not row.var]
        pieces = self._pieces(sink, column, rest, row)
        sums = [self.rv] if len(pieces) == 1 else sch.split_consumers(self.rv, [p.sink for p in pieces])
        spreads = [spread] if len(pieces) == 1 else sch.split_consumers(spread, sums)
        done: set[str] = set()
        for piece, anchor, copy in zip(pieces, sums, spreads, strict=True):
            done |= self._tile(piece, anchor, copy)
        return done

    def _pieces(self, sink: BlockRV, column: LoopRV, rest: list[LoopRV], row: LoopRV) -> list[_Piece]:
        """Cut the output channels into whole vectors and a shorter one for what is left."""
        sch, n = self.sch, self.ctx.constant(column) or 1
        sch.reorder(column, *rest, row)
        whole = n // self.lanes * self.lanes
        parts = sch.loop_partition(column, [whole, None]) if whole and n % self.lanes else [column]
        result: list[_Piece] = []
        for part in parts:
            block = sink if len(parts) == 1 else sch.get_child_blocks(part)[0]
            *outer, pixel = self.ctx.below(block, part)
            size = self.ctx.constant(part) or 1
            vectors, lane = sch.split(part, [1, size] if size < self.lanes else [None, self.lanes])
            tasks, inside = [*outer, vectors], []
            rows = self.ctx.drop_unit_loops(outer)
            if rows:  # a task is some rows
                task, *inside = sch.split(rows[-1], [None, self._rows_together(rows[-1], vectors)])
                tasks = [*(x for x in outer if x.var is not rows[-1].var), vectors, task]
            sch.reorder(*tasks, *inside, pixel, lane)
            result.append(_Piece(block, tasks, pixel))
        return result

    def _tile(self, piece: _Piece, anchor: BlockRV, spread: BlockRV) -> set[str]:
        """Cut rows into tiles of pixels, each a vector of sums a pixel, and make tasks of some rows."""
        ctx, sch = self.ctx, self.sch
        lengths = row_stretches(ctx.extent(piece.row), self._pixels(piece.row), False)
        parts = sch.loop_partition(piece.row, [x for x, _ in lengths]) if len(lengths) > 1 else [piece.row]
        tiles: list[tuple[BlockRV, LoopRV, LoopRV, LoopRV]] = []
        for part, (_, height) in zip(parts, lengths, strict=True):
            sink = piece.sink if len(parts) == 1 else sch.get_child_blocks(part)[0]
            lane = sch.get_loops(sink)[-1]
            place, inner = sch.split(part, [None, height])
            tiles.append((sink, place, inner, lane))
        anchors = [anchor] if len(tiles) == 1 else sch.split_consumers(anchor, [t[0] for t in tiles])
        for one, (_, place, inner, lane) in zip(anchors, tiles, strict=True):
            sch.compute_at(one, place)
            sch.set_scope(one, 0, "local")
            order_sum(ctx, one, place, self.c)
            sch.vectorize(lane)
            sch.unroll(inner)
        self._tasks(piece, spread)
        return {spread.name, *(a.name for a in anchors), *(t[0].name for t in tiles)}

    def _tasks(self, piece: _Piece, spread: BlockRV) -> None:
        """Let each task spread what it reads."""
        ctx, sch = self.ctx, self.sch
        task = ctx.fuse(piece.tasks)
        assert task is not None
        sch.compute_at(spread, task)
        sch.set_scope(spread, 0, "global")
        loops = sch.get_loops(spread)
        column = loops[-1]
        n = ctx.constant(column) or 1
        if self.unit > 1 and n % self.unit == 0:
            if n > self.unit:
                outer, column = sch.split(column, [None, self.unit])
                sch.unroll(outer)
            sch.vectorize(column)
        elif n <= self.lanes:
            sch.unroll(column)
        ctx.parallel(task, self._work(task))

    # --- sizes ---

    def _pixels(self, row: LoopRV) -> int:
        """Choose how many pixels, each a vector of sums, are under way: a divisor of the row if there is one."""
        n, most = (
            self.ctx.constant(row),
            self.ctx.machine.vector_registers - 4 if self.ctx.machine.vector_registers < 32 else 14,
        )
        best = 8
        if n is not None:
            best = n if n <= most else next((t for t in range(most, 5, -1) if n % t == 0), 8)
        return self.ctx.choose("pixels", [t for t in (4, 6, 7, 8, 10, 12, 14) if n is None or t <= n], best)

    def _rows_together(self, rows: LoopRV, vectors: LoopRV) -> int:
        """Choose how many rows of the output a task computes: what the cache keeps, and enough tasks for all cores."""
        n, columns = self.ctx.constant(rows), self.ctx.constant(vectors) or 1
        sizes = [as_int(d) or _WIDTH for d in self.c.a.buffer.shape]
        length = max(1, sizes[-2] if len(sizes) > 1 else 1)
        row_bytes = length * self._summed_channels() * self.lanes * DataType(self.c.a.buffer.dtype).itemsize
        most = min(_MOST_ROWS, max(2, self.ctx.machine.spread_rows_bytes // row_bytes))
        if n is not None:
            while most > 2 and -(-n // most) * columns < 2 * self.ctx.machine.cores:
                most -= 1
            tasks = -(-n // most)
            most = -(-n // tasks)
        return self.ctx.choose("rows_a_task", [t for t in (2, 4, 8, 16) if n is None or t <= n], most)

    def _summed_channels(self) -> int:
        at = next(i for i, e in enumerate(self.c.a.indices) if self.c.vector in used_vars(e))
        return prod(as_int(self.extents[v]) or 1 for v in self.c.reduce if v in used_vars(self.c.a.indices[at]))

    def _work(self, task: LoopRV) -> int | None:
        """Estimate the work of a task, in vectors."""
        sizes = [as_int(e) for e in self.extents.values()]
        tasks = self.ctx.constant(task)
        if None in sizes or tasks is None:
            return None
        return max(1, 3 * prod(n for n in sizes if n is not None) // (self.lanes * tasks))


def _padding_of(ctx: RuleContext, c: Contraction) -> BlockRV | None:
    """Return the element-wise stage that makes the first operand for this product alone."""
    for p in producers_of(c.block, ctx.sch.state.root):
        store = is_plain_store(p.block)
        alone = len(consumers_of(p.block, ctx.sch.state.root)) == 1 and not ctx.is_output(p.block)
        if store is not None and store.buffer is c.a.buffer and alone:
            return BlockRV(p.block.name_hint)
    return None


def spread_groups(ctx: RuleContext, rv: BlockRV, c: Contraction) -> BlockRV:
    """Let a grouped product read a copy of its first operand that has an element for each output channel.

    The dimension that the channel decides gives way to two last ones: the summed variable and the channel. Returns the
    block that makes the copy.
    """
    places = [i for i, e in enumerate(c.a.indices) if c.vector in used_vars(e)]
    if len(places) != 1:
        raise ScheduleError("grouped: the output channel decides several indices of the first operand")
    (place,) = places
    inside = [v for v in c.reduce if v in used_vars(c.a.indices[place])]
    if used_vars(c.a.indices[place]) - {c.vector, *inside} or any(
        v in used_vars(e) for v in inside for i, e in enumerate(c.a.indices) if i != place
    ):
        raise ScheduleError("grouped: what is summed in a group decides other indices of the first operand too")
    extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
    old, axes = c.a.buffer, [*inside, c.vector]
    kept = [i for i in range(len(c.a.indices)) if i != place]
    shape = (*(old.shape[i] for i in kept), *(extents[v] for v in axes))

    def element(*at: PrimExpr) -> PrimExpr:
        source = list(at[: len(kept)])
        fresh = dict(zip(axes, at[len(kept) :], strict=True))
        source.insert(place, ir.substitute(c.a.indices[place], fresh))
        return BufferLoad(old, tuple(source))

    indices = (*(c.a.indices[i] for i in kept), *axes)

    def read(node: object, new: Buffer) -> object:
        if isinstance(node, BufferLoad) and node.buffer is old:
            return replace_node(node, buffer=new, indices=indices)
        return node

    return BlockRV(put_stage(ctx.sch.state, rv.name, f"{old.name}_spread", shape, element, read))
