"""NumPy references of operators, for tests (``tvm.topi.testing``).

Moves are written here; what else an operator means is its declaration's own reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import error, runtime, te
from weft.op.displaced import (
    Array,
    Numbers,
    Padding,
    correlation_nchw_python,
    crop_and_resize_python,
    deformable_conv2d_nchw_python,
    deformable_conv2d_nhwc_python,
)
from weft.op.displaced import last as _last
from weft.op.displaced import numbers as _numbers
from weft.op.displaced import pads as _pads
from weft.op.displaced import second as _second
from weft.op.displaced import weights as _weights
from weft.op.registry import get_op_def
from weft.op.vision import get_valid_counts as get_valid_counts_python
from weft.op.vision import non_max_suppression as non_max_suppression_python
from weft.op.vision import roi_align, roi_pool
from weft.target import Target, TargetLike, build
from weft.te.schedule import schedule_to_prim_func
from weft.topi import nn
from weft.topi.schedules import default_schedule

__all__ = [
    "adaptive_pool",
    "affine_grid_python",
    "batch_matmul",
    "batch_norm",
    "batch_to_space_nd_python",
    "conv1d_ncw_python",
    "conv1d_transpose_ncw_python",
    "conv2d_backward_weight_python",
    "conv2d_hwcn_python",
    "conv2d_nchw_python",
    "conv2d_nhwc_python",
    "conv2d_transpose_nchw_python",
    "conv2d_transpose_nhwc_python",
    "conv3d_ncdhw_python",
    "conv3d_ndhwc_python",
    "conv3d_transpose_ncdhw_python",
    "correlation_nchw_python",
    "crop_and_resize_python",
    "deformable_conv2d_nchw_python",
    "deformable_conv2d_nhwc_python",
    "dense",
    "compare_numpy_tvm",
    "depth_to_space_python",
    "depthwise_conv2d_python_nchw",
    "depthwise_conv2d_python_nhwc",
    "dilate_python",
    "dispatch",
    "gather_nd_python",
    "gather_python",
    "get_broadcast_schedule",
    "get_conv2d_nchw_implement",
    "get_elemwise_schedule",
    "get_injective_schedule",
    "get_reduce_schedule",
    "get_valid_counts_python",
    "grid_sample_python",
    "group_conv1d_ncw_python",
    "group_conv1d_transpose_ncw_python",
    "group_norm_python",
    "instance_norm_python",
    "l2_normalize_python",
    "layer_norm_python",
    "log_softmax_python",
    "lrn_python",
    "matrix_set_diag",
    "nll_loss",
    "non_max_suppression_python",
    "one_hot",
    "pool_grad_nchw",
    "poolnd_python",
    "relu_python",
    "reorg_python",
    "resize1d_python",
    "resize2d_python",
    "resize3d_python",
    "rms_norm_python",
    "roi_align_nchw_python",
    "roi_align_nhwc_python",
    "roi_pool_nchw_python",
    "searchsorted_ref",
    "sequence_mask",
    "slice_axis_python",
    "softmax_python",
    "space_to_batch_nd_python",
    "space_to_depth_python",
    "strided_set_python",
    "strided_slice_python",
]


def get_injective_schedule(target: object) -> Callable[..., Any]:
    """Return the schedule of a kind of operators for a target; it asks ``with Target(...)`` which that is."""
    return default_schedule


def dispatch(target: TargetLike, dispatch_map: Mapping[str, Any]) -> Any:
    """Return what a table has for the first of a target's keys that it knows, else for ``"generic"``."""
    return dispatch_map[next((key for key in Target(target).keys if key in dispatch_map), "generic")]


def get_conv2d_nchw_implement(target: object) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the computation and the schedule of convolutions, channels first."""
    return nn.conv2d_nchw, default_schedule


def compare_numpy_tvm(
    inputs: Sequence[Array],
    output: Array,
    target: TargetLike,
    device: runtime.Device,
    compute: Callable[..., te.Tensor],
    schedule: Callable[..., te.Schedule],
) -> None:
    """Build an operator for a target, run it, and raise an AssertionError unless it gives `output`, to 1e-4."""
    given = [te.placeholder(i.shape, str(i.dtype)) for i in inputs]
    with Target(target) as made:
        out = compute(*given)
        func = build(schedule_to_prim_func(schedule([out]), [*given, out]), made)["main"]
    found = runtime.tensor(np.zeros(output.shape, output.dtype), device=device)
    func(*(runtime.tensor(i, device=device) for i in inputs), found)
    np.testing.assert_allclose(found.numpy(), output, atol=1e-4, rtol=1e-4)


get_broadcast_schedule = get_elemwise_schedule = get_reduce_schedule = get_injective_schedule


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Softmax along an axis."""
    e = np.exp(a_np - np.amax(a_np, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Logarithm of the softmax along an axis."""
    shifted = a_np - np.amax(a_np, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def relu_python(a_np: Array) -> Array:
    """``max(a, 0)``."""
    return np.maximum(a_np, 0)


def dense(
    x: Array,
    y: Array,
    bias: Array | None = None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """``x @ y.T + bias`` in `out_dtype`, with ReLU where asked."""
    out = np.dot(x.astype(out_dtype or x.dtype), y.T.astype(out_dtype or y.dtype))
    if use_bias and bias is not None:
        out = out + bias
    return np.maximum(out, 0) if use_relu else out


# --- convolutions -----------------------------------------------------------------------------------------------------


def _convolved(a: Array, w: Array, stride: Any, padding: Any, dilation: Any = 1, groups: int = 1) -> Array:
    """Convolve data (batch, channels, ...) with weights (outputs, channels / groups, ...), in float64."""
    n = a.ndim - 2
    d = _numbers(dilation, n)
    pads = _around(padding, [(k - 1) * step + 1 for k, step in zip(w.shape[2:], d, strict=True)])
    return _ref(f"nn.conv{n}d", a, w, strides=_numbers(stride, n), padding=pads, dilation=d, groups=groups)


def _transposed(a: Array, w: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1) -> Array:
    """Convolve the other way, with weights (channels, outputs / groups, ...)."""
    n = a.ndim - 2
    return _ref(
        f"nn.conv{n}d_transpose",
        a,
        w,
        strides=_numbers(stride, n),
        padding=_around(padding, w.shape[2:]),
        output_padding=_numbers(output_padding, n),
        dilation=[1] * n,
        groups=groups,
    )


def _around(padding: Any, kernel: Sequence[int]) -> list[int]:
    return [side for sides in zip(*_pads(padding, kernel), strict=True) for side in sides]


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Padding, dilation: Numbers, groups: int = 1
) -> Array:
    """Convolve NCW data with OIW weights, in groups of channels."""
    return _convolved(a_np, w_np, stride, padding, dilation, groups)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Numbers, padding: Padding, groups: int = 1) -> Array:
    """Convolve NCHW data with OIHW weights; padding is a number, a pair, four numbers, ``SAME`` or ``VALID``."""
    return _convolved(a_np, w_np, stride, padding, 1, groups)


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Numbers, padding: Padding, groups: int = 1) -> Array:
    """Convolve NHWC data with HWIO weights."""
    return _last(_convolved(_second(a_np), _weights(w_np), stride, padding, 1, groups))


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Numbers, padding: Padding) -> Array:
    """Convolve HWCN data with HWIO weights."""
    out = _convolved(a_np.transpose(3, 2, 0, 1), _weights(w_np), stride, padding)
    return out.transpose(2, 3, 1, 0)


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Padding, output_padding: Numbers, groups: int = 1
) -> Array:
    """Convolve NCHW data the other way with IOHW weights."""
    return _transposed(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array,
    weight: Array,
    weight_format: str,
    stride: Numbers,
    padding: Padding,
    output_padding: Numbers = (0, 0),
) -> Array:
    """Convolve NHWC data the other way; `weight_format` says the order of the letters H, W, I (of the data) and O."""
    w = weight.transpose([weight_format.index(c) for c in "IOHW"])
    return _last(_transposed(_second(a_nhwc), w, stride, padding, output_padding))


conv1d_ncw_python = group_conv1d_ncw_python
conv3d_ncdhw_python, conv3d_ndhwc_python = conv2d_nchw_python, conv2d_nhwc_python
conv1d_transpose_ncw_python = group_conv1d_transpose_ncw_python = conv2d_transpose_nchw_python
conv3d_transpose_ncdhw_python = conv2d_transpose_nchw_python  # of any number of dimensions of space, all of them


def depthwise_conv2d_python_nchw(input_np: Array, filter_np: Array, stride: Numbers, padding: Padding) -> Array:
    """Convolve each channel of NCHW data with filters (channels, multiplier, H, W)."""
    channels, times, *size = filter_np.shape
    return _convolved(input_np, filter_np.reshape(channels * times, 1, *size), stride, padding, 1, channels)


def depthwise_conv2d_python_nhwc(input_np: Array, filter_np: Array, stride: Numbers, padding: Padding) -> Array:
    """Convolve each channel of NHWC data with filters (H, W, channels, multiplier)."""
    return _last(depthwise_conv2d_python_nchw(_second(input_np), filter_np.transpose(2, 3, 0, 1), stride, padding))


def conv2d_backward_weight_python(
    dy_np: Array,
    x_np: Array,
    kernel_size: Sequence[int],
    stride: Numbers,
    padding: Padding,
    groups: int = 1,
    channels: int | None = None,
) -> Array:
    """Return the adjoint of OIHW weights from that of the NCHW result."""
    if groups != 1 and groups != x_np.shape[1]:
        raise error.InvalidArgument("conv2d_backward_weight_python: groups are 1 or all channels", found=str(groups))
    s, pads = _numbers(stride, 2), _pads(padding, kernel_size)
    x, (kh, kw), (oh, ow) = np.pad(x_np, [(0, 0), (0, 0), *pads]), kernel_size, dy_np.shape[2:]
    equation = "nihw,nohw->oi" if groups == 1 else "nohw,nohw->o"
    out = np.zeros((dy_np.shape[1], x_np.shape[1] // groups, kh, kw), dy_np.dtype)
    for i, j in np.ndindex(kh, kw):
        part = x[:, :, i : i + (oh - 1) * s[0] + 1 : s[0], j : j + (ow - 1) * s[1] + 1 : s[1]]
        found = np.einsum(equation, part, dy_np)
        out[:, :, i, j] = found if groups == 1 else found[:, None]
    return out


def dilate_python(
    input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: str | None = None
) -> Array:
    """Put `strides` - 1 values between neighbours along each axis."""
    shape = [(d - 1) * s + 1 if d else 0 for d, s in zip(input_np.shape, strides, strict=True)]
    out = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    out[tuple(slice(None, None, s) for s in strides)] = input_np
    return out


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Multiply batches of matrices, each transposed where asked."""
    dtype = out_dtype or x.dtype
    left, right = (np.swapaxes(v, 1, 2) if t else v for v, t in ((x, trans_x), (y, trans_y)))
    return np.matmul(left.astype(dtype), right.astype(dtype))


# --- references of declarations ---------------------------------------------------------------------------------------


def _ref(name: str, *args: Any, **attrs: Any) -> Any:
    definition = get_op_def(name)
    assert definition.reference is not None
    return definition.reference(*args, **{**definition.defaults, **attrs})


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Array:
    """Pool windows of data (batch, channels, ...), or of another layout, by ``max`` or ``avg``."""
    n = len(kernel)
    given = layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[n]
    pads = (*padding_before, *padding_after)
    pool = functools.partial(
        _ref,
        f"nn.{pool_type}_pool{n}d",
        pool_size=tuple(kernel),
        strides=tuple(strides),
        dilation=tuple(dilation),
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        layout=given,
    )
    found = pool(np_data, padding=pads)
    if pool_type == "max":  # what lies around counts as zero, or as the least number, as TVM's reference takes it
        space = [c for c in given if c in "DHW"]
        around = [pads[space.index(c) :: n] if c in space else (0, 0) for c in given]
        least = 0 if count_include_pad else np.finfo(np_data.dtype).min
        wide = pool(np.pad(np_data, around, constant_values=least), padding=(0,) * 2 * n)
        found = wide[tuple(map(slice, found.shape))]
    return found.astype(dtype)


def adaptive_pool(np_data: Array, out_size: Numbers, pool_type: str, layout: str) -> Array:
    """Pool to a size, by ``max`` or ``avg``."""
    n = len(layout) - 2
    return _ref(f"nn.adaptive_{pool_type}_pool{n}d", np_data, output_size=tuple(_numbers(out_size, n)), layout=layout)


def pool_grad_nchw(
    a_np: Array,
    out_grad_np: Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Array:
    """Return the adjoint of the data of a pooling; the first of several greatest elements takes all."""
    (top, left, bottom, right), (kh, kw), (sh, sw) = padding, pool_size, strides
    height, width = a_np.shape[2:]
    pad_h, pad_w = (
        (max(low, 0), max(high, 0) + (s - 1 if ceil_mode else 0))
        for low, high, s in ((top, bottom, sh), (left, right, sw))
    )
    fill = np.finfo(a_np.dtype).min if pool_type == "max" else 0
    x = np.pad(a_np, [(0, 0), (0, 0), pad_h, pad_w], constant_values=fill)
    out = np.zeros(x.shape)
    for b, c, i, j in np.ndindex(*out_grad_np.shape):
        rows, columns = slice(i * sh, i * sh + kh), slice(j * sw, j * sw + kw)
        window, g = x[b, c, rows, columns], out_grad_np[b, c, i, j]
        if pool_type == "max":
            at = np.unravel_index(np.argmax(window), window.shape)
            out[b, c, rows.start + at[0], columns.start + at[1]] += g
        else:
            inside = (
                max(min(rows.stop, height + top) - max(rows.start, top), 0),
                max(min(columns.stop, width + left) - max(columns.start, left), 0),
            )
            count = kh * kw if count_include_pad else max(inside[0] * inside[1], 1)
            out[b, c, rows, columns] += g / count
    return out[:, :, top : top + height, left : left + width]


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    training: bool = False,
    momentum: float = 0.1,
) -> list[Array]:
    """Normalize over batches: the result and the statistics."""
    return list(
        _ref(
            "nn.batch_norm",
            x,
            gamma,
            beta,
            moving_mean,
            moving_var,
            axis=axis,
            epsilon=epsilon,
            center=center,
            scale=scale,
            training=training,
            momentum=momentum,
        )
    )


def layer_norm_python(data: Array, gamma: Array, beta: Array | None, axis: Numbers, epsilon: float = 1e-5) -> Array:
    """Normalize over axes, scale and shift."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shift = np.zeros_like(gamma) if beta is None else beta
    return _ref("nn.layer_norm", data, gamma, shift, axes=axes, epsilon=epsilon)


def rms_norm_python(data: Array, weight: Array, axis: Numbers, epsilon: float = 1e-5) -> Array:
    """Divide by the root mean square over axes, and scale."""
    return _ref("nn.rms_norm", data, weight, axes=(axis,) if isinstance(axis, int) else tuple(axis), epsilon=epsilon)


def group_norm_python(
    data: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Normalize over groups of channels and other axes."""
    return _ref(
        "nn.group_norm",
        data,
        gamma,
        beta,
        num_groups=num_groups,
        channel_axis=channel_axis,
        axes=tuple(axes),
        epsilon=epsilon,
    )


def instance_norm_python(data: Array, gamma: Array, beta: Array, axis: Sequence[int], epsilon: float = 1e-5) -> Array:
    """Normalize over the axes of each sample and channel."""
    axes = tuple(axis)
    mean, var = (f(data.astype("float64"), axis=axes, keepdims=True) for f in (np.mean, np.var))
    shape = [1 if i in axes or not i else d for i, d in enumerate(data.shape)]
    out = (data - mean) / np.sqrt(var + epsilon) * gamma.reshape(shape) + beta.reshape(shape)
    return out.astype(data.dtype)


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Normalize by neighbours along an axis."""
    return _ref("nn.lrn", a_np, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta)


def l2_normalize_python(a_np: Array, eps: float, axis: Numbers | None = None) -> Array:
    """Divide by the length along axes."""
    axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
    length = np.sum(a_np.astype("float64") ** 2, axis=axes, keepdims=True)
    return (a_np / np.sqrt(np.maximum(length, eps))).astype(a_np.dtype)


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """Return the negative log likelihood of targets."""
    return _ref("nn.nll_loss", predictions, targets, weights, reduction=reduction, ignore_index=ignore_index)


def one_hot(indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str) -> Array:
    """Put `on_value` where an index points."""
    out = np.full((*indices.shape, depth), off_value, dtype)
    out[np.arange(depth) == indices[..., None]] = on_value
    return out if axis == -1 else np.moveaxis(out, -1, axis)


def resize2d_python(
    data: Array,
    scale: Sequence[float],
    layout: str | None = None,
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
    rounding_method: str = "",
) -> Array:
    """Resize data of any number of dimensions of space by factors; by default the channels come first."""
    given = layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[data.ndim - 2]
    first, mode = "NC" + "".join(c for c in given if c not in "NC"), coordinate_transformation_mode
    x = data.transpose([given.index(c) for c in first])
    size = [round(d * s) for d, s in zip(x.shape[2:], scale, strict=True)]
    kinds = {"nearest_neighbor": "nearest", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    up = "round_prefer_ceil"
    how = {"": up if mode == "align_corners" else "floor", "round": up}.get(rounding_method, rounding_method)
    out = _ref(
        "image.resize",
        x.astype("float64"),
        (*x.shape[:2], *size),
        method=kinds.get(method, method),
        coordinate_transformation_mode=mode,
        rounding_method=how,
        cubic_alpha=-0.5,
    )
    return out.transpose([first.index(c) for c in given]).astype(data.dtype)


resize1d_python = resize3d_python = resize2d_python


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """Return where affine maps (batch, 2, 3) take a grid, as (batch, 2, height, width)."""
    ys, xs = (np.linspace(-1, 1, n) for n in target_shape)
    grid = np.stack([np.tile(xs, len(ys)), np.repeat(ys, len(xs)), np.ones(len(xs) * len(ys))])
    return (data.reshape(-1, 3) @ grid).reshape(data.shape[0], 2, *target_shape)


def grid_sample_python(
    data: Array,
    grid: Array,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Array:
    """Sample data where a grid points."""
    return _ref(
        "image.grid_sample",
        data,
        grid,
        method=method,
        layout=layout,
        padding_mode=padding_mode,
        align_corners=align_corners,
    )


# --- moves ------------------------------------------------------------------------------------------------------------


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Move channels of NCHW data into space."""
    return _ref("depth_to_space", data, block_size=block_size, mode={"CDR": "CRD"}.get(mode, mode))


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Move blocks of space of NCHW data into channels."""
    return _ref("space_to_depth", data, block_size=block_size)


def reorg_python(a_np: Array, stride: int) -> Array:
    """Reorganize NCHW data as YOLO does: channels become blocks of space, and those channels."""
    batch, c, h, w = a_np.shape
    wide = a_np.reshape(batch, c // stride**2, h, stride, w, stride)
    return wide.transpose(0, 3, 5, 1, 2, 4).reshape(batch, c * stride**2, h // stride, w // stride)


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Take elements along an axis."""
    return np.take_along_axis(data, indices.astype("int64"), axis)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Take elements where the columns of indices point."""
    return a_np[tuple(indices_np.astype("int64"))]


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Return where values belong in sorted sequences along the last axis."""
    side = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side=side).astype(out_dtype)
    rows, wanted = (v.reshape(-1, v.shape[-1]) for v in (sorted_sequence, values))
    found = [np.searchsorted(r, v, side=side) for r, v in zip(rows, wanted, strict=True)]
    return np.array(found, out_dtype).reshape(values.shape)


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """Replace what lies behind the length of each sequence; the other of the first two axes is the batch."""
    at = np.arange(data.shape[axis])
    behind = at[:, None] >= valid_length if axis == 0 else at >= valid_length[:, None]
    return np.where(behind.reshape(behind.shape + (1,) * (data.ndim - 2)), np.asarray(mask_value, data.dtype), data)


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """Take a part of an axis."""
    return data[(slice(None),) * axis + (slice(begin, end),)]


def matrix_set_diag(input_np: Array, diagonal: Array, k: Numbers = 0, align: str = "RIGHT_LEFT") -> Array:
    """Replace diagonals of matrices, the highest first; shorter ones are aligned as `align` says (above_below)."""
    out, (low, high) = input_np.copy(), (k, k) if isinstance(k, int) else (k[0], k[-1])
    rows, columns = out.shape[-2:]
    many = low != high
    longest = diagonal.shape[-1]
    for place, d in enumerate(range(high, low - 1, -1)):
        i = np.arange(max(-d, 0), min(rows, columns - d))
        side = align.split("_")[0 if d >= 0 else 1]
        start = longest - len(i) if side == "RIGHT" else 0
        band = diagonal[..., place, :] if many else diagonal
        out[..., i, i + d] = band[..., start : start + len(i)]
    return out


def space_to_batch_nd_python(
    data: Array, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int], pad_value: float = 0
) -> Array:
    """Move blocks of the axes behind the first into the batch."""
    n = len(block_shape)
    pads = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - n - 1)]
    x = np.pad(data, pads, constant_values=pad_value)
    split = [v for d, b in zip(x.shape[1 : n + 1], block_shape, strict=True) for v in (d // b, b)]
    x = x.reshape(x.shape[0], *split, *x.shape[n + 1 :])
    inner, outer = [2 * i + 2 for i in range(n)], [2 * i + 1 for i in range(n)]
    x = x.transpose(*inner, 0, *outer, *range(2 * n + 1, x.ndim))
    return x.reshape(-1, *split[::2], *data.shape[n + 1 :])


def batch_to_space_nd_python(
    data: Array, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Array:
    """Move blocks of the batch into the axes behind it, and crop."""
    n = len(block_shape)
    batch = data.shape[0] // int(np.prod(block_shape))
    x = data.reshape(*block_shape, batch, *data.shape[1:])
    order = [n, *(v for i in range(n) for v in (n + 1 + i, i)), *range(2 * n + 1, x.ndim)]
    sizes = [d * b for d, b in zip(data.shape[1 : n + 1], block_shape, strict=True)]
    x = x.transpose(order).reshape(batch, *sizes, *data.shape[n + 1 :])
    cut = [slice(b, d - e) for b, e, d in zip(crop_begin_list, crop_end_list, sizes, strict=True)]
    return x[(slice(None), *cut)]


def _slices(
    ndim: int, begin: Sequence[int], end: Sequence[int], strides: Any, slice_mode: str, axes: Any
) -> tuple[Any, ...]:
    steps = [1] * len(begin) if strides is None else [strides] if isinstance(strides, int) else list(strides)
    steps += [1] * (len(begin) - len(steps))
    out: list[Any] = [slice(None)] * ndim
    for place, axis in enumerate(axes if axes is not None else range(len(begin))):
        first, step = begin[place], steps[place]
        last: int | None = end[place] if place < len(end) else None
        if slice_mode == "size":
            step = 1
            last = None if last is None or last < 0 else first + last
        elif last is not None and step < 0 and last < -(2**31):
            last = None
        out[axis] = slice(first, last, step)
    return tuple(out)


def strided_slice_python(
    data: Array,
    begin: Sequence[int],
    end: Sequence[int],
    strides: int | Sequence[int] | None = None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """``data[begin:end:strides]`` along `axes`; in mode ``"size"`` `end` is a size, -1 for all that is left."""
    return data[_slices(data.ndim, begin, end, strides, slice_mode, axes)]


def strided_set_python(
    data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """Return a copy of `data` in which ``[begin:end:strides]`` is `v`."""
    out = data.copy()
    out[_slices(data.ndim, begin, end, strides, "end", None)] = v
    return out


# --- detection --------------------------------------------------------------------------------------------------------


def roi_align_nchw_python(
    a_np: Array,
    rois_np: Array,
    pooled_size: Numbers,
    spatial_scale: float,
    sample_ratio: int,
    mode: str = "avg",
    layout: str = "NCHW",
) -> Array:
    """Pooling of samples of regions."""
    mode = mode.decode() if isinstance(mode, bytes) else mode
    return roi_align(a_np, rois_np, pooled_size, spatial_scale, sample_ratio, layout=layout, mode=mode)


roi_align_nhwc_python = functools.partial(roi_align_nchw_python, layout="NHWC")
roi_pool_nchw_python = roi_pool
