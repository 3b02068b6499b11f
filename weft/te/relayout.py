"""Where elements lie: what cache_write computes is laid out by a stage's loops, other tensors as programs say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import arith, error, ir, tir
from weft.te.relations import Fuse, Split, find_extents, find_values
from weft.te.stage import Stage
from weft.tir.analysis.access import addressed
from weft.tir.analysis.structure import replace_node


def relaid_out(stage: Stage) -> tuple[tuple[ir.IterVar, ...], tuple[ir.PrimExpr, ...], tuple[ir.PrimExpr, ...]]:
    """Return the axes of a cache, what each of its elements is, and where an element of the stage lies in it.

    The axes are the data-parallel loops of the stage from the outside; reductions keep their whole axes.
    """
    an = arith.Analyzer()
    extents: dict[ir.IterVar, ir.PrimExpr] = {iv: iv.dom.extent for iv in stage.axis}  # type: ignore[union-attr]
    place: dict[ir.IterVar, ir.PrimExpr] = {iv: iv.var for iv in stage.axis}
    find_extents(stage.relations, extents, an)
    for r in stage.relations:
        if isinstance(r, Split) and r.parent in place:
            inner = ir.cast(r.parent.var.dtype, 1 if ir.as_int(extents[r.inner]) == 0 else extents[r.inner])
            place[r.outer], place[r.inner] = ir.floordiv(place[r.parent], inner), ir.floormod(place[r.parent], inner)
        elif isinstance(r, Fuse) and r.fused in extents:
            place[r.fused] = place[r.outer] * extents[r.inner] + place[r.inner]
    leaves = [iv for iv in stage.leaf_iter_vars if iv in extents]
    axis = tuple(
        ir.IterVar(
            ir.Range.from_min_extent(ir.const(0, iv.var.dtype), extents[iv]), ir.Var(f"{iv.var.name}_c", iv.var.dtype)
        )
        for iv in leaves
    )
    values: dict[ir.IterVar, ir.PrimExpr] = {iv: new.var for iv, new in zip(leaves, axis, strict=True)}
    find_values(stage.relations, values, extents)
    if any(iv not in values for iv in stage.axis):
        raise error.ScheduleError(
            f"cache_write: an axis of '{stage.name}' was fused with a reduction or laid out anew",
            help="call cache_write before fuse and transform_layout",
        )
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


def moved_elements(
    stmt: tir.Stmt, layouts: Mapping[tir.Buffer, Stage]
) -> tuple[tir.Stmt, dict[tir.Buffer, tir.Buffer]]:
    """Return statements in which elements of buffers lie where the layouts of their stages say, and the new buffers.

    Raises
    ------
    ScheduleError
        When something reaches such a buffer other than element by element.
    """
    moved: dict[Any, tir.Buffer] = {}
    for buffer, stage in layouts.items():
        assert stage.layout is not None
        shape = stage.layout.map_shape(buffer.shape)
        moved[buffer] = tir.decl_buffer(
            shape, buffer.dtype, buffer.name, buffer.data, scope=buffer.scope, axis_separators=stage.separators
        )
    by_address = addressed(stmt) if layouts else set()
    marked = {n.node for n in ir.find(stmt, tir.AttrStmt)} if layouts else set()

    def rule(node: Any) -> Any:
        buffer = getattr(node, "buffer", None)
        if buffer not in moved or buffer is None:
            return node
        new, layout = moved[buffer], layouts[buffer].layout
        if isinstance(node, tir.BufferRealize):
            whole = tuple(ir.Range(d) for d in new.shape)
            return tir.BufferRealize(new, whole, node.condition, node.body)
        single = isinstance(node, (tir.BufferLoad, tir.BufferStore)) and all(
            ir.DataType(i.dtype).lanes == 1 for i in node.indices
        )
        if not single or buffer.strides or buffer.data in by_address or buffer in marked or layout is None:
            raise error.ScheduleError(
                f"transform_layout of '{buffer.name}', which is not reached element by element",
                help="lay out a copy of it: cache_read, cache_write",
            )
        return replace_node(node, buffer=new, indices=layout.map_indices(node.indices))

    return (ir.rewrite(stmt, rule) if layouts else stmt), moved
