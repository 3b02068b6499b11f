"""NumPy references of convolutions, in the layouts and under the names of ``tvm.topi.testing``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import error
from weft.op.testing.displaced import Array, Numbers, Padding, last, numbers, pads, reference, second, weights


def _convolved(a: Array, w: Array, stride: Any, padding: Any, dilation: Any = 1, groups: int = 1) -> Array:
    """Convolve data (batch, channels, ...) with weights (outputs, channels / groups, ...), in float64."""
    n = a.ndim - 2
    d = numbers(dilation, n)
    sides = _around(padding, [(k - 1) * step + 1 for k, step in zip(w.shape[2:], d, strict=True)])
    return reference(f"nn.conv{n}d", a, w, strides=numbers(stride, n), padding=sides, dilation=d, groups=groups)


def _transposed(a: Array, w: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1) -> Array:
    """Convolve the other way, with weights (channels, outputs / groups, ...)."""
    n = a.ndim - 2
    return reference(
        f"nn.conv{n}d_transpose",
        a,
        w,
        strides=numbers(stride, n),
        padding=_around(padding, w.shape[2:]),
        output_padding=numbers(output_padding, n),
        dilation=[1] * n,
        groups=groups,
    )


def _around(padding: Any, kernel: Sequence[int]) -> list[int]:
    return [side for sides in zip(*pads(padding, kernel), strict=True) for side in sides]


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
    return last(_convolved(second(a_np), weights(w_np), stride, padding, 1, groups))


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Numbers, padding: Padding) -> Array:
    """Convolve HWCN data with HWIO weights."""
    out = _convolved(a_np.transpose(3, 2, 0, 1), weights(w_np), stride, padding)
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
    return last(_transposed(second(a_nhwc), w, stride, padding, output_padding))


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
    return last(depthwise_conv2d_python_nchw(second(input_np), filter_np.transpose(2, 3, 0, 1), stride, padding))


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
    s, sides = numbers(stride, 2), pads(padding, kernel_size)
    x, (kh, kw), (oh, ow) = np.pad(x_np, [(0, 0), (0, 0), *sides]), kernel_size, dy_np.shape[2:]
    equation = "nihw,nohw->oi" if groups == 1 else "nohw,nohw->o"
    out = np.zeros((dy_np.shape[1], x_np.shape[1] // groups, kh, kw), dy_np.dtype)
    for i, j in np.ndindex(kh, kw):
        part = x[:, :, i : i + (oh - 1) * s[0] + 1 : s[0], j : j + (ow - 1) * s[1] + 1 : s[1]]
        found = np.einsum(equation, part, dy_np)
        out[:, :, i, j] = found if groups == 1 else found[:, None]
    return out
