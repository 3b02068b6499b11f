"""Images of another size, in NumPy: each axis by itself, as a sum over the few elements next to a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.baseline.operators import bounded, floats, numbers, operator
from weft.baseline.refusal import NotInBaseline

_Place = Callable[[np.ndarray, float, int, int], np.ndarray]
_PLACES: dict[str, _Place] = {
    "half_pixel": lambda i, scale, old, new: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, scale, old, new: (i + 0.5) / scale - 0.5 if new > 1 else i * 0.0,
    "asymmetric": lambda i, scale, old, new: i / scale,
    "align_corners": lambda i, scale, old, new: i * ((old - 1) / (new - 1)) if new > 1 else i * 0.0,
    "half_pixel_symmetric": lambda i, scale, old, new: old / 2 * (1 - new / (scale * old)) + (i + 0.5) / scale - 0.5,
}
"""Where element i of the `new` ones of an axis lies among the `old` ones."""
_ROUND: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "round_prefer_floor": (-0.5, np.ceil),
    "round_prefer_ceil": (0.5, np.floor),
    "floor": (0.0, np.floor),
    "ceil": (0.0, np.ceil),
}
_TIE = 1e-4
"""Closer to a tie than this, but not on it, single and double precision may disagree about the nearest element."""


def _nearest(at: np.ndarray, mode: str) -> tuple[np.ndarray, None]:
    offset, rounded = _ROUND[mode]
    at = at + offset
    off = np.abs(at - np.rint(at))
    if ((off > 0) & (off < _TIE)).any():
        raise NotInBaseline("an element that lies between two")
    return rounded(at)[:, None], None


def _linear(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, part = np.floor(at), at - np.floor(at)
    return first[:, None] + np.arange(2), np.stack([1 - part, part], 1)


def _cubic(at: np.ndarray, a: float) -> tuple[np.ndarray, np.ndarray]:
    taps = np.floor(at)[:, None] + np.arange(-1, 3)
    far = np.abs(at[:, None] - taps)
    inner = ((a + 2) * far - (a + 3)) * far**2 + 1
    return taps, np.where(far <= 1, inner, ((a * far - 5 * a) * far + 8 * a) * far - 4 * a)


def _along(x: np.ndarray, axis: int, taps: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    taps = np.clip(taps, 0, x.shape[axis] - 1).astype(np.int64)
    if weights is None:
        return np.take(x, taps[:, 0], axis)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    parts = [np.take(x, taps[:, i], axis) * w.astype(np.float32).reshape(shape) for i, w in enumerate(weights.T)]
    total: Any = sum(parts[1:], parts[0])
    return total


@operator("Resize")
def _resize(
    x: np.ndarray,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
) -> np.ndarray:
    if sizes is not None and sizes.size:
        wanted = numbers(sizes)
        factors = [new / old for new, old in zip(wanted, x.shape, strict=True)]
    else:
        factors = [float(f) for f in scales]
        wanted = tuple(int(np.floor(old * f)) for old, f in zip(x.shape, factors, strict=True))
    place = _PLACES.get(coordinate_transformation_mode)
    if place is None or min(wanted) < 1 or (mode != "nearest" and x.dtype != np.float32):
        raise NotInBaseline("a resize of another kind")
    if coordinate_transformation_mode == "align_corners" and any(
        old * f != new for old, f, new in zip(x.shape, factors, wanted, strict=True)
    ):
        raise NotInBaseline("corners of what is cut")
    bounded(*wanted)
    for axis, (old, new, factor) in enumerate(zip(x.shape, wanted, factors, strict=True)):
        if old == new and factor == 1:
            continue
        at = place(np.arange(new, dtype=np.float64), factor, old, new)
        taps, weights = (
            _nearest(at, nearest_mode)
            if mode == "nearest"
            else _linear(at)
            if mode == "linear"
            else _cubic(at, cubic_coeff_a)
        )
        if weights is not None and mode == "cubic" and exclude_outside:
            weights = weights * ((taps >= 0) & (taps < old))
            weights = weights / weights.sum(1, keepdims=True)
        x = _along(x, axis, taps, weights)
    return x


@operator("GridSample")
def _grid_sample(
    x: np.ndarray, grid: np.ndarray, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> np.ndarray:
    floats(x, grid)
    if x.ndim != 4 or mode not in ("linear", "bilinear") or padding_mode not in ("zeros", "border"):
        raise NotInBaseline("samples of another kind")
    n, _, *sizes = x.shape
    ends = np.array(sizes[::-1], np.float32) - 1
    at = (grid + 1) * (ends / 2) if align_corners else ((grid + 1) * (ends + 1) - 1) / 2
    at = np.clip(at, 0, ends) if padding_mode == "border" else at
    first = np.floor(at)
    if len(grid) != n or not np.isfinite(at).all():
        raise NotInBaseline("places that are nowhere")
    out: Any = np.float32(0)
    for step in ((0, 0), (0, 1), (1, 0), (1, 1)):
        tap = first + np.array(step, np.float32)
        weight = (1 - np.abs(at - tap)).prod(-1) * ((tap >= 0) & (tap <= ends)).all(-1)
        column, row = np.moveaxis(np.clip(tap, 0, ends).astype(np.int64), -1, 0)
        out = out + np.moveaxis(x[np.arange(n)[:, None, None], :, row, column], -1, 1) * weight[:, None]
    return out
