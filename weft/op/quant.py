"""Quantisation."""

from typing import Any

import numpy as np

from weft.error import DTypeMismatch, ShapeMismatch
from weft.ir import DataType, Expr, TensorType, numpy_dtype
from weft.op.attributes import axis, dtype, integer
from weft.op.infer import normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_broadcast_to, demand_same_shape
from weft.topi.quant import dequantize, quantize, requantize, requantize_sum

_AXIS = axis(-1, checked=False)
_BYTES = {"low": integer(0), "out_dtype": dtype("uint8")}


def _infer(op: str, to_integer: bool) -> Any:
    def infer(data: Expr, scale: Expr, zero_point: Expr, axis: int, out_dtype: str) -> TensorType:
        ty = tensor_arg(op, "data", data, kind="float" if to_integer else "integer")
        factor, shift = tensor_arg(op, "scale", scale, kind="float"), tensor_arg(op, "zero_point", zero_point)
        for name, parameter in (("scale", factor), ("zero_point", shift)):
            if parameter.ndim > min(ty.ndim, 1) >= 0:
                raise ShapeMismatch(
                    f"{op}: '{name}' has too many dimensions",
                    expected="a scalar, or a vector along the axis",
                    found=str(parameter),
                    where=data.span,
                )
            if ty.shape and parameter.ndim == 1:
                along = (ty.shape[normalize_axis(op, axis, ty.ndim)],)
                demand_same_shape(f"{op}: '{name}'", parameter.shape, along, data.span)
        if ty.ndim > 0:
            normalize_axis(op, axis, ty.ndim)
        dtype = DataType(out_dtype)
        if dtype.is_integer != to_integer or (to_integer and dtype.bits > 16):
            raise DTypeMismatch(
                f"{op}: the result has a wrong data type",
                expected="int8, uint8, int16 or uint16" if to_integer else "a float type",
                found=dtype,
                where=data.span,
            )
        return TensorType(ty.shape, dtype, ty.ndim)

    return infer


def _spread(p: Any, data: Any, axis: int) -> Any:
    return p if p.ndim == 0 else p.reshape([-1 if i == axis % data.ndim else 1 for i in range(data.ndim)])


def _quantize_ref(data: Any, scale: Any, zero_point: Any, axis: int, out_dtype: str) -> Any:
    info = np.iinfo(out_dtype)
    wide = np.float64 if data.dtype == np.float64 else np.float32
    scaled = np.rint(data.astype(wide) / _spread(scale, data, axis).astype(wide)) + _spread(zero_point, data, axis)
    return np.clip(scaled, info.min, info.max).astype(out_dtype)


declare(
    "quantize",
    "data scale zero_point",
    {"axis": _AXIS, "out_dtype": dtype("int8")},
    infer=_infer("quantize", True),
    lower=quantize,
    reference=_quantize_ref,
    fusion=Fusion.BROADCAST,
    doc="``round(data / scale) + zero_point`` as small integers; scale and zero point are scalars, or vectors along "
    "`axis`.",
)

declare(
    "dequantize",
    "data scale zero_point",
    {"axis": _AXIS, "out_dtype": dtype("float32")},
    infer=_infer("dequantize", False),
    lower=dequantize,
    reference=lambda data, scale, zero_point, axis, out_dtype: (
        (data.astype(np.int32) - _spread(zero_point, data, axis).astype(np.int32)) * _spread(scale, data, axis)
    ).astype(numpy_dtype(out_dtype)),
    fusion=Fusion.BROADCAST,
    doc="``(data - zero_point) * scale``; scale and zero point are scalars, or vectors along `axis`.",
)


def _requantize_infer(name: str, n: int) -> Any:
    """The rule for `n` tensors of integers, then a factor for each and an offset."""

    def infer(*args: Any, out_dtype: str) -> TensorType:
        first = tensor_arg(name, "data", args[0])
        for i, other in enumerate(args[1:n], 1):
            ty = tensor_arg(name, f"data {i}", other)
            demand_same_shape(f"{name}: its tensor {i}", ty.shape, first.shape, args[0].span)
        for parameter in args[n:]:
            ty = tensor_arg(name, "a parameter", parameter, kind="float")
            if ty.shape is not None and first.shape is not None:
                if len(ty.shape) > len(first.shape):
                    raise ShapeMismatch(
                        f"{name}: a parameter has too many dimensions", expected=str(first), found=str(ty)
                    )
                for i, (d, e) in enumerate(zip(reversed(ty.shape), reversed(first.shape), strict=False)):
                    demand_broadcast_to(f"{name}: dimension {-1 - i} of a parameter", d, e, args[0].span)
        if DataType(out_dtype).bits > 8 or not DataType(out_dtype).is_integer:
            raise DTypeMismatch(f"{name}: the result has a wrong data type", expected="uint8 or int8", found=out_dtype)
        return TensorType(first.shape, out_dtype, first.ndim)

    return infer


def _requantize_ref(*args: Any, low: int, out_dtype: str) -> Any:
    n = (len(args) - 1) // 2
    total = sum(args[i].astype(np.float32) * args[n + i] for i in range(n)) + args[-1]
    return np.clip(np.rint(total), low, np.iinfo(out_dtype).max).astype(out_dtype)


declare(
    "requantize",
    "data scale offset",
    _BYTES,
    infer=_requantize_infer("requantize", 1),
    lower=requantize,
    reference=_requantize_ref,
    fusion=Fusion.BROADCAST,
    doc="``round(data * scale + offset)`` as bytes not less than `low`; scale and offset are broadcast to the data.",
)

declare(
    "requantize_sum",
    "a b a_scale b_scale offset",
    _BYTES,
    infer=_requantize_infer("requantize_sum", 2),
    lower=requantize_sum,
    reference=_requantize_ref,
    fusion=Fusion.BROADCAST,
    doc="``round(a * a_scale + b * b_scale + offset)`` as bytes not less than `low`; factors and offset are broadcast.",
)
