"""Convolutions whose taps are displaced, for every importer: `DeformConv` of ONNX, `deform_conv2d` of torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import ir

if TYPE_CHECKING:
    from weft.frontend.onnx import node as onnx
    from weft.frontend.torch import node as torch


def displaced_conv(
    node: onnx.Node | torch.Node,
    operands: Sequence[Any],
    strides: Sequence[int],
    before: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    parts: int,
) -> Any:
    """Read the input at displaced places, a column for each place of the output, and multiply.

    Parameters
    ----------
    node : Node
        An importer's, which emits operators.
    operands : sequence of Expr
        ``(batch, channels, size...)``; the weight ``(outputs, channels / groups, kernel...)``, whose kernel is known;
        the offsets ``(batch, parts * taps * rank, out...)``; a factor of each tap ``(batch, parts * taps, out...)``, or
        None; the bias ``(outputs,)``, or None.

    Returns
    -------
    Expr
        ``(batch, outputs, out...)``.
    """
    x, weight, offsets, mask, bias = operands
    (batch, channels, *space), (outputs, _, *kernel), out = node.dims(x), node.dims(weight), node.dims(offsets)[2:]
    rank, taps, tiled, inner = len(space), prod(kernel), batch * parts, channels // parts
    offsets = node.reshape(offsets, [tiled, taps, rank, *out])
    ends: list[tuple[Any, Any]] = [(node.reshape(node.arange(tiled), [tiled, *[1] * (rank + 1)]), None)]
    for i in range(rank):  # the place in the flattened images, and its weight
        start = node.op("multiply", node.arange(out[i]), node.scalar(strides[i], "int64"))
        start = node.reshape(start, [1, 1, *[out[i] if j == i else 1 for j in range(rank)]])
        steps = np.indices([ir.as_int(k) or 0 for k in kernel])[i].reshape(1, taps, *[1] * rank)
        tap = steps * dilations[i] - before[i]
        moved = node.op("strided_slice", offsets, axes=(2,), begin=(i,), end=(i + 1,), assume_inbound=True)
        place = node.astype(node.op("add", start, ir.constant(tap)), moved.ty.dtype)
        place = node.op("add", node.reshape(moved, [tiled, taps, *out]), place)
        ends = [
            (
                node.op("add", node.op("multiply", at, node.number(space[i], "int64")), where),
                share if weight is None else node.op("multiply", weight, share),
            )
            for where, share in _neighbours(node, place, space[i])
            for at, weight in ends
        ]
    x = node.permute(node.reshape(x, [tiled, inner, *space]), [0, *range(2, rank + 2), 1])
    flat, read = node.reshape(x, [tiled * prod(space), inner]), None
    for at, share in ends:
        part = node.op("take", flat, at, axis=0, mode="clip")
        part = node.op("multiply", part, node.reshape(share, [*node.dims(share), 1]))
        read = part if read is None else node.op("add", read, part)
    columns = node.permute(read, [0, rank + 2, *range(1, rank + 2)])
    if mask is not None:
        columns = node.reshape(columns, [batch, parts, inner, taps, *out])
        columns = node.op("multiply", columns, node.reshape(mask, [batch, parts, 1, taps, *out]))
    depth = channels // groups * taps
    columns = node.reshape(columns, [batch, groups, depth, prod(out)])
    found = node.op("matmul", node.reshape(weight, [groups, outputs // groups, depth]), columns)
    found = node.reshape(found, [batch, outputs, *out])
    return found if bias is None else node.op("add", found, node.reshape(bias, [outputs, *[1] * rank]))


def _neighbours(node: onnx.Node | torch.Node, place: ir.Expr, size: int | ir.PrimExpr) -> list[tuple[Any, Any]]:
    """Return the pixels on both sides of places along an axis, and how much each counts: nothing outside."""
    dtype = str(place.ty.dtype)  # type: ignore[union-attr]
    below = node.op("floor", place)
    far = node.op("subtract", place, below)
    one, zero, end = node.scalar(1.0, dtype), node.scalar(0.0, dtype), node.number(size - 1, dtype)
    found = []
    for at, share in ((below, node.op("subtract", one, far)), (node.op("add", below, one), far)):
        inside = node.op("minimum", node.op("maximum", at, zero), end)
        share = node.op("where", node.op("equal", inside, at), share, zero)
        found.append((node.astype(inside, "int64"), share))
    return found
