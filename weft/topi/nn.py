"""The names and parameter orders of ``tvm.topi.nn``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import error, te, tir
from weft._aliases import names_of
from weft.ir import PrimExpr, as_int, cast, const, floordiv, floormod, if_then_else, int64, select
from weft.spelling import named
from weft.te import Tensor
from weft.topi import conv as _conv
from weft.topi.activation import leaky_relu, prelu, relu
from weft.topi.bits import (
    binarize_pack,
    binary_dense,
    bitpack,
    bitserial_conv2d_nchw,
    bitserial_conv2d_nhwc,
    bitserial_dense,
)
from weft.topi.blocked_conv import (
    conv2d_NCHWc,
    conv2d_NCHWc_int8,
    conv2d_NCHWc_OIHWo,
    depthwise_conv2d_NCHWc,
    unpack_NCHWc_to_nchw,
)
from weft.topi.compressed_rows import (
    sparse_add,
    sparse_conv2d,
    sparse_dense,
    sparse_dense_sp_lhs,
    sparse_dense_sp_rhs,
    sparse_transpose,
)
from weft.topi.conv_gradient import (
    depthwise_conv2d_backward_input_nhwc,
    depthwise_conv2d_backward_weight_nhwc,
    pool_grad,
)
from weft.topi.convolutions import (
    Workload,
    conv,
    conv1d,
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_nhwc,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    depthwise_conv2d_nchw,
    depthwise_conv2d_nhwc,
    get_pad_tuple,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv1d_transpose_ncw,
    group_conv2d_nchw,
    group_conv2d_nhwc,
    group_conv2d_transpose_nchw,
    group_conv3d_transpose_ncdhw,
    resolved_padding,
)
from weft.topi.deformable import correlation_nchw, deformable_conv2d_nchw, deformable_conv2d_nhwc
from weft.topi.image import resize3d
from weft.topi.loss import nll_loss
from weft.topi.lstm import lstm
from weft.topi.manipulate import depth_to_space as _depth_to_space
from weft.topi.manipulate import layout_transform, transpose, view
from weft.topi.manipulate import space_to_depth as _space_to_depth
from weft.topi.matmul import linear
from weft.topi.matmul import matmul as _matmul
from weft.topi.norm import log_softmax, softmax
from weft.topi.normalization import batch_norm, group_norm, instance_norm, layer_norm, lrn, rms_norm
from weft.topi.padding import circular_pad, dilate, get_padded_shape, mirror_pad, pad, reflect_pad, replicate_pad
from weft.topi.pool import adaptive_pool as _adaptive_pool
from weft.topi.pool import pool as _pool
from weft.topi.precision import accumulator, narrowed
from weft.topi.quant import (
    SQNN_CODE_TO_DTYPE,
    SQNN_DISABLE,
    SQNN_DTYPE_TO_CODE,
    SQNN_INT8,
    SQNN_INT32,
    SQNN_UINT8,
    simulated_dequantize,
    simulated_quantize,
)
from weft.topi.resize import resize_spatial
from weft.topi.shape import normalize_axis, product, simplify
from weft.topi.space import batch_to_space_nd, space_to_batch_nd
from weft.topi.typing import Extents, Padding, Shape
from weft.topi.winograd import weight_transform, winograd_convolution

__all__ = [
    "POOL_TYPE_CODE",
    "SQNN_CODE_TO_DTYPE",
    "SQNN_DISABLE",
    "SQNN_DTYPE_TO_CODE",
    "SQNN_INT32",
    "SQNN_INT8",
    "SQNN_UINT8",
    "Workload",
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "batch_matmul",
    "batch_norm",
    "batch_to_space_nd",
    "bias_add",
    "binarize_pack",
    "binary_dense",
    "bitpack",
    "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc",
    "bitserial_dense",
    "circular_pad",
    "conv",
    "conv1d",
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_ncw",
    "conv2d",
    "conv2d_NCHWc",
    "conv2d_NCHWc_OIHWo",
    "conv2d_NCHWc_int8",
    "conv2d_hwcn",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_transpose_nchw",
    "conv2d_winograd_nchw",
    "conv2d_winograd_nchw_without_weight_transform",
    "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform",
    "conv2d_winograd_weight_transform",
    "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_transpose_ncdhw",
    "conv3d_winograd_weight_transform",
    "correlation_nchw",
    "deformable_conv2d_nchw",
    "deformable_conv2d_nhwc",
    "dense",
    "dense_pack",
    "depth_to_space",
    "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_backward_input_nhwc",
    "depthwise_conv2d_backward_weight_nhwc",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc",
    "dilate",
    "fast_softmax",
    "fifo_buffer",
    "flatten",
    "get_pad_tuple",
    "get_padded_shape",
    "global_pool",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv1d_transpose_ncw",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw",
    "group_conv3d_transpose_ncdhw",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "layout_transform",
    "leaky_relu",
    "log_softmax",
    "lrn",
    "lstm",
    "matmul",
    "mirror_pad",
    "nll_loss",
    "pad",
    "pixel_shuffle",
    "pool1d",
    "pool2d",
    "pool3d",
    "pool_grad",
    "prelu",
    "reflect_pad",
    "relu",
    "replicate_pad",
    "rms_norm",
    "scale_shift_nchw",
    "scale_shift_nchwc",
    "scale_shift_nhwc",
    "simulated_dequantize",
    "simulated_quantize",
    "softmax",
    "softmax_common",
    "softplus",
    "space_to_batch_nd",
    "space_to_depth",
    "sparse_add",
    "sparse_conv2d",
    "sparse_dense",
    "sparse_dense_sp_lhs",
    "sparse_dense_sp_rhs",
    "sparse_transpose",
    "unpack_NCHWc_to_nchw",
    "upsampling",
    "upsampling3d",
]


def _pooling(rank: int, channels_first: str) -> Callable[..., Any]:
    def pooling(
        data: Tensor,
        kernel: Extents,
        stride: Extents,
        dilation: Extents,
        padding: Padding,
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = channels_first,
        count_include_pad: bool = True,
    ) -> Any:
        if pool_type not in ("max", "avg"):
            raise error.InvalidArgument(f"unknown pool type '{pool_type}'", expected="max or avg")
        return _pool(pool_type, data, kernel, stride, padding, dilation, ceil_mode, count_include_pad, layout)

    return named(pooling, f"pool{rank}d", f"{rank}-D pooling.")


pool1d, pool2d, pool3d = (_pooling(rank, layout) for rank, layout in enumerate(("NCW", "NCHW", "NCDHW"), 1))
POOL_TYPE_CODE = {"avg": 0, "max": 1}


def _pooling_to_size(name: str, channels_first: str, doc: str) -> Callable[..., Any]:
    def pooling(data: Tensor, output_size: Extents, pool_type: str, layout: str = channels_first) -> Any:
        return _adaptive_pool(pool_type, data, output_size, layout)

    return named(pooling, name, doc)


adaptive_pool = _pooling_to_size("adaptive_pool", "NCHW", "Pool to a given size.")
adaptive_pool1d = _pooling_to_size("adaptive_pool1d", "NCW", "Pool one axis to a given size.")
adaptive_pool3d = _pooling_to_size("adaptive_pool3d", "NCDHW", "Pool three axes to given sizes.")


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Any:
    """Pool each channel to one value."""
    return _adaptive_pool(pool_type, data, 1, layout)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None, **_layouts: Any
) -> Any:
    """``data @ weight.T + bias``."""
    return linear(data, weight, bias, out_dtype or "")


def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Any:
    """``data @ weight.T + bias`` with weights (panels, inputs, panel)."""
    dtype, panel = out_dtype or data.dtype, weight.shape[2]
    k = te.reduce_axis((0, data.shape[1]), "k")

    def element(i: PrimExpr, j: PrimExpr) -> Any:
        factor = weight(floordiv(j, panel), k.var, floormod(j, panel))
        return te.sum(cast(dtype, data(i, k.var)) * cast(dtype, factor), axis=k)

    out = te.compute((data.shape[0], simplify(weight.shape[0] * panel)), element, name="T_dense_pack")
    return out if bias is None else te.compute(out.shape, lambda i, j: out(i, j) + cast(dtype, bias(j)), name="T_add")


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    **_layouts: Any,
) -> Any:
    """``tensor_a @ tensor_b + bias``, of which either matrix may be transposed."""
    turned = lambda t: transpose(t, (*range(t.ndim - 2), t.ndim - 1, t.ndim - 2))  # noqa: E731
    left, right = turned(tensor_a) if transpose_a else tensor_a, turned(tensor_b) if transpose_b else tensor_b
    out = _matmul(left, right, out_dtype or "")
    return (
        out if bias is None else te.compute(out.shape, lambda *i: out(*i) + cast(out.dtype, bias(i[-1])), name="T_add")
    )


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Shape | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    **_layouts: Any,
) -> Any:
    """Products of two batches of matrices; a batch of one is repeated."""
    x, y = tensor_a, tensor_b
    dtype = out_dtype or x.dtype
    wide = accumulator(dtype)
    n, m = x.shape[0] if as_int(x.shape[0]) != 1 else y.shape[0], x.shape[2 if transpose_a else 1]
    k = te.reduce_axis((int64(0), x.shape[1 if transpose_a else 2]), "k")

    def element(b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        bx, by = (const(0, b.dtype) if as_int(t.shape[0]) == 1 else b for t in (x, y))
        left = x(bx, k.var, i) if transpose_a else x(bx, i, k.var)
        right = y(by, j, k.var) if transpose_b else y(by, k.var, j)
        return te.sum(cast(wide, left) * cast(wide, right), axis=k)

    return narrowed(te.compute((n, m, y.shape[1 if transpose_b else 2]), element, name="T_batch_matmul"), dtype)


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Any:
    """Add a vector along an axis."""
    a = normalize_axis("bias_add", axis, data.ndim)
    return te.compute(data.shape, lambda *i: data(*i) + bias(i[a]), name="T_bias_add")


def flatten(data: Tensor) -> Any:
    """All axes but the first as one."""
    return view(data, (data.shape[0], product(data.shape[1:])), "T_flatten")


def _scaled(size: Any, factor: float, rounded: bool = False) -> Any:
    """A size times a factor."""
    if float(factor).is_integer():
        return size * int64(int(factor))
    whole = cast("float64", size) * const(factor, "float64")
    return cast("int64", tir.round(whole) if rounded else whole)


def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Shape | None = None,
) -> Any:
    """Enlarge the two spatial axes by factors."""
    sizes = _conv.spatial(data.shape, _conv.channels_last(layout))
    scaled = [simplify(_scaled(s, f)) for s, f in zip(sizes, (scale_h, scale_w), strict=True)]
    mode = "align_corners" if align_corners else "asymmetric"
    names = {"nearest_neighbor": "nearest", "bilinear": "linear", "bicubic": "cubic"}
    rounding = "floor" if method == "nearest_neighbor" and not align_corners else ""
    return resize_spatial(
        data,
        tuple(output_shape or scaled),
        layout=layout,
        method=names.get(method, method),
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
    )


def upsampling3d(
    data: Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Shape | None = None,
) -> Any:
    """Enlarge the three spatial axes by factors."""
    axes = [layout.index(name) for name in "DHW"]
    if output_shape:
        size = [output_shape[a] for a in axes]
    else:
        scales = (scale_d, scale_h, scale_w)
        size = [simplify(_scaled(data.shape[a], f, rounded=True)) for a, f in zip(axes, scales, strict=True)]
    return resize3d(data, None, size, layout, method, coordinate_transformation_mode)


# --- weights in another basis -----------------------------------------------------------------------------------------


def conv2d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Any:
    """Weights (out, in, k, k) for tiles of `tile_size` outputs: (n, n, out, in) with ``n = tile_size + k - 1``."""
    return weight_transform(kernel, tile_size, (2, 3))


def conv3d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Any:
    """Weights (out, in, d, k, k) for tiles: (n, n, n, out, in) where all sides are equal, else (n, n, d, out, in)."""
    depth = as_int(kernel.shape[2])
    whole = depth == as_int(kernel.shape[3]) and 2 < (depth or 0) < 8
    return weight_transform(kernel, tile_size, (2, 3, 4) if whole else (3, 4))


def _winograd(data: Any, weight: Any, strides: Any, padding: Any, dilation: Any, out_dtype: str | None) -> Any:
    if _conv.pair(strides, 2) != (1, 1) or _conv.pair(dilation, 2) != (1, 1):
        raise error.InvalidArgument("winograd: stride and dilation are 1", found=f"{strides}, {dilation}")
    pads = resolved_padding(padding, (3, 3), 1, 2)
    return winograd_convolution(data, weight, pads, out_dtype or data.dtype)


def _winograd_in(layout: str, weights: str) -> tuple[Any, Any]:
    """Make the convolutions of a layout: with transformed weights, and with weights that may be."""

    def transformed(
        data: Tensor,
        weight: Tensor,
        strides: Extents,
        padding: Padding,
        dilation: Extents,
        out_dtype: str | None,
        **_layouts: Any,
    ) -> Any:
        if layout == "nhwc":
            return _winograd(data, weight, strides, padding, dilation, out_dtype)
        moved, turned = transpose(data, (0, 2, 3, 1)), transpose(weight, (0, 1, 3, 2))
        return transpose(_winograd(moved, turned, strides, padding, dilation, out_dtype), (0, 3, 1, 2))

    def whole(
        data: Tensor,
        weight: Tensor,
        strides: Extents,
        padding: Padding,
        dilation: Extents,
        out_dtype: str | None,
        pre_computed: bool = False,
        **_layouts: Any,
    ) -> Any:
        if not pre_computed and layout == "nhwc":
            weight = weight_transform(weight, _TILE, (0, 1), last=True)
        elif not pre_computed:
            weight = transpose(weight_transform(weight, _TILE, (2, 3)), (0, 1, 3, 2))
        return transformed(data, weight, strides, padding, dilation, out_dtype)

    name, what = f"conv2d_winograd_{layout}", f"Convolve 3x3 images in {layout.upper()}"
    by = "weights of :func:`conv2d_winograd_weight_transform`" + (", (n, n, in, out)" if layout == "nchw" else "")
    alone = named(transformed, f"{name}_without_weight_transform", f"{what}, with {by}.")
    return alone, named(whole, name, f"{what}, by tiles of {_TILE}; weights {weights}, or transformed ones.")


_TILE = 4
conv2d_winograd_nhwc_without_weight_transform, conv2d_winograd_nhwc = _winograd_in("nhwc", "(3, 3, in, out)")
conv2d_winograd_nchw_without_weight_transform, conv2d_winograd_nchw = _winograd_in("nchw", "(out, in, 3, 3)")


# --- channels as pixels -----------------------------------------------------------------------------------------------


def _first(layout: str, data: Any, fn: Any) -> Any:
    """Apply a function of channels-first images."""
    if not _conv.channels_last(layout):
        return fn(data)
    return transpose(fn(transpose(data, (0, 3, 1, 2))), (0, 2, 3, 1))


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Any:
    """Move channels into blocks of the two spatial axes; in mode ``DCR`` the block's position leads the channel."""
    return _first(layout, data, lambda x: _depth_to_space(x, block_size, mode))


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Any:
    """Move blocks of the two spatial axes into channels, of which the block's position leads."""
    return _first(layout, data, lambda x: _space_to_depth(x, block_size))


def pixel_shuffle(data: Tensor, upscale_factor: int) -> Any:
    """Move channels into blocks of the last two axes, the channel leading the block's position."""
    return _depth_to_space(data, upscale_factor, "CRD")


# --- states, channels -------------------------------------------------------------------------------------------------


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Any:
    """Put `data` behind `buffer` along an axis, and let as much go at the front."""
    a = normalize_axis("fifo_buffer", axis, buffer.ndim)
    if data.ndim != buffer.ndim:
        raise error.ShapeMismatch(
            "fifo_buffer: data and buffer differ in rank", expected=str(buffer.ndim), found=str(data.ndim)
        )
    new, kept = data.shape[a], simplify(buffer.shape[a] - data.shape[a])

    def element(*i: Any) -> Any:
        older = buffer(*(v + new if d == a else v for d, v in enumerate(i)))
        return if_then_else(i[a] < kept, older, data(*(v - kept if d == a else v for d, v in enumerate(i))))

    return te.compute(buffer.shape, element, name="new_buffer")


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Any:
    """Scale and shift each channel, channels first."""
    return te.compute(Input.shape, lambda b, c, i, j: Input(b, c, i, j) * Scale(c) + Shift(c), name="ScaleShift")


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Any:
    """Scale and shift each channel, channels last."""
    return te.compute(Input.shape, lambda b, i, j, c: Input(b, i, j, c) * Scale(c) + Shift(c), name="ScaleShift")


def scale_shift_nchwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Any:
    """Scale and shift each channel of blocked data."""
    return te.compute(
        Input.shape, lambda b, c, i, j, k: Input(b, c, i, j, k) * Scale(c, k) + Shift(c, k), name="ScaleShift"
    )


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """``log(1 + exp(beta * x)) / beta``, and `x` itself where ``beta * x`` is beyond the threshold."""

    def element(*i: Any) -> Any:
        value, b = x(*i), const(beta, x.dtype)
        soft = tir.log1p(tir.exp(tir.min(b * value, const(threshold, x.dtype)))) / b
        return select(b * value > const(threshold, x.dtype), value, soft)

    return te.compute(x.shape, element, name="T_softplus")


def softmax_common(x: Tensor, axis: int, use_fast_exp: bool) -> Any:
    """:func:`softmax`, whose exponentials are polynomials in any case."""
    return softmax(x, axis)


def fast_softmax(x: Tensor, axis: int = -1) -> Any:
    """:func:`softmax`, whose exponentials are polynomials in any case."""
    return softmax(x, axis)


__getattr__ = names_of("weft.topi.nn")
