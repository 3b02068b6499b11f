"""Convolutions of any rank, channels first or last, and transposed convolutions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import as_int, cast, const, floordiv, floormod, if_then_else, int64, is_float
from weft.te import Tensor
from weft.topi.precision import accumulator, narrowed, shared
from weft.topi.shape import simplify, whole
from weft.topi.slice import constant_pad
from weft.topi.typing import Extent, Extents, Padding, Scalar, Shape


def pair(value: Extents, rank: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    if len(values) not in (1, rank):
        raise ShapeMismatch("wrong number of sizes", expected=f"1 or {rank}", found=str(len(values)))
    return tuple(whole(v) for v in (values if len(values) == rank else values * rank))


def paddings(padding: Padding, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each spatial axis, from one number, one an axis, or all beginnings then all ends."""
    values = tuple(whole(v) for v in (padding if isinstance(padding, Sequence) else (padding,)))
    if len(values) == 1:
        values = values * (2 * rank)
    elif len(values) == rank:
        values = values * 2
    if len(values) != 2 * rank:
        raise ShapeMismatch(
            "padding has a wrong length", expected=f"1, {rank} or {2 * rank} numbers", found=str(len(values))
        )
    return values[:rank], values[rank:]


def channels_last(layout: str) -> bool:
    """Whether a data layout such as ``NHWC`` has its channels last.

    Raises
    ------
    InvalidArgument
        When the layout is neither channels first nor channels last.
    """
    if layout and not re.fullmatch(r"N(C[DHW]*|[DHW]*C)", layout):
        raise InvalidArgument(f"unknown data layout '{layout}'", expected="channels first (NCHW) or last (NHWC)")
    return layout.endswith("C") and len(layout) > 2


def spatial(values: Sequence[Any], last: bool) -> Any:
    """The spatial ones among the values of all axes."""
    return values[1:-1] if last else values[2:]


def conv_shape(shape: Shape, sizes: Shape, channels: Extent, last: bool) -> tuple[Any, ...]:
    """The output's shape, from its spatial sizes and channels."""
    return (shape[0], *sizes, channels) if last else (shape[0], channels, *sizes)


_PACKED = re.compile(r"^O[DHW]*I(\d+)o(?:(\d+)i)?$")


def dot_group(layout: str) -> int:
    """How many neighbouring input channels of one output channel lie together: 4 in ``OHWI32o4i``, mostly 1."""
    packed = _PACKED.match(layout)
    return int(packed[2] or 1) if packed else 1


def panel_size(layout: str) -> int:
    """How long the last dimension of packed weights is: 128 in ``OHWI32o4i``."""
    return int(_PACKED.match(layout)[1]) * dot_group(layout)  # type: ignore[index]


def weight_info(shape: Shape, layout: str, rank: int, channels: Extent | None) -> tuple[Any, list[Any], str]:
    """Return (output channels, spatial extents of the kernel, kind) of weights in a layout."""
    if _PACKED.match(layout):
        return (
            (
                int64(whole(channels))
                if channels is not None
                else simplify(shape[0] * floordiv(shape[-1], int64(dot_group(layout))))
            ),
            list(shape[1 : 1 + rank]),
            "packed",
        )
    if layout.startswith("OI"):
        return shape[0], list(shape[2:]), "first"
    if layout.endswith("IO"):
        return shape[-1], list(shape[:rank]), "last"
    if layout.startswith("O") and layout.endswith("I"):
        return shape[0], list(shape[1:-1]), "outer"
    if layout.endswith("C"):
        return shape[-1], list(shape[:rank]), "depthwise"
    raise InvalidArgument(f"conv: unknown kernel layout '{layout}'", expected="OIHW, HWIO, OHWI, HWC or OHWI<n>o")


def conv_size(size: Extent, kernel: Extent, stride: int, dilation: int, before: int, after: int) -> Any:
    """The number of places of a window along one axis."""
    if stride == 1:
        return simplify(size + int64(before + after + dilation) - kernel * int64(dilation))
    extent = (kernel - int64(1)) * int64(dilation) + int64(1)
    return simplify(floordiv(size + int64(before + after) - extent, int64(stride)) + int64(1))


def pad_spatial(
    x: Tensor, before: Sequence[int], after: Sequence[int], last: bool, value: Scalar | None = None, name: str = "pad"
) -> Any:
    """Pad the spatial axes; the tensor itself where there is nothing to pad."""
    if not any(before) and not any(after):
        return x
    pairs = [(0, 0)] * (1 if last else 2) + list(zip(before, after, strict=True))
    pairs += [(0, 0)] * (x.ndim - len(pairs))
    return constant_pad(x, pairs, 0 if value is None else value, name)


def whole_groups(x: Tensor, size: Extent) -> Any:
    """Lengthen the last axis to `size` with zeros; the tensor itself where it is as long."""
    if as_int(x.shape[-1]) == as_int(size):
        return x
    return te.compute(
        (*x.shape[:-1], size),
        lambda *i: if_then_else(i[-1] < x.shape[-1], x(*i), const(0, x.dtype)),
        name="whole_groups",
    )


def conv(
    x: Tensor,
    w: Tensor,
    strides: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    groups: int = 1,
    data_layout: str = "",
    kernel_layout: str = "",
    out_layout: str | None = None,
    out_dtype: str = "",
    channels: Extent | None = None,
    pad_value: int = 0,
) -> Any:
    """Convolve (cross-correlate) over all spatial axes, which are the axes besides batch and channels."""
    rank, last, dtype = x.ndim - 2, channels_last(data_layout), out_dtype or x.dtype
    wide = accumulator(dtype)
    s, d, (before, after) = pair(strides, rank), pair(dilation, rank), paddings(padding, rank)
    out_channels, kernel, kind = weight_info(w.shape, kernel_layout or "OI", rank, channels)
    sizes = spatial(x.shape, last)
    outs = [conv_size(sizes[i], kernel[i], s[i], d[i], before[i], after[i]) for i in range(rank)]
    group = dot_group(kernel_layout)
    if group == 1:
        x = shared(x, simplify(floordiv(out_channels, int64(groups)) * prod(kernel, start=int64(1))))
    padded = pad_spatial(x, before, after, last, const(pad_value, x.dtype))
    if group > 1:
        padded = whole_groups(padded, simplify(w.shape[-2] * int64(group)))
    in_channels = padded.shape[-1] if last else padded.shape[1]
    per_group = simplify(floordiv(in_channels, int64(groups))) if groups > 1 else in_channels
    out_last = channels_last(out_layout or data_layout)
    ks = [te.reduce_axis((int64(0), kernel[i]), f"k{i}") for i in range(rank)]
    rc = te.reduce_axis((int64(0), per_group), "rc")
    group_size = simplify(floordiv(out_channels, int64(groups)))
    depthwise = kind == "depthwise"

    def element(*i: Any) -> Any:
        n, oc, o = i[0], i[-1] if out_last else i[1], spatial(i, out_last)
        at = [o[j] * int64(s[j]) + ks[j].var * int64(d[j]) for j in range(rank)]
        taps = [k.var for k in ks]
        if depthwise:
            c = oc if as_int(group_size) == 1 else floordiv(oc, group_size)
            weight = w(*taps, oc)
        else:
            c = rc.var if groups == 1 else floordiv(oc, group_size) * per_group + rc.var
            weight = _weight(w, kind, oc, taps, rc.var, group)
        value = padded(n, *at, c) if last else padded(n, c, *at)
        return te.sum(cast(wide, value) * cast(wide, weight), axis=ks if depthwise else [*ks, rc])

    name = "T_depthwise_conv" if depthwise else "T_conv"
    return narrowed(te.compute(conv_shape(x.shape, outs, out_channels, out_last), element, name=name), dtype)


def _weight(w: Any, kind: str, oc: Any, taps: list[Any], c: Any, group: int) -> Any:
    if kind == "packed" and group > 1:
        panel, size = floordiv(w.shape[-1], int64(group)), int64(group)
        return w(floordiv(oc, panel), *taps, floordiv(c, size), floormod(oc, panel) * size + floormod(c, size))
    if kind == "packed":
        panel = w.shape[-1]
        return w(floordiv(oc, panel), *taps, c, floormod(oc, panel))
    if kind == "outer":
        return w(oc, *taps, c)
    return w(oc, c, *taps) if kind == "first" else w(*taps, c, oc)


def transposed_size(
    size: Extent, kernel: Extent, stride: int, dilation: int, before: int, after: int, extra: int
) -> Any:
    """The size of a transposed convolution's output along one axis."""
    return simplify(
        (size - int64(1)) * int64(stride)
        - int64(before + after)
        + (kernel - int64(1)) * int64(dilation)
        + int64(1 + extra)
    )


def conv_transpose(
    x: Tensor,
    w: Tensor,
    strides: Extents = 1,
    padding: Padding = 0,
    output_padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
    data_layout: str = "",
    kernel_layout: str = "",
    out_layout: str | None = None,
    out_dtype: str = "",
) -> Any:
    """Convolve transposed: each input element spreads over a window of the output; weights (in, out / groups, ...)."""
    rank, last, dtype = x.ndim - 2, channels_last(data_layout), out_dtype or x.dtype
    wide = accumulator(dtype)
    s, d, e = pair(strides, rank), pair(dilation, rank), pair(output_padding, rank)
    before, after = paddings(padding, rank)
    sizes, in_channels = spatial(x.shape, last), x.shape[-1] if last else x.shape[1]
    outs = [transposed_size(sizes[i], w.shape[2 + i], s[i], d[i], before[i], after[i], e[i]) for i in range(rank)]
    per_out, per_in = w.shape[1], simplify(floordiv(in_channels, int64(groups)))
    ks = [te.reduce_axis((int64(0), w.shape[2 + i]), f"k{i}") for i in range(rank)]
    rc = te.reduce_axis((int64(0), per_in), "rc")

    def element(*indices: Any) -> Any:
        n, oc, o = indices[0], indices[-1] if last else indices[1], spatial(indices, last)
        group = floordiv(oc, per_out) if groups > 1 else int64(0)
        c = group * per_in + rc.var if groups > 1 else rc.var
        at, inside = [], const(True, "bool")
        for i in range(rank):
            j = o[i] + int64(before[i]) - ks[i].var * int64(d[i])
            q = floordiv(j, int64(s[i])) if s[i] > 1 else j
            inside = tir.all(inside, q >= int64(0), q < sizes[i])
            if s[i] > 1:
                inside = tir.all(inside, floormod(j, int64(s[i])).equal(int64(0)))
            at.append(q)
        oc_in = floormod(oc, per_out) if groups > 1 else oc
        value, weight = x(n, *at, c) if last else x(n, c, *at), w(c, oc_in, *[k.var for k in ks])
        nothing = const(-0.0, wide) if is_float(wide) else const(0, wide)  # which no sum changes by
        return te.sum(if_then_else(inside, cast(wide, value) * cast(wide, weight), nothing), axis=[*ks, rc])

    out_channels = simplify(per_out * int64(groups))
    return narrowed(te.compute(conv_shape(x.shape, outs, out_channels, last), element, name="T_conv_transpose"), dtype)
