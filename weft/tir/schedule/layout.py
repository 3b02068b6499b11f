"""Primitives on buffer layouts: transform_layout, storage_align."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.arith import Analyzer
from weft.ir import Attrs, IntImm, PrimExpr, Range, Var, as_expr, const, rewrite, substitute
from weft.tir.analysis.access import evaluate_interval
from weft.tir.analysis.structure import blocks_in, replace_node, subst_stmt
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.block_buffers import BufferName, buffer_at
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BufferStore

__all__ = ["storage_align", "transform_layout"]


def transform_layout(
    state: ScheduleState, name: str, where: BufferName, index_map: Callable[..., Sequence[Any]] | IndexMap
) -> None:
    """Store a buffer in another order: element ``[i...]`` moves to ``[index_map(i...)]`` and all accesses follow.

    The buffer grows where the map does not fill its image; the surplus is never read.
    """
    block = state.realize(name).block
    old = buffer_at(block, where, "transform_layout")
    if old.strides:
        raise refuse("transform_layout", f"'{old.name}' has strides", block=name)
    analyzer = Analyzer()
    sources = [Var(f"i{n}", d.dtype) for n, d in enumerate(old.shape)]
    for v, d in zip(sources, old.shape, strict=True):
        analyzer.bind(v, Range(const(0, v.dtype), d))
    image = [as_expr(e, "int64") for e in index_map(*sources)]
    new = replace_node(old, data=Var(old.name, "handle"), shape=_image_shape(image, sources, old, analyzer, name))

    def indices(point: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(subst_stmt(e, dict(zip(sources, point, strict=True))) for e in image)

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old:
            return replace_node(node, buffer=new, indices=indices(node.indices))
        if isinstance(node, BufferRegion) and node.buffer is old:
            return BufferRegion(new, tuple(Range(const(0, d.dtype), d) for d in new.shape))
        return node

    users = [b.name_hint for b in blocks_in(state.body) if any(r.buffer is old for r in (*b.reads, *b.writes))]
    state.rewrite_body(lambda body: substitute(rewrite(body, rule), {old: new}))
    for user in users:
        current = state.realize(user).block
        state.replace(current, _simplified(refresh_accesses(state, current, user), new))
    if state.is_argument(old):
        state.func = replace_node(
            state.func, buffer_map=tuple((p, new if b is old else b) for p, b in state.func.buffer_map)
        )


def _image_shape(
    image: list[PrimExpr], sources: list[Var], old: Buffer, analyzer: Analyzer, name: str
) -> tuple[PrimExpr, ...]:
    """Find how far each component of the map reaches."""
    domain = {v: (const(0, v.dtype), d - 1) for v, d in zip(sources, old.shape, strict=True)}
    shape = []
    for e in image:
        box = evaluate_interval(analyzer.simplify(e), domain)
        low = None if box is None else analyzer.simplify(box[0])
        if box is None or not (isinstance(low, IntImm) and low.value == 0):
            raise refuse("transform_layout", f"the index {e} has no known range from 0", block=name)
        shape.append(analyzer.simplify(box[1] + 1))
    return tuple(shape)


def _simplified(block: Block, buffer: Buffer) -> Block:
    """Simplify the indices with which a block addresses `buffer`."""
    analyzer = Analyzer()
    for iv in block.iter_vars:
        if iv.dom is not None:
            analyzer.bind(iv.var, iv.dom)

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is buffer:
            return replace_node(node, indices=tuple(analyzer.simplify(i) for i in node.indices))
        return node

    return rewrite(block, rule)


def storage_align(state: ScheduleState, name: str, buffer_index: int, axis: int, factor: int, offset: int) -> None:
    """Ask that the stride of an axis be ``factor * n + offset`` elements, against bank conflicts and cache aliasing."""
    block = state.realize(name).block
    if not 0 <= buffer_index < len(block.writes):
        raise refuse("storage_align", f"buffer index {buffer_index} is out of range", block=name)
    buffer = block.writes[buffer_index].buffer
    axis = axis + len(buffer.shape) if axis < 0 else axis
    if not 0 <= axis < len(buffer.shape):
        raise refuse("storage_align", f"axis {axis} is out of range for '{buffer.name}'", block=name)
    if factor <= 0:
        raise refuse("storage_align", f"factor {factor} is not positive", block=name)
    if state.is_argument(buffer):
        raise refuse(
            "storage_align", f"'{buffer.name}' is a parameter of the function", block=name, help="cache it first"
        )
    kept = tuple(t for t in (block.annotations.get("buffer_dim_align") or ()) if tuple(t[:2]) != (buffer_index, axis))
    notes = (*kept, (buffer_index, axis, factor, offset))
    state.replace(block, replace_node(block, annotations=Attrs.of(block.annotations, buffer_dim_align=notes)))
