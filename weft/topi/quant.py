"""Quantisation: real numbers as small integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.ir import DataType, as_expr, cast, const, floormod, if_then_else
from weft.te import Tensor
from weft.topi.broadcast import broadcast_index
from weft.topi.shape import normalize_axis
from weft.topi.typing import Operand

SQNN_DISABLE, SQNN_INT8, SQNN_UINT8, SQNN_INT32 = range(4)
SQNN_DTYPE_TO_CODE = {"disable": SQNN_DISABLE, "int8": SQNN_INT8, "uint8": SQNN_UINT8, "int32": SQNN_INT32}
SQNN_CODE_TO_DTYPE = {code: dtype for dtype, code in SQNN_DTYPE_TO_CODE.items()}


def _parameter(tensor: Any, i: Any, axis: int) -> Any:
    """A scale or zero point: one for all, or one for each index along the axis."""
    return tensor if not isinstance(tensor, Tensor) else tensor() if tensor.ndim == 0 else tensor(i[axis])


def _cast(dtype: str, value: Any, limited: bool) -> Any:
    """Convert, which saturates; `limited` writes the limits out."""
    if limited:
        low, high = (cast(value.dtype, limit(dtype)) for limit in (tir.min_value, tir.max_value))
        value = tir.max(tir.min(value, high), low)
    return cast(dtype, value)


def quantize(
    data: Tensor, scale: Operand, zero_point: Operand, axis: int = -1, out_dtype: str = "int8", limited: bool = False
) -> Any:
    """``clip(round(data / scale) + zero_point)`` to the range of the result, which `limited` writes out."""
    a = normalize_axis("quantize", axis, data.ndim)
    wide = "float64" if DataType(data.dtype).bits == 64 else "float32"

    def element(*i: Any) -> Any:
        scaled = tir.round(cast(wide, data(*i)) / cast(wide, _parameter(scale, i, a)))
        shifted = scaled + cast(wide, _parameter(zero_point, i, a))
        return _cast(out_dtype, shifted, limited)

    return te.compute(data.shape, element, name="T_quantize")


def dequantize(
    data: Tensor, scale: Operand, zero_point: Operand, axis: int = -1, out_dtype: str = "float32", limited: bool = False
) -> Any:
    """``(data - zero_point) * scale``; `limited` makes float16 of what is too large for it its largest number."""
    a = normalize_axis("dequantize", axis, data.ndim)

    def element(*i: Any) -> Any:
        shifted = cast("int32", data(*i)) - cast("int32", _parameter(zero_point, i, a))
        scaled = cast("float32", shifted) * cast("float32", _parameter(scale, i, a))
        return _cast(out_dtype, scaled, limited and out_dtype != "float32")

    return te.compute(data.shape, element, name="T_dequantize")


def requantize(data: Tensor, scale: Tensor, offset: Tensor, low: int = 0, out_dtype: str = "uint8") -> Any:
    """``round(data * scale + offset)``, limited to `low` and the largest value of the result."""

    def element(*i: Any) -> Any:
        return _limited(_times(data, scale, data.shape, i) + _at(offset, data.shape, i), low, out_dtype)

    return te.compute(data.shape, element, name="T_requantize")


def requantize_sum(
    a: Tensor, b: Tensor, a_scale: Operand, b_scale: Operand, offset: Operand, low: int = 0, out_dtype: str = "uint8"
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


def _code(dtype: Any) -> Any:
    """The number of a simulated data type: its name, the number itself, or an expression or tensor that gives it."""
    if isinstance(dtype, te.Tensor):
        return dtype(*[0] * dtype.ndim)
    return as_expr(SQNN_DTYPE_TO_CODE.get(dtype, dtype) if isinstance(dtype, str) else dtype)


def _of_channel(values: Any, i: Any, axis: int) -> Any:
    """A parameter of the channel of an element; the values repeat."""
    return values() if values.ndim == 0 else values(floormod(i[axis], values.shape[0]))


def simulated_quantize(
    data: Tensor,
    out_dtype: str,
    output_scale: Operand | None = None,
    output_zero_point: Operand | None = None,
    axis: int = -1,
) -> Any:
    """The numbers that quantisation would give, in the data type of `data`.

    Parameters
    ----------
    out_dtype : PrimExpr or Tensor
        A code of ``SQNN_DTYPE_TO_CODE``, which may be known at run time only; "disable" leaves the data as it is.
    """
    code, limits = _code(out_dtype), ("int8", "uint8", "int32")

    def element(*i: Any) -> Any:
        value = data(*i)
        if output_scale is None or output_zero_point is None:
            return value
        shifted = tir.round(value / _of_channel(output_scale, i, axis)) + _of_channel(output_zero_point, i, axis)
        found = value
        for name in limits:
            low, high = (cast(value.dtype, limit(name)) for limit in (tir.min_value, tir.max_value))
            chosen = code.equal(SQNN_DTYPE_TO_CODE[name])
            found = if_then_else(chosen, tir.max(tir.min(cast(value.dtype, shifted), high), low), found)
        return found

    return te.compute(data.shape, element, name="T_simulated_quantize")


def simulated_dequantize(
    data: Tensor,
    in_dtype: str | Operand,
    input_scale: Operand | None = None,
    input_zero_point: Operand | None = None,
    axis: int = -1,
) -> Any:
    """The numbers that quantised ones stand for; `in_dtype` is as in :func:`simulated_quantize`."""
    code = _code(in_dtype)

    def element(*i: Any) -> Any:
        value = data(*i)
        if input_scale is None or input_zero_point is None:
            return value
        real = (value - _of_channel(input_zero_point, i, axis)) * _of_channel(input_scale, i, axis)
        quantised = tir.any(*(code.equal(SQNN_DTYPE_TO_CODE[name]) for name in ("int8", "uint8", "int32")))
        return if_then_else(quantised, cast(value.dtype, real), value)

    return te.compute(data.shape, element, name="T_simulated_dequantize")
