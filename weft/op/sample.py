"""Sampling of images at points given by data."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft import error, ir
from weft.op.attributes import flag, word
from weft.op.infer import tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_at_least, demand_equal
from weft.topi.sample import grid_sample


def _infer(data: ir.Expr, grid: ir.Expr) -> ir.TensorType:
    ty, gt = (
        tensor_arg("image.grid_sample", "data", data, min_ndim=3, kind="float"),
        tensor_arg("image.grid_sample", "grid", grid, kind="float"),
    )
    if ty.ndim >= 0 and gt.ndim >= 0 and ty.ndim != gt.ndim:
        raise error.ShapeMismatch(
            "image.grid_sample: data and grid have different ranks",
            expected=str(ty.ndim),
            found=str(gt.ndim),
            where=data.span,
        )
    if ty.shape is None or gt.shape is None:
        return ir.TensorType(None, ty.dtype, ty.ndim)
    demand_equal("image.grid_sample: batch of 'grid'", gt.shape[0], ty.shape[0], data.span)
    demand_equal("image.grid_sample: coordinates of a point", gt.shape[1], ty.ndim - 2, data.span)
    for i, d in enumerate(ty.shape[2:], 2):
        demand_at_least(f"image.grid_sample: dimension {i} of 'data'", d, 1, data.span)
    return ir.TensorType((*ty.shape[:2], *gt.shape[2:]), ty.dtype, ty.ndim)


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
    out = np.zeros((*data.shape[:2], *grid.shape[2:]))
    for n, *o in np.ndindex(data.shape[0], *grid.shape[2:]):
        points = []
        for v, size in zip(grid[(n, slice(None), *o)][::-1].astype(np.float32), data.shape[2:], strict=True):
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
    "image.grid_sample", "data grid",
    {"method": word("bilinear", "bilinear", "nearest", "bicubic"), "layout": word("NCHW", "NCHW", "NCDHW", "NCW"),
     "padding_mode": word("zeros", "zeros", "border", "reflection"), "align_corners": flag(True)},
    infer=_infer, lower=grid_sample, reference=_ref, fusion=Fusion.OPAQUE, rtol=1e-3,
    doc="Sample (n, c, h, w) data at the points of a grid (n, 2, rows, columns) of coordinates in -1..1, the "
    "horizontal one first.",
)  # fmt: skip
