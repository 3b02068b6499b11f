"""Resizing by nearest, linear and cubic interpolation, along any axes, with every coordinate rule of ONNX."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import Expr, TensorType, as_int, cast, const, floordiv, if_then_else, int64
from weft.op.conv import pair
from weft.op.infer import equal_dims, tensor_arg, values_of
from weft.op.registry import Fusion, declare

__all__: list[str] = []

_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "round", "")
_F = "float32"


def _f(value: Any) -> Any:
    return const(float(value), _F) if isinstance(value, (int, float)) else cast(_F, value)


class _Axis:
    """How one axis is resized: sizes, scale, and the rule from output to input coordinates."""

    def __init__(self, size: Any, out: Any, scale: Any, mode: str, roi: Any) -> None:
        self.size, self.out, self.mode, self.roi, self.given = size, out, mode, roi, scale is not None
        n_in, n_out = as_int(size), as_int(out)
        if scale is not None and not (isinstance(scale, (int, float)) and scale <= 0):
            self.scale: Any = scale
        elif n_in is not None and n_out is not None:
            self.scale = n_out / n_in if n_in else 1.0
        else:
            self.scale = _f(out) / _f(size)

    @property
    def integer_scale(self) -> int | None:
        """The scale when it is a whole number."""
        known = isinstance(self.scale, (int, float)) and float(self.scale).is_integer() and self.scale >= 1
        return int(self.scale) if known else None

    def source(self, o: Any) -> Any:
        """The input coordinate of output index `o`, as float32."""
        x, scale = cast(_F, o), self.scale
        over = lambda v: v / (_f(scale) if isinstance(scale, (int, float)) else scale)  # noqa: E731 - division rounds as ONNX's does
        if self.mode == "asymmetric":
            return over(x)
        if self.mode == "align_corners":
            n_out = as_int(self.out)
            if self.given and isinstance(scale, (int, float)) and as_int(self.size) is not None:
                length = as_int(self.size) * scale  # type: ignore[operator]
                return x * _f((as_int(self.size) - 1) / (length - 1)) if length > 1 else _f(0.0) * x  # type: ignore[operator]
            if n_out is not None and as_int(self.size) is not None:
                return x * _f((as_int(self.size) - 1) / (n_out - 1)) if n_out > 1 else _f(0.0) * x  # type: ignore[operator]
            return x * (_f(self.size) - _f(1.0)) / tir.max(_f(self.out) - _f(1.0), _f(1.0))
        if self.mode == "tf_half_pixel_for_nn":
            return over(x + _f(0.5))
        if self.mode == "tf_crop_and_resize":
            return self._crop(x)
        half = over(x + _f(0.5)) - _f(0.5)
        if self.mode == "pytorch_half_pixel":
            return (
                half
                if as_int(self.out) is not None and as_int(self.out) > 1
                else tir.Select(self.out > int64(1), half, _f(0.0))
            )  # type: ignore[operator]
        if self.mode == "half_pixel_symmetric":
            resized = _f(self.size) * scale
            adjustment = _f(self.out) / resized
            centre = _f(self.size) * _f(0.5)
            return centre * (_f(1.0) - adjustment) + half
        return half

    def _crop(self, x: Any) -> Any:
        start, end = self.roi
        last = _f(self.size) - _f(1.0)
        n_out = as_int(self.out)
        if n_out == 1:
            return _f(0.5) * (_f(start) + _f(end)) * last + x * _f(0.0)
        return _f(start) * last + x * (_f(end) - _f(start)) * last / (_f(self.out) - _f(1.0))


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
        return floordiv(o, int64(exact))
    x = axis.source(o)
    if rounding == "floor":
        i = tir.floor(x)
    elif rounding == "ceil":
        i = tir.ceil(x)
    elif rounding == "round_prefer_ceil":
        i = tir.floor(x + _f(0.5))
    else:
        i = tir.ceil(x - _f(0.5))
    return _clamp(cast("int64", i), axis.size)


def _clamp(i: Any, size: Any) -> Any:
    return tir.max(tir.min(i, size - int64(1)), int64(0))


def _cubic(t: Any, a: float) -> list[Any]:
    """Weights of four taps at distance ``1 + t, t, 1 - t, 2 - t``."""
    one, two, av = _f(1.0), _f(2.0), _f(a)
    far = lambda d: ((av * d - _f(5 * a)) * d + _f(8 * a)) * d - _f(4 * a)  # noqa: E731
    near = lambda d: ((_f(a + 2) * d - _f(a + 3)) * d) * d + one  # noqa: E731
    return [far(one + t), near(t), near(one - t), far(two - t)]


def _taps(axis: _Axis, o: Any, method: str, attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """List (index, weight) of the input elements that make an output element along one axis."""
    x = axis.source(o)
    low = tir.floor(x)
    base, t = cast("int64", low), x - low
    if method == "linear":
        pairs = [(base, _f(1.0) - t), (base + int64(1), t)]
    else:
        pairs = [(base + int64(k - 1), w) for k, w in enumerate(_cubic(t, attrs["cubic_alpha"]))]
    if attrs["cubic_exclude"]:
        inside = [(i, tir.Select(tir.all(i >= int64(0), i < axis.size), w, _f(0.0))) for i, w in pairs]
        total = inside[0][1]
        for _, w in inside[1:]:
            total = total + w
        pairs = [(i, w / total) for i, w in inside]
    return [(_clamp(i, axis.size), w) for i, w in pairs]


def _resize_lower(
    data: Any, size: Any, scales: Any = None, roi: Any = None, method: str = "linear", coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "", cubic_alpha: float = -0.75, cubic_exclude: bool = False, extrapolation_value: float = 0.0,
) -> Any:  # fmt: skip
    attrs = {"cubic_alpha": cubic_alpha, "cubic_exclude": cubic_exclude}
    mode, rank = coordinate_transformation_mode, data.ndim
    axes: dict[int, _Axis] = {}
    for d in range(rank):
        scale = None if scales is None else scales[d]
        same = equal_dims(data.shape[d], size[d]) and (scale is None or scale == 1.0)
        if not same or mode == "tf_crop_and_resize":
            axes[d] = _Axis(data.shape[d], size[d], scale, mode, (roi[d], roi[d + rank]) if roi else (0.0, 1.0))

    def element(*o: Any) -> Any:
        if method in ("nearest", "nearest_neighbor"):
            value = data(*(_nearest_index(axes[d], v, rounding_method) if d in axes else v for d, v in enumerate(o)))
        else:
            value = _interpolate(data, o, axes, "linear" if method == "linear" else "cubic", attrs)
        if mode == "tf_crop_and_resize":
            inside = tir.all(
                *(tir.all(a.source(o[d]) >= _f(0.0), a.source(o[d]) <= _f(a.size) - _f(1.0)) for d, a in axes.items())
            )
            value = if_then_else(inside, value, const(extrapolation_value, data.dtype))
        return value

    return te.compute(tuple(size), element, name="T_resize")


def _interpolate(data: Any, o: Any, axes: dict[int, _Axis], method: str, attrs: dict[str, Any]) -> Any:
    taps = {d: _taps(a, o[d], method, attrs) for d, a in axes.items()}
    total: Any = None
    for choice in itertools.product(*(range(len(t)) for t in taps.values())):
        picked = dict(zip(taps, choice, strict=True))
        value = cast(_F, data(*(taps[d][picked[d]][0] if d in taps else v for d, v in enumerate(o))))
        for d in taps:
            value = value * taps[d][picked[d]][1]
        total = value if total is None else total + value
    if data.dtype == _F:
        return total
    return cast(data.dtype, tir.round(total) if not data.dtype.startswith(("float", "bfloat")) else total)


def _resize_infer(
    data: Expr, size: Expr, scales: Any = None, roi: Any = None, method: str = "linear", **attrs: Any
) -> TensorType:
    ty = tensor_arg("image.resize", "data", data)
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    if (
        method not in ("nearest", "nearest_neighbor", "linear", "cubic")
        or mode not in _MODES
        or attrs.get("rounding_method", "") not in _ROUNDING
    ):
        raise InvalidArgument(
            "image.resize: unknown method or mode",
            found=f"{method}, {mode}, {attrs.get('rounding_method', '')}",
            where=data.span,
        )
    values = values_of(size)
    return TensorType(values, ty.dtype, ty.ndim)


# --- the reference, in float64 over each axis in turn ------------------------------------------------------------------


def _source_ref(o: Any, size: int, out: int, scale: float, mode: str, roi: Any) -> Any:
    if mode == "asymmetric":
        return o / scale
    if mode == "align_corners":
        length = size * scale
        return o * (size - 1) / (length - 1) if length > 1 else o * 0.0
    if mode == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if mode == "tf_crop_and_resize":
        return (
            roi[0] * (size - 1) + o * (roi[1] - roi[0]) * (size - 1) / (out - 1)
            if out > 1
            else 0.5 * (roi[0] + roi[1]) * (size - 1) + o * 0
        )
    half = (o + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return half if out > 1 else half * 0
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - out / (size * scale)) + half
    return half


def _weights_ref(x: float, size: int, method: str, rounding: str, a: float, exclude: bool) -> dict[int, float]:
    if method.startswith("nearest"):
        i = {"floor": math.floor(x), "ceil": math.ceil(x), "round_prefer_ceil": math.floor(x + 0.5)}.get(
            rounding, math.ceil(x - 0.5)
        )
        return {min(max(i, 0), size - 1): 1.0}
    base = math.floor(x)
    t = x - base
    if method == "linear":
        pairs = [(base, 1 - t), (base + 1, t)]
    else:
        near, far = (
            (lambda d: ((a + 2) * d - (a + 3)) * d * d + 1),
            (lambda d: ((a * d - 5 * a) * d + 8 * a) * d - 4 * a),
        )
        pairs = [(base - 1, far(1 + t)), (base, near(t)), (base + 1, near(1 - t)), (base + 2, far(2 - t))]
    if exclude:
        pairs = [(i, w if 0 <= i < size else 0.0) for i, w in pairs]
        total = sum(w for _, w in pairs)
        pairs = [(i, w / total) for i, w in pairs]
    out: dict[int, float] = {}
    for i, w in pairs:
        i = min(max(i, 0), size - 1)
        out[i] = out.get(i, 0.0) + w
    return out


def _resize_ref(
    data: Any, size: Any, scales: Any, roi: Any, method: str, coordinate_transformation_mode: str, rounding_method: str, cubic_alpha: float,
    cubic_exclude: bool, extrapolation_value: float,
) -> Any:  # fmt: skip
    mode, rank, y = coordinate_transformation_mode, data.ndim, data.astype(np.float64)
    outside = np.zeros([int(d) for d in size], bool)
    for d in range(rank):
        n, m = data.shape[d], int(size[d])
        scale = scales[d] if scales is not None and scales[d] else m / n
        if n == m and scale == 1.0 and mode != "tf_crop_and_resize":
            continue
        x = _source_ref(np.arange(m), n, m, scale, mode, (roi[d], roi[d + rank]) if roi else (0, 1))
        matrix = np.zeros((m, n))
        for o in range(m):
            for i, w in _weights_ref(
                float(np.float32(x[o])), n, method, rounding_method, cubic_alpha, cubic_exclude
            ).items():
                matrix[o, i] += w
        y = np.moveaxis(np.tensordot(matrix, y, (1, d)), 0, d)
        if mode == "tf_crop_and_resize":
            outside |= ((x < 0) | (x > n - 1)).reshape([-1 if i == d else 1 for i in range(rank)])
    y = np.where(outside, extrapolation_value, y)
    return (np.rint(y) if data.dtype.kind in "iu" and not method.startswith("nearest") else y).astype(data.dtype)


_ATTRS = {
    "scales": None, "roi": None, "method": "linear", "coordinate_transformation_mode": "half_pixel", "rounding_method": "", "cubic_alpha": -0.75,
    "cubic_exclude": False, "extrapolation_value": 0.0,
}  # fmt: skip

declare(
    "image.resize", "data size:shape", _ATTRS, infer=_resize_infer, lower=_resize_lower, reference=_resize_ref, fusion=Fusion.OPAQUE, rtol=1e-4,
    doc="Resize every axis to `size`; `scales`, where given, decide the coordinates.",
)  # fmt: skip


def _full_size(shape: Any, size: Any, layout: str) -> tuple[Any, ...]:
    return (shape[0], *size, shape[3]) if layout.endswith("C") else (shape[0], shape[1], *size)


def _resize2d_infer(
    data: Expr, size: Expr, scales: Any = None, roi: Any = None, layout: str = "NCHW", **_: Any
) -> TensorType:
    ty = tensor_arg("image.resize2d", "data", data, ndim=4)
    values = values_of(size)
    if ty.shape is None or values is None:
        return TensorType(None, ty.dtype, 4)
    return TensorType(_full_size(ty.shape, values if len(values) == 2 else values * 2, layout), ty.dtype, 4)


def _spread(value: Any, layout: str, fill: float) -> Any:
    """Values of the two spatial axes to all four."""
    if value is None:
        return None
    h, w = value if len(value) == 2 else (value[0], value[0])
    return (fill, h, w, fill) if layout.endswith("C") else (fill, fill, h, w)


def _roi(roi: Any, layout: str) -> Any:
    if roi is None or len(roi) != 4:
        return None
    return (*_spread(roi[:2], layout, 0.0), *_spread(roi[2:], layout, 1.0))


def _resize2d_lower(
    data: Any, size: Any, scales: Any = None, roi: Any = None, layout: str = "NCHW", **attrs: Any
) -> Any:
    size = tuple(size) if len(size) == 2 else tuple(size) * 2
    return _resize_lower(
        data, _full_size(data.shape, size, layout), _spread(scales, layout, 1.0), _roi(roi, layout), **attrs
    )


def _resize2d_ref(data: Any, size: Any, scales: Any, roi: Any, layout: str, **attrs: Any) -> Any:
    size = pair([int(s) for s in size], 2)
    return _resize_ref(
        data, _full_size(data.shape, size, layout), _spread(scales, layout, 1.0), _roi(roi, layout), **attrs
    )


declare(
    "image.resize2d", "data size:shape",
    {"scales": None, "roi": None, "layout": "NCHW", **{k: v for k, v in _ATTRS.items() if k not in ("scales", "roi")}},
    infer=_resize2d_infer, lower=_resize2d_lower, reference=_resize2d_ref, fusion=Fusion.OPAQUE, rtol=1e-4, doc="Resize the two spatial axes.",
)  # fmt: skip
