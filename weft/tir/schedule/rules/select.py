"""Which rule a function gets: found by what its blocks compute, never by their names."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import show_text
from weft.machine import TargetLike
from weft.tir.analysis.dependence import consumers_of, is_plain_store, producers_of
from weft.tir.analysis.pattern import contraction_of
from weft.tir.function import PrimFunc
from weft.tir.schedule.rules.attention_schedule import schedule_attention
from weft.tir.schedule.rules.collapse import collapse_dims
from weft.tir.schedule.rules.computed_weights import computed_weights, schedule_computed_weights
from weft.tir.schedule.rules.context import RuleContext, is_reduction_block
from weft.tir.schedule.rules.contraction import schedule_contraction
from weft.tir.schedule.rules.generic import schedule_generic
from weft.tir.schedule.rules.inline import inline_elementwise
from weft.tir.schedule.rules.knobs import Knobs
from weft.tir.schedule.rules.matrix_tiles import schedule_matrix_tiles
from weft.tir.schedule.rules.row_reduce import schedule_rows
from weft.tir.schedule.rules.selecting import is_selecting, schedule_selecting
from weft.tir.schedule.rules.transposed import guarded_product, schedule_transposed
from weft.tir.schedule.schedule import Schedule
from weft.tir.schedule.trace import BlockRV
from weft.tir.stmt import Block, BlockRealize

__all__ = ["schedule_func", "schedule_of"]


def schedule_func(func: PrimFunc, target: TargetLike | None, knobs: Knobs | None = None) -> PrimFunc:
    """Give a function the loop structure that the rules choose for a target.

    Parameters
    ----------
    func : PrimFunc
        In block form; a function in another form is returned as it is.
    target : Target or Machine, optional
        Which machine it is for.
    knobs : Knobs, optional
        Decides what rules leave open, and notes what they asked; by default they choose themselves.
    """
    if not isinstance(func.body, BlockRealize):
        return func
    name = str(func.attrs.get("global_symbol", "main"))
    attention = schedule_attention(func, target)
    if attention is not None:
        show_text(name, "trace.py", lambda: "# no primitives: the rule for attention writes its loops itself")
        return attention
    sch = schedule_of(collapse_dims(func), target, knobs)
    show_text(name, "trace.py", lambda: str(sch.trace))
    return sch.func.replace(buffer_map=func.buffer_map)


def schedule_of(func: PrimFunc, target: TargetLike | None, knobs: Knobs | None = None) -> Schedule:
    """Return the schedule that the rules choose, whose trace lists the primitives."""
    sch = Schedule(func)
    ctx = RuleContext(sch, target, knobs)
    inline_elementwise(ctx)
    done: set[str] = set()
    for block in ctx.blocks():
        if block.name_hint in done:
            continue
        if contraction_of(block) is not None:
            for rule in _product_rules(ctx, block):
                finished = _attempt(ctx, block.name_hint, lambda b=block, r=rule: r(ctx, b.name_hint))
                done |= finished
                if finished:
                    break
        elif guarded_product(block) is not None:
            done |= _attempt(ctx, block.name_hint, lambda b=block: schedule_transposed(ctx, b.name_hint))
    for block in reversed(ctx.blocks()):
        if block.name_hint not in done and is_selecting(block):
            done |= _attempt(
                ctx, block.name_hint, lambda b=block, seen=done: schedule_selecting(ctx, b.name_hint, seen)
            )
    for group in _chains(ctx, done):
        done |= _attempt(ctx, group[-1].name_hint, lambda g=group: _rows(ctx, g))
    for block in ctx.blocks():
        if block.name_hint not in done:
            ctx.scope = block.name_hint
            schedule_generic(ctx, BlockRV(block.name_hint))
    return sch


def _product_rules(ctx: RuleContext, block: Block) -> list[Callable[[RuleContext, str], set[str]]]:
    """List the rules that are tried for a product, in order."""
    special = [schedule_computed_weights] if computed_weights(ctx, block) is not None else []
    tiled = [schedule_matrix_tiles] if ctx.machine.tile_forms else []
    return [*special, *tiled, schedule_contraction]


def _attempt(ctx: RuleContext, name: str, rule: Callable[[], set[str]]) -> set[str]:
    """Apply a rule, or leave the function as it was where it fails (``ctx.refusals`` keeps why).

    Choices of the rule are called after the block `name`. Returns the blocks that are scheduled.
    """
    before = ctx.sch.checkpoint()
    asked = dict(ctx.knobs.asked)
    ctx.scope = name
    names = set(ctx.sch.state.block_names())
    try:
        finished = rule()
    except Exception as error:
        ctx.sch.rollback(before)
        ctx.knobs.asked = asked
        ctx.refusals.append(error)
        return set()
    return finished | (set(ctx.sch.state.block_names()) - names)


def _rows(ctx: RuleContext, group: list[Block]) -> set[str]:
    schedule_rows(ctx, group)
    return {b.name_hint for b in group}


def _chains(ctx: RuleContext, done: set[str]) -> list[list[Block]]:
    """Group blocks with reductions.

    Each group is what leads to one last block, in order, nothing of it used outside.
    """
    root = ctx.sch.state.root
    blocks = [b for b in ctx.blocks() if b.name_hint not in done]
    known = {b.name_hint for b in blocks}
    groups: list[list[Block]] = []
    taken: set[str] = set()
    for sink in reversed(blocks):
        if sink.name_hint in taken or any(c.block.name_hint in known for c in consumers_of(sink, root)):
            continue
        members = _ancestors(ctx, sink, known, taken)
        ordered = [b for b in blocks if b.name_hint in members]
        if any(is_reduction_block(b) for b in ordered) and all(
            is_reduction_block(b) or is_plain_store(b) for b in ordered
        ):
            groups.append(ordered)
            taken |= members
    return groups


def _ancestors(ctx: RuleContext, sink: Block, known: set[str], taken: set[str]) -> set[str]:
    """Return the sink and the blocks that only lead to it."""
    root = ctx.sch.state.root
    members = {sink.name_hint}
    queue = [sink]
    while queue:
        for p in producers_of(queue.pop(0), root):
            name = p.block.name_hint
            if name in members or name not in known or name in taken or ctx.is_output(p.block):
                continue
            if all(c.block.name_hint in members for c in consumers_of(p.block, root)):
                members.add(name)
                queue.append(p.block)
    return members
