"""Depthwise products: each output channel sums over its own taps.

Channels are lanes, neighbouring pixels accumulators.
"""

from __future__ import annotations

from weft.error import ScheduleError
from weft.ir import as_int
from weft.tir.analysis.dependence import is_plain_store, producers_of
from weft.tir.analysis.pattern import Contraction, element_cost, stride_along
from weft.tir.analysis.structure import used_vars
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.elementwise import vectorize_spatial
from weft.tir.schedule.rules.epilogue import attach_epilogue
from weft.tir.schedule.trace import BlockRV, LoopRV
from weft.tir.stmt import Block

__all__ = ["schedule_depthwise"]

_ROWS_TOGETHER = 8
"""Output rows a task: their padded input rows are copied once."""


def schedule_depthwise(ctx: RuleContext, rv: BlockRV, c: Contraction) -> set[str]:
    """Schedule a product whose output channel is a variable of both operands. Returns the blocks that are done."""
    sch = ctx.sch
    if stride_along(c.a, c.vector) != 1 or stride_along(c.b, c.vector) not in (0, 1):
        raise ScheduleError("depthwise: an operand is not contiguous along the channel")
    padding = _padding_block(ctx, ctx.block(rv))
    sink, loop_of = attach_epilogue(ctx, rv)
    column = loop_of[c.vector]
    loops = [x for x in sch.get_loops(sink) if x.var is not column.var]
    pixels = ctx.drop_unit_loops(loops)
    lanes = ctx.lanes(c.output.buffer.dtype)
    width = ctx.constant(column)
    channel_outer, channel = sch.split(column, [None, lanes] if width is None or width > lanes else [1, width])
    taps = _taps(c)
    row = pixels[-1] if pixels else None
    tile = _pixel_tile(ctx, row, taps)
    if row is not None:
        row_outer, row_inner = sch.split(row, [None, tile])
        rest = [x for x in loops if x.var is not row.var]
        sch.reorder(*rest, channel_outer, row_outer, row_inner, channel)
        place = row_outer
    else:
        rest = loops
        sch.reorder(*rest, channel_outer, channel)
        place, row_inner = channel_outer, None
    sch.compute_at(rv, place)
    sch.set_scope(rv, 0, "local")
    _sum(ctx, rv, place, c)
    sch.vectorize(channel)
    if row_inner is not None:
        sch.unroll(row_inner)
    done = {rv.name, sink.name}
    task = _task_loop(ctx, sink, rest, padding)
    if task is not None:
        if padding is not None:
            sch.compute_at(padding, task)
            vectorize_spatial(ctx, padding, _depth(ctx, padding, task))
            done.add(padding.name)
        ctx.parallel(task, _work(ctx, sink, task, taps))
    return done


def _padding_block(ctx: RuleContext, block: Block) -> BlockRV | None:
    """Return the element-wise stage that only this block reads."""
    found = [p for p in producers_of(block, ctx.sch.state.root) if is_plain_store(p.block) is not None]
    return BlockRV(found[0].block.name_hint) if len(found) == 1 and not ctx.is_output(found[0].block) else None


def _taps(c: Contraction) -> int:
    total = 1
    for iv in c.block.iter_vars:
        if iv.iter_type == "reduce" and iv.dom is not None:
            total *= as_int(iv.dom.extent) or 16
    return total


def _pixel_tile(ctx: RuleContext, row: LoopRV | None, taps: int) -> int:
    """Choose how many pixels share the loads of a row of taps: a divisor of the width where there is one."""
    if row is None:
        return 1
    n = ctx.constant(row)
    most = 7 if ctx.registers >= 32 else 4
    if n is None:
        return 4
    if n <= most:
        return n
    return next((t for t in range(most, 2, -1) if n % t == 0), 4)


def _sum(ctx: RuleContext, rv: BlockRV, place: LoopRV, c: Contraction) -> None:
    sch = ctx.sch
    block = ctx.block(rv)
    realize = sch.state.realize(rv.name)
    loops = sch.get_loops(rv)
    at = next(i for i, x in enumerate(loops) if x.var is place.var)
    owner = {
        x.var: iv
        for x in loops[at + 1 :]
        for iv, v in zip(block.iter_vars, realize.iter_values, strict=True)
        if x.var in used_vars(v)
    }
    reducing = [x for x in loops[at + 1 :] if owner[x.var].iter_type == "reduce"]
    spatial = [x for x in loops[at + 1 :] if x not in reducing]
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
    together = _ROWS_TOGETHER if n is None or n >= 2 * _ROWS_TOGETHER else max(1, -(-n // (2 * ctx.cores)))
    row_task, _ = ctx.sch.split(outer[-1], [None, together])
    return ctx.fuse(_nested(ctx, sink, [*outer[:-1], row_task]))


def _nested(ctx: RuleContext, sink: BlockRV, loops: list[LoopRV]) -> list[LoopRV]:
    """Return the loops with those of one iteration that stand between them."""
    everything = ctx.sch.get_loops(sink)
    positions = [i for i, x in enumerate(everything) if x.var in {y.var for y in loops}]
    return everything[positions[0] : positions[-1] + 1]


def _depth(ctx: RuleContext, rv: BlockRV, loop: LoopRV) -> int:
    return 1 + next(i for i, x in enumerate(ctx.sch.get_loops(rv)) if x.var is loop.var)


def _work(ctx: RuleContext, sink: BlockRV, task: LoopRV, taps: int) -> int | None:
    total = taps + element_cost(ctx.block(sink).body)
    inside = False
    for f in ctx.loops(sink):
        if inside:
            n = as_int(f.extent)
            if n is None:
                return None
            total *= n
        inside = inside or f.loop_var is task.var
    return max(1, total // 8)
