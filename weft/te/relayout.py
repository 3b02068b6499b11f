"""What cache_write computes: a stage's values, laid out by the loops that the stage has."""

from __future__ import annotations

from typing import Any

from weft import arith, error, ir, tir
from weft.te.stage import Fuse, Split, Stage


def relaid_out(stage: Stage) -> tuple[tuple[ir.IterVar, ...], tuple[ir.PrimExpr, ...], tuple[ir.PrimExpr, ...]]:
    """Return the axes of a cache, what each of its elements is, and where an element of the stage lies in it.

    The axes are the data-parallel loops of the stage from the outside; reductions keep their whole axes.
    """
    an = arith.Analyzer()
    extents: dict[ir.IterVar, ir.PrimExpr] = {iv: iv.dom.extent for iv in stage.axis}  # type: ignore[union-attr]
    place: dict[ir.IterVar, ir.PrimExpr] = {iv: iv.var for iv in stage.axis}
    for r in stage.relations:
        if isinstance(r, Split) and r.parent in extents:
            whole = extents[r.parent]
            amount = ir.cast(whole.dtype, r.amount)
            rest = an.simplify(ir.floordiv(whole + amount - 1, amount))
            extents[r.outer], extents[r.inner] = (rest, amount) if r.factor is not None else (amount, rest)
            place[r.outer] = ir.floordiv(place[r.parent], extents[r.inner])
            place[r.inner] = ir.floormod(place[r.parent], extents[r.inner])
        elif isinstance(r, Fuse) and r.outer in extents and r.inner in extents:
            extents[r.fused] = an.simplify(extents[r.outer] * extents[r.inner])
            place[r.fused] = place[r.outer] * extents[r.inner] + place[r.inner]
    leaves = [iv for iv in stage.leaf_iter_vars if iv in extents]
    axis = tuple(
        ir.IterVar(
            ir.Range.from_min_extent(ir.const(0, iv.var.dtype), extents[iv]), ir.Var(f"{iv.var.name}_c", iv.var.dtype)
        )
        for iv in leaves
    )
    values: dict[ir.IterVar, ir.PrimExpr] = {iv: new.var for iv, new in zip(leaves, axis, strict=True)}
    for r in reversed(stage.relations):
        if isinstance(r, Split) and r.inner in values:
            values[r.parent] = values[r.outer] * extents[r.inner] + values[r.inner]
        elif isinstance(r, Fuse) and r.fused in values:
            values[r.outer] = ir.floordiv(values[r.fused], extents[r.inner])
            values[r.inner] = ir.floormod(values[r.fused], extents[r.inner])
    if any(iv not in values for iv in stage.axis):
        raise error.ScheduleError(f"cache_write: an axis of '{stage.name}' was fused with a reduction",
                                  help="call cache_write before fuse")  # fmt: skip
    body = _where(stage, values, axis, an)
    return axis, body, tuple(an.simplify(place[iv]) for iv in leaves)


def _where(
    stage: Stage, values: dict[ir.IterVar, ir.PrimExpr], axis: tuple[ir.IterVar, ...], an: arith.Analyzer
) -> tuple[ir.PrimExpr, ...]:
    """Return the stage's body over the new axes, which is computed only where they are inside of the old ones."""
    for iv in axis:
        assert iv.dom is not None
        an.bind(iv.var, iv.dom)
    checks = [an.simplify(values[iv] < iv.dom.extent) for iv in stage.axis]  # type: ignore[union-attr]
    checks = [c for c in checks if not getattr(c, "value", 0)]
    at: dict[Any, ir.PrimExpr] = {iv.var: an.simplify(values[iv] + iv.dom.min) for iv in stage.axis}  # type: ignore[union-attr]
    body = ir.substitute(stage.body, at)
    if not checks:
        return body
    inside = checks[0]
    for c in checks[1:]:
        inside = ir.logical_and(inside, c)

    def guarded(e: ir.PrimExpr) -> ir.PrimExpr:
        if isinstance(e, tir.Reduce):
            return tir.Reduce(e.combiner, e.source, e.axis, ir.logical_and(inside, e.condition), e.value_index, e.init)
        return ir.if_then_else(inside, e, ir.const(0, e.dtype))

    return tuple(guarded(e) for e in body)
