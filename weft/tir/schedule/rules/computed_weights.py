"""Products of a few rows with weights that are computed from what is stored: unpacked in registers, as needed.

The second operand is an element-wise stage of the same function, in panels. Each task is a panel; a step computes a
group of rows of the panel, which lie together in memory, and multiplies them at once.
"""

from __future__ import annotations

from math import prod

from weft.arith import Analyzer
from weft.error import ScheduleError
from weft.ir import FloorMod, IntImm, Var, as_int, find, int64
from weft.tir.analysis.dependence import consumers_of, is_plain_store, producers_of, reduce_vars
from weft.tir.analysis.pattern import Contraction, contraction_of
from weft.tir.analysis.structure import used_vars
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext, is_reduction_block
from weft.tir.schedule.rules.epilogue import attach_epilogue, loop_over
from weft.tir.stmt import Block, BufferStore
from weft.tir.transform.prefetch_streams import PREFETCH_MARK

_MOST_ROWS = 4
"""Rows that share what is computed, up to which nothing is gained by keeping it."""


def schedule_computed_weights(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a product whose weights another block computes. Returns the names of the blocks that are done."""
    rv = BlockRV(name)
    c = contraction_of(ctx.block(rv))
    weights = computed_weights(ctx, ctx.block(rv))
    if c is None or weights is None:
        raise ScheduleError("computed weights: the second operand is not computed by a stage for this product alone")
    panel = as_int(c.b.buffer.shape[-1])
    if panel is None or len(c.reduce) != 1 or c.batch or c.group is not None or c.vector not in c.columns:
        raise ScheduleError("computed weights: not a product of a matrix in panels")
    extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
    rows = [as_int(extents[v]) for v in c.rows]
    unknown = [extents[v] for v, n in zip(c.rows, rows, strict=True) if n is None]
    if prod(n or 1 for n in rows) > _MOST_ROWS or not all(Analyzer().can_prove(n <= int64(1)) for n in unknown):
        raise ScheduleError("computed weights: many rows")
    group = _group(weights, panel)
    if (as_int(extents[c.reduce[0]]) or 1) % group:
        raise ScheduleError("computed weights: the last group of rows is not whole")
    lanes = min(ctx.lanes(c.output.buffer.dtype), panel)
    sink, loop_of = attach_epilogue(ctx, rv)
    column = loop_over(loop_of, c.vector, "computed weights")
    others = _other_sums(ctx, sink, rv, c)
    panels, tile = _tile(ctx, sink, column, panel, together=None not in rows)
    ctx.parallel(panels, 2 * panel * (as_int(extents[c.reduce[0]]) or 1))
    sch, stored = ctx.sch, BlockRV(weights.name_hint)
    sch.compute_at(rv, tile)
    sch.set_scope(rv, 0, "local")
    steps = _sum(ctx, rv, tile, group, lanes)
    sch.compute_at(stored, steps)
    sch.set_scope(stored, 0, "local")
    _vectors(ctx, stored, steps, lanes)
    sch.annotate(steps, PREFETCH_MARK, ctx.prefetch_distance())
    sch.decompose_reduction(rv, steps)
    for other in others:
        sch.compute_at(other, tile)
        sch.set_scope(other, 0, "local")
        sch.decompose_reduction(other, _sum(ctx, other, tile, 1, lanes))
    _vectors(ctx, sink, tile, lanes)
    return {name, sink.name, stored.name, *(x.name for x in others)}


def _other_sums(ctx: RuleContext, sink: BlockRV, rv: BlockRV, c: Contraction) -> list[BlockRV]:
    """List other sums over one variable of which the epilogue reads the same elements."""
    root, shape = ctx.sch.state.root, c.output.buffer.shape
    found = [p.block for p in producers_of(ctx.block(sink), root) if p.block.name_hint != rv.name]
    return [
        BlockRV(b.name_hint)
        for b in found
        if is_reduction_block(b)
        and isinstance(b.body, BufferStore)
        and len(reduce_vars(b)) == 1
        and len(consumers_of(b, root)) == 1
        and [as_int(d) for d in b.body.buffer.shape] == [as_int(d) for d in shape]
        and all(isinstance(i, Var) for i in b.body.indices)
    ]


def computed_weights(ctx: RuleContext, block: Block) -> Block | None:
    """Return the block that computes the second operand of a product, in panels, where nothing else reads it."""
    root, c = ctx.sch.state.root, contraction_of(block)
    if c is None or not isinstance(c.b.indices[-1], FloorMod) or c.b.indices[-1].a is not c.vector:
        return None
    for p in producers_of(block, root):
        store = is_plain_store(p.block)
        if store is not None and store.buffer is c.b.buffer and not ctx.is_output(p.block):
            return p.block if len(consumers_of(p.block, root)) == 1 else None
    return None


def _group(weights: Block, panel: int) -> int:
    """Return how many rows of a column are stored together: what the block divides its row by."""
    sizes = {n.b.value for n in find(weights.body, FloorMod) if isinstance(n.b, IntImm)}
    return max(sizes - {panel}, default=1)


def _tile(ctx: RuleContext, sink: BlockRV, column: LoopRV, panel: int, together: bool) -> tuple[LoopRV, LoopRV]:
    """Put the loop over panels outside; return it and the loop around a tile, which has all rows or one of many."""
    sch = ctx.sch
    rows = [x for x in sch.get_loops(sink) if x.var is not column.var]
    outer, inner = sch.split(column, [None, panel])
    sch.reorder(outer, *rows, inner)
    return outer, outer if together or not rows else rows[-1]


def _sum(ctx: RuleContext, rv: BlockRV, tile: LoopRV, group: int, lanes: int) -> LoopRV:
    """Order a sum: groups, then the rows of a group, then the tile, written out; return the loop over groups."""
    sch = ctx.sch
    inner = ctx.below(rv, tile)
    block, values = ctx.block(rv), sch.state.realize(rv.name).iter_values
    kind = {x.var: iv for x in inner for iv, v in zip(block.iter_vars, values, strict=True) if x.var in used_vars(v)}
    (summed,) = (x for x in inner if kind[x.var].iter_type == "reduce")
    *rows, column = (x for x in inner if x.var is not summed.var)
    steps, together = sch.split(summed, [None, group])
    vectors, lane = sch.split(column, [None, lanes])
    sch.reorder(steps, together, *rows, vectors, lane)
    sch.vectorize(lane)
    for x in (together, *rows, vectors):
        sch.unroll(x)
    return steps


def _vectors(ctx: RuleContext, rv: BlockRV, outer: LoopRV, lanes: int) -> None:
    """Write out the loops of a block below `outer`, the last one in vectors."""
    sch = ctx.sch
    *others, last = ctx.below(rv, outer)
    vectors, lane = sch.split(last, [None, lanes])
    sch.vectorize(lane)
    for x in (*others, vectors):
        sch.unroll(x)
