"""Quantisation: real numbers as small integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.ir import DataType, cast, const
from weft.topi.broadcast import broadcast_index
from weft.topi.shape import normalize_axis

__all__ = ["dequantize", "quantize", "requantize", "requantize_sum"]


def _parameter(tensor: Any, i: Any, axis: int) -> Any:
    """A scale or zero point: one for all, or one for each index along the axis."""
    return tensor(*[0] * tensor.ndim) if tensor.ndim == 0 else tensor(i[axis])


def quantize(data: Any, scale: Any, zero_point: Any, axis: int = -1, out_dtype: str = "int8") -> Any:
    """``clip(round(data / scale) + zero_point)`` to the range of the result."""
    a = normalize_axis("quantize", axis, data.ndim)
    wide = "float64" if DataType(data.dtype).bits == 64 else "float32"

    def element(*i: Any) -> Any:
        scaled = tir.round(cast(wide, data(*i)) / cast(wide, _parameter(scale, i, a)))
        shifted = scaled + cast(wide, _parameter(zero_point, i, a))
        return cast(out_dtype, shifted)  # which saturates

    return te.compute(data.shape, element, name="T_quantize")


def dequantize(data: Any, scale: Any, zero_point: Any, axis: int = -1, out_dtype: str = "float32") -> Any:
    """``(data - zero_point) * scale``."""
    a = normalize_axis("dequantize", axis, data.ndim)

    def element(*i: Any) -> Any:
        shifted = cast("int32", data(*i)) - cast("int32", _parameter(zero_point, i, a))
        return cast(out_dtype, cast("float32", shifted) * cast("float32", _parameter(scale, i, a)))

    return te.compute(data.shape, element, name="T_dequantize")


def requantize(data: Any, scale: Any, offset: Any, low: int = 0, out_dtype: str = "uint8") -> Any:
    """``round(data * scale + offset)``, limited to `low` and the largest value of the result."""

    def element(*i: Any) -> Any:
        return _limited(_times(data, scale, data.shape, i) + _at(offset, data.shape, i), low, out_dtype)

    return te.compute(data.shape, element, name="T_requantize")


def requantize_sum(
    a: Any, b: Any, a_scale: Any, b_scale: Any, offset: Any, low: int = 0, out_dtype: str = "uint8"
) -> Any:
    """``round(a * a_scale + b * b_scale + offset)``, limited to `low` and the largest value of the result."""

    def element(*i: Any) -> Any:
        total = _times(a, a_scale, a.shape, i) + (_times(b, b_scale, a.shape, i) + _at(offset, a.shape, i))
        return _limited(total, low, out_dtype)

    return te.compute(a.shape, element, name="T_requantize")


def _at(x: Any, shape: Any, i: Any) -> Any:
    return x(*broadcast_index(x.shape, shape, i))


def _times(data: Any, scale: Any, shape: Any, i: Any) -> Any:
    return cast("float32", data(*i)) * _at(scale, shape, i)


def _limited(value: Any, low: int, dtype: str) -> Any:
    """Round a value to the numbers of a type, conversions to which saturate, that are not less than `low`."""
    lowest = 0 if dtype.startswith("u") else -(1 << DataType(dtype).bits - 1)
    return cast(dtype, tir.round(tir.max(value, const(float(low), "float32")) if low > lowest else value))
