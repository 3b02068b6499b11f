"""Strides that schedules ask for (``storage_align``), noted on allocations until their shapes are final."""

from typing import Any

from weft.ir import Attrs, Node, PrimExpr, as_int, const, floormod, rewrite
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.stmt import AllocBuffer, BufferStore

DIM_ALIGN = "buffer_dim_align"
"""The annotation of an allocation: (axis, factor, offset) for each axis whose stride is ``factor * n + offset``."""


def aligned(alloc: AllocBuffer) -> AllocBuffer:
    """Give the buffer of an allocation the strides that were asked for."""
    wanted = {a: (f, o) for a, f, o in ([as_int(x) for x in note] for note in alloc.annotations.get(DIM_ALIGN) or ())}
    annotations = alloc.annotations.without(DIM_ALIGN)
    old = alloc.buffer
    strides: list[PrimExpr] = []
    stride: PrimExpr = const(1, "int32")
    for axis in reversed(range(len(old.shape))):
        if axis in wanted:
            factor, offset = wanted[axis]
            stride = stride + floormod(factor + offset - floormod(stride, factor), factor)  # type: ignore[operator]
        strides.insert(0, stride)
        stride = stride * old.shape[axis]
    new = replace_node(old, strides=tuple(strides))

    def rule(node: Node) -> Any:
        uses = isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old
        return replace_node(node, buffer=new) if uses else node

    return replace_node(alloc, buffer=new, body=rewrite(alloc.body, rule), annotations=annotations)


def behind_new_axis(annotations: Attrs) -> Attrs:
    """Return annotations for a buffer that gets a new first dimension."""
    notes = annotations.get(DIM_ALIGN)
    if not notes:
        return annotations
    return Attrs.of(annotations, **{DIM_ALIGN: tuple((as_int(a) + 1, f, o) for a, f, o in notes)})  # type: ignore[operator]
