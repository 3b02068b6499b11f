"""Scalar functions behind the element-wise operators, and the same over tensors.

``UNARY`` and ``BINARY`` give the function of each operator by its name; the public functions apply them to tensors
that broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir, te, tir
from weft.ir import DataType, FloatImm, IntImm, PrimExpr, as_expr, cast, const, select
from weft.tir.float8 import FLOAT8, float8_to_float32, float32_to_float8
from weft.topi.broadcast import elementwise
from weft.topi.typing import Operand


def _sign(x: Any) -> Any:
    zero, dt = const(0, x.dtype), DataType(x.dtype)
    minus = const(-1, x.dtype) if dt.code != "uint" else zero
    return select(x > zero, const(1, x.dtype), select(x < zero, minus, x if dt.is_float else zero))  # NaN stays


def _expm1(x: Any) -> Any:
    """``2 t / (1 - t)`` with ``t = tanh(x / 2)`` where x is small and exp(x) - 1 would lose its digits."""
    t = tir.tanh(x * const(0.5, x.dtype))
    small = const(2, x.dtype) * t / (const(1, x.dtype) - t)
    return select(tir.abs(x) < const(0.5, x.dtype), small, tir.exp(x) - const(1, x.dtype))


Scalar = Callable[..., Any]

FLOAT_UNARY: dict[str, Scalar] = {
    **{
        n: getattr(tir, n)
        for n in (
            "acos acosh asin asinh atan atanh cos cosh erf exp log log10 log1p log2 rsqrt sigmoid sin sinh sqrt "
            "tan tanh"
        ).split()
    },
    "expm1": _expm1,
    "reciprocal": lambda x: const(1, x.dtype) / x,
}
"""Functions of floating-point values only."""

UNARY: dict[str, Scalar] = {
    **FLOAT_UNARY,
    "abs": tir.abs,
    "bitwise_not": lambda x: ~x,
    "ceil": tir.ceil,
    "floor": tir.floor,
    "isfinite": tir.isfinite,
    "isinf": tir.isinf,
    "isnan": tir.isnan,
    "logical_not": lambda x: tir.logical_not(cast_scalar(x, "bool")),
    "negative": lambda x: -x if DataType(x.dtype).code != "uint" else const(0, x.dtype) - x,
    "round": tir.round,
    "sign": _sign,
    "square": lambda x: x * x,
    "trunc": tir.trunc,
}
"""Functions of one value, by operator name."""


def _safe(fn: Scalar) -> Scalar:
    """Guard an integer division: a zero divisor gives 0 instead of a trap."""

    def guarded(a: Any, b: Any) -> Any:
        if DataType(a.dtype).is_real:
            return fn(a, b)
        if isinstance(b, IntImm):
            return fn(a, b) if b.value else const(0, a.dtype)
        zero = b == const(0, b.dtype)
        return select(zero, const(0, a.dtype), fn(a, select(zero, const(1, b.dtype), b)))

    return guarded


def _floor_mod(a: Any, b: Any) -> Any:
    if DataType(a.dtype).is_float:
        rest, zero = tir.fmod(a, b), const(0, a.dtype)
        other_side = tir.logical_and(tir.not_equal(rest, zero), tir.not_equal(rest < zero, b < zero))
        return select(other_side, rest + b, rest)
    return tir.floormod(a, b)


_EXPONENTS: dict[float, Scalar] = {
    1.0: lambda a: a,
    2.0: lambda a: a * a,
    3.0: lambda a: a * a * a,
    0.5: tir.sqrt,
    0.75: lambda a: tir.sqrt(a) * tir.sqrt(tir.sqrt(a)),
    1.5: lambda a: a * tir.sqrt(a),
    -1.0: lambda a: const(1, a.dtype) / a,
    -0.5: tir.rsqrt,
}


def _power(a: Any, b: Any) -> Any:
    """A constant exponent becomes products or roots."""
    if isinstance(b, FloatImm) and b.value in _EXPONENTS:
        return _EXPONENTS[b.value](a)
    return tir.power(a, b)


def _log_add_exp(a: Any, b: Any) -> Any:
    top = tir.max(a, b)
    same = tir.equal(a, b)  # also both infinite, whose difference is NaN
    gap = select(same, const(0, a.dtype), tir.abs(a - b))
    return top + tir.log1p(tir.exp(-gap))


def _logical(fn: Scalar) -> Scalar:
    return lambda a, b: fn(cast_scalar(a, "bool"), cast_scalar(b, "bool"))


def _bool_or(fn_bool: Scalar, fn: Scalar) -> Scalar:
    return lambda a, b: fn_bool(a, b) if a.dtype == "bool" else fn(a, b)


BINARY: dict[str, Scalar] = {
    "add": _bool_or(tir.logical_or, lambda a, b: a + b),
    "atan2": tir.atan2,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "divide": _safe(lambda a, b: a / b),
    "equal": tir.equal,
    "floor_divide": _safe(tir.floordiv),
    "floor_mod": _safe(_floor_mod),
    "fmod": _safe(lambda a, b: tir.fmod(a, b) if DataType(a.dtype).is_float else tir.truncmod(a, b)),
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "left_shift": lambda a, b: a << b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "log_add_exp": _log_add_exp,
    "logical_and": _logical(tir.logical_and),
    "logical_or": _logical(tir.logical_or),
    "logical_xor": _logical(tir.not_equal),
    "maximum": _bool_or(tir.logical_or, tir.max),
    "minimum": _bool_or(tir.logical_and, tir.min),
    "mod": _safe(_floor_mod),
    "multiply": _bool_or(tir.logical_and, lambda a, b: a * b),
    "not_equal": tir.not_equal,
    "power": _power,
    "right_shift": lambda a, b: a >> b,
    "subtract": lambda a, b: a - b,
}
"""Functions of two values, by operator name."""


def cast_scalar(x: ir.PrimExpr, dtype: str) -> Any:
    """Convert a value; to bool is a comparison with zero, 8-bit floats go through float32."""
    source, target = DataType(x.dtype), DataType(dtype)
    if source != target and source.code in FLOAT8:
        return cast_scalar(float8_to_float32(x), dtype)
    if source != target and target.code in FLOAT8:
        return float32_to_float8(cast_scalar(x, "float32"), target)
    if target == "bool" and source != "bool":
        return x != const(0, x.dtype)
    return cast(target, x)


def astype(x: te.Tensor, dtype: str) -> Any:
    """Convert a tensor to another data type."""
    return elementwise(lambda v: cast_scalar(v, dtype), x, name="T_cast")


def clip(x: Operand, min: PrimExpr | float | None = None, max: PrimExpr | float | None = None) -> Any:
    """Limit to ``min..max``; either may be None. Beyond what an integer type has stands the end of it."""

    def limited(v: Any) -> Any:
        v = v if min is None else tir.max(v, cast(v.dtype, as_expr(within(min, v.dtype))))
        return v if max is None else tir.min(v, cast(v.dtype, as_expr(within(max, v.dtype))))

    return elementwise(limited, x, name="T_clip")


def within(number: PrimExpr | float, dtype: str) -> PrimExpr | float:
    """A known number, or the end of an integer type that it is beyond."""
    value, of = getattr(number, "value", number), DataType(dtype)
    if not of.is_integer or not isinstance(value, (int, float)):
        return number
    low, high = (getattr(end(of), "value", value) for end in (tir.min_value, tir.max_value))
    return sorted((low, value, high))[1]


def where(condition: te.Tensor, x: te.Tensor, y: Operand) -> Any:
    """`x` where the condition holds, else `y`."""
    return elementwise(lambda c, a, b: select(cast_scalar(c, "bool"), a, b), condition, x, y, name="T_where")
