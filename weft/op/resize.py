"""Resizing by nearest, linear and cubic interpolation, along any axes, with every coordinate rule of ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.error import ShapeMismatch, TypeInferenceError
from weft.ir import DataType, Expr, PrimExpr, ShapeType, TensorType, int64, min_, numpy_dtype
from weft.op.attributes import data_layout, dtype, flag, number, numbers, word
from weft.op.infer import tensor_arg, values_of
from weft.op.registry import Layout, declare
from weft.op.relations import demand_at_least, demand_equal
from weft.topi.resize import full_size, resize, resize_placed, resize_spatial, spread, spread_roi

_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "ceil_below_1", "round", "")


def _resize_infer(name: str, data: Expr, size: Expr) -> TensorType:
    ty = tensor_arg(name, "data", data)
    values = values_of(size)
    _demand_sizes(name, ty.shape, values, data)
    return TensorType(values, ty.dtype, ty.ndim)


def _demand_sizes(name: str, old: Any, new: Any, data: Expr) -> None:
    """Demand sizes that are not negative, and something to take values from where there is a result."""
    if old is None or new is None:
        return
    if len(old) != len(new):
        raise ShapeMismatch(f"{name}: 'size' has a wrong length", expected=str(len(old)), found=str(len(new)))
    for i, (d, n) in enumerate(zip(old, new, strict=True)):
        demand_at_least(f"{name}: dimension {i} of the result", n, 0, data.span)
        demand_at_least(f"{name}: dimension {i} of 'data'", d, min_(n, int64(1)), data.span)


# --- the reference: coordinates in float32, as in the kernels and in ONNX Runtime, values in float64, axis by axis ---

_F = np.float32


def _source_ref(o: Any, size: int, out: int, scale: Any, mode: str, roi: Any) -> Any:
    """Input coordinates of the output indices `o`."""
    last, half = _F(size - 1), _F(0.5)
    if mode == "asymmetric":
        return o / scale
    if mode == "align_corners":
        return o * last / _F(max(out - 1, 1))
    if mode == "tf_half_pixel_for_nn":
        return (o + half) / scale
    if mode == "tf_crop_and_resize":
        start, end = _F(roi[0]), _F(roi[1])
        return start * last + o * (end - start) * last / _F(out - 1) if out > 1 else half * (start + end) * last + o
    centred = (o + half) / scale - half
    if mode == "pytorch_half_pixel":
        return centred if out > 1 else centred * 0
    if mode == "half_pixel_symmetric":
        return _F(size) * half * (1 - _F(out) / (_F(size) * scale)) + centred
    return centred


def _taps_ref(
    x: Any, size: int, scale: Any, method: str, rounding: str, a: float, exclude: bool, antialias: bool
) -> list[tuple[int, float]]:
    """The input elements that make an output element, each with its weight, which may be 0."""
    if method.startswith("nearest"):
        if rounding == "ceil_below_1":
            rounding = "ceil" if scale < 1 else "floor"
        i = {"floor": math.floor(x), "ceil": math.ceil(x), "round_prefer_ceil": math.floor(x + _F(0.5))}.get(
            rounding, math.ceil(x - _F(0.5))
        )
        return [(min(max(i, 0), size - 1), 1.0)]
    shrink, reach = float(min(scale, 1) if antialias else 1), 1 if method == "linear" else 2
    base, side = math.floor(x), math.ceil(reach / shrink)

    def weight(i: int) -> float:
        d = abs(i - float(x)) * shrink
        if (exclude and not 0 <= i < size) or d >= reach:
            return 0.0
        near = 1 - d if reach == 1 else ((a + 2) * d - (a + 3)) * d * d + 1
        return near if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    pairs = [(i, weight(i)) for i in range(base - side + 1, base + side + 1)]
    total = (
        (sum(w for _, w in pairs) or math.nan) if exclude or antialias else 1.0
    )  # nan: the extrapolation has its place
    return [(min(max(i, 0), size - 1), w / total) for i, w in pairs]


def _resize_ref(
    data: Any,
    size: Any,
    scales: Any,
    roi: Any,
    method: str,
    coordinate_transformation_mode: str,
    rounding_method: str,
    cubic_alpha: float,
    cubic_exclude: bool,
    extrapolation_value: float,
    antialias: bool = False,
) -> Any:
    mode, rank, nearest = coordinate_transformation_mode, data.ndim, method.startswith("nearest")
    y = data if nearest else data.astype(np.float64)
    outside = np.zeros([int(d) for d in size], bool)
    if not outside.size:
        return np.zeros(outside.shape, data.dtype)
    for d in range(rank):
        n, m = data.shape[d], int(size[d])
        scale = _F(scales[d]) if scales is not None and scales[d] else _F(m) / _F(n)
        if n == m and scale == 1 and mode != "tf_crop_and_resize":
            continue
        x = _source_ref(np.arange(m, dtype=_F), n, m, scale, mode, (roi[d], roi[d + rank]) if roi else (0, 1))
        how = (scale, method, rounding_method, cubic_alpha, cubic_exclude, antialias)
        taps = np.array([_taps_ref(v, n, *how) for v in x])
        along = [-1 if i == d else 1 for i in range(rank)]
        parts = ((np.take(y, t[:, 0].astype(int), d), t[:, 1].reshape(along)) for t in taps.swapaxes(0, 1))
        y = np.asarray(sum(part if nearest else part * weight for part, weight in parts))
        if mode == "tf_crop_and_resize":
            outside |= ((x < 0) | (x > n - 1)).reshape(along)
    y = (np.rint(y) if data.dtype.kind in "iu" and not nearest else y).astype(data.dtype)
    return np.where(outside, np.asarray(extrapolation_value).astype(data.dtype), y)


_ATTRS = {
    "scales": numbers(),
    "roi": numbers(),
    "method": word("linear", "nearest", "nearest_neighbor", "linear", "cubic"),
    "coordinate_transformation_mode": word("half_pixel", *_MODES),
    "rounding_method": word("", *_ROUNDING),
    "cubic_alpha": number(-0.75),
    "cubic_exclude": flag(False),
    "extrapolation_value": number(0.0),
}

declare(
    "image.resize",
    "data size:shape",
    {**_ATTRS, "antialias": flag(False)},
    infer=lambda data, size: _resize_infer("image.resize", data, size),
    lower=resize,
    reference=_resize_ref,
    rtol=1e-4,
    doc="Resize every axis to `size`; `scales`, where given, decide the coordinates.",
)


def _placed_infer(data: Expr, size: Expr, placement: Expr, scales: Any) -> TensorType:
    found = _resize_infer("image.resize_placed", data, size)
    given = tensor_arg("image.resize_placed", "placement", placement, ndim=1, kind="float")
    if given.shape is not None and found.ndim >= 0:
        demand_equal("image.resize_placed: numbers of all axes", given.shape[0], 3 * found.ndim, placement.span)
        if scales is not None:
            demand_equal("image.resize_placed: scales of all axes", int64(len(scales)), found.ndim, placement.span)
    return found


def _placed_ref(data: Any, size: Any, placement: Any, scales: Any, **attrs: Any) -> Any:
    known = [s or placement[d] for d, s in enumerate(scales or [0] * data.ndim)]
    return _resize_ref(data, size, known, list(placement[data.ndim :]), **attrs)


declare(
    "image.resize_placed",
    "data size:shape placement",
    {**{k: v for k, v in _ATTRS.items() if k != "roi"}, "antialias": flag(False)},
    infer=_placed_infer,
    lower=resize_placed,
    reference=_placed_ref,
    rtol=1e-4,
    doc="Resize by scales, where `scales` has 0 or is None, and regions that are data: (3 * rank,) float32.",
)


def spatial_sizes(name: str, size: Expr, rank: int) -> tuple[PrimExpr, ...] | None:
    """Return the sizes of all spatial axes; None where they are unknown. One alone is that of each."""
    ty = size.ty
    if not isinstance(ty, ShapeType):
        raise TypeInferenceError(f"{name}: 'size' must be a shape", expected="R.Shape", found=str(ty), where=size.span)
    if ty.ndim not in (-1, 1, rank):
        raise ShapeMismatch(
            f"{name}: 'size' has a wrong length", expected=f"{rank}, or 1", found=str(ty.ndim), where=size.span
        )
    values = values_of(size)
    return None if values is None else values * (rank // len(values))


def _spatial_ref(data: Any, size: Any, scales: Any, roi: Any, layout: str, out_dtype: str, **attrs: Any) -> Any:
    size = [int(s) for s in size] * ((data.ndim - 2) // len(size))
    out = _resize_ref(
        data, full_size(data.shape, size, layout), spread(scales, layout, 1.0), spread_roi(roi, layout), **attrs
    )
    return out.astype(numpy_dtype(out_dtype)) if out_dtype else out


def _declare_spatial(rank: int, axes: str) -> None:
    name = f"image.resize{rank}d"

    def infer(data: Expr, size: Expr, layout: str, out_dtype: str) -> TensorType:
        ty = tensor_arg(name, "data", data, ndim=rank + 2)
        values, dtype = spatial_sizes(name, size, rank), DataType(out_dtype) if out_dtype else ty.dtype
        if ty.shape is None or values is None:
            return TensorType(None, dtype, rank + 2, ty.vdevice)
        sizes = full_size(ty.shape, values, layout)
        _demand_sizes(name, ty.shape, sizes, data)
        return TensorType(sizes, dtype, rank + 2, ty.vdevice)

    declare(
        name,
        "data size:shape",
        {
            "roi": numbers(),
            "layout": data_layout(rank),
            **{k: v for k, v in _ATTRS.items() if k not in ("scales", "roi")},
            "out_dtype": dtype(),
            "scales": numbers(),
        },
        infer=infer,
        lower=resize_spatial,
        reference=_spatial_ref,
        rtol=1e-4,
        layout=Layout.NAMED,
        doc=f"Resize the {axes} spatial axes.",
    )


_declare_spatial(2, "two")
_declare_spatial(3, "three")
