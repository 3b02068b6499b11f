"""Maxima and sums over windows whose results are contiguous: pooling, channels first, and sums over odd columns.

Lanes are neighbouring results. A row is cut into strips of some vectors, whose results stay in registers while the
window is walked, and what is left of it into vectors half as long, then half of that: no lane is masked but behind rows
of unknown length where that is free, and no strip asks where it is.
"""

from __future__ import annotations

from math import prod

from weft.arith import Analyzer
from weft.error import ScheduleError
from weft.ir import PrimExpr, Var, as_int, int64, walk
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.dependence import reduce_vars
from weft.tir.analysis.pattern import stride_along
from weft.tir.analysis.structure import is_condition, used_vars
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.reduction import combiner_of
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.depthwise import padding_block
from weft.tir.schedule.rules.elementwise import vector_lanes, vectorize_spatial
from weft.tir.schedule.rules.epilogue import attach_epilogue, loop_over
from weft.tir.stmt import Block, BufferStore

_STRIP = 4
"""Vectors of results that are under way at once, as long as an operation takes."""

_STRIP_OF_UNKNOWN = 1
"""The same for rows of unknown length, which may be short."""

_SHORTEST, _FURTHEST = 4, 8
"""Results of a row that are worth vectors, and elements between windows, whose lanes are picked from whole vectors."""

_WRITTEN_OUT = 32
"""Operations on vectors up to which the walk over a window is straight code."""


def schedule_windows(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a reduction over windows. Returns the names of the blocks that are done.

    Raises
    ------
    ScheduleError
        Where results are not contiguous, a row is short, or elements are conditional.
    """
    rv = BlockRV(name)
    block = ctx.block(rv)
    column = _column(block)
    if column is None:
        raise ScheduleError("windows: results are not contiguous along what the windows move by little")
    if any(is_condition(n) for n in walk(block.body)):
        raise ScheduleError("windows: elements stand under conditions")
    lanes = vector_lanes(ctx, block)
    steps = prod(
        as_int(iv.dom.extent) or 0 for iv in block.iter_vars if iv.iter_type == "reduce" and iv.dom is not None
    )
    sink, loop_of = attach_epilogue(ctx, rv)
    row = loop_over(loop_of, column, "windows")
    n, loops = ctx.constant(row), ctx.sch.get_loops(sink)
    if (n is not None and n < min(lanes, _SHORTEST)) or loops[-1].var is not row.var:
        raise ScheduleError("windows: a row is short")
    together = ctx.choose("strip", (1, 2, 4, 8), _STRIP if n is not None else _STRIP_OF_UNKNOWN)
    beside = all(stride_along(x, column) in (0, 1) for x in loads_of(block.body)) and ctx.machine.masks_freely
    strips = _strips(n, lanes, together) if n else _unknown_strips(ctx.extent(row), lanes, together, beside)
    sch, padding = ctx.sch, padding_block(ctx, block)
    parts = sch.loop_partition(row, [length for length, _ in strips]) if len(strips) > 1 else [row]
    sinks = [sink] if len(parts) == 1 else [sch.get_child_blocks(p)[0] for p in parts]
    sums = [rv] if len(parts) == 1 else sch.split_consumers(rv, sinks)
    for part, one, (_, tile) in zip(parts, sums, strips, strict=True):
        _strip(ctx, one, part, tile, min(lanes, tile), steps)
    done = {x.name for x in (*sums, *sinks)}
    # a row that was just copied is not read at once
    moved = max(_moved(block), 2 if _are_enough(ctx, loops[:-2]) else 1)
    images, rows = loops[:-moved], [ctx.constant(x) for x in loops[-moved:-1]]
    apart = padding is not None or n is None or None in rows  # rows of unknown number are found by division
    n = n or together * lanes
    if apart and _are_enough(ctx, images):
        task, n = ctx.fuse(images), n * prod(x or 1 for x in rows)
        assert task is not None
        if padding is not None:
            sch.compute_at(padding, task)  # a padded image stays near
            vectorize_spatial(ctx, padding, 1)
            done.add(padding.name)
    else:
        task = ctx.fuse(loops[:-1])
    if task is not None:
        ctx.parallel(task, max(1, n * max(steps, 1) // lanes))
    return done


def _are_enough(ctx: RuleContext, loops: list[LoopRV]) -> bool:
    """Whether loops make tasks for all cores by what is known of their sizes: numbers, or what divides them."""
    known = [(ctx.constant(x), Analyzer().modular_set(ctx.extent(x))) for x in loops]
    return prod(n or (m.coeff if m.base == 0 else 1) for n, m in known) >= 2 * ctx.machine.cores


def ends_inside(ctx: RuleContext, block: Block) -> bool:
    """Whether rows of results end inside a vector, and there are rows enough for all cores."""
    column, lanes = _column(block), vector_lanes(ctx, block)
    sizes = {iv.var: as_int(iv.dom.extent) for iv in block.iter_vars if iv.dom is not None}
    kinds = {iv.var: iv.iter_type for iv in block.iter_vars}
    if column is None or not sizes.get(column) or not (sizes[column] or 0) % lanes:
        return False
    rows = prod(sizes[v] or 1 for v in sizes if kinds[v] == "data_par" and v is not column)
    return rows >= 2 * ctx.machine.cores


def _column(block: Block) -> Var | None:
    """Return the variable along which results are contiguous and elements near each other."""
    store = block.body
    if block.init is None or not isinstance(store, BufferStore) or combiner_of(block) is None:
        return None
    column = store.indices[-1] if store.indices else None
    loads = [x for x in loads_of(block.body) if x.buffer is not store.buffer]
    if not isinstance(column, Var) or not loads:
        return None
    return column if all(0 < (stride_along(x, column) or 0) < _FURTHEST for x in loads) else None


def _moved(block: Block) -> int:
    """How many dimensions of the results there are from the first that moves a window; those ahead name images."""
    reducing, indices = set(reduce_vars(block)), [used_vars(i) for x in loads_of(block.body) for i in x.indices]
    moving = {v for i in indices if i & reducing for v in i - reducing}
    assert isinstance(block.body, BufferStore)
    results = block.body.indices
    return next((len(results) - at for at, v in enumerate(results) if v in moving), 1)


def _unknown_strips(n: PrimExpr, lanes: int, together: int, masked: bool) -> list[tuple[PrimExpr | None, int]]:
    """Cut a row of unknown length: what is left behind whole vectors in halves while they are vectors, or in a mask.

    Nothing is left behind tiles of which the row is known to be a multiple.
    """
    halves = [lanes >> i for i in range(lanes.bit_length()) if i == 0 or lanes >> i >= _SHORTEST]
    tiles = [lanes, lanes] if masked else list(dict.fromkeys([together * lanes, *halves, 1]))
    known = Analyzer().modular_set(n)
    last = next((i for i, t in enumerate(tiles) if known.coeff % t == known.base % t == 0), len(tiles) - 1)
    ends = [int64(0), *(n // t * t for t in tiles[:last])]
    return [*((b - a, t) for a, b, t in zip(ends, ends[1:], tiles, strict=False)), (None, tiles[last])]


def _strips(n: int, lanes: int, together: int) -> list[tuple[int, int]]:
    """Cut a row into (length, results of a strip)."""
    vectors, rest = divmod(n, lanes)
    whole, some = divmod(vectors, together)
    found = [(whole * together * lanes, together * lanes), (some * lanes, some * lanes)]
    while rest:
        part = 1 << (rest.bit_length() - 1)
        found.append((part, part))
        rest -= part
    return [(length, tile) for length, tile in found if length]


def _strip(ctx: RuleContext, rv: BlockRV, part: LoopRV, tile: int, lanes: int, steps: int) -> None:
    """Compute strips of `tile` results where they are stored: the window outside, vectors inside, all written out."""
    sch = ctx.sch
    place, inner = sch.split(part, [None, tile])
    sch.compute_at(rv, place)
    sch.set_scope(rv, 0, "local")
    loops = ctx.below(rv, place)
    realize = sch.state.realize(rv.name)
    kinds = {v: iv.iter_type for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    window = [x for x in loops if kinds.get(x.var) == "reduce"]
    results = [x for x in loops if all(x.var is not w.var for w in window)]
    sch.reorder(*window, *results)
    for loop in (*results[-1:], inner):
        vectors, lane = sch.split(loop, [None, lanes])
        sch.unroll(vectors)
        if lanes > 1:
            sch.vectorize(lane)
    if window:
        sch.decompose_reduction(rv, window[0])
    for loop in window[-1:] if steps * tile // lanes > _WRITTEN_OUT else window:
        if (ctx.constant(loop) or 0) * tile // lanes <= _WRITTEN_OUT:
            sch.unroll(loop)
