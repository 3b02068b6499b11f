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


@operator("NonMaxSuppression")
def _non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray | None = None,
    overlap: np.ndarray | None = None,
    least: np.ndarray | None = None,
    *,
    center_point_box: int = 0,
) -> np.ndarray:
    """Batch, class and box of those that no better box of the class covers by more than a share of both."""
    if boxes.shape[::2] != (len(scores), 4) or boxes.shape[1] != scores.shape[2] or np.isnan(scores).any():
        raise NotInBaseline("boxes without a score each")
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        first, second = first - second / 2, first + second / 2
    low, high = np.minimum(first, second), np.maximum(first, second)
    area, share, found = (high - low).prod(-1), 0 if overlap is None else overlap.item(), []
    for batch, kind in np.ndindex(*scores.shape[:2]):
        score, (lo, hi, size) = scores[batch, kind], (v[batch] for v in (low, high, area))
        left = np.argsort(-score, kind="stable")
        left = left if least is None else left[score[left] > least.item()]
        for _ in range(0 if most is None else min(most.item(), len(left))):
            if not left.size:
                break
            best, left = left[0], left[1:]
            found.append((batch, kind, best))
            shared = np.maximum(np.minimum(hi[best], hi[left]) - np.maximum(lo[best], lo[left]), 0).prod(-1)
            whole = np.where(shared > 0, size[best] + size[left] - shared, 1)
            left = left[~(shared / whole > share)]
    return np.array(found, np.int64).reshape(-1, 3)


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
def _scatter_elements(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0, reduction: str = "none"
) -> np.ndarray:
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
