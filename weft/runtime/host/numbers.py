"""Operators on numbers whose result has a shape that data decides, or that NumPy computes best."""

from typing import Any

import numpy as np

from weft.runtime.host.registry import host_operator


@host_operator("Unique")
def _unique(x: Any, *, axis: int | None, ordered: int) -> Any:
    texts = x.dtype == object
    data = x.astype(str) if texts and x.size else x.astype("U1") if texts else x
    values, *rest = unique_rows(data, axis, bool(ordered))
    return values.astype(object) if texts else values, *rest


def unique_rows(data: np.ndarray, axis: int | None, in_order: bool) -> tuple[np.ndarray, ...]:
    """Return the elements, or the parts along an axis, once each, with first places, numbers and counts.

    Returns
    -------
    tuple of numpy.ndarray
        Values of the array's dtype, and places, numbers and counts in int64.
    """
    values, first, inverse, counts = np.unique(
        data, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not in_order:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values, first, counts = np.take(values, order, 0 if axis is None else axis), first[order], counts[order]
        inverse = place[inverse]
    return values, first.astype(np.int64), inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)


@host_operator("MelWeightMatrix")
@np.errstate(all="ignore")
def _mel(bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles between points that are as far apart on the mel scale: rows are frequencies, columns bins."""
    n, frequencies = int(bins.reshape(())), int(length.reshape(()))
    ends = [1127.0 * np.log1p(float(f.reshape(())) / 700.0) for f in (low, high)]
    mels = ends[0] + np.arange(n + 2) * (ends[1] - ends[0]) / (n + 2)
    hertz = 700.0 * np.expm1(mels / 1127.0)
    points = np.floor_divide((frequencies + 1) * hertz, int(rate.reshape(()))).astype(np.int64)
    left, centre, right = points[:-2], points[1:-1], points[2:]
    rows = np.arange(frequencies // 2 + 1)[:, None]
    rising = np.where(centre == left, rows == centre, (rows - left) / np.maximum(centre - left, 1))
    falling = (right - rows) / np.maximum(right - centre, 1)
    up = (rows >= left) & (rows <= centre)
    down = (rows >= centre) & (rows < right)
    return np.where(down, falling, np.where(up, rising, 0.0))
