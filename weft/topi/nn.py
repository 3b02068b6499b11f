"""The names and parameter orders of ``tvm.topi.nn``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft._aliases import names_of
from weft.error import InvalidArgument
from weft.ir import as_int, cast, const, int64
from weft.topi import conv as _conv
from weft.topi.activation import leaky_relu, prelu, relu
from weft.topi.manipulate import depth_to_space, space_to_depth, view
from weft.topi.matmul import linear, matmul
from weft.topi.norm import batch_norm, group_norm, instance_norm, layer_norm, log_softmax, lrn, rms_norm, softmax
from weft.topi.pool import adaptive_pool as _adaptive_pool
from weft.topi.pool import pool as _pool
from weft.topi.precision import accumulator, narrowed
from weft.topi.resize import resize2d
from weft.topi.shape import normalize_axis, product, simplify
from weft.topi.slice import pad_between

__all__ = [
    "adaptive_pool", "batch_matmul", "batch_norm", "bias_add", "conv", "conv1d", "conv2d", "conv2d_nchw", "conv2d_nhwc",
    "conv3d_ncdhw", "dense", "depth_to_space", "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc", "flatten",
    "global_pool", "group_norm", "instance_norm", "layer_norm", "leaky_relu", "log_softmax", "lrn", "matmul", "pad",
    "pool1d", "pool2d", "pool3d", "prelu", "relu", "rms_norm", "softmax", "space_to_depth", "upsampling",
]  # fmt: skip


def pad(
    data: Any,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
) -> Any:
    """Pad each axis with a value, `pad_before` and (by default as many) `pad_after`."""
    return pad_between(
        data, list(pad_before), list(pad_after if pad_after is not None else pad_before), pad_value, name
    )


def _resolved(padding: Any, kernel: Any, dilation: Any, rank: int) -> Any:
    """Padding as numbers: ``"VALID"`` is none, ``"SAME"`` keeps the size at stride 1."""
    if not isinstance(padding, str):
        return padding
    if padding.upper() == "VALID":
        return 0
    if padding.upper() != "SAME":
        raise InvalidArgument(f"unknown padding '{padding}'", expected="numbers, 'VALID' or 'SAME'")
    total = [(as_int(k) - 1) * d for k, d in zip(kernel, _conv.pair(dilation, rank), strict=True)]  # type: ignore[operator]
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))


_KERNEL_LAYOUTS = {True: {1: "WIO", 2: "HWIO", 3: "DHWIO"}, False: {1: "OIW", 2: "OIHW", 3: "OIDHW"}}


def conv(
    inp: Any, filt: Any, stride: Any, padding: Any, dilation: Any, groups: int = 1, data_layout: str = "",
    kernel_layout: str = "", out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """Convolve over all spatial axes."""
    rank, last = inp.ndim - 2, _conv.channels_last(data_layout)
    layout = kernel_layout or _KERNEL_LAYOUTS[last][rank]
    kernel = _conv.weight_info(filt.shape, layout, rank, None)[1]
    pads = _resolved(padding, kernel, dilation, rank)
    return _conv.conv(inp, filt, stride, pads, dilation, groups, data_layout, layout, None, out_dtype or "")


def conv1d(
    data: Any, kernel: Any, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1, groups: int = 1,
    data_layout: str = "NCW", kernel_layout: str = "", out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """1-D convolution."""
    return conv(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


def conv2d(
    data: Any, kernel: Any, strides: Any, padding: Any, dilation: Any, data_layout: str = "NCHW",
    kernel_layout: str = "", out_dtype: str | None = None
) -> Any:  # fmt: skip
    """2-D convolution."""
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv2d_nchw(Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None) -> Any:
    """2-D convolution, channels first."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype)


def conv2d_nhwc(Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None) -> Any:
    """2-D convolution, channels last, kernel (height, width, in, out)."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype)


def conv3d_ncdhw(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, groups: int, out_dtype: str | None = None
) -> Any:
    """3-D convolution, channels first."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def depthwise_conv2d_nchw(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> Any:
    """Depthwise convolution, channels first, kernel (channels, multiplier, height, width)."""
    c, m, *size = Filter.shape
    kernel = view(Filter, (simplify(c * m), int64(1), *size), "T_filter")
    pads = _resolved(padding, size, dilation, 2)
    return _conv.conv(Input, kernel, stride, pads, dilation, as_int(c) or 1, "NCHW", "OIHW", None, out_dtype or "")


def depthwise_conv2d_nhwc(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, kernel_layout: str = "HWOI",
    out_dtype: str | None = None
) -> Any:  # fmt: skip
    """Depthwise convolution, channels last, kernel (height, width, channels, multiplier)."""
    h, w, c, m = Filter.shape
    kernel = view(Filter, (h, w, simplify(c * m)), "T_filter")
    pads = _resolved(padding, (h, w), dilation, 2)
    return _conv.conv(Input, kernel, stride, pads, dilation, as_int(c) or 1, "NHWC", "HWC", None, out_dtype or "")


def _pooled(
    data: Any,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    layout: str,
    include_pad: bool,
) -> Any:
    if pool_type not in ("max", "avg"):
        raise InvalidArgument(f"unknown pool type '{pool_type}'", expected="max or avg")
    return _pool(pool_type, data, kernel, stride, padding, dilation, ceil_mode, include_pad, layout)


def pool1d(
    data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str, ceil_mode: bool = False,
    layout: str = "NCW", count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """1-D pooling."""
    return _pooled(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def pool2d(
    data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str, ceil_mode: bool = False,
    layout: str = "NCHW", count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """2-D pooling."""
    return _pooled(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def pool3d(
    data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str, ceil_mode: bool = False,
    layout: str = "NCDHW", count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """3-D pooling."""
    return _pooled(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def adaptive_pool(data: Any, output_size: Any, pool_type: str, layout: str = "NCHW") -> Any:
    """Pool to a given size."""
    return _adaptive_pool(pool_type, data, output_size, layout)


def global_pool(data: Any, pool_type: str, layout: str = "NCHW") -> Any:
    """Pool each channel to one value."""
    return _adaptive_pool(pool_type, data, 1, layout)


def dense(data: Any, weight: Any, bias: Any = None, out_dtype: str | None = None) -> Any:
    """``data @ weight.T + bias``."""
    return linear(data, weight, bias, out_dtype or "")


def batch_matmul(
    x: Any,
    y: Any,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Any:
    """Products of two batches of matrices; a batch of one is repeated."""
    dtype = out_dtype or x.dtype
    wide = accumulator(dtype)
    n, m = x.shape[0] if as_int(x.shape[0]) != 1 else y.shape[0], x.shape[2 if transpose_a else 1]
    k = te.reduce_axis((int64(0), x.shape[1 if transpose_a else 2]), "k")

    def element(b: Any, i: Any, j: Any) -> Any:
        bx, by = (const(0, b.dtype) if as_int(t.shape[0]) == 1 else b for t in (x, y))
        left = x(bx, k.var, i) if transpose_a else x(bx, i, k.var)
        right = y(by, j, k.var) if transpose_b else y(by, k.var, j)
        return te.sum(cast(wide, left) * cast(wide, right), axis=k)

    return narrowed(te.compute((n, m, y.shape[1 if transpose_b else 2]), element, name="T_batch_matmul"), dtype)


def bias_add(data: Any, bias: Any, axis: int = 1) -> Any:
    """Add a vector along an axis."""
    a = normalize_axis("bias_add", axis, data.ndim)
    return te.compute(data.shape, lambda *i: data(*i) + bias(i[a]), name="T_bias_add")


def flatten(data: Any) -> Any:
    """All axes but the first as one."""
    return view(data, (data.shape[0], product(data.shape[1:])), "T_flatten")


def upsampling(
    data: Any, scale_h: float, scale_w: float, layout: str = "NCHW", method: str = "nearest_neighbor",
    align_corners: bool = False, output_shape: Any = None
) -> Any:  # fmt: skip
    """Enlarge the two spatial axes by factors."""
    sizes = _conv.spatial(data.shape, _conv.channels_last(layout))

    def scaled(size: Any, factor: float) -> Any:
        return (
            size * int64(int(factor))
            if float(factor).is_integer()
            else cast("int64", cast("float64", size) * const(factor, "float64"))
        )

    size = (
        tuple(output_shape)
        if output_shape
        else tuple(simplify(scaled(s, f)) for s, f in zip(sizes, (scale_h, scale_w), strict=True))
    )
    mode = "align_corners" if align_corners else "asymmetric"
    names = {"nearest_neighbor": "nearest", "bilinear": "linear", "bicubic": "cubic"}
    rounding = "floor" if method == "nearest_neighbor" and not align_corners else ""
    return resize2d(
        data,
        size,
        layout=layout,
        method=names.get(method, method),
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
    )


__getattr__ = names_of("weft.topi.nn")
__path__: list[str] = []  # aliases lie inside, and import looks only into what has a path
