"""Windows added where they overlap, an axis at a time, for every importer: `Col2Im` of ONNX, `fold` of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from weft import ir


class FoldedAxis(NamedTuple):
    """One axis of an image and the windows along it; `size` and `starts` may be symbolic."""

    taps: int
    starts: Any
    stride: int
    dilation: int
    before: int
    size: Any


def folded(node: Any, x: ir.Expr, rows: ir.PrimExpr | int, axes: Sequence[FoldedAxis]) -> Any:
    """Return the images whose windows were cut out, which are added where they overlap.

    Parameters
    ----------
    node : Node
        An importer's, which emits operators.
    x : Expr
        ``(rows, taps..., starts...)``: the windows, by the axes of their elements, then by where they begin.
    axes : sequence of FoldedAxis

    Returns
    -------
    Expr
        ``(rows, size...)``.
    """
    taps, starts = [a.taps for a in axes], [a.starts for a in axes]
    inner: Any = 1
    for k in reversed(range(len(axes))):
        lead, middle = _product(rows, *taps[:k]), _product(*starts[:k])
        x = _axis(node, node.reshape(x, [lead, taps[k], middle, starts[k], inner]), lead, middle, inner, axes[k])
        inner = inner * axes[k].size
    return node.reshape(x, [rows, *(a.size for a in axes)])


def _axis(node: Any, x: Any, rows: Any, middle: Any, inner: Any, a: FoldedAxis) -> Any:
    """Turn ``(rows, taps, middle, starts, inner)`` into ``(rows, middle, size, inner)``.

    Elements of windows that lie `stride` apart go to the same places between strides: these are phases of the result.
    """
    taps, apart = a.taps, a.dilation
    if a.stride > 1 and apart > 1:  # zeros between the elements
        x = _padded(node, node.reshape(x, [rows, taps, 1, middle * a.starts, inner]), 2, 0, apart - 1)
        taps, apart = taps * apart, 1
        x = node.reshape(x, [rows, taps, middle, a.starts, inner])
    parts = -(-taps // a.stride)
    x = _padded(node, x, 1, 0, parts * a.stride - taps)
    if parts > 1:
        x = node.op("nn.overlap_add", node.reshape(x, [rows, parts, a.stride * middle, a.starts, inner]), hop=apart)
    length = a.starts + (parts - 1) * apart
    if a.stride > 1:
        room = length * a.stride - a.before - a.size if isinstance(length, int) and isinstance(a.size, int) else -1
        if room < 0:
            x, length = _padded(node, x, 2, 0, 1), length + 1
        x = node.permute(node.reshape(x, [rows, a.stride, middle, length, inner]), [0, 2, 3, 1, 4])
    x = node.reshape(x, [rows, middle, length * a.stride, inner])
    if a.before == 0 and a.size == length * a.stride:
        return x
    end = (a.before + a.size,)
    return node.op("strided_slice", x, axes=(2,), begin=(a.before,), end=end, assume_inbound=True)


def _padded(node: Any, x: Any, axis: int, before: int, after: int) -> Any:
    if not before and not after:
        return x
    width = [0] * (2 * len(node.dims(x)))
    width[2 * axis : 2 * axis + 2] = before, after
    return node.op("nn.pad", x, pad_width=tuple(width))


def _product(*dims: Any) -> Any:
    return prod(dims)
