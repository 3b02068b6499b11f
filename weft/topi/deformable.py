"""Deformable convolution, and the correlation of displaced patches."""

from collections.abc import Callable
from typing import Any

from weft import error, ir, te, tir
from weft.ir import PrimExpr, as_int, cast, const, floordiv, floormod, if_then_else
from weft.topi.conv import paddings, pair
from weft.topi.convolutions import resolved_padding
from weft.topi.manipulate import transpose
from weft.topi.padding import pad
from weft.topi.shape import simplify
from weft.topi.typing import Extents, Padding


def bilinear_at(read: Callable[..., Any], y: ir.PrimExpr, x: ir.PrimExpr) -> Any:
    """Interpolate between the four neighbours of a point.

    Parameters
    ----------
    read : callable
        From integer coordinates, which may lie outside, to the value of a pixel.
    """
    low = [tir.floor(v) for v in (y, x)]
    down, right = (v - f for v, f in zip((y, x), low, strict=True))
    i, j = (cast("int32", f) for f in low)
    one = const(1.0, y.dtype)
    top = read(i, j) * (one - right) + read(i, j + 1) * right
    bottom = read(i + 1, j) * (one - right) + read(i + 1, j + 1) * right
    return top * (one - down) + bottom * down


def deformable_conv2d_nchw(
    data: te.Tensor,
    offset: te.Tensor,
    kernel: te.Tensor,
    strides: Extents,
    padding: Padding,
    dilation: Extents,
    deformable_groups: int,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Any:
    """2-D convolution whose taps are displaced by offsets, channels first; what lies outside is 0.

    Parameters
    ----------
    offset : Tensor
        (batch, deformable_groups * height * width * 2, output height, output width): for each tap of the kernel, the
        displacement down and to the right.
    """
    dtype, s, d = out_dtype or data.dtype, pair(strides, 2), pair(dilation, 2)
    n, channels, height, width = data.shape
    outputs, per_group, h, w = kernel.shape
    (top, left), _ = paddings(resolved_padding(padding, (h, w), dilation, 2), 2)
    shared = simplify(floordiv(channels, int(deformable_groups)))
    out_size = offset.shape[2:]

    def displaced(b: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        tap = (floordiv(c, shared) * h * w + i * w + j) * 2
        down = cast(data.dtype, y * s[0] - top + i * d[0]) + cast(data.dtype, offset(b, tap, y, x))
        right = cast(data.dtype, x * s[1] - left + j * d[1]) + cast(data.dtype, offset(b, tap + 1, y, x))
        zero = const(0, data.dtype)
        inside = tir.all(down >= zero, right >= zero, down < cast(data.dtype, height), right < cast(data.dtype, width))

        def pixel(p: Any, q: Any) -> Any:  # of a point inside, none comes before the first
            return if_then_else(tir.all(p < height, q < width), data(b, c, p, q), zero)

        return if_then_else(inside, bilinear_at(pixel, down, right), zero)

    moved = te.compute((n, channels, h, w, *out_size), displaced, name="displaced")
    rc, ry, rx = (te.reduce_axis((0, e), v) for e, v in ((per_group, "rc"), (h, "ry"), (w, "rx")))
    of_group = simplify(floordiv(outputs, int(groups)))

    def element(b: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        c = floordiv(o, of_group) * per_group + rc.var if int(groups) > 1 else rc.var
        factor = kernel(o, rc.var, ry.var, rx.var)
        return te.sum(cast(dtype, moved(b, c, ry.var, rx.var, y, x)) * cast(dtype, factor), axis=[rc, ry, rx])

    return te.compute((n, outputs, *out_size), element, name="T_deformable_conv2d")


def deformable_conv2d_nhwc(
    data: te.Tensor,
    offset: te.Tensor,
    kernel: te.Tensor,
    strides: Extents,
    padding: Padding,
    dilation: Extents,
    deformable_groups: int,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Any:
    """2-D convolution whose taps are displaced, channels last, kernel (height, width, in, out)."""
    first = (0, 3, 1, 2)
    found = deformable_conv2d_nchw(
        transpose(data, first),
        transpose(offset, first),
        transpose(kernel, (3, 2, 0, 1)),
        strides,
        padding,
        dilation,
        deformable_groups,
        groups,
        out_dtype,
    )
    return transpose(found, (0, 2, 3, 1))


def correlation_nchw(
    data1: te.Tensor,
    data2: te.Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Padding,
    is_multiply: bool,
) -> Any:
    """Compare patches of one image with displaced patches of another, channels first.

    Parameters
    ----------
    kernel_size : int
        The side of a patch, an odd number.
    max_displacement, stride2 : int
        How far patches are displaced at most, and in which steps; one output channel for each displacement.
    stride1 : int
        How far patches are apart.
    is_multiply : bool
        Whether to sum products, else absolute differences; the sum is divided by the number of terms.
    """
    if kernel_size <= 0 or kernel_size % 2 == 0:
        raise error.InvalidArgument("correlation: the side of a patch is an odd number", found=str(kernel_size))
    before, after = paddings(padding, 2)
    first, second = (pad(t, (0, 0, *before), (0, 0, *after)) for t in (data1, data2))
    n, channels = data1.shape[:2]
    border, steps = max_displacement + (kernel_size - 1) // 2, max_displacement // stride2
    side = 2 * steps + 1
    size = [simplify(floordiv(d - 2 * border + stride1 - 1, stride1)) for d in first.shape[2:]]
    rc, ry, rx = (te.reduce_axis((0, e), v) for e, v in ((channels, "rc"), (kernel_size, "ry"), (kernel_size, "rx")))

    def element(b: PrimExpr, q: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        y, x = i * stride1 + max_displacement + ry.var, j * stride1 + max_displacement + rx.var
        down, right = (floordiv(q, side) - steps) * stride2, (floormod(q, side) - steps) * stride2
        u, v = first(b, rc.var, y, x), second(b, rc.var, y + down, x + right)
        return te.sum(u * v if is_multiply else tir.abs(u - v), axis=[rc, ry, rx])

    total = te.compute((n, side * side, *size), element, name="correlation")
    terms = kernel_size * kernel_size * (as_int(channels) or 1)
    return te.compute(total.shape, lambda *i: total(*i) / const(terms, total.dtype), name="T_correlation")
