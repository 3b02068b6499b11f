"""Bound inference: how far each loop of each stage goes.

Stages are visited consumers first. A stage at the root computes its whole tensor. A stage inside a loop of another one
computes the region that its consumers read during one iteration of that loop: the consumers' indices are evaluated as
intervals, with the loops around the place held fixed and those inside it running. From the ranges of its axes follow
those of the loops that split and fuse made.
"""

from __future__ import annotations

from typing import Any

from tvm_ffi import Map

from weft import error, tir
from weft.arith import Analyzer, IntervalSet
from weft.arith import union as union_of
from weft.ir import IntImm, IterVar, PrimExpr, Range, as_int, cast, const, floordiv, substitute, walk
from weft.te.relations import Values, ends, find_values
from weft.te.stage import AttachType, Relayout, Singleton, Split, Stage
from weft.te.stages import Schedule
from weft.te.tensor import ComputeOp, PlaceholderOp, ScanOp


class Bounds(dict[IterVar, Range]):
    """The range of each iteration variable: a map, as TVM's programs ask for."""


Map.register(Bounds)  # pyright: ignore[reportAttributeAccessIssue] - as every abstract base class


def InferBound(sch: Schedule) -> Bounds:
    """Infer the ranges of all loops of a schedule.

    Parameters
    ----------
    sch : Schedule
        The schedule; inlined stages are substituted first.

    Returns
    -------
    Bounds
        From each IterVar of each stage to its Range. Loops made by ``split`` and ``fuse`` start at zero.
    """
    sch.normalize()
    bounds = Bounds()
    for stage in reversed(sch.stages):
        if stage.attach_type == AttachType.INLINE or isinstance(stage.origin_op, PlaceholderOp):
            continue
        analyzer = Analyzer()
        for iv, dom in _axis_ranges(sch, stage, bounds, analyzer).items():
            bounds[iv] = dom
        _pass_down(stage, bounds, analyzer)
        _check_threads(stage, bounds)
    return bounds


def _check_threads(stage: Stage, bounds: Bounds) -> None:
    """Refuse loops with more iterations than the threads that they are bound to."""
    for iv in stage.leaf_iter_vars:
        thread = stage.attr(iv).bind_thread
        if thread is None or thread.dom is None:
            continue
        wanted, there = as_int(bounds[iv].extent), as_int(thread.dom.extent)
        if wanted is not None and there is not None and wanted > there:
            raise error.ScheduleError(
                f"'{iv.var.name}' of stage '{stage.name}' has {wanted} iterations, "
                f"and '{thread.thread_tag}' was made with {there} threads",
                help="split it by the number of threads, or make the axis without a domain",
            )


def _axis_ranges(sch: Schedule, stage: Stage, bounds: Bounds, an: Analyzer) -> dict[IterVar, Range]:
    whole = {iv: iv.dom for iv in (*stage.axis, *stage.reduce_axis)}
    if any(dom is None for dom in whole.values()):
        raise error.ScheduleError(f"an axis of '{stage.name}' has no domain")
    if isinstance(stage.origin_op, ScanOp):
        axis = stage.origin_op.scan_axis
        assert axis is not None and axis.dom is not None
        return {axis: axis.dom}
    if not stage.is_attached and (stage.is_output or not sch.consumers(stage)):
        return whole  # type: ignore[return-value]
    _, parent, at = stage.placement
    scan = parent.origin_op if parent is not None else None
    if isinstance(scan, ScanOp) and any(t.op is stage.origin_op for t in scan.update):  # one row a step
        axis, first = scan.scan_axis, stage.axis[0]
        assert axis is not None and axis.dom is not None
        step = loop_values(parent, bounds)[axis]  # type: ignore[arg-type]
        row = an.simplify(cast(first.var.dtype, step) + cast(first.var.dtype, axis.dom.min))
        return {**whole, first: Range.from_min_extent(row, const(1, first.var.dtype))}  # type: ignore[dict-item]
    fixed = {iv for parent, iv in enclosing_loops(stage) if not _shared_over(stage, parent, iv)}
    regions: list[list[IntervalSet]] = [[] for _ in stage.axis]
    for consumer in sch.consumers(stage):
        if consumer.attach_type == AttachType.INLINE:
            continue
        if at is not None and parent is not None and not _is_inside(consumer, stage):
            raise error.ScheduleError(
                f"'{stage.name}' runs inside '{at.var.name}' of '{parent.name}', "
                f"but '{consumer.name}' reads it outside",
                help=f"compute '{stage.name}' around all of them, or '{consumer.name}' inside that loop too",
            )
        for dims, interval in zip(regions, _region_read(stage, consumer, fixed, bounds, an), strict=True):
            dims += interval
    if any(isinstance(r, Relayout) for r in stage.relations):
        return whole  # type: ignore[return-value] - places of a part are no box
    result = dict(whole)
    for iv, sets in zip(stage.axis, regions, strict=True):
        merged = union_of(sets, an)
        if merged.has_lower_bound and merged.has_upper_bound:
            low, high = (cast(iv.var.dtype, e) for e in (merged.min_value, merged.max_value))  # others' may be wider
            extent = an.simplify(high - low + 1)
            result[iv] = _within(iv.dom, Range.from_min_extent(low, extent), an)  # type: ignore[arg-type]
    return result  # type: ignore[return-value]


def _shared_over(stage: Stage, parent: Stage, iv: IterVar) -> bool:
    """Whether the threads of a loop around a stage use one copy of its memory, which holds what all of them read."""
    thread = parent.attr(iv).bind_thread
    if thread is None or stage.scope.startswith(("local", "wmma")):
        return False
    if stage.scope.startswith("warp"):
        return thread.thread_tag == "threadIdx.x"
    return not (stage.scope.startswith("shared") and thread.thread_tag.startswith("blockIdx"))


def _within(whole: Range, part: Range, an: Analyzer) -> Range:
    """Return `part`, or `whole` where `part` has no constant extent and is not provably smaller."""
    if isinstance(part.extent, IntImm) or an.can_prove(part.extent <= whole.extent):
        return part
    return whole


def enclosing_loops(stage: Stage) -> list[tuple[Stage, IterVar]]:
    """List the loops of other stages that a stage runs inside, innermost first."""
    result: list[tuple[Stage, IterVar]] = []
    while stage.is_attached:
        _, parent, at = stage.placement
        assert parent is not None and at is not None
        if not any(iv is at for iv in parent.leaf_iter_vars):
            raise error.ScheduleError(
                f"'{stage.name}' runs at '{at.var.name}' of '{parent.name}', which was split or fused since",
                help="call compute_at after the loops of the consumer have their final form",
            )
        position = next(i for i, iv in enumerate(parent.leaf_iter_vars) if iv is at)
        result += [(parent, iv) for iv in reversed(parent.leaf_iter_vars[: position + 1])]
        stage = parent
    return result


def _is_inside(consumer: Stage, stage: Stage) -> bool:
    """Whether a consumer runs within the loop that `stage` is computed at."""
    _, parent, at = stage.placement
    return consumer is parent or any(iv is at for _, iv in enclosing_loops(consumer))


def _region_read(
    stage: Stage, consumer: Stage, fixed: set[IterVar], bounds: Bounds, an: Analyzer
) -> list[list[IntervalSet]]:
    """Return, per axis of `stage`, the intervals that the loads of one consumer cover."""
    if not stage.axis:  # an extern writes its tensors whole
        return []
    if not isinstance(consumer.origin_op, ComputeOp):
        return [[IntervalSet(iv.dom.min, an.simplify(iv.dom.min + iv.dom.extent - 1))] for iv in stage.axis]  # type: ignore[union-attr]
    running = {
        iv.var: Range.from_min_extent(const(0, iv.var.dtype), bounds[iv].extent)  # every loop counts from zero
        for iv in (*consumer.leaf_iter_vars, *[iv for _, iv in enclosing_loops(consumer)])
        if iv not in fixed
    }
    values = root_values(consumer, bounds)
    mapping: dict[Any, PrimExpr] = {iv.var: value for iv, value in values.items()}
    threads = _own_threads(stage, consumer)
    running = {v: r for v, r in running.items() if v not in threads}
    result: list[list[IntervalSet]] = [[] for _ in stage.axis]
    for node in walk(consumer.body):
        read = node.load if isinstance(node, tir.RegionRead) else node
        if not isinstance(read, tir.ProducerLoad) or read.producer.op is not stage.origin_op:
            continue
        for axis, index in enumerate(read.indices):
            ends = [index, index + node.extents[axis] - 1] if isinstance(node, tir.RegionRead) else [index]
            sets = [an.int_set(substitute(substitute(e, mapping), threads), running) for e in ends]
            result[axis].append(_inside_shape(union_of(sets, an), read.producer.shape[axis], an))
    return result


def _own_threads(stage: Stage, consumer: Stage) -> dict[Any, PrimExpr]:
    """Map loops of a consumer that run on the threads that `stage` runs on to the loops around it on these threads."""

    def identity(thread: IterVar) -> Any:  # virtual threads are those of one axis, whatever its tag
        return thread.thread_tag if "Idx" in thread.thread_tag else thread

    around = {
        identity(thread): iv.var
        for parent, iv in enclosing_loops(stage)
        if (thread := parent.attr(iv).bind_thread) is not None and not _shared_over(stage, parent, iv)
    }
    own: dict[Any, PrimExpr] = {}
    for iv in consumer.leaf_iter_vars:
        thread = consumer.attr(iv).bind_thread
        var = around.get(identity(thread)) if thread is not None else None
        if var is not None and var is not iv.var:
            own[iv.var] = cast(iv.var.dtype, var)
    return own


def _inside_shape(read: IntervalSet, extent: PrimExpr, an: Analyzer) -> IntervalSet:
    """Return what is read, or the whole dimension where that is provably no more."""
    if not read.has_lower_bound and not read.has_upper_bound:
        return IntervalSet(const(0, extent.dtype), an.simplify(extent - 1))
    if (
        read.has_lower_bound
        and read.has_upper_bound
        and an.can_prove(read.min_value <= 0)
        and an.can_prove(read.max_value >= extent - 1)
    ):
        return IntervalSet(const(0, extent.dtype), an.simplify(extent - 1))
    return read


def _pass_down(stage: Stage, bounds: Bounds, an: Analyzer) -> None:
    """Find the ranges of split and fused loops from those of the axes."""
    for r in stage.relations:
        if isinstance(r, Split):
            extent = bounds[r.parent].extent
            outer, inner = _split_extents(stage, r, extent, an)
            zero = const(0, r.parent.var.dtype)
            bounds[r.outer], bounds[r.inner] = Range.from_min_extent(zero, outer), Range.from_min_extent(zero, inner)
        elif isinstance(r, Singleton):
            bounds[r.iter] = Range.from_min_extent(const(0), const(1))
        elif isinstance(r, Relayout):
            bounds.update({iv: iv.dom for iv in r.places if iv.dom is not None})
        else:
            dtype = r.fused.var.dtype
            extent = an.simplify(cast(dtype, bounds[r.outer].extent) * cast(dtype, bounds[r.inner].extent))
            bounds[r.fused] = Range.from_min_extent(const(0, dtype), extent)


def _split_extents(stage: Stage, r: Split, extent: PrimExpr, an: Analyzer) -> tuple[PrimExpr, PrimExpr]:
    amount = cast(extent.dtype, r.amount)
    part = r.inner if r.factor is not None else r.outer
    if stage.attr(part).kind != "vectorized" and isinstance(extent, IntImm) and isinstance(amount, IntImm):
        amount = const(max(1, min(amount.value, extent.value)), extent.dtype)
    rest = an.simplify(floordiv(extent + (amount - 1), amount))
    return (rest, amount) if r.factor is not None else (amount, rest)


def root_values(stage: Stage, bounds: Bounds, given: Values | None = None) -> Values:
    """Return the value of each axis of a stage in terms of its loop variables.

    A loop over one value counts as that value; loops of a range that does not start at zero are offsets from its start.
    Loops that are `given` have these values, whatever was made of them.
    """
    values = loop_values(stage, bounds, given)
    result: dict[IterVar, Any] = {}
    for iv in (*stage.axis, *stage.reduce_axis):
        result[iv] = values[iv] + bounds[iv].min
    return result


def loop_values(stage: Stage, bounds: Bounds, given: Values | None = None) -> Values:
    """Return what :func:`root_values` does, from 0, also of the loops that were split or fused again."""
    values: Values = {}
    for iv in stage.leaf_iter_vars:
        extent = bounds[iv].extent
        values[iv] = (
            const(0, iv.var.dtype)
            if getattr(extent, "value", None) == 1 and stage.attr(iv).bind_thread is None
            else iv.var
        )
    values.update(given or {})
    extents = {iv: bounds[iv].extent for r in stage.relations for part in ends(r) for iv in part}
    find_values(stage.relations, values, extents)
    return values
