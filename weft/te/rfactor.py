"""rfactor: a reduction in parts, which another reduction puts together."""

from __future__ import annotations

from typing import Any

from weft.arith import Analyzer
from weft.error import ScheduleError
from weft.ir import TRUE, IterVar, PrimExpr, Range, Var, const, if_then_else, substitute
from weft.te.relations import Split, find_extents, find_values
from weft.te.stage import Stage
from weft.te.tensor import ComputeOp
from weft.tir import ProducerLoad, Reduce


def factor_reduction(stage: Stage, output: str, axis: IterVar, factor_axis: int) -> ComputeOp:
    """Let a stage reduce parts, and return the operation that computes them (:meth:`weft.te.Schedule.rfactor`)."""
    name = stage.name
    if not stage.reduce_axis:
        raise ScheduleError(f"rfactor: '{output}' is not a reduction")
    stage._position(axis, "rfactor")
    if axis.iter_type != "reduce":
        raise ScheduleError(f"rfactor: '{axis.var.name}' is no reduction loop")
    rank = len(stage.axis)
    if not -rank - 1 <= factor_axis <= rank:
        raise ScheduleError(
            f"rfactor: the parts of '{name}' have no axis {factor_axis}", expected=f"{-rank - 1} to {rank}"
        )
    reduce: Any = stage.body[0]
    part, part_axis, part_body = _parts(stage, reduce, axis, factor_axis % (rank + 1))
    op = ComputeOp(f"{name}_rf", axis=part_axis, body=part_body)
    outer = IterVar(part.dom, Var(axis.var.name + "_v", axis.var.dtype), "reduce")
    indices = [iv.var for iv in stage.axis]
    indices.insert(factor_axis % (rank + 1), outer.var)
    loads = tuple(ProducerLoad(op.output(i), tuple(indices)) for i in range(op.num_outputs))
    stage.body = tuple(Reduce(reduce.combiner, loads, (outer,), TRUE, i, reduce.init) for i in range(len(loads)))
    stage.reset_loops()
    stage.op = ComputeOp(name, axis=stage.axis, body=stage.body)
    return op


def _parts(
    stage: Stage, reduce: Any, axis: IterVar, position: int
) -> tuple[IterVar, tuple[IterVar, ...], tuple[PrimExpr, ...]]:
    """Return the axis of the parts, all axes of them, and what each part is."""
    values, extents, guards = _reduce_loops(stage)
    leaves = [iv for iv in stage.leaf_iter_vars if iv.iter_type == "reduce"]
    if mixed := [iv.var.name for iv in leaves if iv not in extents]:
        raise ScheduleError(f"rfactor: '{mixed[0]}' is fused of axes of both kinds", expected="reduction axes alone")
    part = IterVar(
        Range.from_min_extent(const(0, axis.var.dtype), extents[axis]), Var(axis.var.name + "_rf", axis.var.dtype)
    )
    inner = {  # an axis that nothing was said of stays the axis that it is
        iv: iv
        if any(iv is own for own in stage.reduce_axis)
        else IterVar(Range.from_min_extent(const(0, iv.var.dtype), extents[iv]), iv.var, "reduce")
        for iv in leaves
        if iv is not axis
    }
    spatial = [IterVar(iv.dom, Var(iv.var.name + "_rf", iv.var.dtype)) for iv in stage.axis]
    rename: dict[Any, Any] = {iv.var: new.var for iv, new in zip(stage.axis, spatial, strict=True)}
    to_leaf = {axis.var: part.var, **{iv.var: inner[iv].var for iv in leaves if iv is not axis}}
    rename |= {iv.var: substitute(values[iv], to_leaf) for iv in stage.reduce_axis}
    condition = substitute(reduce.condition, rename)
    for guard in guards:
        condition = condition & substitute(guard, to_leaf)
    axes = tuple(sorted((inner[iv] for iv in leaves if iv is not axis), key=lambda iv: iv not in stage.reduce_axis))
    source = tuple(substitute(x, rename) for x in reduce.source)
    body: tuple[PrimExpr, ...] = source
    if axes:
        body = tuple(Reduce(reduce.combiner, source, axes, condition, i) for i in range(len(source)))
    elif not getattr(condition, "value", 0):
        identity = reduce.combiner.identity_element
        body = tuple(if_then_else(condition, x, e) for x, e in zip(source, identity, strict=True))
    return part, (*spatial[:position], part, *spatial[position:]), body


def _reduce_loops(stage: Stage) -> tuple[dict[IterVar, PrimExpr], dict[IterVar, PrimExpr], list[PrimExpr]]:
    """Return the values of reduction loops in terms of the leaves, all extents, and what must hold of the axes."""
    extents: dict[IterVar, PrimExpr] = {iv: iv.dom.extent for iv in stage.reduce_axis}  # type: ignore[union-attr]
    values: dict[IterVar, PrimExpr] = {iv: iv.var for iv in stage.leaf_iter_vars}
    find_extents(stage.relations, extents, Analyzer())
    find_values(stage.relations, values, extents)
    leaves = set(stage.leaf_iter_vars)
    again = [r.inner for r in stage.relations if isinstance(r, Split) and r.inner in extents and r.inner not in leaves]
    guards = [values[iv] < extents[iv] for iv in (*stage.reduce_axis, *again)]
    shifted = {iv: values[iv] + iv.dom.min for iv in stage.reduce_axis}  # type: ignore[union-attr]
    return {**values, **shifted}, extents, guards
