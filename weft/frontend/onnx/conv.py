"""Convolutions and transposed convolutions of any rank."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.window import Window, read_window


def _kernel(node: Node, weights: int = 1) -> list[Any]:
    """Return the spatial size of the weights, which the attribute may repeat."""
    node.require_rank(weights, node.ndim())
    shape = list(node.shape(weights)[2:])
    given = node.attr("kernel_shape")
    if any(not isinstance(d, int) for d in shape):
        if given is None:
            node.unsupported("the size of its kernel is not known", expected="constant dimensions", found=str(shape))
        shape = given
    if given is not None:
        node.require_shape(weights, [*node.shape(weights)[:2], *given])
    return shape


def _with_bias(node: Node, out: Any) -> Any:
    if not node.has(2):
        return out
    channels = node.dims(out)[1]
    node.require_shape(2, [channels])
    return node.op("add", out, node.reshape(node.x(2), [1, channels, *([1] * (node.ndim() - 2))]))


@converter("Conv")
def _conv(node: Node) -> Any:
    return _with_bias(node, convolution(node, node.x(0), node.x(1), 1))


def convolution(node: Node, x: ir.Expr, w: ir.Expr, weights: int, out_dtype: str = "") -> Any:
    """Convolve `x` with `w` by the node's attributes.

    Parameters
    ----------
    x, w : Expr
        Input 0 and the weights, or what stands for them in another data type.
    weights : int
        Which input the weights are.
    out_dtype : str
        The data type of the sums; by default that of `x`.
    """
    window = read_window(node, _kernel(node, weights))
    rank = node.ndim() - 2
    if not window.has_constant_pads or any(p < 0 for p in window.padding):
        x = padded(node, x, [0, 0, *window.before], [0, 0, *window.after])
        window = Window(window.kernel, window.strides, window.dilations, [0] * rank, [0] * rank)
    return node.op(
        f"nn.conv{rank}d",
        x,
        w,
        strides=tuple(window.strides),
        padding=window.padding,
        dilation=tuple(window.dilations),
        groups=node.attr("group", 1),
        out_dtype=out_dtype,
    )


@converter("ConvTranspose")
def _conv_transpose(node: Node) -> Any:
    rank, kernel = node.ndim() - 2, _kernel(node)
    strides = list(node.attr("strides", [1] * rank))
    dilations = list(node.attr("dilations", [1] * rank))
    extra = list(node.attr("output_padding", [0] * rank))
    if not len(strides) == len(dilations) == len(extra) == len(kernel) == rank:
        node.error(
            "its attributes differ in length",
            expected=f"{rank} for {node.ndim()} dimensions",
            found=f"{strides}, {dilations}, {extra}",
        )
    if any(e >= max(t, d) for e, t, d in zip(extra, strides, dilations, strict=True)):
        node.error(
            "attribute 'output_padding' is too large", expected="less than the stride or the dilation", found=str(extra)
        )
    for i, size in enumerate(node.shape()[2:]):  # ONNX's reference refuses nothing, ONNX Runtime most of it
        node.require_between(f"size of input 0 in spatial dimension {i}", size, 1, None)
    before, after = _transpose_pads(node, kernel, strides, dilations, extra)
    fixed = all(isinstance(p, int) and p >= 0 for p in (*before, *after))
    out = node.op(
        f"nn.conv{rank}d_transpose",
        node.x(0),
        node.x(1),
        strides=tuple(strides),
        padding=tuple([*before, *after] if fixed else [0] * (2 * rank)),
        output_padding=tuple(extra if fixed else [0] * rank),
        dilation=tuple(dilations),
        groups=node.attr("group", 1),
    )
    if not fixed:
        out = padded(
            node,
            out,
            [0, 0, *(s.negate(b) for b in before)],
            [0, 0, *(s.subtract(e, a) for e, a in zip(extra, after, strict=True))],
        )
    return _with_bias(node, out)


def _transpose_pads(
    node: Node, kernel: list[int], strides: list[int], dilations: list[int], extra: list[int]
) -> tuple[list[Any], list[Any]]:
    rank, auto = len(kernel), node.attr("auto_pad", "NOTSET")
    shape = node.attr("output_shape")
    if shape is None and auto in ("NOTSET", "", "VALID"):
        pads = node.attr("pads", [0] * (2 * rank)) if auto != "VALID" else [0] * (2 * rank)
        if len(pads) != 2 * rank:
            node.error("attribute 'pads' has a wrong length", expected=str(2 * rank), found=str(pads))
        return pads[:rank], pads[rank:]
    if shape is not None and len(shape) == rank + 2:
        shape = shape[2:]
    if shape is not None and len(shape) != rank:
        node.error("attribute 'output_shape' has a wrong length", expected=str(rank), found=str(shape))
    before, after = [], []
    for i, size in enumerate(node.shape()[2:]):
        target = s.multiply(size, strides[i]) if shape is None else shape[i]
        full = s.add(s.multiply(s.subtract(size, 1), strides[i]), (kernel[i] - 1) * dilations[i] + 1 + extra[i])
        total = s.subtract(full, target)
        if shape is not None:
            reached = s.subtract(s.add(full, strides[i]), 1)
            node.require_between(f"'output_shape' in spatial dimension {i}", target, None, reached)
        if s.is_known(total):
            total = max(total, 0) if shape is None else total
            small, large = total // 2, total - total // 2
        else:
            small = s.floor_divide(total, 2)
            large = s.subtract(total, small)
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return before, after
