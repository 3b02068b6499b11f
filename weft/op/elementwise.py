"""Element-wise operators of one and more operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import tir
from weft.error import DTypeMismatch
from weft.ir import DataType, Expr, FloatImm, IntImm, TensorType, as_expr, cast, const, numpy_dtype, select
from weft.op.infer import broadcast, broadcast_dims, same_as, same_dtype, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.broadcast import elementwise
from weft.topi.float8 import FLOAT8, float8_to_float32, float32_to_float8

__all__: list[str] = []


def _unary(
    name: str,
    fn: Any,
    reference: Any,
    *,
    dtype: str | None = None,
    rtol: float = 1e-5,
    doc: str = "",
    tags: tuple[str, ...] = (),
) -> None:
    short = name.rsplit(".", 1)[-1]
    declare(
        name,
        "x",
        infer=same_as(name, dtype),
        lower=lambda x: elementwise(fn, x, name="T_" + short),
        reference=lambda x: np.asarray(reference(x)).astype(numpy_dtype(dtype) if dtype else x.dtype),
        fusion=Fusion.ELEMENTWISE,
        rtol=rtol,
        doc=doc or f"Element-wise ``{short}``.",
        tags=("unary", *tags),
    )


def _float(fn: Any) -> Any:
    """Compute in float64 for references of functions with no NumPy name."""
    return lambda x: np.vectorize(fn, otypes=[np.float64])(np.asarray(x, np.float64)) if np.size(x) else np.asarray(x)


def _half(x: Any) -> Any:
    return const(0.5, x.dtype)


def _sigmoid_ref(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


for _name, _fn, _ref in (
    ("abs", tir.abs, np.abs),
    ("acos", tir.acos, np.arccos),
    ("acosh", tir.acosh, np.arccosh),
    ("asin", tir.asin, np.arcsin),
    ("asinh", tir.asinh, np.arcsinh),
    ("atan", tir.atan, np.arctan),
    ("atanh", tir.atanh, np.arctanh),
    ("ceil", tir.ceil, np.ceil),
    ("cos", tir.cos, np.cos),
    ("cosh", tir.cosh, np.cosh),
    ("erf", tir.erf, _float(math.erf)),
    ("exp", tir.exp, np.exp),
    ("floor", tir.floor, np.floor),
    ("log", tir.log, np.log),
    ("negative", lambda x: -x if DataType(x.dtype).code != "uint" else const(0, x.dtype) - x, np.negative),
    ("round", tir.round, np.rint),
    ("rsqrt", tir.rsqrt, lambda x: 1 / np.sqrt(x)),
    ("sigmoid", tir.sigmoid, _sigmoid_ref),
    ("sin", tir.sin, np.sin),
    ("sinh", tir.sinh, np.sinh),
    ("sqrt", tir.sqrt, np.sqrt),
    ("square", lambda x: x * x, np.square),
    ("tan", tir.tan, np.tan),
    ("tanh", tir.tanh, np.tanh),
    ("trunc", tir.trunc, np.trunc),
    ("reciprocal", lambda x: const(1, x.dtype) / x, lambda x: 1 / np.asarray(x, np.float64)),
    ("bitwise_not", lambda x: ~x, np.invert),
):
    _unary(_name, _fn, _ref)

_unary("logical_not", lambda x: tir.logical_not(cast("bool", x)), np.logical_not, dtype="bool")
_unary("isnan", tir.isnan, np.isnan, dtype="bool")
_unary("isinf", tir.isinf, np.isinf, dtype="bool")
_unary("isfinite", tir.isfinite, np.isfinite, dtype="bool")


def _sign(x: Any) -> Any:
    zero = const(0, x.dtype)
    nan_or_zero = x if DataType(x.dtype).is_float else zero
    return select(
        x > zero,
        const(1, x.dtype),
        select(x < zero, const(-1, x.dtype) if DataType(x.dtype).code != "uint" else zero, nan_or_zero),
    )


_unary("sign", _sign, np.sign)


# --- activations -------------------------------------------------------------------------------------------------------


def _relu(x: Any) -> Any:
    return tir.max(x, const(0, x.dtype))


def _gelu(x: Any) -> Any:
    return x * _half(x) * (const(1, x.dtype) + tir.erf(x * const(1 / math.sqrt(2), x.dtype)))


def _gelu_tanh(x: Any) -> Any:
    inner = const(math.sqrt(2 / math.pi), x.dtype) * (x + const(0.044715, x.dtype) * x * x * x)
    return x * _half(x) * (const(1, x.dtype) + tir.tanh(inner))


def _softplus(x: Any) -> Any:
    return tir.max(x, const(0, x.dtype)) + tir.log(const(1, x.dtype) + tir.exp(-tir.abs(x)))


def _hardsigmoid(x: Any) -> Any:
    return tir.min(tir.max(x * const(1 / 6, x.dtype) + _half(x), const(0, x.dtype)), const(1, x.dtype))


_unary("nn.relu", _relu, lambda x: np.maximum(x, 0))
_unary(
    "nn.gelu",
    _gelu,
    lambda x: 0.5 * np.asarray(x, np.float64) * (1 + _float(math.erf)(np.asarray(x, np.float64) / math.sqrt(2))),
    rtol=1e-4,
)
_unary(
    "nn.gelu_tanh",
    _gelu_tanh,
    lambda x: (
        0.5
        * np.asarray(x, np.float64)
        * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * np.asarray(x, np.float64) ** 3)))
    ),
    rtol=1e-4,
)
_unary("nn.silu", lambda x: x * tir.sigmoid(x), lambda x: x * _sigmoid_ref(x))
_unary("nn.softplus", _softplus, lambda x: np.logaddexp(np.asarray(x, np.float64), 0))
_unary(
    "nn.mish",
    lambda x: x * tir.tanh(_softplus(x)),
    lambda x: x * np.tanh(np.logaddexp(np.asarray(x, np.float64), 0)),
    rtol=1e-4,
)
_unary("nn.hardswish", lambda x: x * _hardsigmoid(x), lambda x: x * np.clip(np.asarray(x, np.float64) / 6 + 0.5, 0, 1))
_unary(
    "nn.softsign", lambda x: x / (const(1, x.dtype) + tir.abs(x)), lambda x: x / (1 + np.abs(np.asarray(x, np.float64)))
)


def _parametric(name: str, attrs: dict[str, Any], fn: Any, reference: Any, doc: str) -> None:
    declare(
        name,
        "x",
        attrs,
        infer=same_as(name),
        lower=lambda x, **a: elementwise(lambda v: fn(v, **a), x, name="T_" + name.rsplit(".", 1)[-1]),
        reference=lambda x, **a: np.asarray(reference(np.asarray(x, np.float64), **a)).astype(x.dtype),
        fusion=Fusion.ELEMENTWISE,
        doc=doc,
        tags=("unary",),
    )


_parametric(
    "nn.leakyrelu",
    {"alpha": 0.01},
    lambda x, alpha: select(x > const(0, x.dtype), x, x * const(alpha, x.dtype)),
    lambda x, alpha: np.where(x > 0, x, x * alpha),
    "``x`` where positive, else ``alpha * x``.",
)
_parametric(
    "nn.elu",
    {"alpha": 1.0},
    lambda x, alpha: select(
        x > const(0, x.dtype), x, const(alpha, x.dtype) * (tir.exp(tir.min(x, const(0, x.dtype))) - const(1, x.dtype))
    ),
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "``x`` where positive, else ``alpha * (exp(x) - 1)``.",
)
_parametric(
    "nn.selu",
    {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
    lambda x, alpha, gamma: (
        const(gamma, x.dtype)
        * select(
            x > const(0, x.dtype),
            x,
            const(alpha, x.dtype) * (tir.exp(tir.min(x, const(0, x.dtype))) - const(1, x.dtype)),
        )
    ),
    lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "Scaled exponential linear unit.",
)
_parametric(
    "nn.hardsigmoid",
    {"alpha": 1 / 6, "beta": 0.5},
    lambda x, alpha, beta: tir.min(
        tir.max(x * const(alpha, x.dtype) + const(beta, x.dtype), const(0, x.dtype)), const(1, x.dtype)
    ),
    lambda x, alpha, beta: np.clip(x * alpha + beta, 0, 1),
    "``clip(alpha * x + beta, 0, 1)``.",
)
_parametric(
    "nn.celu",
    {"alpha": 1.0},
    lambda x, alpha: (
        tir.max(x, const(0, x.dtype))
        + tir.min(
            const(0, x.dtype), const(alpha, x.dtype) * (tir.exp(x * const(1 / alpha, x.dtype)) - const(1, x.dtype))
        )
    ),
    lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "Continuously differentiable exponential linear unit.",
)
_parametric(
    "nn.thresholded_relu",
    {"alpha": 1.0},
    lambda x, alpha: select(x > const(alpha, x.dtype), x, const(0, x.dtype)),
    lambda x, alpha: np.where(x > alpha, x, 0),
    "``x`` where greater than `alpha`, else 0.",
)
_parametric(
    "nn.shrink",
    {"bias": 0.0, "lambd": 0.5},
    lambda x, bias, lambd: select(
        x < const(-lambd, x.dtype),
        x + const(bias, x.dtype),
        select(x > const(lambd, x.dtype), x - const(bias, x.dtype), const(0, x.dtype)),
    ),
    lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    "Shrink towards zero.",
)


def _prelu_lower(x: Any, alpha: Any) -> Any:
    return elementwise(lambda v, a: select(v > const(0, v.dtype), v, v * a), x, alpha, name="T_prelu")


declare(
    "nn.prelu",
    "x alpha",
    infer=lambda x, alpha: broadcast("nn.prelu", x, alpha),
    lower=_prelu_lower,
    reference=lambda x, alpha: np.where(x > 0, x, x * alpha).astype(x.dtype),
    fusion=Fusion.BROADCAST,
    doc="``x`` where positive, else ``alpha * x``; `alpha` broadcasts from the right.",
)


def _clip(x: Any, low: Any, high: Any) -> Any:
    out = x
    if low is not None:
        out = tir.max(out, cast(x.dtype, as_expr(low)))
    return out if high is None else tir.min(out, cast(x.dtype, as_expr(high)))


declare(
    "clip",
    "x",
    {"min": None, "max": None},
    infer=same_as("clip"),
    lower=lambda x, min, max: elementwise(lambda v: _clip(v, min, max), x, name="T_clip"),
    reference=lambda x, min, max: (
        np.minimum(np.maximum(x, min if min is not None else x), max if max is not None else np.inf).astype(x.dtype)
        if max is not None
        else np.maximum(x, min if min is not None else x).astype(x.dtype)
    ),
    fusion=Fusion.ELEMENTWISE,
    doc="Limit to ``min..max``; either may be None.",
)


def _to_dtype(x: Any, dtype: str) -> Any:
    source, target = DataType(x.dtype), DataType(dtype)
    if source != target and source.code in FLOAT8:
        return _to_dtype(float8_to_float32(x), dtype)
    if source != target and target.code in FLOAT8:
        return float32_to_float8(_to_dtype(x, "float32"), target)
    if target == "bool" and source != "bool":
        return x != const(0, x.dtype)
    return cast(target, x)


def _cast_infer(x: Expr, dtype: str) -> TensorType:
    ty = tensor_arg("astype", "x", x)
    return TensorType(ty.shape, DataType(dtype), ty.ndim, ty.vdevice)


def _cast_ref(x: Any, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(numpy_dtype(dtype))


declare(
    "astype",
    "x",
    {"dtype": "float32"},
    infer=_cast_infer,
    lower=lambda x, dtype: elementwise(lambda v: _to_dtype(v, dtype), x, name="T_cast"),
    reference=_cast_ref,
    fusion=Fusion.ELEMENTWISE,
    doc="Convert to another data type; float to integer truncates.",
)

declare(
    "nn.dropout",
    "x",
    {"rate": 0.5},
    infer=same_as("nn.dropout"),
    lower=lambda x, rate: elementwise(lambda v: v, x, name="T_dropout"),
    reference=lambda x, rate: x,
    decompose=lambda x, rate: x,
    fusion=Fusion.ELEMENTWISE,
    doc="Nothing, at inference.",
)


# --- two operands ------------------------------------------------------------------------------------------------------


def _trunc_divide(a: Any, b: Any) -> Any:
    if np.issubdtype(np.asarray(a).dtype, np.integer):
        return np.where(b == 0, 0, _int_trunc(a, b))
    with np.errstate(all="ignore"):
        return np.divide(a, b)


def _int_trunc(a: Any, b: Any) -> Any:
    safe = np.where(b == 0, 1, b)
    q = np.abs(a.astype(np.int64)) // np.abs(safe.astype(np.int64))
    return np.where((a < 0) != (safe < 0), -q, q)


def _binary(name: str, fn: Any, reference: Any, *, dtype: str | None = None, doc: str = "") -> None:
    def ref(a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            out = np.asarray(reference(np.asarray(a), np.asarray(b)))
        return out.astype(numpy_dtype(dtype) if dtype else np.asarray(a).dtype)

    def infer(lhs: Expr, rhs: Expr) -> TensorType:
        same_dtype(name, lhs, rhs)
        return broadcast(name, lhs, rhs, dtype=dtype)

    declare(
        name,
        "lhs rhs",
        infer=infer,
        lower=lambda a, b: elementwise(fn, a, b, name="T_" + name),
        reference=ref,
        fusion=Fusion.BROADCAST,
        doc=doc or f"Element-wise ``{name}`` with broadcasting.",
        tags=("binary",),
    )


def _logical(fn: Any) -> Any:
    return lambda a, b: fn(cast("bool", a) if a.dtype != "bool" else a, cast("bool", b) if b.dtype != "bool" else b)


def _bool_or(fn_bool: Any, fn: Any) -> Any:
    return lambda a, b: fn_bool(a, b) if a.dtype == "bool" else fn(a, b)


def _safe(fn: Any) -> Any:
    """Guard an integer division: a zero divisor gives 0 instead of a trap."""

    def guarded(a: Any, b: Any) -> Any:
        if DataType(a.dtype).is_float:
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


def _pow(a: Any, b: Any) -> Any:
    """A constant exponent becomes products or roots; integers are raised in float64."""
    dt = DataType(a.dtype)
    if not dt.is_float:
        return cast(a.dtype, tir.round(tir.power(cast("float64", a), cast("float64", b))))
    if isinstance(b, FloatImm) and b.value in _EXPONENTS:
        return _EXPONENTS[b.value](a)
    return tir.power(a, b)


_EXPONENTS = {
    1.0: lambda a: a,
    2.0: lambda a: a * a,
    3.0: lambda a: a * a * a,
    0.5: tir.sqrt,
    -1.0: lambda a: const(1, a.dtype) / a,
    -0.5: tir.rsqrt,
}


_binary("add", lambda a, b: a + b, np.add)
_binary("subtract", lambda a, b: a - b, np.subtract)
_binary("multiply", lambda a, b: a * b, np.multiply)
_binary(
    "divide",
    _safe(lambda a, b: a / b),
    _trunc_divide,
    doc="Division; integers round towards zero and a zero divisor gives 0.",
)
_binary(
    "floor_divide",
    _safe(lambda a, b: tir.floordiv(a, b)),
    lambda a, b: (
        np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))) if a.dtype.kind in "iu" else np.floor(a / b)
    ),
)
_binary(
    "mod",
    _safe(_floor_mod),
    lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))) if a.dtype.kind in "iu" else np.mod(a, b),
    doc="Remainder with the sign of the divisor.",
)
_binary(
    "fmod",
    _safe(lambda a, b: tir.fmod(a, b) if DataType(a.dtype).is_float else tir.truncmod(a, b)),
    lambda a, b: np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))) if a.dtype.kind in "iu" else np.fmod(a, b),
    doc="Remainder with the sign of the dividend, as C's fmod.",
)
_binary(
    "power",
    _pow,
    lambda a, b: np.power(a.astype(np.float64), b.astype(np.float64)) if a.dtype.kind == "f" else np.power(a, b),
)
_binary("maximum", _bool_or(tir.logical_or, tir.max), np.maximum)
_binary("minimum", _bool_or(tir.logical_and, tir.min), np.minimum)
_binary("atan2", lambda a, b: tir.atan2(a, b), np.arctan2)
_binary("equal", lambda a, b: tir.equal(a, b), np.equal, dtype="bool")
_binary("not_equal", lambda a, b: tir.not_equal(a, b), np.not_equal, dtype="bool")
_binary("less", lambda a, b: a < b, np.less, dtype="bool")
_binary("less_equal", lambda a, b: a <= b, np.less_equal, dtype="bool")
_binary("greater", lambda a, b: a > b, np.greater, dtype="bool")
_binary("greater_equal", lambda a, b: a >= b, np.greater_equal, dtype="bool")
_binary("logical_and", _logical(tir.logical_and), np.logical_and, dtype="bool")
_binary("logical_or", _logical(tir.logical_or), np.logical_or, dtype="bool")
_binary("logical_xor", _logical(tir.not_equal), np.logical_xor, dtype="bool")
_binary("bitwise_and", lambda a, b: a & b, np.bitwise_and)
_binary("bitwise_or", lambda a, b: a | b, np.bitwise_or)
_binary("bitwise_xor", lambda a, b: a ^ b, np.bitwise_xor)
_binary("left_shift", lambda a, b: a << b, np.left_shift)
_binary("right_shift", lambda a, b: a >> b, np.right_shift)


def _where_infer(condition: Expr, x1: Expr, x2: Expr) -> TensorType:
    c = tensor_arg("where", "condition", condition)
    if c.dtype and c.dtype != "bool":
        raise DTypeMismatch(
            "where: 'condition' has the wrong data type", expected="bool", found=c.dtype, where=condition.span
        )
    dtype = same_dtype("where", x1, x2)
    shapes = [tensor_arg("where", n, a).shape for n, a in (("condition", condition), ("x1", x1), ("x2", x2))]
    if any(s is None for s in shapes):
        return TensorType(None, dtype, max(a.ty.ndim for a in (condition, x1, x2)))  # type: ignore[attr-defined]
    dims = broadcast_dims("where", *shapes)  # type: ignore[arg-type]
    return TensorType(dims, dtype, len(dims))


declare(
    "where",
    "condition x1 x2",
    infer=_where_infer,
    lower=lambda c, a, b: elementwise(select, c, a, b, name="T_where"),
    reference=np.where,
    fusion=Fusion.BROADCAST,
    doc="``x1`` where `condition` holds, else ``x2``.",
)
