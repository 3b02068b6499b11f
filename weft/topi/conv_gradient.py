"""Gradients of depthwise convolutions and of pooling."""

from typing import Any

from weft import error, te, tir
from weft.ir import PrimExpr, cast, const, floordiv, floormod, if_then_else, int64
from weft.topi.conv import channels_last, paddings, pair, spatial
from weft.topi.convolutions import resolved_padding
from weft.topi.manipulate import transpose
from weft.topi.pool import max_pool_with_indices, window, window_count
from weft.topi.typing import Extents, Padding, Shape


def _outputs_over(i: Any, taps: Any, sizes: Any, strides: Any, before: Any, dilation: tuple[int, ...] = (1, 1)) -> Any:
    """The outputs whose windows hold an input, each under a tap, and whether they are there."""
    at, inside = [], const(True, "bool")
    for d, tap in enumerate(taps):
        moved = i[d] + before[d] - tap.var * dilation[d]
        o = floordiv(moved, strides[d])
        inside = tir.all(inside, floormod(moved, strides[d]).equal(0), o >= 0, o < sizes[d])
        at.append(o)
    return at, inside


def depthwise_conv2d_backward_input_nhwc(
    Filter: te.Tensor, Out_grad: te.Tensor, oshape: Shape, ishape: Shape, stride: Extents, padding: Padding
) -> Any:
    """The gradient of the data of a depthwise convolution, channels last, kernel (height, width, channels, times)."""
    h, w, _, times = Filter.shape
    before, _ = paddings(resolved_padding(padding, (h, w), 1, 2), 2)
    taps = [te.reduce_axis((0, h), "dh"), te.reduce_axis((0, w), "dw")]
    m = te.reduce_axis((0, times), "dc")

    def element(b: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> Any:
        at, inside = _outputs_over((y, x), taps, Out_grad.shape[1:3], pair(stride, 2), before)
        value = if_then_else(inside, Out_grad(b, *at, c * times + m.var), const(0, Out_grad.dtype))
        return te.sum(value * Filter(*(t.var for t in taps), c, m.var), axis=[*taps, m])

    return te.compute(tuple(ishape), element, name="depthwise_input_gradient")


def depthwise_conv2d_backward_weight_nhwc(
    Input: te.Tensor, Out_grad: te.Tensor, oshape: Shape, fshape: Shape, stride: Extents, padding: Padding
) -> Any:
    """The gradient of the kernel of a depthwise convolution, channels last, (height, width, channels, times)."""
    h, w, _, times = fshape
    steps = pair(stride, 2)
    before, _ = paddings(resolved_padding(padding, (h, w), 1, 2), 2)
    axes = [te.reduce_axis((0, d), name) for d, name in zip(Out_grad.shape[:3], ("b", "y", "x"), strict=True)]
    b, y, x = (a.var for a in axes)

    def element(i: PrimExpr, j: PrimExpr, c: PrimExpr, m: PrimExpr) -> Any:
        at = [y * steps[0] + i - before[0], x * steps[1] + j - before[1]]
        inside = tir.all(*(tir.all(v >= 0, v < d) for v, d in zip(at, Input.shape[1:3], strict=True)))
        value = if_then_else(inside, Input(b, *at, c), const(0, Input.dtype))
        return te.sum(value * Out_grad(b, y, x, c * times + m), axis=axes)

    return te.compute(tuple(fshape), element, name="depthwise_weight_gradient")


def pool_grad(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Extents,
    stride: Extents,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool | str = True,
    layout: str | bool = "NCHW",
    dilation: Extents = 1,
) -> Any:
    """The gradient of the data of a 2-D pooling; of equal greatest elements, the first has it.

    Until 0.9, the layout came before `count_include_pad`; both orders are understood.
    """
    if isinstance(count_include_pad, str):
        count_include_pad, layout = (isinstance(layout, str) or layout), count_include_pad
    if pool_type not in ("max", "avg"):
        raise error.InvalidArgument(f"unknown pool type '{pool_type}'", expected="max or avg")
    last = channels_last(str(layout))
    first = transpose(data, (0, 3, 1, 2)) if last else data
    k, s, d, before, after = window(2, kernel, stride, dilation, padding)
    sizes = spatial(first.shape, False)
    taps = [te.reduce_axis((0, k[i]), name) for i, name in enumerate(("wh", "ww"))]
    chosen = max_pool_with_indices(first, k, s, (*before, *after), d, ceil_mode)[1] if pool_type == "max" else None

    def element(*i: PrimExpr) -> Any:
        n, c, y, x = (i[0], i[3], i[1], i[2]) if last else i
        at, inside = _outputs_over((y, x), taps, spatial(grads.shape, last), s, before, d)
        value, zero = grads(n, *at, c) if last else grads(n, c, *at), const(0, data.dtype)
        if chosen is not None:
            place = ((cast("int64", n) * first.shape[1] + c) * sizes[0] + y) * sizes[1] + x
            takes = tir.all(inside, if_then_else(inside, chosen(n, c, *at), int64(-1)).equal(place))
            return te.sum(if_then_else(takes, value, zero), axis=taps)
        count: Any = int64(1)
        for j, o in enumerate(at):
            count *= window_count(o, sizes[j], k[j], s[j], d[j], before[j], after[j], ceil_mode, count_include_pad)
        return te.sum(if_then_else(inside, value / cast(data.dtype, tir.max(count, int64(1))), zero), axis=taps)

    return te.compute(data.shape, element, name="pool_gradient")
