"""Inlining before a rule.

Element-wise blocks disappear into their consumers where that saves memory traffic and repeats little work.
"""

from __future__ import annotations

from math import prod

from weft.error import ScheduleError, UnknownHandle
from weft.ir import Cast, DataType, PrimExpr, Select, as_int, find, is_const_int, walk
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.dependence import consumers_of, is_plain_store, reduce_vars
from weft.tir.analysis.pattern import contraction_of, is_costly
from weft.tir.analysis.structure import calls, is_condition, used_vars
from weft.tir.buffer import Buffer
from weft.tir.schedule.instruction import BlockRV
from weft.tir.schedule.rules.context import RuleContext, is_reduction_block
from weft.tir.schedule.rules.selecting import is_selecting
from weft.tir.stmt import Block, BufferStore, For, Stmt


def inline_elementwise(ctx: RuleContext) -> None:
    """Inline, in order, each block that costs less to compute again than to store."""
    for name in [b.name_hint for b in ctx.blocks()]:
        block = ctx.sch.state.realize(name).block
        if is_plain_store(block) is None or is_reduction_block(block) or ctx.is_output(block):
            continue
        if _worth_inlining(ctx, block):
            try:
                ctx.sch.compute_inline(BlockRV(name))
            except UnknownHandle:
                raise
            except ScheduleError:
                continue  # it stays a stage of its own


def _worth_inlining(ctx: RuleContext, block: Block) -> bool:
    consumers = consumers_of(block, ctx.sch.state.root)
    store = is_plain_store(block)
    assert store is not None
    pure_move = not is_costly(store.value) and len(loads_of(store.value)) <= 1 and not _has_condition(store.value)
    buffer, selecting = store.buffer, is_selecting(block)
    for c in consumers:
        uses = len(loads_of(c.block.body, buffer))
        if find(c.block.body, For):
            if len(consumers) > 1 or is_costly(store.value) or not _reads_each_once(c.block.body, buffer):
                return False  # loops that the rules do not know read as they lie, on one thread
            continue
        if selecting and (uses > 1 or is_selecting(c.block) or is_reduction_block(c.block)):
            return False
        if uses > 1 and is_selecting(c.block) and not pure_move:
            return False  # the tile is read once, into registers
        if contraction_of(c.block) is not None and not (
            pure_move and any(v is store.value for v in loads_of(store.value))
        ):
            return False  # each element is read many times; the tile kernels want plain loads
        if (
            is_reduction_block(c.block)
            and is_window(c.block)
            and (
                is_costly(store.value)
                or (_has_condition(store.value) and (_is_large(c.block) or _along_rows(c.block, store)))
            )
        ):  # elements of a window are read many times
            return False
        if is_costly(store.value) and (uses > 1 or _repeats(c.block, buffer)):
            return False
        if _rounds(store.value) and _repeats(c.block, buffer):
            return False  # a table of places
        if uses > 1 and not pure_move and any(loads_of(x.indices) for x in loads_of(c.block.body, buffer)):
            return False  # what is read at places from a table is read at some of them again
    return len(consumers) == 1 or not is_costly(store.value)


def _reads_each_once(body: Stmt, buffer: Buffer) -> bool:
    """Whether one load, in loops of its own along the buffer's dimensions, is all that loops read of a buffer."""
    loads = loads_of(body, buffer)
    around = [n.loop_var for n in find(body, For) if loads_of(n, buffer)]
    return len(loads) == 1 and len(around) == len(loads[0].indices) and all(i in around for i in loads[0].indices)


def _rounds(value: PrimExpr) -> bool:
    """Whether a value is the place of something, an integer made of a number with a fraction, or that fraction."""
    return any(
        (isinstance(n, Cast) and DataType(n.value.dtype).is_float and not DataType(n.dtype).is_float)
        or calls(n, "floor")
        for n in walk(value)
    )


def _repeats(block: Block, buffer: Buffer) -> bool:
    """Whether a block reads each element of a buffer in several iterations.

    Some variable of more than one value is in no index.
    """
    varying = {iv.var for iv in block.iter_vars if iv.dom is not None and not is_const_int(iv.dom.extent, 1)}
    return any(varying - used_vars(load.indices) for load in loads_of(block.body, buffer))


_LARGE_WINDOW = 5
"""Elements that a reduction reads for each result from which on a test for each costs more than a copy."""


def _is_large(block: Block) -> bool:
    extents = [as_int(iv.dom.extent) for iv in block.iter_vars if iv.iter_type == "reduce" and iv.dom is not None]
    return prod(n or _LARGE_WINDOW for n in extents) >= _LARGE_WINDOW and len([n for n in extents if n != 1]) < 2


def _along_rows(block: Block, copied: BufferStore) -> bool:
    """Whether windows, or a test of what they read, go along what results are contiguous along: lanes differ."""
    store = block.body
    if not isinstance(store, BufferStore) or not store.indices:
        return False
    column, reducing = store.indices[-1], set(reduce_vars(block))
    inside = [used_vars(*load.indices[-1:]) for load in loads_of(block.body, copied.buffer)]
    asked = (n for n in walk(copied.value) if is_condition(n))
    tests = used_vars(*(n.condition if isinstance(n, Select) else n.args[0] for n in asked))
    lanes_ask = not tests.isdisjoint(used_vars(*copied.indices[-1:]))
    return any(column in variables and (lanes_ask or variables & reducing) for variables in inside)


def is_window(block: Block, of: Buffer | None = None) -> bool:
    """Whether a reduction reads elements, `of` one buffer, several times: an index adds a result and a summand."""
    spatial = {iv.var for iv in block.iter_vars if iv.iter_type == "data_par"}
    reducing = {iv.var for iv in block.iter_vars if iv.iter_type == "reduce"}
    for load in loads_of(block.body, of):
        for i in load.indices:
            inside = set(walk(i))
            if inside & spatial and inside & reducing:
                return True
    return False


def _has_condition(value: object) -> bool:
    return any(is_condition(n) for n in walk(value))
