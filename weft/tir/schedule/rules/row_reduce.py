"""Reductions with element-wise work around them: softmax, norms, means, pooling.

One pass over rows in parallel, all stages inside.

Two modes. *Rows*: the reduced axis is contiguous, so each row is reduced by vectors of partial results and a short
tree. *Columns*: the output is contiguous along an axis that is not reduced, so neighbouring outputs are lanes of one
accumulator.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd, prod

from weft import ir
from weft.error import ScheduleError
from weft.ir import Cast, DataType, FloorDiv, PrimExpr, Var, as_int, is_const_int, structural_equal, substitute, walk
from weft.tir.analysis.access import loads_of, stores_of
from weft.tir.analysis.dependence import consumers_of, is_plain_store, producers_of, reduce_vars, spatial_vars
from weft.tir.analysis.pattern import element_cost, stride_along
from weft.tir.analysis.structure import is_condition, replace_node, used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.cache import replace_buffer
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.reduction import combiner_of
from weft.tir.schedule.rules.context import RuleContext, is_reduction_block
from weft.tir.schedule.rules.elementwise import flat_suffix, vector_lanes, vectorize_spatial
from weft.tir.schedule.rules.inline import is_window
from weft.tir.stmt import Block, BufferStore

_SHORTEST = 8
"""Elements of a row from which on they are reduced in vectors."""

_FEW = 12
"""Vectors of a row of unknown length up to which its partial results are one vector."""

_NARROW = 4
"""Vectors of columns that are one strip in any case."""

_UNROLL = 4
"""Vectors of an iteration of an element-wise stage."""


def schedule_rows(ctx: RuleContext, group: list[Block]) -> set[str]:
    """Schedule a chain of reductions and element-wise blocks that ends in one output. Returns the blocks' names.

    Raises
    ------
    ScheduleError
        When the blocks have no rows in common.
    """
    reductions = [b for b in group if is_reduction_block(b)]
    if any(combiner_of(b) is None or b.init is None for b in reductions):
        raise ScheduleError("rows: a reduction is not of the form B[i] = B[i] op f")
    sink = _sink(ctx, group)
    _split_divided(ctx, sink)
    rows = _row_axes(ctx, sink, [b.name_hint for b in reductions])
    loops = ctx.sch.get_loops(sink)
    columns = _column_mode(ctx, [b.name_hint for b in reductions])
    names = [b.name_hint for b in group if b.name_hint != sink.name]
    if columns:
        if len(loops) - 1 not in rows:
            raise ScheduleError("rows: the contiguous axis is neither reduced nor shared by all stages")
        _columns(ctx, sink, loops, rows, names)
    else:
        _rows(ctx, sink, loops, rows, names)
    return {b.name_hint for b in group}


def _sink(ctx: RuleContext, group: list[Block]) -> BlockRV:
    """Return the last block, an element-wise one; a reduction that is the output itself gets a copy behind it."""
    last = group[-1]
    if is_reduction_block(last):
        return ctx.sch.cache_write(BlockRV(last.name_hint), 0, "local")
    if any(consumers_of(last, ctx.sch.state.root)):
        raise ScheduleError("rows: the last block is read by others")
    if is_plain_store(last) is None:
        raise ScheduleError("rows: the last block is not one store")
    return BlockRV(last.name_hint)


def _split_divided(ctx: RuleContext, sink: BlockRV) -> None:
    """Split loops of the last block whose variable is divided by a constant: ``c // 8`` picks a group's mean.

    The groups are rows then, and the elements of a group belong to one row.
    """
    realize = ctx.sch.state.realize(sink.name)
    loop_of = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    sizes: dict[Var, int] = {}
    for load in loads_of(realize.block.body):
        for index in load.indices:
            by = as_int(index.b) if isinstance(index, FloorDiv) else None
            divided = index.a if isinstance(index, FloorDiv) else index
            while isinstance(divided, Cast):
                divided = divided.value
            loop = loop_of.get(divided) if isinstance(divided, Var) else None
            if by is not None and by > 1 and isinstance(loop, Var):
                sizes[loop] = by if sizes.get(loop, by) == by else 0
    for loop, by in sizes.items():
        n = ctx.constant(LoopRV(loop))
        if by and n is not None and n % by == 0 and n > by:
            ctx.sch.split(LoopRV(loop), [None, by])


def _row_axes(ctx: RuleContext, sink: BlockRV, reductions: list[str]) -> set[int]:
    """Find the loops of the sink that index the results of reductions, through whatever stands between."""
    state = ctx.sch.state
    realize = state.realize(sink.name)
    position = {f.loop_var: i for i, f in enumerate(ctx.loops(sink))}
    where: dict[str, dict[Var, set[int]]] = {sink.name: {}}
    values = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    analyzer = ctx.analyzer(sink)

    def loops_of(name: str, index: PrimExpr) -> set[int]:
        if name != sink.name:
            return {i for v in used_vars(index) for i in where[name].get(v, set())}
        return {position[v] for v in used_vars(analyzer.simplify(substitute(index, values))) if v in position}

    queue = [sink.name]
    while queue:
        name = queue.pop(0)
        consumer = state.realize(name).block
        for p in producers_of(consumer, state.root):
            target = where.setdefault(p.block.name_hint, {v: set() for v in spatial_vars(p.block)})
            before = {v: set(s) for v, s in target.items()}
            for var, index in _indexed_by(consumer, p.block):
                if var in target:
                    target[var] |= loops_of(name, index)
            if before != target or p.block.name_hint not in queue:
                queue.append(p.block.name_hint)
    return {i for name in reductions for v, s in where.get(name, {}).items() if not _is_unit(ctx, name, v) for i in s}


def _indexed_by(consumer: Block, producer: Block) -> list[tuple[Var, PrimExpr]]:
    """List the variables of a producer's results with the indices at which a consumer reads them."""
    return [
        (r.min, index)
        for w in producer.writes
        for load in loads_of(consumer.body, w.buffer)
        for index, r in zip(load.indices, w.region, strict=True)
        if isinstance(r.min, Var)
    ]


def _is_unit(ctx: RuleContext, name: str, var: Var) -> bool:
    """Whether a variable of a block has one value, or an unknown domain."""
    dom = next(iv.dom for iv in ctx.sch.state.realize(name).block.iter_vars if iv.var is var)
    return dom is None or is_const_int(dom.extent, 1)


def _column_mode(ctx: RuleContext, reductions: list[str]) -> bool:
    """Whether neighbouring outputs are lanes.

    Most reductions read contiguously along the innermost output, or at least not against it.
    """
    votes = 0
    for name in reductions:
        block = ctx.sch.state.realize(name).block
        own = block.writes[0].buffer
        extents = {iv.var: iv.dom.extent for iv in block.iter_vars if iv.dom is not None}
        store = block.body
        assert isinstance(store, BufferStore)
        outputs = [i for i in store.indices if isinstance(i, Var) and not is_const_int(extents.get(i, i), 1)]
        loads = [x for x in loads_of(block.body) if x.buffer is not own and x.indices]
        if not outputs:
            votes -= 1
            continue
        along = [stride_along(x, outputs[-1]) for x in loads]
        inside = any(stride_along(x, v) == 1 for x in loads for v in reduce_vars(block))
        if all(a in (0, 1, 2) for a in along) and any(along) and _short(ctx, block, loads):
            votes += 1  # a window: every other element is loaded in whole vectors too
            continue
        votes += 1 if 1 in along and all(a in (0, 1) for a in along) else -1 if inside else 1 if 1 in along else -1
    return votes > 0


def _short(ctx: RuleContext, block: Block, loads: list[BufferLoad]) -> bool:
    """Whether the contiguous reduction of a block is shorter than a vector."""
    lanes = vector_lanes(ctx, block)
    extents = {iv.var: as_int(iv.dom.extent) for iv in block.iter_vars if iv.dom is not None}
    contiguous = [v for v in reduce_vars(block) if any(stride_along(x, v) == 1 for x in loads)]
    return all((extents.get(v) or lanes) < lanes for v in contiguous)


def _rows(ctx: RuleContext, sink: BlockRV, loops: list[LoopRV], rows: set[int], names: list[str]) -> None:
    sch = ctx.sch
    work = _work(ctx, [*names, sink.name], rows, loops)
    outer, inner = [x for i, x in enumerate(loops) if i in rows], [x for i, x in enumerate(loops) if i not in rows]
    if outer and inner:
        sch.reorder(*outer, *inner)
    row = ctx.fuse(outer) if outer else (sch.add_unit_loop(loops[0]) if loops else sch.add_unit_loop(sink))
    assert row is not None
    unroll = ctx.choose("unroll", (1, 2, 4, 8), _UNROLL)
    stages: list[str] = []
    for name in names:
        block = ctx.sch.state.realize(name).block
        stages += _partial_results(ctx, name) if is_reduction_block(block) else [name]
    for name in reversed(stages):
        sch.compute_at(BlockRV(name), row)
        _keep_near(ctx, BlockRV(name))
    ctx.parallel(row, work)  # before loops are split: rows are told apart sooner
    merged = {n for pair in pairwise(stages) if _sum_as_made(ctx, *map(BlockRV, pair)) for n in pair}
    for name in (n for n in stages if n not in merged):
        rv = BlockRV(name)
        if is_reduction_block(ctx.block(rv)):
            _inner_reduction(ctx, rv, 1)
        else:
            _elements(ctx, rv, unroll)
    if inner:
        _elements(ctx, sink, unroll)
        ctx.stream(row, sink)
        for name in names:
            _lie_in_result(ctx, BlockRV(name), sink)


def _lie_in_result(ctx: RuleContext, made: BlockRV, sink: BlockRV) -> None:
    """Keep elements from which the result is made one by one in its place, if it lies beyond the second cache.

    Its lines come while the elements are computed; whoever only scales them would wait for each.
    """
    block, state, (written, *others) = ctx.block(made), ctx.sch.state, stores_of(ctx.block(sink).body)
    old, new = block.writes[0].buffer, written.buffer
    loads, shape = loads_of(ctx.block(sink).body, old), [as_int(d) or 0 for d in new.shape]
    size = prod(shape) * DataType(new.dtype).itemsize
    if (
        not (state.is_argument(new) and state.func.attrs.get("tir.noalias"))
        or others
        or is_reduction_block(block)
        or not (ctx.machine.l2_cache_bytes < size < ctx.machine.streamed_output_bytes)
        or (old.dtype, [as_int(d) for d in old.shape]) != (new.dtype, shape)
        or not loads
        or not all(structural_equal(x.indices, written.indices) for x in loads)
        or loads_of(state.root, new)
    ):
        return
    state.dealloc(old)
    state.rewrite_body(lambda body: substitute(body, {old: new}))


def _elements(ctx: RuleContext, rv: BlockRV, unroll: int) -> None:
    """Compute the elements of a row in vectors; those of a short row one by one, so that rows are lanes for LLVM.

    It does not make vectors of functions of float64.
    """
    inner, narrow = ctx.sch.get_loops(rv)[1:], DataType(ctx.block(rv).writes[0].buffer.dtype).bits < 64
    if narrow and len(inner) == 1 and (ctx.constant(inner[0]) or _SHORTEST) < _SHORTEST:
        ctx.sch.unroll(inner[0])
    else:
        vectorize_spatial(ctx, rv, 1, unroll)


def _work(ctx: RuleContext, names: list[str], rows: set[int], loops: list[LoopRV]) -> int | None:
    """Estimate the work of one row over all stages."""
    total, n_rows = 0, prod(ctx.constant(loops[i]) or 0 for i in rows)
    for name in names:
        work = ctx.static_work(BlockRV(name))
        if work is None or n_rows == 0:
            return None
        total += work
    return max(1, total // n_rows // 8)


def _partial_results(ctx: RuleContext, name: str) -> list[str]:
    """Cut a reduction into vectors of partial results and a tree over them; returns the stages in order."""
    sch = ctx.sch
    rv = BlockRV(name)
    block = ctx.block(rv)
    lanes = vector_lanes(ctx, block)
    reducing = _loop_vars(ctx, rv, "reduce")
    loops = [x for x in sch.get_loops(rv) if x.var in reducing]
    flat = flat_suffix(ctx, rv, sch.get_loops(rv))
    fused = ctx.fuse(loops[max(0, len(loops) - flat) :]) if len(loops) > 1 else loops[-1]
    assert fused is not None
    n = ctx.constant(fused)
    if n is not None and n < 2 * lanes:
        lanes = min(lanes, (1 << n.bit_length()) // 2)
        if lanes < _SHORTEST:
            if len(loops) == 1 or n < 3:
                return [name]
            return [sch.rfactor(fused, len(block.writes[0].buffer.shape)).name, name]  # rows are summed as they lie
    many = ctx.machine.fma_latency  # independent partial results, while an addition takes its time
    accumulators = many if n is None or n >= many * lanes else 1
    options = [a for a in (1, 2, 4, 8) if n is None or n >= a * lanes]
    around = {x.var for x in sch.get_loops(rv)}
    if n is None and not any(isinstance(x, BufferLoad) or x in around for x in walk(ctx.extent(fused))):
        ctx.record.few_elements.append((ctx.extent(fused), _FEW * lanes))
    width = lanes * (1 if ctx.record.expects_few else ctx.choose("accumulators", options, accumulators))
    total, first_width = ctx.extent(fused), width
    _, inner = sch.split(fused, [None, width])
    stages = [sch.rfactor(inner, len(block.writes[0].buffer.shape)).name]
    part = lanes
    while part > 1:  # a tree of halves: as many steps as the logarithm of the width, each one vector operation
        if part < width:
            last = sch.get_loops(rv)[-1]
            _, inner = sch.split(last, [None, part])
            stages.append(sch.rfactor(inner, len(block.writes[0].buffer.shape)).name)
            width = part
        part //= 2
    ctx.whole_steps[stages[0]] = total // first_width
    return [*stages, name]


def _keep_near(ctx: RuleContext, rv: BlockRV) -> None:
    """Put a row buffer on the stack when it is small."""
    limit, spatial = ctx.machine.stack_buffer_bytes, _loop_vars(ctx, rv, "data_par")
    if 4 * prod(ctx.most(f.extent) or limit for f in ctx.loops(rv)[1:] if f.loop_var in spatial) <= limit:
        ctx.sch.set_scope(rv, 0, "local")
        buffer = ctx.block(rv).writes[0].buffer
        shape = tuple(d if (n := ctx.most(d)) is None else ir.const(n, d.dtype) for d in buffer.shape)
        replace_buffer(ctx.sch.state, buffer, replace_node(buffer, shape=shape))


def _loop_vars(ctx: RuleContext, rv: BlockRV, kind: str) -> set[Var]:
    """Return the variables of loops that give values to variables of a block of one kind."""
    realize = ctx.sch.state.realize(rv.name)
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {x for iv, v in pairs if iv.iter_type == kind for x in used_vars(v)}


def _results_inside(ctx: RuleContext, rv: BlockRV, depth: int) -> tuple[list[LoopRV], list[LoopRV]]:
    """Put the loops of a reduction around those of its results; returns both."""
    results, loops = _loop_vars(ctx, rv, "data_par"), ctx.sch.get_loops(rv)[depth:]
    reducing, spatial = [x for x in loops if x.var not in results], [x for x in loops if x.var in results]
    if spatial and reducing:
        ctx.sch.reorder(*reducing, *spatial)
    return reducing, spatial


def _inner_reduction(ctx: RuleContext, rv: BlockRV, depth: int, apart: bool = False) -> None:
    """Order a stage of a row's reduction: reduction loops outside, vectors of partial results inside; init before.

    `apart`: results that fill no vector are loops of their own.
    """
    sch = ctx.sch
    reducing, spatial = _results_inside(ctx, rv, depth)
    lanes = vector_lanes(ctx, ctx.block(rv))
    if apart and reducing:
        for block in (sch.decompose_reduction(rv, reducing[0]), rv):
            main = ctx.vectorize_loop(sch.get_loops(block)[-1], lanes)
            if (ctx.constant(main) or lanes) <= _NARROW:
                sch.unroll(main)
        return
    if spatial:
        _straight_vectors(ctx, spatial[-1], lanes)
    if reducing:
        n = ctx.constant(reducing[-1])
        sch.decompose_reduction(rv, reducing[0])
        if n is not None and n < (5 if spatial else _SHORTEST):
            sch.unroll(reducing[-1])
        elif spatial:
            _peel_last(ctx, rv, reducing[-1])


def _sum_as_made(ctx: RuleContext, made: BlockRV, partial: BlockRV) -> bool:
    """Add elements of a row to partial results as they are made, if they are: no pass reads them again.

    Their function is of one wide vector, whose registers go through it side by side: one behind another they would
    fill the scheduler.
    """
    sch, block, sums = ctx.sch, ctx.block(made), ctx.block(partial)
    read = any(p.block is block for p in producers_of(sums, sch.state.root))
    if not read or is_reduction_block(block) or partial.name not in ctx.whole_steps:
        return False
    reducing, results = _results_inside(ctx, partial, 1)
    elements, width = sch.get_loops(made)[1:], ctx.constant(results[0]) if len(results) == 1 else None
    if len(reducing) != 1 or len(elements) != 1 or width is None:
        return False
    if width <= vector_lanes(ctx, sums) and ctx.constant(reducing[0]) is not None:
        return False
    step, inner = sch.split(elements[0], [None, width])
    try:
        merged = sch.merge(step, reducing[0])
    except ScheduleError:  # what is summed is made in another order
        return False
    for loop in (inner, results[0]):
        sch.vectorize(loop)
    sch.decompose_reduction(partial, merged)
    sch.loop_partition(merged, [ctx.whole_steps[partial.name], None])
    return True


def _peel_last(ctx: RuleContext, rv: BlockRV, loop: LoopRV) -> None:
    """Run the steps whose lanes are all inside apart, so that only the last one asks."""
    whole = ctx.whole_steps.get(rv.name)
    asks = any(is_condition(e) for e in walk(ctx.block(rv).body))
    if whole is not None and asks and as_int(ctx.analyzer(rv).simplify(whole)) != 0:
        ctx.sch.loop_partition(loop, [whole, None])


def _columns(
    ctx: RuleContext, sink: BlockRV, loops: list[LoopRV], rows: set[int], names: list[str], strip: int | None = None
) -> None:
    sch = ctx.sch
    lanes = min(vector_lanes(ctx, ctx.block(BlockRV(n))) for n in [*names, sink.name])
    width = ctx.constant(loops[-1])
    cost = sum(element_cost(ctx.block(BlockRV(n)).body) for n in names)
    variables = [iv for name in names for iv in ctx.block(BlockRV(name)).iter_vars if iv.iter_type == "reduce"]
    per_output = prod(as_int(iv.dom.extent) or 64 for iv in variables if iv.dom is not None)
    strips = [u for u in (1, 2, 4, 8, 16) if width is None or width >= u * lanes]
    # rows of images of unknown size may be short, and a window has few elements to wait for
    short = width is None and all(is_window(ctx.block(BlockRV(n))) for n in names)
    vectors = 1 if short else _vectors_a_strip(ctx, width, lanes, len(names))
    outer_part = [x for i, x in enumerate(loops) if i in rows and i != len(loops) - 1]
    streamed = _streamed_columns(ctx, names, width, lanes, prod(ctx.constant(x) or 1 for x in outer_part))
    tile = streamed or lanes * (strip or ctx.choose("strip", strips, vectors))
    if width is not None and width % tile and width > _NARROW * lanes and len(names) == 1 and len(rows) == len(loops):
        parts = _whole_strips(ctx, sink, BlockRV(names[0]), width // tile * tile)
        for (part, summed), n in zip(
            parts, (tile // lanes, _vectors_a_strip(ctx, width % tile, lanes, 1)), strict=True
        ):
            _columns(ctx, part, sch.get_loops(part), rows, [summed.name], n)
        return
    inner = [x for i, x in enumerate(loops) if i not in rows]
    narrow = width if width is not None and width <= _NARROW * lanes else None
    apart = streamed is not None or (narrow is not None and narrow > lanes and narrow % lanes > 0)
    column, vector = sch.split(loops[-1], [1, narrow] if narrow else [None, tile])
    sch.reorder(*outer_part, column, *inner, vector)
    few = _rows_of_vectors(width, lanes)
    stages = [s for name in names for s in (_partial_columns(ctx, name, few) if few else [name])]
    for name in reversed(stages):
        sch.compute_at(BlockRV(name), column)
        _keep_near(ctx, BlockRV(name))
    depth = len(sch.get_loops(sink)) - len(inner) - 1
    for name in stages:
        rv = BlockRV(name)
        if is_reduction_block(ctx.block(rv)):
            if name in ctx.whole_steps:  # the partial results of all columns are one loop
                ctx.fuse(_results_inside(ctx, rv, depth)[1])
            _inner_reduction(ctx, rv, depth, apart)
        elif not (few and _several_rows(ctx, rv, depth, few, lanes)):
            vectorize_spatial(ctx, _rest_apart(ctx, rv, depth, lanes) if apart else rv, depth)
    if streamed:
        ctx.vectorize_loop(vector, lanes)
    elif not (few and inner and _several_rows(ctx, sink, depth, few, lanes)):
        _straight_vectors(ctx, vector, lanes)
    row = ctx.fuse([*outer_part, column])
    assert row is not None
    ctx.parallel(row, max(1, cost * per_output * tile // lanes))


def _whole_strips(ctx: RuleContext, sink: BlockRV, summed: BlockRV, length: int) -> list[tuple[BlockRV, BlockRV]]:
    """Leave columns that fill no strip to loops of their own, so that no strip asks where its columns end.

    Returns what writes the results and what sums them, of both stretches.
    """
    sch = ctx.sch
    *others, column = sch.get_loops(sink)
    sch.reorder(column, *others)
    parts = [sch.get_child_blocks(x)[0] for x in sch.loop_partition(column, [length, None])]
    for part in parts:
        first, *rest = sch.get_loops(part)
        sch.reorder(*rest, first)
    return list(zip(parts, sch.split_consumers(summed, parts), strict=True))


def _rows_of_vectors(width: int | None, lanes: int) -> int:
    """Return how many rows of few columns fill whole vectors; 0 where a row of its own fills half of one."""
    return lanes // gcd(lanes, width) if width is not None and 1 < width <= lanes // 2 else 0


def _lie_side_by_side(ctx: RuleContext, rv: BlockRV, row: LoopRV, column: LoopRV, least: int) -> bool:
    """Whether a block walks at least so many rows of few columns, each of which begins where another ends."""
    n, width, realize = ctx.constant(row), ctx.constant(column), ctx.sch.state.realize(rv.name)
    values = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    along = [iv.var for x in (row, column) for iv, v in values if x.var in used_vars(v)]
    if width is None or len(along) != 2 or (n is not None and n < least):
        return False
    accesses = [*loads_of(realize.block.body), *stores_of(realize.block.body)]
    strides = {tuple(stride_along(a, v) for v in along) for a in accesses if a.indices}
    return strides <= {(width, 1), (1, 0), (0, 1), (0, 0)}


def _partial_columns(ctx: RuleContext, name: str, rows: int) -> list[str]:
    """Cut a reduction of few columns into those of every `rows`-th row and one over them; returns both in order."""
    sch, rv, block = ctx.sch, BlockRV(name), ctx.block(BlockRV(name))
    loops, variables = sch.get_loops(rv), _loop_vars(ctx, rv, "reduce")
    reducing = [x for x in loops if x.var in variables]
    columns = [x for x in loops if x not in reducing]
    if not (reducing and columns and _lie_side_by_side(ctx, rv, reducing[-1], columns[-1], 4 * rows)):
        return [name]
    steps = ctx.extent(reducing[-1]) // rows
    partial = sch.rfactor(sch.split(reducing[-1], [None, rows])[1], len(block.writes[0].buffer.shape) - 1).name
    ctx.whole_steps[partial] = steps
    return [partial, name]


def _several_rows(ctx: RuleContext, rv: BlockRV, depth: int, rows: int, lanes: int) -> bool:
    """Compute an element-wise stage of few columns in vectors of several rows, and the last rows one by one."""
    loops = ctx.sch.get_loops(rv)[depth:]
    if len(loops) < 2 or not _lie_side_by_side(ctx, rv, loops[-2], loops[-1], rows):
        return False
    whole, *rest = ctx.sch.loop_partition(loops[-2], [ctx.extent(loops[-2]) // rows * rows, None])
    for part in (whole, *rest):
        row, column = ctx.sch.get_loops(ctx.sch.get_child_blocks(part)[0])[-2:]
        if part is whole:
            joined = ctx.sch.fuse(ctx.sch.split(row, [None, rows])[1], column)
            ctx.vectorize_loop(joined, lanes, (ctx.constant(joined) or lanes) // lanes)
        else:
            ctx.sch.vectorize(column)
    return True


def _rest_apart(ctx: RuleContext, rv: BlockRV, depth: int, lanes: int) -> BlockRV:
    """Walk columns that fill no vector by themselves, down their rows, which are lanes for LLVM; returns the others."""
    sch, loops = ctx.sch, ctx.sch.get_loops(rv)[depth:]
    width = ctx.constant(loops[-1])
    if len(loops) != 2 or width is None or width < lanes or width % lanes == 0:
        return rv
    sch.reorder(*loops[::-1])
    whole = sch.get_child_blocks(sch.loop_partition(loops[1], [width // lanes * lanes, None])[0])[0]
    sch.reorder(*sch.get_loops(whole)[depth:][::-1])
    return whole


def _vectors_a_strip(ctx: RuleContext, width: int | None, lanes: int, n_results: int) -> int:
    """Choose how many vectors of columns go down the rows together.

    Wide strips read whole stretches of memory in a row; they end where results fill half of the registers, where cores
    would be left without a strip, or where more than an eighth of their lanes would have no column.
    """
    vectors = -(-(width or 4 * lanes) // lanes)
    for u in (16, 8, 4, 2):
        if (width or 4 * lanes) < u * lanes or 8 * (-vectors % u) > vectors:
            continue
        in_registers = u * n_results <= ctx.machine.vector_registers // 2
        if u <= 4 or (in_registers and (width or 0) // (u * lanes) >= ctx.machine.cores):
            return u
    return 1


def _streamed_columns(ctx: RuleContext, names: list[str], width: int | None, lanes: int, tasks: int) -> int | None:
    """Return how many columns go down the rows together where rows from beyond the second cache are read as streams.

    The first cache holds their results then: registers hold those of few cache lines of a row.
    """
    block, machine = ctx.block(BlockRV(names[0])), ctx.machine
    sizes = [prod(as_int(d) or 0 for d in x.buffer.shape) * DataType(x.dtype).bits // 8 for x in loads_of(block.body)]
    largest = max(sizes, default=0)
    near = largest <= machine.l2_cache_bytes or machine.vector_registers // 2 * machine.vector_bits >= 8192
    if near or width is None or len(names) > 1 or is_window(block):
        return None
    strips = max(-(-width * machine.vector_bits // (8 * lanes * machine.page_bytes)), -(-machine.cores // tasks))
    exact = next((n for n in range(strips, 2 * strips + 2) if width % n == 0), width)  # no strip asks for its end
    return width // exact if width // exact >= 16 * lanes else None


def _straight_vectors(ctx: RuleContext, loop: LoopRV, lanes: int) -> None:
    """Make vectors of a loop, in straight code where they are whole."""
    n = ctx.constant(loop)
    if n is None or n <= lanes or n % lanes:
        ctx.vectorize_loop(loop, lanes)
        return
    outer, inner = ctx.sch.split(loop, [None, lanes])
    ctx.sch.vectorize(inner)
    ctx.sch.unroll(outer)
