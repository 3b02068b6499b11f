"""Transposed convolutions in gather form: outputs of one phase (their position modulo the stride) share their taps.

The sum reads ``x[.., (o + p - k) // s]`` where that divides. With the phase and the tap unrolled the test of
divisibility is decided while compiling, so that only taps that count are left; neighbouring outputs of a phase then
read neighbouring inputs.
"""

from __future__ import annotations

from math import prod

from weft.error import ScheduleError
from weft.ir import Add, CallIntrin, Cast, FloorDiv, IntImm, Mul, PrimExpr, Var, as_int, walk
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.epilogue import attach_epilogue
from weft.tir.stmt import Block, BufferStore

_CHANNELS_TOGETHER = 8
_MOST_TAPS = 25


def guarded_product(block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """Recognise a sum of ``if_then_else(inside, x[..] * w[..], 0)``, or of x alone guarded; return the two loads."""
    store = block.body
    if block.init is None or not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        return None
    a, b = store.value.a, store.value.b
    test, product = _guard(b if isinstance(a, BufferLoad) and a.buffer is store.buffer else a)
    if not isinstance(product, Mul):
        return None
    axes = {iv.var for iv in block.iter_vars}
    for factor, plain in ((product.a, product.b), (product.b, product.a)):
        inside, value = _guard(factor) if test is None else (test, factor)
        data, weight = (e.value if isinstance(e, Cast) else e for e in (value, plain))
        if inside is None or not isinstance(data, BufferLoad) or not isinstance(weight, BufferLoad):
            continue
        if used_vars(inside) & axes <= used_vars(data.indices):
            return data, weight
    return None


def _guard(value: PrimExpr) -> tuple[PrimExpr | None, PrimExpr]:
    """Return what guards a value, where something does, and the value itself."""
    if isinstance(value, CallIntrin) and value.op.name == "tir.if_then_else":
        return value.args[0], value.args[1]
    return None, value


def schedule_transposed(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a guarded sum of products. Returns the blocks that are done."""
    rv = BlockRV(name)
    block = ctx.block(rv)
    found = guarded_product(block)
    store = block.body
    if found is None or not isinstance(store, BufferStore):
        raise ScheduleError("transposed: not a sum of products of which one factor is guarded")
    data, weight = found
    outputs = [i for i in store.indices if isinstance(i, Var)]
    spatial = [v for v in outputs if v in used_vars(data.indices) and v not in used_vars(weight.indices)]
    channels = [v for v in outputs if v in used_vars(weight.indices) and v not in used_vars(data.indices)]
    if not spatial or len(channels) > 1 or outputs[-1] is not spatial[-1]:
        raise ScheduleError("transposed: the output is not channels before pixels")
    strides = {v: _stride(data, v) for v in spatial}
    reducing = [iv for iv in block.iter_vars if iv.iter_type == "reduce"]
    taps = [iv.var for iv in reducing if not any(i is iv.var for i in data.indices)]
    extents = {iv.var: as_int(iv.dom.extent) for iv in block.iter_vars if iv.dom is not None}
    if prod(extents[v] or _MOST_TAPS + 1 for v in taps) > _MOST_TAPS:
        raise ScheduleError("transposed: too many taps to write out")
    sink, loop_of = attach_epilogue(ctx, rv)
    return _tile(ctx, rv, sink, loop_of, spatial, channels[0] if channels else None, strides, taps)


def _stride(load: BufferLoad, var: Var) -> int:
    """Return by what an index divides a variable; 1 where it does not."""
    found = [
        n.b.value
        for i in load.indices
        for n in walk(i)
        if isinstance(n, FloorDiv) and var in used_vars(n.a) and isinstance(n.b, IntImm)
    ]
    return found[0] if found else 1


def _tile(
    ctx: RuleContext,
    rv: BlockRV,
    sink: BlockRV,
    loop_of: dict[Var, LoopRV],
    spatial: list[Var],
    channel: Var | None,
    strides: dict[Var, int],
    taps: list[Var],
) -> set[str]:
    sch = ctx.sch
    work = ctx.static_work(rv) or 0
    lanes = ctx.lanes(ctx.block(sink).writes[0].buffer.dtype)
    everything = sch.get_loops(sink)
    known = {loop_of[v].var for v in (*spatial, channel) if v is not None and v in loop_of}
    outer = [x for x in everything if x.var not in known]
    channels: list[LoopRV] = []
    if channel is not None and channel in loop_of:
        n = ctx.constant(loop_of[channel])
        options = [c for c in (_CHANNELS_TOGETHER, 4, 2, 1) if c == 1 or (n is not None and n % c == 0)]
        together = ctx.choose("channels", options, options[0])
        channels = sch.split(loop_of[channel], [None, together])
    rows, phases = [], []
    for v in spatial[:-1]:
        if v in loop_of:
            row, phase = sch.split(loop_of[v], [None, strides[v]])
            rows.append(row)
            phases.append(phase)
    if spatial[-1] not in loop_of:
        raise ScheduleError("transposed: the output is one pixel wide")
    stride = strides[spatial[-1]]
    column, phase, vector = sch.split(loop_of[spatial[-1]], [None, stride, lanes])
    sch.reorder(*outer, *channels[:1], *rows, *phases, column, *channels[1:], phase, vector)
    sch.compute_at(rv, column)
    sch.set_scope(rv, 0, "local")
    _sum(ctx, rv, column, spatial[-1], taps, lanes, stride)
    sch.vectorize(vector)
    for x in (*channels[1:], phase, *phases):
        sch.unroll(x)
    if stride > 1:  # each phase has vectors of its own, not every other lane of a wider one
        sch.transform_layout(rv, ("write", 0), lambda *i: [*i[:-1], i[-1] % stride, i[-1] // stride])
    task = ctx.fuse([*outer, *channels[:1], *rows]) or column
    n_tasks = ctx.constant(task)
    ctx.parallel(task, max(1, work // (n_tasks * lanes)) if work and n_tasks else None)
    return {rv.name, sink.name}


def _sum(ctx: RuleContext, rv: BlockRV, column: LoopRV, pixel: Var, taps: list[Var], lanes: int, stride: int) -> None:
    sch = ctx.sch
    inner = ctx.below(rv, column)
    owner = ctx.owners(rv, inner)
    inner = [x for x in inner if x.var in owner]
    pixels = next((x for x in inner if owner[x.var].var is pixel), None)
    if pixels is None:
        raise ScheduleError("transposed: the tile has no pixels")
    tap_loops = [x for x in inner if owner[x.var].var in taps]
    sums = [x for x in inner if owner[x.var].iter_type == "reduce" and x not in tap_loops]
    rest = [x for x in inner if x is not pixels and x not in tap_loops and x not in sums]
    vector, phase = sch.split(pixels, [lanes, stride])
    sch.reorder(*sums, *tap_loops, *rest, phase, vector)
    sch.vectorize(vector)
    for x in (*tap_loops, *rest, phase):
        sch.unroll(x)
    if sums or tap_loops:
        sch.decompose_reduction(rv, [*sums, *tap_loops][0])
