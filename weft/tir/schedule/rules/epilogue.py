"""Where the result of an anchor goes: the element-wise block that takes it, whose loops the anchor is tiled with."""

from __future__ import annotations

from weft import error, ir
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.dependence import consumers_of, is_complete, is_data_parallel, is_plain_store
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.stmt import Block


def attach_epilogue(ctx: RuleContext, rv: BlockRV) -> tuple[BlockRV, dict[ir.Var, LoopRV]]:
    """Find the element-wise block that takes the result, or add a copy.

    Map the anchor's spatial variables to its loops.
    """
    sch = ctx.sch
    block = ctx.block(rv)
    consumers = consumers_of(block, sch.state.root)
    if len(consumers) == 1 and not ctx.is_output(block):
        sink = consumers[0].block
        if is_plain_store(sink) is not None and is_data_parallel(sink) and is_complete(consumers[0], sch.state.root):
            mapping = _map_loops(ctx, block, BlockRV(sink.name_hint))
            if mapping is not None:
                return BlockRV(sink.name_hint), mapping
    copy = sch.cache_write(rv, 0, "local")
    mapping = _map_loops(ctx, ctx.block(rv), copy)
    if mapping is None:
        raise error.ScheduleError("contraction: the output is not stored at plain variables")
    return copy, mapping


def loop_over(loop_of: dict[ir.Var, LoopRV], vector: ir.Var, rule: str) -> LoopRV:
    """Return the loop of the epilogue over the variable that vectors run along."""
    if vector not in loop_of:
        raise error.ScheduleError(f"{rule}: the output has one element along its last axis")
    return loop_of[vector]


def _map_loops(ctx: RuleContext, block: Block, sink: BlockRV) -> dict[ir.Var, LoopRV] | None:
    """Map each spatial variable of the anchor to the loop of the sink that stands for it.

    None where an index is not one variable.
    """
    realize = ctx.sch.state.realize(sink.name)
    value_of = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    loads = loads_of(realize.block.body, block.writes[0].buffer)
    if not loads or not _same(loads):
        return None
    mapping: dict[ir.Var, LoopRV] = {}
    for w, index in zip(block.writes[0].region, loads[0].indices, strict=True):
        value = value_of.get(index) if isinstance(index, ir.Var) else None
        if isinstance(w.min, ir.Var) and isinstance(value, ir.Var):
            mapping[w.min] = LoopRV(value)
        elif not ir.is_const_int(index if value is None else value, 0) and not (
            isinstance(value, ir.Var) and ir.is_const_int(ctx.extent(LoopRV(value)), 1)
        ):
            return None
    covered = {x.var for x in mapping.values()}
    loops = {x.var for x in ctx.sch.get_loops(sink)}
    extra = [v for v in loops - covered if not ir.is_const_int(ctx.extent(LoopRV(v)), 1)]
    return mapping if not extra and covered <= loops and len(covered) == len(mapping) else None


def _same(loads: list[BufferLoad]) -> bool:
    first = loads[0].indices
    return all(all(a is b for a, b in zip(x.indices, first, strict=True)) for x in loads)
