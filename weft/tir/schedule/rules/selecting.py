"""Small transforms: blocks that compute another formula for each value of a short dimension.

``B[i, p, c] = if_then_else(i == 0, f0, if_then_else(i == 1, f1, ...))`` is how a product with a small constant matrix
is written. With the short dimensions unrolled each test is decided while compiling, the tile stays in registers, and
vectors run along the last dimension. What only feeds such a block is computed tile by tile too.
"""

from __future__ import annotations

from weft.error import ScheduleError
from weft.ir import EQ, FloorMod, IntImm, Var, find
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.dependence import consumers_of, is_complete, is_data_parallel, is_plain_store, producers_of
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.stmt import Block

_LONGEST = 8
"""Values of a dimension that is unrolled."""


def is_selecting(block: Block) -> bool:
    """Whether what a block stores depends on tests of its own variables against constants."""
    return bool(_tested(block))


def _tested(block: Block) -> dict[Var, int | None]:
    """Map the variables of a block that are tested against constants to the period of the test, if it has one."""
    store = is_plain_store(block)
    own = {iv.var for iv in block.iter_vars}
    found: dict[Var, int | None] = {}
    for n in find(store.value, EQ) if store is not None else ():
        if isinstance(n.b, IntImm):
            var, period = _periodic(n.a)
            if isinstance(var, Var) and var in own:
                found[var] = period
    return found


def _periodic(index: object) -> tuple[object, int | None]:
    """Split ``v % k`` into the variable and `k`; `k` is None for a plain variable."""
    if isinstance(index, FloorMod) and isinstance(index.b, IntImm):
        return index.a, index.b.value
    return index, None


def schedule_selecting(ctx: RuleContext, name: str, done: set[str]) -> set[str]:
    """Schedule a transform and what only leads to it, but for blocks in `done`. Returns the blocks that are done."""
    sch, rv = ctx.sch, BlockRV(name)
    block = ctx.block(rv)
    realize = sch.state.realize(name)
    if not is_data_parallel(block) or not is_complete(realize, sch.state.root):
        raise ScheduleError("selecting: the block is not element-wise")
    work = ctx.static_work(rv)
    feeds = _private_producers(ctx, block, done)
    outer, short, column = _loops(ctx, rv, _unrolled(ctx, block, feeds))
    lanes = ctx.lanes(block.writes[0].buffer.dtype)
    width = ctx.constant(column)
    if width is None:
        raise ScheduleError("selecting: the last dimension has no known size")
    vectors, lane = sch.split(column, [None, lanes])
    sch.reorder(*outer, vectors, *short, lane)
    for feed in feeds:
        sch.compute_at(feed, vectors)
        sch.set_scope(feed, 0, "local")
        inner = ctx.below(feed, vectors)
        sch.vectorize(inner[-1])
        for x in inner[:-1]:
            sch.unroll(x)
    sch.vectorize(lane)
    for x in short:
        sch.unroll(x)
    task = ctx.fuse(ctx.drop_unit_loops(outer))
    if task is not None:
        n = ctx.constant(task)
        ctx.parallel(task, max(1, work // (n * lanes)) if work is not None and n else None)
    return {name, *[f.name for f in feeds]}


def _private_producers(ctx: RuleContext, block: Block, done: set[str]) -> list[BlockRV]:
    """List the element-wise blocks that only lead to this one: transforms, and what the first of them reads."""
    root = ctx.sch.state.root
    found: list[BlockRV] = []
    for p in producers_of(block, root):
        if p.block.name_hint in done or ctx.is_output(p.block) or len(consumers_of(p.block, root)) != 1:
            continue
        if is_data_parallel(p.block) and is_plain_store(p.block) is not None and is_complete(p, root):
            found.append(BlockRV(p.block.name_hint))
            if is_selecting(p.block):
                found += _private_producers(ctx, p.block, done)
    return found


def _unrolled(ctx: RuleContext, block: Block, feeds: list[BlockRV]) -> dict[Var, int | None]:
    """Map the variables to unroll to their period: those that the block tests, or hands to what its producers test."""
    found = _tested(block)
    own = {iv.var for iv in block.iter_vars}
    for feed in map(ctx.block, feeds):
        tested = _tested(feed)
        places = [i for i, r in enumerate(feed.writes[0].region) if r.min in tested]
        for load in loads_of(block.body, feed.writes[0].buffer):
            for var, period in (_periodic(load.indices[i]) for i in places):
                if var in own:
                    found[var] = period  # type: ignore[index]
    return found


def _loops(ctx: RuleContext, rv: BlockRV, unrolled: dict[Var, int | None]) -> tuple[list[LoopRV], list[LoopRV], LoopRV]:
    """Split the loops of a block into outer ones, those to unroll, and the one over its last dimension."""
    sch = ctx.sch
    block = ctx.block(rv)
    last = block.writes[0].region[-1].min
    realize = sch.state.realize(rv.name)
    of_loop = {v: iv.var for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if isinstance(v, Var)}
    outer: list[LoopRV] = []
    short: list[LoopRV] = []
    column: LoopRV | None = None
    for loop in sch.get_loops(rv):
        var, n = of_loop.get(loop.var), ctx.constant(loop)
        if var is None:
            raise ScheduleError("selecting: the loops are not those of the block's variables")
        period = unrolled.get(var)
        if var is last:
            column = loop
        elif period is not None and period <= _LONGEST and n != period:
            far, near = sch.split(loop, [None, period])
            outer.append(far)
            short.append(near)
        elif var in unrolled and n is not None and n <= _LONGEST:
            short.append(loop)
        elif var in unrolled:
            raise ScheduleError(f"selecting: a tested dimension of {ctx.extent(loop)} is too long to write out")
        else:
            outer.append(loop)
    if column is None:
        raise ScheduleError("selecting: the last dimension has no loop of its own")
    return outer, short, column
