"""NumPy references of operators, for tests (``tvm.topi.testing``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["conv2d_nchw_python", "dense", "log_softmax_python", "relu_python", "softmax_python",
           "strided_slice_python", "strided_set_python"]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]


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


def dense(x: Array, y: Array, bias: Array | None = None, use_bias: bool = False, use_relu: bool = False) -> Array:
    """``x @ y.T + bias``, with ReLU where asked."""
    out = np.dot(x, y.T)
    if use_bias and bias is not None:
        out = out + bias
    return np.maximum(out, 0) if use_relu else out


def conv2d_nchw_python(
    a_np: Array, w_np: Array, stride: int | Sequence[int], padding: int | Sequence[int], groups: int = 1
) -> Array:
    """Convolution of NCHW data with OIHW weights, in float64.

    `padding` is one number, a pair, or top, left, bottom, right.
    """
    s = (stride, stride) if isinstance(stride, int) else tuple(stride)
    p = [padding] * 4 if isinstance(padding, int) else list(padding) * (2 if len(padding) == 2 else 1)
    x = np.pad(a_np.astype("float64"), [(0, 0), (0, 0), (p[0], p[2]), (p[1], p[3])])
    out_channels, per_group, kh, kw = w_np.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))[:, :, :: s[0], :: s[1]]
    step = out_channels // groups
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, g * per_group : (g + 1) * per_group],
                  w_np[g * step : (g + 1) * step].astype("float64"))
        for g in range(groups)
    ]  # fmt: skip
    return np.concatenate(parts, axis=1).astype(a_np.dtype)


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


def strided_set_python(data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Any = None) -> Array:
    """Return a copy of `data` in which ``[begin:end:strides]`` is `v`."""
    out = data.copy()
    out[_slices(data.ndim, begin, end, strides, "end", None)] = v
    return out
