"""Operators that move elements to or from places that are data, in NumPy."""

from typing import Any

import numpy as np

from weft.baseline.operators import bounded, operator, placed
from weft.baseline.refusal import NotInBaseline

_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@operator("TopK")
def _top_k(x: np.ndarray, k: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Any, ...]:
    at, count = placed(axis, x.ndim), int(k.item())
    if x.dtype.kind not in "fi" or not 0 <= count <= x.shape[at] or np.isnan(x).any():
        raise NotInBaseline("the largest of what has no order")
    keys = x if not largest else -x if x.dtype.kind == "f" else ~x  # whose order is stable, so the first of equals wins
    order = np.take(np.argsort(keys, at, kind="stable"), range(count), at)
    return np.take_along_axis(x, order, at), order.astype(np.int64)


@operator("NonZero")
def _non_zero(x: np.ndarray) -> np.ndarray:
    return np.array(np.nonzero(x), np.int64)


def _scatter(x: np.ndarray, places: Any, updates: Any, reduction: str) -> np.ndarray:
    if updates.dtype != x.dtype:
        raise NotInBaseline("updates of another type")
    out: Any = x.copy()
    if reduction == "none":
        out[places] = updates
    else:
        _COMBINE[reduction].at(out, places, updates)
    return out


@operator("ScatterElements")
def _scatter_elements(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0,
                      reduction: str = "none") -> np.ndarray:  # fmt: skip
    if indices.ndim != x.ndim or indices.shape != updates.shape:
        raise NotInBaseline("updates of another shape than their indices")
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[placed(axis, x.ndim)] = indices
    return _scatter(x, tuple(places), updates, reduction)


@operator("ScatterND")
def _scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none") -> np.ndarray:
    if updates.shape != (*indices.shape[:-1], *x.shape[indices.shape[-1] :]):
        raise NotInBaseline("updates of another shape than their places")
    return _scatter(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


@operator("GatherND")
def _gather_nd(x: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0) -> np.ndarray:
    if batch_dims:
        raise NotInBaseline("a gather in each of a batch")
    return x[tuple(np.moveaxis(indices, -1, 0))]


@operator("OneHot")
def _one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, *, axis: int = -1) -> np.ndarray:
    count = int(depth.item())
    if indices.dtype.kind != "i" or values.shape != (2,):
        raise NotInBaseline("classes that are no integers")
    bounded(indices.size, count)
    inside = (indices >= -count) & (indices < count)
    hot = (indices % count)[..., None] == np.arange(count)
    hot &= inside[..., None]
    return np.moveaxis(values[hot.astype(np.int64)], -1, placed(axis, indices.ndim + 1))


@operator("DepthToSpace")
def _depth_to_space(x: np.ndarray, *, blocksize: int, mode: str = "DCR") -> np.ndarray:
    n, c, h, w = x.shape
    depth = c // blocksize**2
    if mode == "DCR":
        parts = x.reshape(n, blocksize, blocksize, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, depth, blocksize, blocksize, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, depth, h * blocksize, w * blocksize)


@operator("SpaceToDepth")
def _space_to_depth(x: np.ndarray, *, blocksize: int) -> np.ndarray:
    n, c, h, w = x.shape
    rows, columns = h // blocksize, w // blocksize
    parts = x.reshape(n, c, rows, blocksize, columns, blocksize).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * blocksize**2, rows, columns)
