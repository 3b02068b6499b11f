"""Resizing by nearest, linear and cubic interpolation, along any axes, with every coordinate rule of ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.error import ShapeMismatch, TypeInferenceError
from weft.ir import DataType, Expr, PrimExpr, ShapeType, TensorType, int64, min_, numpy_dtype
from weft.op.attributes import data_layout, dtype, flag, number, numbers, word
from weft.op.infer import tensor_arg, values_of
from weft.op.registry import Fusion, Layout, declare
from weft.op.relations import demand_at_least
from weft.topi.resize import full_size, resize, resize_spatial, spread, spread_roi

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


def _resize_infer(data: Expr, size: Expr) -> TensorType:
    ty = tensor_arg("image.resize", "data", data)
    values = values_of(size)
    _demand_sizes("image.resize", ty.shape, values, data)
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


def _taps_ref(x: Any, size: int, method: str, rounding: str, a: float, exclude: bool) -> list[tuple[int, float]]:
    """The input elements that make an output element, each with its weight, which may be 0."""
    if method.startswith("nearest"):
        i = {"floor": math.floor(x), "ceil": math.ceil(x), "round_prefer_ceil": math.floor(x + _F(0.5))}.get(
            rounding, math.ceil(x - _F(0.5))
        )
        return [(min(max(i, 0), size - 1), 1.0)]
    base = math.floor(x)
    t = float(x - _F(base))
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
    return [(min(max(i, 0), size - 1), w) for i, w in pairs]


def _resize_ref(
    data: Any, size: Any, scales: Any, roi: Any, method: str, coordinate_transformation_mode: str, rounding_method: str,
    cubic_alpha: float, cubic_exclude: bool, extrapolation_value: float,
) -> Any:  # fmt: skip
    mode, rank, y = coordinate_transformation_mode, data.ndim, data.astype(np.float64)
    outside = np.zeros([int(d) for d in size], bool)
    if not outside.size:
        return np.zeros(outside.shape, data.dtype)
    for d in range(rank):
        n, m = data.shape[d], int(size[d])
        scale = _F(scales[d]) if scales is not None and scales[d] else _F(m) / _F(n)
        if n == m and scale == 1 and mode != "tf_crop_and_resize":
            continue
        x = _source_ref(np.arange(m, dtype=_F), n, m, scale, mode, (roi[d], roi[d + rank]) if roi else (0, 1))
        taps = np.array([_taps_ref(v, n, method, rounding_method, cubic_alpha, cubic_exclude) for v in x])
        along = [-1 if i == d else 1 for i in range(rank)]
        y = sum(np.take(y, t[:, 0].astype(int), d) * t[:, 1].reshape(along) for t in taps.swapaxes(0, 1))
        if mode == "tf_crop_and_resize":
            outside |= ((x < 0) | (x > n - 1)).reshape(along)
    y = np.where(outside, extrapolation_value, y)
    return (np.rint(y) if data.dtype.kind in "iu" and not method.startswith("nearest") else y).astype(data.dtype)


_ATTRS = {
    "scales": numbers(), "roi": numbers(), "method": word("linear", "nearest", "nearest_neighbor", "linear", "cubic"),
    "coordinate_transformation_mode": word("half_pixel", *_MODES), "rounding_method": word("", *_ROUNDING),
    "cubic_alpha": number(-0.75), "cubic_exclude": flag(False), "extrapolation_value": number(0.0),
}  # fmt: skip

declare(
    "image.resize", "data size:shape", _ATTRS, infer=_resize_infer, lower=resize, reference=_resize_ref,
    fusion=Fusion.OPAQUE, rtol=1e-4,
    doc="Resize every axis to `size`; `scales`, where given, decide the coordinates.",
)  # fmt: skip


def spatial_sizes(name: str, size: Expr, rank: int) -> tuple[PrimExpr, ...] | None:
    """Return the sizes of all spatial axes; None where they are unknown. One alone is that of each."""
    ty = size.ty
    if not isinstance(ty, ShapeType):
        raise TypeInferenceError(f"{name}: 'size' must be a shape", expected="R.Shape", found=str(ty), where=size.span)
    if ty.ndim not in (-1, 1, rank):
        raise ShapeMismatch(f"{name}: 'size' has a wrong length", expected=f"{rank}, or 1", found=str(ty.ndim),
                            where=size.span)  # fmt: skip
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
        name, "data size:shape",
        {
            "roi": numbers(), "layout": data_layout(rank),
            **{k: v for k, v in _ATTRS.items() if k not in ("scales", "roi")}, "out_dtype": dtype(),
            "scales": numbers(),
        },
        infer=infer, lower=resize_spatial, reference=_spatial_ref, fusion=Fusion.OPAQUE, rtol=1e-4,
        layout=Layout.NAMED, doc=f"Resize the {axes} spatial axes.",
    )  # fmt: skip


_declare_spatial(2, "two")
_declare_spatial(3, "three")
