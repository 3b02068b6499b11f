"""Resizing by nearest, linear and cubic interpolation, along any axes, with every coordinate rule of ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, as_int, cast, const, floordiv, if_then_else, int64
from weft.te import Tensor
from weft.topi.index import clamped
from weft.topi.precision import narrowed, precise
from weft.topi.shape import equal_dims
from weft.topi.typing import Extent, Scalar, Shape

_F = "float32"


def _f(value: Any, dtype: str = _F) -> Any:
    return const(float(value), dtype) if isinstance(value, (int, float)) else cast(dtype, value)


class _Axis:
    """How one axis is resized: sizes, scale, and the rule from output to input coordinates, numbers of a data type."""

    def __init__(self, size: Any, out: Any, scale: Any, mode: str, roi: Any, dtype: str) -> None:
        self.size, self.out, self.mode, self.roi, self.dtype = size, out, mode, roi, dtype
        n_in, n_out = as_int(size), as_int(out)
        self.may_keep = (n_in is None or n_out is None) and (scale is None or scale in (0.0, 1.0))
        if scale is not None and not (isinstance(scale, (int, float)) and scale <= 0):
            self.scale: Any = scale
        elif n_in is not None and n_out is not None:
            self.scale = n_out / n_in if n_in else 1.0
        else:
            self.scale = self.f(out) / self.f(size)

    def f(self, value: Any) -> Any:
        """A number of the coordinates' data type."""
        return _f(value, self.dtype)

    @property
    def integer_scale(self) -> int | None:
        """The scale when it is a whole number."""
        known = isinstance(self.scale, (int, float)) and float(self.scale).is_integer() and self.scale >= 1
        return int(self.scale) if known else None

    def source(self, o: Any) -> Any:
        """The input coordinate of output index `o`, in its data type."""
        x, scale = self.f(o), self.scale
        over = lambda v: v / self.f(scale)  # noqa: E731 - division rounds as ONNX's does
        if self.mode == "asymmetric":
            return over(x)
        if self.mode == "align_corners":
            n_out = as_int(self.out)
            if n_out is not None and as_int(self.size) is not None:
                return x * self.f((as_int(self.size) - 1) / (n_out - 1)) if n_out > 1 else self.f(0.0) * x  # type: ignore[operator]
            return x * (self.f(self.size) - self.f(1.0)) / tir.max(self.f(self.out) - self.f(1.0), self.f(1.0))
        if self.mode == "tf_half_pixel_for_nn":  # the one that would move elements of an axis that keeps its size
            moved = over(x + self.f(0.5))
            return tir.Select(self.size.equal(self.out), x, moved) if self.may_keep else moved
        if self.mode == "tf_crop_and_resize":
            return self._crop(x)
        half = over(x + self.f(0.5)) - self.f(0.5)
        if self.mode == "pytorch_half_pixel":
            return half if (as_int(self.out) or 0) > 1 else tir.Select(self.out > int64(1), half, self.f(0.0))  # type: ignore[operator]
        if self.mode == "half_pixel_symmetric":
            resized = self.f(self.size) * self.f(scale)
            adjustment = self.f(self.out) / resized
            centre = self.f(self.size) * self.f(0.5)
            return centre * (self.f(1.0) - adjustment) + half
        return half

    def _crop(self, x: Any) -> Any:
        return cropped_coordinate(x, self.out, self.size, *self.roi, dtype=self.dtype)


def cropped_coordinate(o: PrimExpr, out: Extent, size: Extent, start: Scalar, end: Scalar, dtype: str = _F) -> Any:
    """The input coordinate of output index `o`, where 0 and 1 are the first and last pixel of the axis."""
    f = partial(_f, dtype=dtype)
    x, last = f(o), f(size) - f(1.0)
    n_out, centre = as_int(out), f(0.5) * (f(start) + f(end)) * last
    if n_out == 1:
        return centre + x * f(0.0)
    spread = f(start) * last + x * (f(end) - f(start)) * last / (f(out) - f(1.0))
    return spread if n_out is not None else tir.Select(out > int64(1), spread, centre)


def _nearest_index(axis: _Axis, o: Any, rounding: str) -> Any:
    exact = axis.integer_scale
    if exact is not None and (
        (axis.mode == "asymmetric" and rounding == "floor")
        or (
            axis.mode in ("half_pixel", "pytorch_half_pixel")
            and rounding in ("round_prefer_floor", "round", "", "round_prefer_ceil")
            and exact % 2 == 0
        )
    ):
        i = floordiv(o, int64(exact))
        # sizes may ask for more than the scale gives
        return i if equal_dims(axis.size * int64(exact), axis.out) else clamped(i, axis.size)
    x = axis.source(o)
    if rounding == "floor":
        i = tir.floor(x)
    elif rounding == "ceil":
        i = tir.ceil(x)
    elif rounding == "round_prefer_ceil":
        i = tir.floor(x + _f(0.5))
    elif rounding == "ceil_below_1":
        i = tir.Select(_f(axis.scale) < _f(1.0), tir.ceil(x), tir.floor(x))
    else:
        i = tir.ceil(x - _f(0.5))
    return clamped(cast("int64", i), axis.size)


def _near(d: Any, a: float) -> Any:
    return ((_f(a + 2, d.dtype) * d - _f(a + 3, d.dtype)) * d) * d + _f(1.0, d.dtype)


def _far(d: Any, a: float) -> Any:
    f = partial(_f, dtype=d.dtype)
    return ((f(a) * d - f(5 * a)) * d + f(8 * a)) * d - f(4 * a)


def cubic_weights(t: PrimExpr, a: float) -> list[Any]:
    """Weights of four taps at distance ``1 + t, t, 1 - t, 2 - t``."""
    one, two = _f(1.0, t.dtype), _f(2.0, t.dtype)
    return [_far(one + t, a), _near(t, a), _near(one - t, a), _far(two - t, a)]


def _taps(axis: _Axis, o: Any, method: str, attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """List (index, weight) of the input elements that make an output element along one axis."""
    x = axis.source(o)
    low = tir.floor(x)
    base, t = cast("int64", low), x - low
    if method == "linear":
        pairs = [(base, axis.f(1.0) - t), (base + int64(1), t)]
    else:
        pairs = [(base + int64(k - 1), w) for k, w in enumerate(cubic_weights(t, attrs["cubic_alpha"]))]
    if attrs["cubic_exclude"]:
        inside = [(i, tir.Select(tir.all(i >= int64(0), i < axis.size), w, axis.f(0.0))) for i, w in pairs]
        total = inside[0][1]
        for _, w in inside[1:]:
            total = total + w
        pairs = [(i, w / total) for i, w in inside]
    return [(clamped(i, axis.size), w) for i, w in pairs]


def resize(
    data: Tensor,
    size: Shape,
    scales: Sequence[Scalar] | None = None,
    roi: Sequence[Scalar] | None = None,
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.75,
    cubic_exclude: bool = False,
    extrapolation_value: float = 0.0,
    antialias: bool = False,
) -> Any:
    """Resize data to `size`, one number per axis, by interpolation; `scales` and `roi` also have one entry per axis.

    With `antialias`, an element of an axis that shrinks is a mean of all that it covers.
    """
    attrs = {"cubic_alpha": cubic_alpha, "cubic_exclude": cubic_exclude, "antialias": antialias}
    mode, rank = coordinate_transformation_mode, data.ndim
    nearest = method in ("nearest", "nearest_neighbor")
    dtype = _F if nearest else precise(data)
    axes: dict[int, _Axis] = {}
    for d in range(rank):
        scale = None if scales is None else scales[d]
        same = equal_dims(data.shape[d], size[d]) and (scale is None or scale == 1.0)
        if not same or mode == "tf_crop_and_resize":
            region = (roi[d], roi[d + rank]) if roi else (0.0, 1.0)
            axes[d] = _Axis(data.shape[d], size[d], scale, mode, region, dtype)

    at = {d: _places(a, d == rank - 1, rounding_method) for d, a in axes.items()} if nearest else {}
    made = data if nearest else _interpolated(data, axes, "linear" if method == "linear" else "cubic", attrs)

    def element(*o: Any) -> Any:
        value = made(*(at[d](v) if d in at else v for d, v in enumerate(o)))
        if not nearest and data.dtype != dtype:
            value = cast(data.dtype, tir.round(value) if not data.dtype.startswith(("float", "bfloat")) else value)
        if mode == "tf_crop_and_resize":
            inside = tir.all(
                *(tir.all(a.source(o[d]) >= a.f(0), a.source(o[d]) <= a.f(a.size) - a.f(1)) for d, a in axes.items())
            )
            value = if_then_else(inside, value, const(extrapolation_value, data.dtype))
        return value

    return te.compute(tuple(size), element, name="T_resize")


def resize_placed(data: Tensor, size: Shape, placement: Tensor, scales: Sequence[float] | None, **attrs: Any) -> Any:
    """:func:`resize` by data: scales, where `scales` has 0 or is None, then where regions begin, then where they end.

    Parameters
    ----------
    placement : Tensor
        (3 * rank,) float32.
    """
    known = [s if s else placement(d) for d, s in enumerate(scales or [0] * data.ndim)]
    return resize(data, size, known, [placement(d) for d in range(data.ndim, 3 * data.ndim)], **attrs)


def _places(axis: _Axis, innermost: bool, rounding: str) -> Any:
    """Where each output element along an axis comes from: computed, or, where that takes long, looked up."""
    if axis.integer_scale is not None and not innermost:
        return lambda o: _nearest_index(axis, o, rounding)
    return te.compute((axis.out,), lambda o: cast("int32", _nearest_index(axis, o, rounding)), name="places")


def _interpolated(data: Any, axes: dict[int, _Axis], method: str, attrs: dict[str, Any]) -> Any:
    """Interpolate along one axis after the other; places and weights are tables.

    The last axis is the one whose elements are picked one by one: it comes first unless others leave less of it.
    """
    value, shape = data, list(data.shape)
    for d, axis in sorted(axes.items(), reverse=not attrs["antialias"]):
        shape[d] = axis.out
        if attrs["antialias"]:
            value = te.compute(tuple(shape), _covered(value, d, axis, method, attrs), name="T_resize_axis")
            continue
        n_taps = 2 if method == "linear" else 4
        taps = [
            (
                te.compute(
                    (axis.out,), lambda o, k=k, a=axis: cast("int32", _taps(a, o, method, attrs)[k][0]), "places"
                ),
                te.compute((axis.out,), lambda o, k=k, a=axis: _taps(a, o, method, attrs)[k][1], name="weights"),
            )
            for k in range(n_taps)
        ]
        value = te.compute(tuple(shape), _along(value, d, taps), name="T_resize_axis")
    return value


def _along(data: Any, axis: int, taps: list[tuple[Any, Any]]) -> Any:
    """The sum of elements along an axis at the places of tables, with their weights."""

    def element(*o: Any) -> Any:
        total: Any = None
        for place, weight in taps:
            share = weight(o[axis])
            term = cast(share.dtype, data(*o[:axis], place(o[axis]), *o[axis + 1 :])) * share
            total = term if total is None else total + term
        return total

    return element


def _covered(data: Any, d: int, axis: _Axis, method: str, attrs: dict[str, Any]) -> Any:
    """The mean of the elements along an axis that are near, by distances that shrink as the axis does."""
    reach, scale = 1 if method == "linear" else 2, axis.scale
    if isinstance(scale, (int, float)):
        shrink: Any = axis.f(min(scale, 1.0))
        side: Any = int64(math.ceil(reach / min(scale, 1.0)))
    else:
        shrink = tir.min(axis.f(scale), axis.f(1.0))
        side = (axis.size + int64(1)) * int64(reach)
        if not isinstance(scale, tir.ProducerLoad):
            side = tir.min(cast("int64", tir.ceil(axis.f(reach) / shrink)), side)
    n_taps = int64(2) * side

    def place(o: Any, k: Any) -> Any:
        return cast("int64", tir.floor(axis.source(o))) + k - side + int64(1)

    def weight(k: Any, o: PrimExpr) -> Any:
        i = place(o, k)
        far = tir.abs(axis.f(i) - axis.source(o)) * shrink
        if method == "linear":
            share = tir.max(axis.f(1.0) - far, axis.f(0.0))
        else:
            near, apart = (f(far, attrs["cubic_alpha"]) for f in (_near, _far))
            share = tir.Select(far < axis.f(1.0), near, tir.Select(far < axis.f(2.0), apart, axis.f(0.0)))
        inside = tir.all(i >= int64(0), i < axis.size)
        return tir.Select(inside, share, axis.f(0.0)) if attrs["cubic_exclude"] else share

    def table(element: Any, name: str) -> Any:
        return te.compute((n_taps, axis.out), element, name=name)

    places = table(lambda k, o: cast("int32", clamped(place(o, k), axis.size)), "places")
    weights = table(weight, "weights")
    every, each = (te.reduce_axis((0, n_taps), name) for name in ("every", "each"))
    total = te.compute((axis.out,), lambda o: te.sum(weights(every, o), axis=every), name="total")
    shares = table(lambda k, o: weights(k, o) / total(o), "shares")
    if (as_int(n_taps) or _MOST_TAPS + 1) <= _MOST_TAPS:
        ks = [int64(k) for k in range(as_int(n_taps) or 0)]
        return _along(data, d, [(partial(places, k), partial(shares, k)) for k in ks])

    def element(*o: Any) -> Any:
        read = data(*o[:d], places(each, o[d]), *o[d + 1 :])
        return te.sum(axis.f(read) * shares(each, o[d]), axis=each)

    return element


_MOST_TAPS = 16
"""Elements of a mean that are written one by one, so that its neighbours are lanes."""


def full_size(shape: Shape, size: Shape, layout: str) -> tuple[Any, ...]:
    """Return the shape of the result of resizing the spatial axes of `shape`."""
    return (shape[0], *size, shape[-1]) if layout.endswith("C") else (shape[0], shape[1], *size)


def spread(value: Sequence[float] | None, layout: str, fill: float) -> Any:
    """Values of the spatial axes, or one value of each, to all axes."""
    if value is None:
        return None
    rank = len(layout) - 2
    value = value if len(value) == rank else [value[0]] * rank
    return (fill, *value, fill) if layout.endswith("C") else (fill, fill, *value)


def spread_roi(roi: Sequence[float] | None, layout: str) -> Any:
    """Return a region of the spatial axes as one of all."""
    rank = len(layout) - 2
    if roi is None or len(roi) != 2 * rank:
        return None
    return (*spread(roi[:rank], layout, 0.0), *spread(roi[rank:], layout, 1.0))


def resize_spatial(
    data: Tensor,
    size: Shape,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    *,
    layout: str,
    out_dtype: str = "",
    **attrs: Any,
) -> Any:
    """Resize the spatial axes that `layout` names; the other parameters are those of :func:`resize`."""
    size = tuple(size) * (1 if len(size) == len(layout) - 2 else len(layout) - 2)
    out = resize(
        data, full_size(data.shape, size, layout), spread(scales, layout, 1.0), spread_roi(roi, layout), **attrs
    )
    return narrowed(out, out_dtype or data.dtype)
