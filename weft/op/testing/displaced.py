"""NumPy references of operators that read images where other values point, and the arrays of all references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.op.registry import get_op_def
from weft.op.vision import roi_align
from weft.topi import nn

Array = np.ndarray[Any, np.dtype[Any]]
Numbers = int | Sequence[int]
Padding = Numbers | str  # SAME or VALID


def reference(name: str, *args: Any, **attrs: Any) -> Any:
    """Compute what a declaration says that an operator means."""
    definition = get_op_def(name)
    assert definition.reference is not None
    return definition.reference(*args, **{**definition.defaults, **attrs})


def numbers(value: Numbers, n: int) -> list[int]:
    """One number for each axis."""
    return [int(value)] * n if isinstance(value, (int, np.integer)) else [int(v) for v in value]


def pads(padding: Padding, kernel: Sequence[int]) -> list[tuple[int, int]]:
    """The padding of each axis."""
    found, n = nn.get_pad_tuple(padding, kernel), len(kernel)
    return list(zip(found[:n], found[n:], strict=True))


def last(a: Array) -> Array:
    """Channels that come second come last."""
    return np.moveaxis(a, 1, -1)


def second(a: Array) -> Array:
    """Channels that come last come second."""
    return np.moveaxis(a, -1, 1)


def weights(w: Array) -> Array:
    """From (..., channels, outputs) to (outputs, channels, ...)."""
    return np.moveaxis(w, (-1, -2), (0, 1))


def deformable_conv2d_nchw_python(
    a_np: Array,
    offset_np: Array,
    w_np: Array,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    deformable_groups: int,
    groups: int,
) -> Array:
    """Convolve NCHW data with OIHW weights, each tap of which is read where an offset points, linearly between pixels.

    Offsets are (batch, deformable_groups * kernel height * kernel width * 2, height, width), y before x; what lies
    outside is zero.
    """
    (batch, channels, height, width), (kh, kw), (oh, ow) = a_np.shape, w_np.shape[2:], offset_np.shape[2:]
    s, d, ((top, _), (left, _)) = numbers(stride, 2), numbers(dilation, 2), pads(padding, (kh, kw))
    x = np.zeros((batch, channels, height + 2, width + 2))
    x[:, :, 1:-1, 1:-1] = a_np
    off = offset_np.reshape(batch, deformable_groups, kh, kw, 2, oh, ow).repeat(channels // deformable_groups, 1)
    i, j, y, x0 = np.ogrid[:kh, :kw, :oh, :ow]
    at_y, at_x = y * s[0] - top + i * d[0] + off[:, :, :, :, 0], x0 * s[1] - left + j * d[1] + off[:, :, :, :, 1]
    inside = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
    at_y, at_x = np.where(inside, at_y, -1) + 1, np.where(inside, at_x, -1) + 1
    n, c = (v.reshape(v.shape + (1,) * 4) for v in np.ogrid[:batch, :channels])
    low_y, low_x = np.floor(at_y).astype(int), np.floor(at_x).astype(int)
    read = sum(
        (1 - abs(at_y - low_y - v))
        * (1 - abs(at_x - low_x - u))
        * x[n, c, np.minimum(low_y + v, height + 1), np.minimum(low_x + u, width + 1)]
        for v in (0, 1)
        for u in (0, 1)
    )
    parts = [
        np.einsum("ncijhw,ocij->nohw", r, w)
        for r, w in zip(np.split(np.asarray(read), groups, 1), np.split(w_np, groups), strict=True)
    ]
    return np.concatenate(parts, 1).astype(a_np.dtype)


def deformable_conv2d_nhwc_python(a_np: Array, offset_np: Array, w_np: Array, *options: Any) -> Array:
    """:func:`deformable_conv2d_nchw_python` of NHWC data and offsets, with HWIO weights."""
    return last(deformable_conv2d_nchw_python(second(a_np), second(offset_np), weights(w_np), *options))


def correlation_nchw_python(
    data1: Array,
    data2: Array,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: int,
    is_multiply: bool,
) -> Array:
    """Compare windows of two images: means of products, or of absolute differences, one channel a displacement."""
    a, b = (np.pad(v.astype("float64"), [(0, 0), (0, 0), (padding,) * 2, (padding,) * 2]) for v in (data1, data2))
    border = max_displacement + (kernel_size - 1) // 2
    oh, ow = (-(-(size - border * 2) // stride1) for size in a.shape[2:])
    reach = max_displacement // stride2
    out = np.zeros((a.shape[0], (2 * reach + 1) ** 2, oh, ow))
    for q, h, w in np.ndindex(out.shape[1], kernel_size, kernel_size):
        y, x = max_displacement + h, max_displacement + w
        dy, dx = ((v - reach) * stride2 for v in divmod(q, 2 * reach + 1))
        one, two = (
            v[:, :, at_y : at_y + oh * stride1 : stride1, at_x : at_x + ow * stride1 : stride1]
            for v, at_y, at_x in ((a, y, x), (b, y + dy, x + dx))
        )
        out[:, q] += (one * two if is_multiply else abs(one - two)).sum(1)
    return out / (kernel_size**2 * a.shape[1])


def crop_and_resize_python(
    image: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: Sequence[int],
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
) -> Array:
    """Resize boxes of images, (top, left, bottom, right) as shares of the image, to one size."""
    x = image if layout == "NHWC" else last(image)
    out = np.full((len(boxes), *crop_size, x.shape[3]), float(extrapolation_value))
    for n, (box, number) in enumerate(zip(boxes, box_indices, strict=True)):
        ys, xs = (
            np.linspace(box[i], box[i + 2], steps) * (size - 1)
            if steps > 1
            else (box[i : i + 1] + box[i + 2]) / 2 * (size - 1)  # the middle
            for i, (size, steps) in enumerate(zip(x.shape[1:3], crop_size, strict=True))
        )
        for i, j in np.ndindex(*crop_size):
            y, z = ys[i], xs[j]
            if not (0 <= y <= x.shape[1] - 1 and 0 <= z <= x.shape[2] - 1):
                continue
            if method != "bilinear":
                out[n, i, j] = x[number, int(np.round(y)), int(np.round(z))]
                continue
            fy, fz, cy, cz = *map(int, (np.floor(y), np.floor(z))), *map(int, (np.ceil(y), np.ceil(z)))
            top, bottom = (x[number, r, fz] + (x[number, r, cz] - x[number, r, fz]) * (z - fz) for r in (fy, cy))
            out[n, i, j] = top + (bottom - top) * (y - fy)
    return out if layout == "NHWC" else second(out)


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


def roi_align_nhwc_python(
    a_np: Array,
    rois_np: Array,
    pooled_size: Numbers,
    spatial_scale: float,
    sample_ratio: int,
    mode: str = "avg",
    *,
    layout: str = "NHWC",
) -> Array:
    """Pooling of samples of regions, channels last."""
    return roi_align_nchw_python(a_np, rois_np, pooled_size, spatial_scale, sample_ratio, mode, layout)
