"""NumPy references of activations, products, pools, norms, losses and samples: what a declaration says, if one does."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from weft.op.testing.displaced import Array, Numbers, numbers, reference


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


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Multiply batches of matrices, each transposed where asked."""
    dtype = out_dtype or x.dtype
    left, right = (np.swapaxes(v, 1, 2) if t else v for v, t in ((x, trans_x), (y, trans_y)))
    return np.matmul(left.astype(dtype), right.astype(dtype))


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
        reference,
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
    return reference(
        f"nn.adaptive_{pool_type}_pool{n}d", np_data, output_size=tuple(numbers(out_size, n)), layout=layout
    )


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
    op = f"grad.{pool_type}_pool2d_backward"
    windows = {"pool_size": pool_size, "strides": strides, "padding": padding}
    return reference(op, out_grad_np, a_np, ceil_mode=ceil_mode, count_include_pad=count_include_pad, **windows)


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
        reference(
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
    return reference("nn.layer_norm", data, gamma, shift, axes=axes, epsilon=epsilon)


def rms_norm_python(data: Array, weight: Array, axis: Numbers, epsilon: float = 1e-5) -> Array:
    """Divide by the root mean square over axes, and scale."""
    return reference(
        "nn.rms_norm", data, weight, axes=(axis,) if isinstance(axis, int) else tuple(axis), epsilon=epsilon
    )


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
    return reference(
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
    return reference("nn.lrn", a_np, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta)


def l2_normalize_python(a_np: Array, eps: float, axis: Numbers | None = None) -> Array:
    """Divide by the length along axes."""
    axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
    length = np.sum(a_np.astype("float64") ** 2, axis=axes, keepdims=True)
    return (a_np / np.sqrt(np.maximum(length, eps))).astype(a_np.dtype)


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """Return the negative log likelihood of targets."""
    return reference("nn.nll_loss", predictions, targets, weights, reduction=reduction, ignore_index=ignore_index)


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
    out = reference(
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
    return reference(
        "image.grid_sample",
        data,
        grid,
        method=method,
        layout=layout,
        padding_mode=padding_mode,
        align_corners=align_corners,
    )
