"""Copies of the second operand of a product in panels: of all of it before the product, or of each where it is read.

A panel is some columns of all summands, ``[summed.., column]``; its rows are whole vectors. An operand that lies along
what is summed turns on the way, in registers.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.error import ScheduleError
from weft.ir import as_int, const
from weft.tir.analysis.pattern import Contraction
from weft.tir.analysis.structure import used_vars
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.transform.transpose_tiles import TILE_MARK


class _Places(NamedTuple):
    """The dimensions of a second operand."""

    column: int
    sums: list[int]
    others: list[int]


def pack_panels(ctx: RuleContext, rv: BlockRV, c: Contraction, width: int) -> set[str]:
    """Let a product read a copy whose dimensions are ``[others.., panel, summed.., column]``, made before it.

    Returns the blocks that make the copy.
    """
    sch, place = ctx.sch, _places_of(c)
    columns = as_int(c.b.buffer.shape[place.column])
    copy = sch.cache_read(rv, c.b.buffer, "global")
    before = set(sch.state.block_names())
    sch.transform_layout(
        copy,
        ("write", 0),
        lambda *i: [
            *[i[n] for n in place.others],
            i[place.column] // width,
            *[i[n] for n in place.sums],
            i[place.column] % width,
        ],
        const(0, c.b.buffer.dtype) if columns is None or columns % width else None,
    )
    fills = set(sch.state.block_names()) - before  # what lay there before may be slow to add up: denormals
    for filled in fills:
        loops = sch.get_loops(BlockRV(filled))
        sch.vectorize(sch.split(loops[-1], [None, ctx.lanes(c.output.buffer.dtype)])[-1])
        _share(ctx, BlockRV(filled), loops[: len(place.others) + 1])
    loops = sch.get_loops(copy)
    if len(loops) != len(c.b.indices):
        raise ScheduleError("contraction: the copy of the second operand has lost dimensions")
    outer, inner = sch.split(loops[place.column], [None, width])
    shared, sums = [*[loops[n] for n in place.others], outer], [loops[n] for n in place.sums]
    sch.reorder(*shared, *sums, inner)
    _write(ctx, c, sums, inner)
    _share(ctx, copy, shared)
    return {copy.name, *fills}


def pack_near(ctx: RuleContext, anchors: list[BlockRV], c: Contraction, place: LoopRV) -> str:
    """Copy the panel that blocks below a loop read in its iteration, so that it stays near; returns the block."""
    sch, dims = ctx.sch, _places_of(c)
    order = [*dims.others, *dims.sums, dims.column]
    copy = sch.cache_read(anchors[0], c.b.buffer, "global", anchors)
    sch.transform_layout(copy, ("write", 0), lambda *i: [i[n] for n in order])
    sch.compute_at(copy, place, preserve_unit_loops=True)
    loops = sch.get_loops(copy)[-len(order) :]
    sch.reorder(*[loops[n] for n in order])
    _write(ctx, c, [loops[n] for n in dims.sums], loops[dims.column])
    return copy.name


def _places_of(c: Contraction) -> _Places:
    column = next(n for n, i in enumerate(c.b.indices) if i is c.vector)
    sums = [n for n, i in enumerate(c.b.indices) if any(v in used_vars(i) for v in c.reduce)]
    return _Places(column, sums, [n for n in range(len(c.b.indices)) if n not in sums and n != column])


def _write(ctx: RuleContext, c: Contraction, sums: list[LoopRV], column: LoopRV) -> None:
    """Write a panel in vectors."""
    sch, lanes, place = ctx.sch, ctx.lanes(c.output.buffer.dtype), _places_of(c)
    vectors, lane = sch.split(column, [None, lanes])
    if place.sums and place.sums[-1] == len(c.b.indices) - 1:
        steps, step = sch.split(sums[-1], [None, lanes])
        sch.reorder(steps, vectors, step, lane)
        sch.unroll(step)
        sch.annotate(step, TILE_MARK, 1)
    sch.vectorize(lane)


def _share(ctx: RuleContext, block: BlockRV, loops: list[LoopRV]) -> None:
    row = ctx.fuse(loops)
    assert row is not None
    work = ctx.static_work(block, 1)
    ctx.parallel(row, None if work is None else max(1, work // 4))
