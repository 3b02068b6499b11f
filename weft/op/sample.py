"""Sampling of images at points given by data."""

import itertools
import math
from typing import Any

import numpy as np

from weft import error, ir, te
from weft.op.attributes import flag, word
from weft.op.infer import tensor_arg, values_of
from weft.op.registry import declare
from weft.op.relations import demand_at_least, demand_equal
from weft.op.resize import spatial_sizes
from weft.topi.conv import channels_last, conv_shape, spatial
from weft.topi.image import affine_grid
from weft.topi.sample import grid_sample


def _infer(data: ir.Expr, grid: ir.Expr, layout: str) -> ir.TensorType:
    ty = tensor_arg("image.grid_sample", "data", data, min_ndim=3, kind="float")
    gt = tensor_arg("image.grid_sample", "grid", grid, ndim=ty.ndim if ty.ndim >= 0 else None, kind="float")
    if ty.shape is None or gt.shape is None:
        return ir.TensorType(None, ty.dtype, ty.ndim)
    demand_equal("image.grid_sample: batch of 'grid'", gt.shape[0], ty.shape[0], data.span)
    demand_equal("image.grid_sample: coordinates of a point", gt.shape[1], ty.ndim - 2, data.span)
    last = channels_last(layout)
    for i, d in enumerate(spatial(ty.shape, last), 1 if last else 2):
        demand_at_least(f"image.grid_sample: dimension {i} of 'data'", d, 1, data.span)
    return ir.TensorType(conv_shape(ty.shape, gt.shape[2:], ty.shape[-1 if last else 1], last), ty.dtype, ty.ndim)


def _reflect(v: float, size: int, align_corners: bool) -> float:
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    if high <= low:
        return 0.0
    x = abs(v - low) % (2 * (high - low))
    return min(x, 2 * (high - low) - x) + low


def _pixel(plane: Any, at: Any, padding_mode: str, align_corners: bool) -> Any:
    if padding_mode == "reflection":
        at = [np.rint(_reflect(p, n, align_corners)) for p, n in zip(at, plane.shape[1:], strict=True)]
    if padding_mode == "zeros" and any(not 0 <= p < n for p, n in zip(at, plane.shape[1:], strict=True)):
        return np.zeros(plane.shape[0])
    at = [int(min(max(p, 0), n - 1)) if p == p else 0 for p, n in zip(at, plane.shape[1:], strict=True)]
    return plane[(slice(None), *at)]


def _weights(t: float, method: str) -> dict[int, float]:
    if method == "bilinear":
        return {0: 1 - t, 1: t}
    near, far = (lambda d: (1.25 * d - 2.25) * d * d + 1), (lambda d: ((-0.75 * d + 3.75) * d - 6) * d + 3)
    return {-1: far(1 + t), 0: near(t), 1: near(1 - t), 2: far(2 - t)}


def _ref(data: Any, grid: Any, method: str, layout: str, padding_mode: str, align_corners: bool) -> Any:
    if channels_last(layout):
        made = _ref(np.moveaxis(data, -1, 1), grid, method, "", padding_mode, align_corners)
        return np.moveaxis(made, 1, -1)
    out = np.zeros((*data.shape[:2], *grid.shape[2:]))
    wide = np.float64 if 8 in (data.itemsize, grid.itemsize) else np.float32
    for n, *o in np.ndindex(data.shape[0], *grid.shape[2:]):
        points = []
        for v, size in zip(grid[(n, slice(None), *o)][::-1].astype(wide), data.shape[2:], strict=True):
            p = (v + 1) / 2 * (size - 1) if align_corners else ((v + 1) * size - 1) / 2
            if method != "bicubic" and padding_mode != "zeros":
                p = min(max(_reflect(p, size, align_corners) if padding_mode == "reflection" else p, 0.0), size - 1.0)
            points.append(p)
        if method == "nearest":
            out[(n, slice(None), *o)] = _pixel(data[n], [np.rint(p) for p in points], padding_mode, align_corners)
            continue
        taps = [_weights(p - np.floor(p), method).items() for p in points]
        for choice in itertools.product(*taps):
            at = [np.floor(p) + k for p, (k, _) in zip(points, choice, strict=True)]
            out[(n, slice(None), *o)] += _pixel(data[n], at, padding_mode, align_corners) * np.prod(
                [w for _, w in choice]
            )
    return out.astype(data.dtype)


declare(
    "image.grid_sample",
    "data grid",
    {
        "method": word("bilinear", "bilinear", "nearest", "bicubic"),
        "layout": word("NCHW", "NCHW", "NCDHW", "NCW", "NHWC", "NDHWC"),
        "padding_mode": word("zeros", "zeros", "border", "reflection"),
        "align_corners": flag(True),
    },
    infer=_infer,
    lower=grid_sample,
    reference=_ref,
    rtol=1e-3,
    doc="Sample (n, c, h, w) data, or (n, h, w, c), at the points of a grid (n, 2, rows, columns) of coordinates in "
    "-1..1, the horizontal one first.",
)


def _affine_size(data: ir.Expr, size: ir.Expr) -> tuple[int, Any]:
    """The number of spatial axes and their sizes; None where they are unknown. One alone is that of each."""
    given = size.ty.ndim if isinstance(size.ty, ir.ShapeType) else -1
    if given in (2, 3):
        return given, values_of(size)
    shape = getattr(data.ty, "shape", None)
    rank = 3 if shape is not None and ir.as_int(shape[1]) == 3 else 2
    return rank, spatial_sizes("image.affine_grid", size, rank)


def _affine_infer(data: ir.Expr, size: ir.Expr, align_corners: bool) -> ir.TensorType:
    name = "image.affine_grid"
    ty = tensor_arg(name, "data", data, ndim=3, kind="float")
    rank, sizes = _affine_size(data, size)
    if ty.shape is not None:
        demand_equal(f"{name}: rows of a matrix", ty.shape[1], rank, data.span)
        demand_equal(f"{name}: columns of a matrix", ty.shape[2], rank + 1, data.span)
    for i, s in enumerate(sizes or ()):
        demand_at_least(f"{name}: size {i}", s, 1 + align_corners, size.span)
    if ty.shape is None or sizes is None:
        return ir.TensorType(None, ty.dtype, rank + 2, ty.vdevice)
    return ir.TensorType((ty.shape[0], ir.int64(rank), *sizes), ty.dtype, rank + 2, ty.vdevice)


def _affine_lower(data: te.Tensor, size: Any, align_corners: bool) -> Any:
    rank = ir.as_int(data.shape[1]) or len(size)
    return affine_grid(data, tuple(size) * (rank // len(size)), align_corners)


def _affine_ref(data: Any, size: Any, align_corners: bool) -> Any:
    if data.shape[1] not in (2, 3):
        raise error.ShapeMismatch("image.affine_grid: rows of a matrix", expected="2 or 3", found=str(data.shape[1]))
    sizes = [int(s) for s in size] * (data.shape[1] // len(size))
    lines = [(2 * np.arange(n) - (n - 1)) / (n - align_corners) for n in sizes]  # the middle is 0
    axes = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*(a.reshape(-1) for a in axes[::-1]), np.ones(math.prod(sizes))])
    return (data.astype(np.float64) @ points).reshape(*data.shape[:2], *sizes).astype(data.dtype)


declare(
    "image.affine_grid",
    "data size:shape",
    {"align_corners": flag(True)},
    infer=_affine_infer,
    lower=_affine_lower,
    reference=_affine_ref,
    rtol=1e-4,
    doc="The points, in -1..1 and the horizontal coordinate first, at which `image.grid_sample` reads images of `size` "
    "that matrices (n, 2, 3) or (n, 3, 4) transform.",
)
