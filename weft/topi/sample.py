"""Sampling of images at points given by data."""

from __future__ import annotations

import itertools
from typing import Any

from weft import te, tir
from weft.ir import cast, const, if_then_else, int64, select

__all__ = ["grid_sample"]

_CUBIC = -0.75


def _unnormalised(v: Any, size: Any, align_corners: bool) -> Any:
    """A coordinate in -1..1 as a position among the pixels."""
    n = cast(v.dtype, size)
    half, one = const(0.5, v.dtype), const(1, v.dtype)
    return (v + one) * half * (n - one) if align_corners else ((v + one) * n - one) * half


def _reflected(v: Any, size: Any, align_corners: bool) -> Any:
    """A position reflected at the borders until it lies inside."""
    n, zero, two = cast(v.dtype, size), const(0, v.dtype), const(2, v.dtype)
    low = zero if align_corners else const(-0.5, v.dtype)
    span = n - const(1, v.dtype) if align_corners else n
    period = tir.max(span * two, const(1e-6, v.dtype))
    x = tir.fmod(tir.abs(v - low), period)
    return select(span <= zero, zero, tir.min(x, period - x) + low)


def _cubic_weights(t: Any) -> list[Any]:
    c = lambda x: const(x, t.dtype)  # noqa: E731
    a = _CUBIC
    near = lambda d: (c(a + 2) * d - c(a + 3)) * d * d + c(1)  # noqa: E731
    far = lambda d: ((c(a) * d - c(5 * a)) * d + c(8 * a)) * d - c(4 * a)  # noqa: E731
    return [far(t + c(1)), near(t), near(c(1) - t), far(c(2) - t)]


def grid_sample(
    data: Any, grid: Any, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros",
    align_corners: bool = True
) -> Any:  # fmt: skip
    """Sample (n, c, spatial...) data at the points of a grid (n, rank, output...), the last axis's coordinate first."""
    rank, n_out = data.ndim - 2, grid.ndim - 2
    sizes = data.shape[2:]

    def pixel(n: Any, c: Any, at: list[Any]) -> Any:
        """The pixel at integer positions, by the padding's rule."""
        inside, safe = const(True, "bool"), []
        for p, size in zip(at, sizes, strict=True):
            if padding_mode == "reflection":
                p = tir.round(_reflected(p, size, align_corners))
            i = cast("int64", p)  # what is no number lies outside
            inside = tir.all(inside, p >= const(0, p.dtype), p < cast(p.dtype, size))
            safe.append(tir.max(tir.min(i, size - int64(1)), int64(0)))
        value = data(n, c, *safe)
        return value if padding_mode != "zeros" else if_then_else(inside, value, const(0, data.dtype))

    def element(n: Any, c: Any, *o: Any) -> Any:
        assert len(o) == n_out
        points = []
        for d in range(rank):
            v = _unnormalised(cast("float32", grid(n, int64(rank - 1 - d), *o)), sizes[d], align_corners)
            limit = cast("float32", sizes[d]) - const(1, "float32")
            if method != "bicubic" and padding_mode == "border":
                v = tir.max(tir.min(v, limit), const(0, "float32"))
            if method != "bicubic" and padding_mode == "reflection":
                v = tir.max(tir.min(_reflected(v, sizes[d], align_corners), limit), const(0, "float32"))
            points.append(v)
        if method == "nearest":
            return pixel(n, c, [tir.round(p) for p in points])
        return cast(data.dtype, _weighted(points, method, lambda at: cast("float32", pixel(n, c, at))))

    return te.compute((data.shape[0], data.shape[1], *grid.shape[2:]), element, name="T_grid_sample")


def _weighted(points: list[Any], method: str, pixel: Any) -> Any:
    """The sum of the pixels around a point, weighted."""
    taps: list[list[tuple[Any, Any]]] = []
    for p in points:
        low = tir.floor(p)
        t, one = p - low, const(1, p.dtype)
        if method == "bilinear":
            taps.append([(low, one - t), (low + one, t)])
        else:
            taps.append([(low + const(k - 1, p.dtype), w) for k, w in enumerate(_cubic_weights(t))])
    total: Any = None
    for choice in itertools.product(*taps):
        term = pixel([i for i, _ in choice])
        for _, w in choice:
            term = term * w
        total = term if total is None else total + term
    return total
