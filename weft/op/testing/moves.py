"""NumPy references of operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.op.testing.displaced import Array, Numbers, reference


def dilate_python(
    input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: str | None = None
) -> Array:
    """Put `strides` - 1 values between neighbours along each axis."""
    shape = [(d - 1) * s + 1 if d else 0 for d, s in zip(input_np.shape, strides, strict=True)]
    out = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    out[tuple(slice(None, None, s) for s in strides)] = input_np
    return out


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Move channels of NCHW data into space."""
    return reference("depth_to_space", data, block_size=block_size, mode={"CDR": "CRD"}.get(mode, mode))


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Move blocks of space of NCHW data into channels."""
    return reference("space_to_depth", data, block_size=block_size)


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
