"""Sampling of images at points given by data."""

import itertools
from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, as_int, cast, const, if_then_else, int64, select
from weft.topi.conv import channels_last, conv_shape, spatial
from weft.topi.precision import precise
from weft.topi.resize import cubic_weights


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


def grid_sample(
    data: te.Tensor,
    grid: te.Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Any:
    """Sample data, of channels first or last, at the points of a grid (n, rank, output...).

    The last axis's coordinate comes first.
    """
    rank, last = data.ndim - 2, channels_last(layout)
    sizes = spatial(data.shape, last)
    points, wide = (data.shape[0], *grid.shape[2:]), precise(data, grid)

    def coordinate(d: int, n: Any, o: Any) -> Any:
        v = _unnormalised(cast(wide, grid(n, int64(rank - 1 - d), *o)), sizes[d], align_corners)
        limit = cast(wide, sizes[d]) - const(1, wide)
        if method != "bicubic" and padding_mode == "reflection":
            v = _reflected(v, sizes[d], align_corners)
        if method != "bicubic" and padding_mode in ("border", "reflection"):
            v = tir.max(tir.min(v, limit), const(0, wide))
        return v

    def tables(d: int, k: int) -> tuple[Any, Any]:
        """Of each point, the place of the k-th element along an axis, -1 where it is outside, and its weight."""

        def place(n: Any, *o: Any) -> Any:
            p, size = _tap(coordinate(d, n, o), method, k)[0], sizes[d]
            if padding_mode == "reflection":
                p = tir.round(_reflected(p, size, align_corners))
            safe = tir.max(tir.min(cast("int64", p), size - int64(1)), int64(0))
            inside = tir.all(p >= const(0, p.dtype), p < cast(p.dtype, size))  # what is no number lies outside
            return cast("int32", select(inside, safe, int64(-1)) if padding_mode == "zeros" else safe)

        weight = te.compute(points, lambda n, *o: _tap(coordinate(d, n, o), method, k)[1], name="weights")
        return te.compute(points, place, name="places"), weight

    pick = select if all((as_int(n) or 0) > 0 for n in sizes) else if_then_else  # nothing of an empty image is read
    taps = [[tables(d, k) for k in range(_TAPS[method])] for d in range(rank)]

    def element(n: PrimExpr, *i: Any) -> Any:
        o, c = (i[:-1], i[-1]) if last else (i[1:], i[0])
        total: Any = None
        for choice in itertools.product(*taps):
            at = [place(n, *o) for place, _ in choice]
            safe = [tir.max(i, const(0, "int32")) for i in at] if padding_mode == "zeros" else at
            value = data(n, *safe, c) if last else data(n, c, *safe)
            if padding_mode == "zeros":
                value = pick(tir.all(*(i >= const(0, "int32") for i in at)), value, const(0, data.dtype))
            if method == "nearest":
                return value
            term = cast(wide, value)
            for _, weight in choice:
                term = term * weight(n, *o)
            total = term if total is None else total + term
        return cast(data.dtype, total)

    shape = conv_shape(data.shape, grid.shape[2:], data.shape[-1 if last else 1], last)
    return te.compute(shape, element, name="T_grid_sample")


_TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}


def _tap(p: Any, method: str, k: int) -> tuple[Any, Any]:
    """The k-th position around a point along an axis, and its weight."""
    if method == "nearest":
        return tir.round(p), const(1, p.dtype)
    low, one = tir.floor(p), const(1, p.dtype)
    if method == "bilinear":
        return (low, one - (p - low)) if k == 0 else (low + one, p - low)
    return low + const(k - 1, p.dtype), cubic_weights(p - low, -0.75)[k]
