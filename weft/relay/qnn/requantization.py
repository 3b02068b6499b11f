"""Between real and quantized numbers, and from one quantization to another in fixed-point arithmetic.

Source: Jacob et al., *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*,
2018; TVM's ``qnn.requantize``.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument
from weft.relay.expr import const
from weft.relay.op.construct import constructs
from weft.relay.op.registry import op_call
from weft.relay.qnn.define import along, clipped, constant, define, is_value, limits, same_shape
from weft.relay.typing import Value
from weft.topi.quant import SQNN_DTYPE_TO_CODE

_ROUNDINGS, _COMPUTED_IN = ("UPWARD", "TONEAREST"), ("int64", "float32", "float64")
_CONFIG: ContextVar[tuple[str, str]] = ContextVar("requantize_config", default=("UPWARD", "int64"))


@contextmanager
def requantize_config(rounding: str = "UPWARD", compute_dtype: str = "int64") -> Generator[None]:
    """Say how calls of ``requantize`` that leave it open are rounded and computed within a block.

    Parameters
    ----------
    rounding : str
        ``"UPWARD"``: halves go up; ``"TONEAREST"``: away from zero.
    compute_dtype : str
        ``"int64"`` (fixed point), ``"float32"`` or ``"float64"``.
    """
    token = _CONFIG.set(_checked(rounding, compute_dtype))
    try:
        yield
    finally:
        _CONFIG.reset(token)


def _checked(rounding: str, computed_in: str) -> tuple[str, str]:
    if rounding not in _ROUNDINGS or computed_in not in _COMPUTED_IN:
        raise InvalidArgument(
            "qnn.requantize: unknown rounding or compute_dtype",
            expected=f"{' or '.join(_ROUNDINGS)}; {', '.join(_COMPUTED_IN)}",
            found=f"{rounding}, {computed_in}",
        )
    return rounding, computed_in


# --- requantize -------------------------------------------------------------------------------------------------------


def requantized(
    data: ir.Expr,
    input_scale: ir.Expr,
    input_zero_point: ir.Expr,
    output_scale: ir.Expr,
    output_zero_point: ir.Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
    ndim: int | None = None,
) -> Any:
    """Return the tensor with another scale, zero point and data type; `ndim` is its rank, if it has no type."""
    default = _CONFIG.get()
    rounding, computed_in = _checked(
        *(d if v == "None" else v for v, d in zip((rounding, compute_dtype), default, strict=True))
    )
    rank: int = data.ty.ndim if ndim is None else ndim
    scales = constant("requantize", "input_scale", input_scale).astype("float64")
    factors = scales / float(constant("requantize", "output_scale", output_scale))
    if factors.ndim == 1 and factors.size == 1:
        factors = factors.reshape(())
    value = op_call("cast", data, dtype=computed_in)
    if not is_value(input_zero_point, 0):
        shift = op_call("cast", along(input_zero_point, rank, axis), dtype=computed_in)
        value = op_call("subtract", value, shift)
    if not (factors == 1).all():
        multiply = _multiplied if computed_in == "int64" else _multiplied_as_real
        value = multiply(value, factors, rank, axis, rounding, computed_in)
    elif computed_in != "int64":
        value = _rounded(value, rounding, computed_in)
    if not is_value(output_zero_point, 0):
        value = op_call("add", value, op_call("cast", output_zero_point, dtype=computed_in))
    return clipped(value, out_dtype)


def _beside(numbers: np.ndarray, ndim: int, axis: int) -> Any:
    """Return constants of each channel, in the shape in which they stand beside their axis."""
    behind = 0 if numbers.ndim == 0 else ndim - axis % ndim - 1
    return const(np.asarray(numbers).reshape(np.shape(numbers) + (1,) * behind))


def _multiplied(value: ir.Expr, factors: np.ndarray, ndim: int, axis: int, rounding: str, _dtype: str) -> Any:
    """Multiply int64 by factors that are 31-bit fractions with an exponent."""
    fractions, exponents = (
        np.array(v, "int64").reshape(factors.shape) for v in zip(*map(_fixed_point, factors.flat), strict=True)
    )
    left, right = np.maximum(exponents, 0), 31 + np.maximum(-exponents, 0)
    if left.any():
        value = op_call("left_shift", value, _beside(left, ndim, axis))
    value = op_call("multiply", value, _beside(fractions, ndim, axis))
    half = _beside(np.left_shift(np.int64(1), right - 1), ndim, axis)
    if rounding == "TONEAREST":
        below = op_call("cast", op_call("less", value, const(0, "int64")), dtype="int64")
        half = op_call("subtract", half, below)
    return op_call("right_shift", op_call("add", value, half), _beside(right, ndim, axis))


def _fixed_point(factor: float) -> tuple[int, int]:
    """Return ``(m, e)`` with ``factor ≈ m * 2**(e - 31)`` and ``m < 2**31``."""
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    return (multiplier // 2, exponent + 1) if multiplier == 2**31 else (multiplier, exponent)


def _multiplied_as_real(value: ir.Expr, factors: np.ndarray, ndim: int, axis: int, rounding: str, dtype: str) -> Any:
    return _rounded(op_call("multiply", value, _beside(factors.astype(dtype), ndim, axis)), rounding, dtype)


def _rounded(value: ir.Expr, rounding: str, dtype: str) -> Any:
    half = const(np.array(0.5, dtype))
    if rounding == "UPWARD":
        return op_call("floor", op_call("add", value, half))
    size = op_call("floor", op_call("add", op_call("abs", value), half))
    return op_call("multiply", op_call("sign", value), size)


define(
    "requantize",
    "data input_scale:constant input_zero_point:constant output_scale:constant output_zero_point:constant",
    {"axis": -1, "rounding": "None", "compute_dtype": "None", "out_dtype": "int8"},
    requantized,
    lambda types, attrs: same_shape(types, attrs["out_dtype"]),
    doc="Change the scale, the zero point and the data type of quantized numbers.",
)

# --- quantize and dequantize ------------------------------------------------------------------------------------------


def _quantized(data: ir.Expr, output_scale: ir.Expr, output_zero_point: ir.Expr, axis: int, out_dtype: str) -> Any:
    ndim = data.ty.ndim
    scale, shift = (along(v, ndim, axis) for v in (output_scale, output_zero_point))
    value = op_call("divide", data, scale)
    value = op_call("round", op_call("add", value, op_call("cast", shift, dtype="float32")))
    if out_dtype == "int32":  # 2**31 - 1 is no float32
        return op_call(
            "cast",
            op_call("clip", op_call("cast", value, dtype="float64"), a_min=-(2.0**31), a_max=2.0**31 - 1),
            dtype="int32",
        )
    low, high = limits(out_dtype)
    return op_call("cast", op_call("clip", value, a_min=float(low), a_max=float(high)), dtype=out_dtype)


def _dequantized(data: ir.Expr, input_scale: ir.Expr, input_zero_point: ir.Expr, axis: int) -> Any:
    ndim = data.ty.ndim
    scale, shift = (along(v, ndim, axis) for v in (input_scale, input_zero_point))
    value = op_call("subtract", op_call("cast", data, dtype="int32"), op_call("cast", shift, dtype="int32"))
    return op_call("multiply", op_call("cast", value, dtype="float32"), scale)


define(
    "quantize",
    "data output_scale output_zero_point",
    {"axis": -1, "out_dtype": "int8"},
    _quantized,
    doc="Quantize real numbers, with one scale and zero point or with those of each channel.",
)
define(
    "dequantize",
    "data input_scale input_zero_point",
    {"axis": -1},
    _dequantized,
    doc="Return the real numbers that quantized ones stand for.",
)

# --- simulated, in real numbers and with a data type that is a number -------------------------------------------------


def _of_channels(value: ir.Expr, data: ir.Expr, axis: int) -> Any:
    """Repeat the scales of some channels, whose number run time tells, over those of the data."""
    real = op_call("cast", value, dtype="float32")
    if value.ty.ndim == 0:
        return real
    channels = data.ty.shape[axis]
    at = op_call("arange", const(0, "int64"), const(int(channels), "int64"), const(1, "int64"), dtype="int64")
    taken = op_call("take", real, at, axis=0, mode="wrap")
    behind = data.ty.ndim - axis % data.ty.ndim - 1
    return op_call("expand_dims", taken, axis=1, num_newaxis=behind) if behind else taken


def _is_code(dtype: ir.Expr, name: str) -> Any:
    return op_call("equal", dtype, const(np.int32(SQNN_DTYPE_TO_CODE[name])))


def _chosen(dtype: ir.Expr, numbers: Mapping[str, float]) -> Any:
    """Return the number of the data type that a code stands for."""
    made: Any = const(np.float32(0))
    for name, number in numbers.items():
        made = op_call("where", _is_code(dtype, name), const(np.float32(number)), made)
    return made


def _simulated_quantized(data: Any, out_dtype: Any, output_scale: Any, output_zero_point: Any, axis: int) -> Any:
    scale, shift = (_of_channels(v, data, axis) for v in (output_scale, output_zero_point))
    low, high = ({name: limits(name)[i] for name in ("int8", "uint8", "int32")} for i in (0, 1))
    value = op_call("add", op_call("round", op_call("divide", data, scale)), shift)
    value = op_call("maximum", op_call("minimum", value, _chosen(out_dtype, high)), _chosen(out_dtype, low))
    return op_call("where", _is_code(out_dtype, "disable"), data, value)


def _simulated_dequantized(data: Any, in_dtype: Any, input_scale: Any, input_zero_point: Any, axis: int) -> Any:
    scale, shift = (_of_channels(v, data, axis) for v in (input_scale, input_zero_point))
    value = op_call("multiply", op_call("subtract", data, shift), scale)
    return op_call("where", _is_code(in_dtype, "disable"), data, value)


define(
    "simulated_quantize",
    "data out_dtype output_scale output_zero_point",
    {"axis": -1},
    _simulated_quantized,
    doc="What quantize gives, as real numbers; the data type is a code that run time may choose.",
)
define(
    "simulated_dequantize",
    "data in_dtype input_scale input_zero_point",
    {"axis": -1},
    _simulated_dequantized,
    doc="What dequantize gives for real numbers that stand for quantized ones.",
)


def _code(dtype: Any) -> Any:
    return const(np.int32(SQNN_DTYPE_TO_CODE[dtype])) if isinstance(dtype, str) else dtype


@constructs("qnn.simulated_quantize")
def simulated_quantize(
    data: Value, output_scale: Value, output_zero_point: Value, axis: int = -1, out_dtype: str | ir.Expr = "int8"
) -> Any:
    """Call ``qnn.simulated_quantize``; `out_dtype` is a name or an int32 of rank 0."""
    return op_call("qnn.simulated_quantize", data, _code(out_dtype), output_scale, output_zero_point, axis=axis)


@constructs("qnn.simulated_dequantize")
def simulated_dequantize(
    data: Value, input_scale: Value, input_zero_point: Value, axis: int = -1, in_dtype: str | ir.Expr = "int8"
) -> Any:
    """Call ``qnn.simulated_dequantize``; `in_dtype` is a name or an int32 of rank 0."""
    return op_call("qnn.simulated_dequantize", data, _code(in_dtype), input_scale, input_zero_point, axis=axis)
