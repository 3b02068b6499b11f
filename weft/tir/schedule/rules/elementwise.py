"""Element-wise, broadcasting and data-moving blocks: flat loops, chunks in parallel, the contiguous axis in vectors."""

from __future__ import annotations

from math import prod

from weft.arith import Analyzer
from weft.ir import (
    GE,
    GT,
    LE,
    LT,
    CallIntrin,
    PrimExpr,
    Var,
    as_int,
    cast,
    const,
    find,
    int64,
    rewrite,
    structural_equal,
    substitute,
)
from weft.tir.analysis.access import loads_of, stores_of
from weft.tir.analysis.dependence import is_plain_store
from weft.tir.analysis.pattern import element_cost, is_costly, stride_along
from weft.tir.analysis.structure import calls, conjuncts, replace_node, used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.schedule.cache import put_stage
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.stmt import Block, BufferStore
from weft.tir.transform.transpose_tiles import TILE_MARK

_TILE_ROWS = 16
"""Rows of a tile that is transposed in registers: half of 32 registers."""

_LEAST_TILE = 4
"""Rows of a tile from which on turning it is better than storing its elements one by one."""

_TILES_TOGETHER = 16
"""Tiles of a strip that are walked before the next strip begins, where rows lie so that they meet in few cache sets."""

_NARROW = 8
"""Elements side by side from which on a tile that is transposed is better than vectors that run over several rows."""


def schedule_spatial(ctx: RuleContext, rv: BlockRV) -> None:
    """Schedule a data-parallel block that stands alone at the root."""
    sch = ctx.sch
    loops = sch.get_loops(rv)
    while len(loops) > 1 and ctx.constant(loops[-1]) == 1:
        loops[-2:] = [sch.fuse(*loops[-2:])]
    if not loops:
        return
    block = ctx.block(rv)
    if (byte := _byte_of(block)) is not None:
        _look_up(ctx, rv, byte, loops)
        return
    tile = _transposed_axis(ctx, rv, block, loops)
    few = ctx.constant(loops[-1]) if len(loops) > 1 and tile in (None, len(loops) - 2) else None
    few = few if few and few < _NARROW and few % vector_lanes(ctx, block) else None
    few = few if few and (tile is not None or _repeats(ctx, rv, block, loops)) else None
    if few:
        loops[-2:] = [sch.fuse(*loops[-2:])]
    elif tile is not None:
        _tile_transpose(ctx, rv, loops, tile)
        return
    outer, inner = split_nest(ctx, rv, loops)
    cost = element_cost(block.body)
    lanes = vector_lanes(ctx, block)
    n = ctx.constant(inner)
    times = _around_short_row(ctx, outer, n, lanes)
    row = ctx.fuse(outer)
    lanes *= few if few and lanes % few else 1  # a vector begins at the same element of a few each time
    unroll = ctx.choose("unroll", (1, 2, 4), 1)
    lengths = _stretches(ctx, rv, inner)
    if row is not None:
        ctx.stream(row, rv)
        ctx.parallel(row, None if n is None else max(1, cost * n * times // lanes))
    elif lengths:
        ctx.stream(inner, rv)
    whole = [] if _is_copy(ctx, row, block) else [inner]
    parts = sch.loop_partition(inner, lengths) if lengths else whole
    for length, part in zip(lengths or [n], parts, strict=False):
        main = ctx.vectorize_loop(part, lanes, unroll, not few)
        if main is part or (n is not None and length != max(lengths, default=n)):  # type: ignore[type-var]
            continue
        if row is None and not lengths:
            ctx.stream(main, rv)
        if row is None or ctx.constant(row) == 1:
            ctx.parallel(main, cost)  # an iteration is one vector: about the cost of one element of scalar work


def _is_copy(ctx: RuleContext, row: LoopRV | None, block: Block) -> bool:
    """Whether rows are copied as they lie, for which LLVM calls memcpy: lines that are written whole are not read."""
    store = is_plain_store(block)
    if row is None or ctx.constant(row) == 1 or store is None or not isinstance(store.value, BufferLoad):
        return False
    streamed = "pragma_stream" in dict(ctx.sch.state.loop(row.var).annotations)
    last = store.indices[-1]
    in_order = isinstance(last, Var) and stride_along(store.value, last) == 1
    return in_order and not streamed and store.value.dtype != "bool"


_FEWEST, _WORTH, _TOGETHER = 1024, 24, 8
"""Elements, and work of each, for which a table takes less time; lookups of one iteration. A lookup takes a cycle, in
which vectors of 256 bits do some 16 units of :func:`element_cost`, of 512 some 30 (sigmoid: 2.2 and 1.2 cycles)."""


def _byte_of(block: Block) -> BufferLoad | None:
    """Return the load of a byte that alone decides a value which is costly, for enough elements."""
    store, own = is_plain_store(block), {iv.var for iv in block.iter_vars}
    sizes = [as_int(iv.dom.extent) for iv in block.iter_vars if iv.dom is not None]
    if store is None or not is_costly(store.value) or element_cost(store.value) < _WORTH:
        return None
    byte = next((x for x in loads_of(store.value) if not own.isdisjoint(used_vars(x.indices))), None)
    if byte is None or byte.dtype not in ("uint8", "int8") or prod(n or _FEWEST for n in sizes) < _FEWEST:
        return None
    return byte if own.isdisjoint(used_vars(_with(store.value, byte, const(0, byte.dtype)))) else None


def _with(value: PrimExpr, load: BufferLoad, given: PrimExpr) -> PrimExpr:
    """Put an expression in the place of all loads of one element."""
    return rewrite(value, lambda n: given if isinstance(n, BufferLoad) and structural_equal(n, load) else n)


def _look_up(ctx: RuleContext, rv: BlockRV, byte: BufferLoad, loops: list[LoopRV]) -> None:
    """Compute what each value of a byte leads to, and look the elements up, some in each iteration."""
    sch, store, low = ctx.sch, is_plain_store(ctx.block(rv)), int64(0 if byte.dtype == "uint8" else -128)
    assert store is not None

    def read(node: object, table: Buffer) -> object:
        looked_up = BufferLoad(table, (cast("int64", byte) - low,))
        return replace_node(node, value=looked_up) if isinstance(node, BufferStore) else node

    values, name = lambda v: _with(store.value, byte, cast(byte.dtype, v + low)), f"{store.buffer.name}_table"
    stage = put_stage(sch.state, rv.name, name, (int64(256),), values, read)
    vectorize_spatial(ctx, BlockRV(stage), 0)
    ctx.record.take("elementwise", {stage})
    outer, inner = split_nest(ctx, rv, loops)
    n, row, whole = ctx.constant(inner), ctx.fuse(outer), ctx.extent(inner) // _TOGETHER * _TOGETHER
    parts = sch.loop_partition(inner, [whole, None]) if n is None or n % _TOGETHER else [inner]
    some, each = sch.split(parts[0], [None, _TOGETHER])
    sch.unroll(each)
    ctx.parallel(some if row is None or ctx.constant(row) == 1 else row, _TOGETHER if row is None else n)


def _around_short_row(ctx: RuleContext, outer: list[LoopRV], n: int | None, lanes: int) -> int:
    """Take short loops around a row of few vectors off `outer`: their places are not found by division for each row.

    Returns how many rows they walk.
    """
    times = 1
    while n is not None and n <= 2 * lanes and len(outer) > 2 and times < _ROWS_APART:
        inside, tasks = ctx.constant(outer[-1]), prod(ctx.constant(x) or _ROWS_APART for x in outer[:-1])
        if inside is None or inside > _ROWS_APART or tasks < 2 * ctx.machine.cores:
            break
        times *= inside
        outer.pop()
    return times


_ROWS_APART = 64
"""Short rows for which places are found once."""

_MOST_STRETCHES = 16
"""Pieces that a row is cut into at most: each is code of its own."""


def _stretches(ctx: RuleContext, rv: BlockRV, inner: LoopRV) -> list[int] | list[PrimExpr | None]:
    """Find where conditions on the innermost variable of a block begin or cease to hold.

    Return the lengths of the stretches between, in which they need no test, None for what is left; none where there is
    one stretch, or where sizes are unknown and so is the order of the stretches.
    """
    extent, cuts = ctx.extent(inner), _cuts(ctx, rv, inner)
    if (n := as_int(extent)) is not None:
        places = sorted({0, *(at for c in cuts if (at := as_int(c)) is not None and 0 < at < n)})
        lengths = [b - a for a, b in zip(places, [*places[1:], n], strict=True)]
        return lengths if 1 < len(places) <= _MOST_STRETCHES else []
    analyzer, starts = ctx.analyzer(rv), [const(0, extent.dtype)]
    starts += [c for i, c in enumerate(cuts) if not any(structural_equal(c, x) for x in cuts[:i])]
    ends = [*starts[1:], extent]
    if not all(analyzer.can_prove(a <= b) for a, b in zip(starts, ends, strict=True)):
        return []
    parts = [part for a, b in zip(starts, ends, strict=True) if as_int(part := analyzer.simplify(b - a)) != 0]
    return [*parts[:-1], None] if 1 < len(parts) <= _MOST_STRETCHES else []


def _cuts(ctx: RuleContext, rv: BlockRV, inner: LoopRV) -> list[PrimExpr]:
    """List the values of a loop at which a condition of a block on its variable changes."""
    realize = ctx.sch.state.realize(rv.name)
    own = [iv.var for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if v is inner.var]
    if len(own) != 1:
        return []
    choices = [e.args[0] for e in find(realize.block.body, CallIntrin) if calls(e, "if_then_else")]
    conditions = [c for test in choices for c in conjuncts(test)]
    return [at for c in conditions for at in _cut(c, own[0])]


def _cut(condition: PrimExpr, variable: Var) -> list[PrimExpr]:
    """Return the first value of a variable for which an inequality, by its steps of 1, changes."""
    if not isinstance(condition, (LT, LE, GT, GE)) or variable not in used_vars(condition):
        return []
    analyzer, zero = Analyzer(), const(0, variable.dtype)
    difference = condition.a - condition.b
    at_zero, at_one = (substitute(difference, {variable: zero + k}) for k in (zero, const(1, zero.dtype)))
    step = as_int(analyzer.simplify(at_one - at_zero))
    if step not in (1, -1):
        return []
    root = analyzer.simplify(at_zero * const(-step, zero.dtype))
    return [root if isinstance(condition, (LT, GE)) == (step > 0) else root + const(1, zero.dtype)]


def split_nest(ctx: RuleContext, rv: BlockRV, loops: list[LoopRV]) -> tuple[list[LoopRV], LoopRV]:
    """Fuse the innermost loops that all accesses run through contiguously.

    Return the loops outside and the fused one.
    """
    suffix = flat_suffix(ctx, rv, loops)
    inner = ctx.fuse(loops[len(loops) - suffix :])
    assert inner is not None
    return loops[: len(loops) - suffix], inner


def flat_suffix(ctx: RuleContext, rv: BlockRV, loops: list[LoopRV]) -> int:
    """Count the innermost loops along which each access stays, or walks whole trailing dimensions of its buffer.

    Places that are numbers, too, would be found by division along loops that are one.
    """
    realize = ctx.sch.state.realize(rv.name)
    block = realize.block
    of_loop = {v: iv.var for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if isinstance(v, Var)}
    ordered = [of_loop.get(x.var) for x in loops]
    if any(v is None for v in ordered):
        return 1
    extents = {iv.var: iv.dom.extent for iv in block.iter_vars if iv.dom is not None}
    analyzer = Analyzer()
    best = 1
    accesses = [*loads_of(block.body), *stores_of(block.body)]
    numbers = used_vars(*(rewrite(s.value, _without_load) for s in stores_of(block.body)))
    for count in range(2, len(loops) + 1):
        tail = ordered[len(loops) - count :]
        if not numbers.isdisjoint(tail) or not all(_walks(a, tail, extents, analyzer) for a in accesses):  # type: ignore[arg-type]
            break
        best = count
    return best


def _without_load(node: object) -> object:
    return const(0, node.buffer.dtype) if isinstance(node, BufferLoad) else node


def _walks(access: object, tail: list[Var], extents: dict[Var, object], analyzer: Analyzer) -> bool:
    indices, shape = access.indices, access.buffer.shape  # type: ignore[attr-defined]
    if used_vars(indices).isdisjoint(tail):
        return True
    if len(indices) < len(tail) or any(i is not v for i, v in zip(indices[-len(tail) :], tail, strict=True)):
        return False
    if not used_vars(indices[: -len(tail)]).isdisjoint(tail):
        return False
    return all(analyzer.can_prove_equal(d, extents[v]) for d, v in zip(shape[-len(tail) + 1 :], tail[1:], strict=True))


def vector_lanes(ctx: RuleContext, block: Block) -> int:
    """Choose the number of lanes by the widest type that differs between lanes: not by that of a row's index."""
    stores = stores_of(block.body)
    column = used_vars(*(s.indices[-1:] for s in stores))
    loads = [x for x in loads_of(block.body) if not column or not column.isdisjoint(used_vars(x.indices))]
    return min(ctx.lanes(a.buffer.dtype) for a in [*loads, *stores])


def vectorize_spatial(ctx: RuleContext, rv: BlockRV, depth: int, unroll: int = 1) -> None:
    """Vectorize the loops of a block inside the first `depth`, which others share; `unroll` vectors an iteration."""
    loops = ctx.sch.get_loops(rv)[depth:]
    if not loops:
        return
    _, inner = split_nest(ctx, rv, loops)
    lanes = vector_lanes(ctx, ctx.block(rv))
    lengths = _stretches(ctx, rv, inner)
    for part in ctx.sch.loop_partition(inner, lengths) if lengths else [inner]:
        ctx.vectorize_loop(part, lanes, unroll)


def _transposed_axis(ctx: RuleContext, rv: BlockRV, block: Block, loops: list[LoopRV]) -> int | None:
    """Find the loop along which a load is contiguous while the store is contiguous along the innermost.

    None for a loop that is so short that vectors of every second or third element are picked from whole ones.
    """
    realize = ctx.sch.state.realize(rv.name)
    of_var = {iv.var: v for iv, v in zip(block.iter_vars, realize.iter_values, strict=True)}
    order = [x.var for x in loops]
    position = {iv: order.index(v) for iv, v in of_var.items() if isinstance(v, Var) and v in order}
    innermost = [iv for iv, p in position.items() if p == len(loops) - 1]
    if not innermost:
        return None
    for load in loads_of(block.body):
        if stride_along(load, innermost[0]) in (0, 1):
            continue
        for iv, p in position.items():
            n = ctx.constant(loops[p]) or 16
            picked = n < min(_NARROW, vector_lanes(ctx, block) / 2)
            if p < len(loops) - 1 and stride_along(load, iv) == 1 and n > 1 and not picked:
                return p
    return None


def _repeats(ctx: RuleContext, rv: BlockRV, block: Block, loops: list[LoopRV]) -> bool:
    """Whether a block stores each element that it loads side by side several times in a row."""
    of = ctx.owners(rv, loops)
    outer, inner = (of[x.var].var if x.var in of else Var("none", "int32") for x in loops[-2:])
    strides = {(stride_along(x, outer), stride_along(x, inner)) for x in loads_of(block.body)}
    return (1, 0) in strides and strides <= {(1, 0), (0, 0)}


def _tile_transpose(ctx: RuleContext, rv: BlockRV, loops: list[LoopRV], axis: int, most: int = _TILE_ROWS) -> None:
    """Walk square tiles, so that the lines that a strided load touches are used whole while they are cached."""
    sch = ctx.sch
    widest = lanes = min(vector_lanes(ctx, ctx.block(rv)), most)
    if most == _TILE_ROWS:
        lanes = ctx.choose("tile", [n for n in (4, 8, 16) if n <= widest], widest)
    cost = element_cost(ctx.block(rv).body)
    in_blocks = _meets_few_sets(ctx, rv, loops[-1], lanes)
    n = ctx.constant(loops[-1])
    if n is None or (n > lanes and n % lanes and not ctx.machine.masks_freely):
        loops = _whole_tiles(ctx, loops, axis, lanes)
    outer = [x for i, x in enumerate(loops[:-1]) if i != axis]
    a_outer, a_inner = sch.split(loops[axis], [None, lanes])
    b_outer, b_inner = sch.split(loops[-1], [None, lanes])
    if in_blocks:
        b_block, b_outer = sch.split(b_outer, [None, _TILES_TOGETHER])
        outer.append(b_block)
    sch.reorder(*outer, a_outer, b_outer, a_inner, b_inner)
    sch.vectorize(b_inner)
    sch.unroll(a_inner)
    sch.annotate(a_inner, TILE_MARK, 1)
    row = ctx.fuse([*outer, a_outer])
    assert row is not None
    n = ctx.constant(b_outer)
    ctx.stream(row, rv)
    ctx.parallel(row, None if n is None else n * lanes * lanes * cost // 2)


def _whole_tiles(ctx: RuleContext, loops: list[LoopRV], axis: int, lanes: int) -> list[LoopRV]:
    """Leave what fills no tile to loops of its own, for a tile of masked lanes takes longer than a whole one.

    There the loop along `axis`, whose elements are loaded side by side, is innermost: the other has few steps.
    Returns the loops around whole tiles.
    """
    sch = ctx.sch
    sch.reorder(loops[-1], *loops[:-1])
    pieces = sch.loop_partition(loops[-1], [ctx.extent(loops[-1]) // lanes * lanes, None])
    whole, *rest = (sch.get_child_blocks(x)[0] for x in pieces)
    for part in rest:
        left, *around = sch.get_loops(part)
        if (n := ctx.constant(left) or 0) >= _LEAST_TILE:
            sch.reorder(*around, left)
            _tile_transpose(ctx, part, [*around, left], axis, 1 << n.bit_length() - 1)
            continue
        long, cost = around.pop(axis), element_cost(ctx.block(part).body)
        sch.reorder(*around, left, long)
        length = ctx.constant(long)
        ctx.parallel(sch.fuse(*around, left) if around else left, None if length is None else cost * length)
    column, *others = sch.get_loops(whole)
    sch.reorder(*others, column)
    return [*others, column]


def _meets_few_sets(ctx: RuleContext, rv: BlockRV, loop: LoopRV, lanes: int) -> bool:
    """Whether the strided loads of a long loop are whole tiles apart, so that few lines of a strip stay cached."""
    realize = ctx.sch.state.realize(rv.name)
    along = [iv.var for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if v is loop.var]
    length = ctx.constant(loop)
    strides = {stride_along(x, along[0]) for x in loads_of(realize.block.body)} if along else set()
    return (length is None or length > 2 * _TILES_TOGETHER * lanes) and any(
        s is not None and s > lanes and s % lanes == 0 for s in strides
    )
