"""The rule for everything else: outer loops in parallel, contiguous inner loops in vectors, reductions decomposed.

Always applicable.
"""

from __future__ import annotations

from weft import error, ir
from weft.tir.analysis.access import loads_of, stores_of
from weft.tir.analysis.dependence import is_plain_store
from weft.tir.analysis.pattern import stride_along
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext, is_reduction_block
from weft.tir.schedule.rules.elementwise import schedule_spatial
from weft.tir.schedule.rules.record import AS_WRITTEN, GENERIC
from weft.tir.stmt import Block, BufferStore, For, ForKind


def schedule_generic(ctx: RuleContext, rv: BlockRV) -> None:
    """Schedule one block at the root by itself; one whose loops cannot be changed is left as it is.

    ``ctx.record`` says which it was: an element-wise block, which this rule suits, another, or one left as it is, as
    code without loops of its own is.
    """
    block = ctx.block(rv)
    rule = "elementwise" if not is_reduction_block(block) and is_plain_store(block) is not None else GENERIC
    if not block.iter_vars:
        rule = AS_WRITTEN
        ctx.sch.state.replace(block, replace_node(block, body=ir.rewrite(block.body, _row_vector)))
    else:
        before = ctx.sch.checkpoint()
        try:
            _schedule_alone(ctx, rv, block)
        except error.UnknownHandle:
            raise
        except error.ScheduleError as refusal:
            ctx.sch.rollback(before)
            ctx.record.refuse(rule, rv.name, refusal)
            rule = AS_WRITTEN
    ctx.record.take(rule, {rv.name})


_ROW_LANES = 64
"""Longest row that is one vector; of a longer one LLVM makes vectors itself."""


def _row_vector(node: object) -> object:
    """Make a vector of a short row that is written where a table says: LLVM would unroll it and gather from rows."""
    if not isinstance(node, For) or not isinstance(node.body, BufferStore) or node.kind != ForKind.SERIAL:
        return node
    n, store = ir.as_int(node.extent), node.body
    same = (x.indices for x in loads_of(store.value, store.buffer))
    if (
        n is None
        or not 1 < n <= _ROW_LANES
        or not loads_of(store.indices)
        or stride_along(store, node.loop_var) != 1
        or not all(stride_along(x, node.loop_var) in (0, 1) for x in loads_of(store.value))
        or not all(ir.structural_equal(i, store.indices) for i in same)
    ):
        return node
    return replace_node(node, kind=ForKind.VECTORIZED)


def _schedule_alone(ctx: RuleContext, rv: BlockRV, block: Block) -> None:
    if is_reduction_block(block):
        _reduction(ctx, rv, block)
    elif is_plain_store(block) is not None:
        schedule_spatial(ctx, rv)
    else:
        _outer_parallel(ctx, rv, ctx.sch.get_loops(rv))


def _outer_parallel(ctx: RuleContext, rv: BlockRV, loops: list[LoopRV]) -> None:
    """Fuse the leading spatial loops and run them on the pool."""
    realize = ctx.sch.state.realize(rv.name)
    spatial: set[ir.Var] = set()
    other: set[ir.Var] = set()
    for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (spatial if iv.iter_type == "data_par" else other).update(used_vars(v))
    leading = []
    for x in loops:
        if x.var in other or x.var not in spatial:
            break
        leading.append(x)
    row = ctx.fuse(leading)
    if row is not None:
        ctx.parallel(row, ctx.static_work(rv, 1))


def _reduction(ctx: RuleContext, rv: BlockRV, block: Block) -> None:
    """Parallel over outputs.

    Where the output and the input are contiguous along the last output axis, in vectors over it.
    """
    sch = ctx.sch
    realize = sch.state.realize(rv.name)
    loops = sch.get_loops(rv)
    kinds = {v: iv for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if isinstance(v, ir.Var)}
    if any(x.var not in kinds for x in loops):
        return
    spatial = [x for x in loops if kinds[x.var].iter_type == "data_par"]
    reducing = [x for x in loops if kinds[x.var].iter_type == "reduce"]
    vector = None
    if spatial and isinstance(block.body, BufferStore) and block.init is not None:
        last = kinds[spatial[-1].var].var
        accesses = [*stores_of(block.body), *loads_of(block.body)]
        if all(stride_along(a, last) in (0, 1) for a in accesses) and (ctx.constant(spatial[-1]) or 64) >= 4:
            vector = spatial[-1]
    if vector is not None:
        lanes = min(ctx.lanes(s.buffer.dtype) for s in stores_of(block.body))
        outer = spatial[:-1]
        v_outer, v_inner = sch.split(vector, [None, lanes])
        sch.reorder(*outer, v_outer, *reducing, v_inner)
        sch.vectorize(v_inner)
        outer = [*outer, v_outer]
    else:
        outer = spatial
        if outer and reducing:
            sch.reorder(*outer, *reducing)
    if reducing and block.init is not None and isinstance(block.body, BufferStore):
        sch.decompose_reduction(rv, reducing[0])
    row = ctx.fuse(_shared(ctx, rv, outer))
    if row is not None:
        ctx.parallel(row, ctx.static_work(rv, 1))


def _shared(ctx: RuleContext, rv: BlockRV, outer: list[LoopRV]) -> list[LoopRV]:
    """Return the leading loops that are perfectly nested."""
    result: list[LoopRV] = []
    for x in outer:
        if result and ctx.sch.state.loop(result[-1].var).body is not ctx.sch.state.loop(x.var):
            break
        result.append(x)
    return result
