"""Intrinsics: scalar functions of TIR, one table row each, with the NumPy function that defines them."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from itertools import combinations
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from weft import ffi, ir
from weft.error import InvalidArgument
from weft.ir import CallIntrin as Call
from weft.ir import DataType, FloatImm, IntImm, Op, PrimExpr, StringImm, as_expr, cast, const, numpy_dtype, unify_dtypes
from weft.spelling import also_called, in_order, signature
from weft.tir.typing import Value

__all__ = [
    "INTRINSICS",
    "CallEffectKind",
    "Intrinsic",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "call_extern",
    "call_intrin",
    "call_llvm_intrin",
    "call_llvm_pure_intrin",
    "call_packed",
    "call_pure_extern",
    "ceil",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "dot_pairs",
    "erf",
    "exp",
    "exp10",
    "exp2",
    "fabs",
    "floor",
    "fma",
    "fmod",
    "hypot",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "likely",
    "log",
    "log10",
    "log1p",
    "log2",
    "logb",
    "max_value",
    "message",
    "min_value",
    "nearbyint",
    "nextafter",
    "popcount",
    "pow",
    "power",
    "reinterpret",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trace",
    "trunc",
]


class CallEffectKind(IntEnum):
    """What a call of an operator does besides giving a value, as its attribute ``TCallEffectKind`` says."""

    ExprAnnotation = 0
    Pure = 1
    ReadState = 2
    UpdateState = 3
    Opaque = 3


class Intrinsic(NamedTuple):
    """An intrinsic: how many arguments it takes, what it computes, what type it gives."""

    name: str
    n_args: int
    reference: Callable[..., Any]
    result: str  # "same": as the first argument; "bool"; "float": integers become float32 first; "pairs": half, wider


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64)).astype(np.asarray(x).dtype)


def _clz(x: Any) -> int:
    return int(np.asarray(x).dtype.itemsize * 8 - int(x).bit_length())


def _logb(x: Any) -> Any:
    """Give the exponent of a number: the greatest integer k with ``2**k <= abs(x)``; -inf of 0, inf of infinity."""
    x = np.abs(np.asarray(x))
    exponent = (np.frexp(x)[1] - 1).astype(x.dtype)
    return np.where(x == 0, x.dtype.type(-np.inf), np.where(np.isfinite(x), exponent, x))


def _mantissa(x: Any) -> Any:
    """Scale a number by a power of two into 3/4...3/2; 1 of infinity and 0, -1 of -0, NaN of what is negative."""
    x = np.asarray(x)
    half = np.frexp(x)[0]
    scaled = np.where(half < 0.75, 2 * half, half)
    scaled = np.where((x == 0) | np.isinf(x), np.copysign(x.dtype.type(1), x), scaled)
    return np.where(x < 0, x.dtype.type(np.nan), scaled).astype(x.dtype)


def _power(a: Any, n: Any) -> Any:
    """``a ** n``; of integers, a negative exponent gives the truncated quotient ``1 / a ** -n``, and 0 for 0."""
    a, n = np.asarray(a), np.asarray(n)
    if a.dtype.kind not in "iu":
        return np.power(a, n)
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (n % 2), 0)).astype(a.dtype)
    return np.where(n < 0, inverse, np.power(a, np.maximum(n, 0)))


def _dot_accumulate(total: Any, a: Any, b: Any) -> Any:
    """Add to each lane the products of its group of neighbours."""
    total = np.asarray(total)
    products = np.asarray(a).astype(total.dtype) * np.asarray(b).astype(total.dtype)
    return total + products.reshape(total.size, -1).sum(axis=1, dtype=total.dtype)


def _dot_pairs(a: Any, b: Any) -> Any:
    """Add the products of neighbours; every sum fits twice the width of the second factors."""
    b = np.asarray(b)
    wide = np.int16 if b.dtype.itemsize == 1 else np.int32
    return (np.asarray(a).astype(wide) * b.astype(wide)).reshape(-1, 2).sum(axis=1, dtype=wide)


_FLOATS_OF_NUMPY = ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
_INVERSES_OF_NUMPY = ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")

INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        *(Intrinsic(name, 1, getattr(np, name), "float") for name in _FLOATS_OF_NUMPY),
        Intrinsic("exp10", 1, lambda x: np.power(np.asarray(x).dtype.type(10), x), "float"),
        Intrinsic("logb", 1, _logb, "float"),
        Intrinsic("mantissa", 1, _mantissa, "float"),
        Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x), "float"),
        *(Intrinsic("a" + name[3:], 1, getattr(np, name), "float") for name in _INVERSES_OF_NUMPY),
        Intrinsic("erf", 1, _erf, "float"),
        Intrinsic("sigmoid", 1, lambda x: 1 / (1 + np.exp(-x)), "float"),
        *(Intrinsic(name, 1, getattr(np, name), "same") for name in ("floor", "ceil", "trunc", "abs")),
        *(Intrinsic(name, 1, np.rint, "same") for name in ("round", "nearbyint")),
        Intrinsic("fabs", 1, np.abs, "same"),
        *(Intrinsic(name, 1, getattr(np, name), "bool") for name in ("isnan", "isinf", "isfinite")),
        Intrinsic(
            "popcount", 1, lambda x: bin(int(x) & (2 ** (np.asarray(x).dtype.itemsize * 8) - 1)).count("1"), "same"
        ),
        Intrinsic("clz", 1, _clz, "same"),
        Intrinsic("bitwise_not", 1, np.invert, "same"),
        *(
            Intrinsic(name, 2, getattr(np, name), "same")
            for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "fmod")
        ),
        Intrinsic("shift_left", 2, np.left_shift, "same"),
        Intrinsic("shift_right", 2, np.right_shift, "same"),
        Intrinsic("pow", 2, _power, "same"),
        Intrinsic("atan2", 2, np.arctan2, "float"),
        *(Intrinsic(name, 2, getattr(np, name), "float") for name in ("hypot", "copysign", "nextafter")),
        Intrinsic("ldexp", 2, lambda x, n: np.ldexp(x, np.asarray(n).astype(np.int32)), "float"),
        Intrinsic("fma", 3, lambda a, b, c: a * b + c, "same"),
        Intrinsic("dot_accumulate", 3, _dot_accumulate, "same"),
        Intrinsic("dot_pairs", 2, _dot_pairs, "pairs"),
    )
}
"""Name (without ``tir.``) to intrinsic."""


_OF_BITS = frozenset(
    ("popcount", "clz", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
)


_OF_TWO = frozenset(("atan2", "copysign", "hypot", "ldexp", "nextafter"))  # whose operands are x1 and x2


def _make(name: str) -> Callable[..., PrimExpr]:
    intrinsic = INTRINSICS[name]
    op = Op.get("tir." + intrinsic.name)
    parameters = ("x1", "x2") if name in _OF_TWO else ("x", "y", "z")[: intrinsic.n_args]

    def build(*given: Any, **named: Any) -> PrimExpr:
        args = list(in_order(name, parameters, given, named) if named else given)
        if len(args) != intrinsic.n_args:
            raise InvalidArgument(
                f"{name} takes another number of arguments", expected=str(intrinsic.n_args), found=str(len(args))
            )
        for i, j in combinations(range(len(args)), 2):
            args[i], args[j] = unify_dtypes(args[i], args[j])
        exprs = [as_expr(a) for a in args]
        dt = DataType(exprs[0].dtype)
        if intrinsic.name in _OF_BITS and dt.is_float:
            raise InvalidArgument(f"{intrinsic.name} is for integers", found=str(dt), help="cast or reinterpret first")
        if (
            intrinsic.result == "same"
            and dt.code in ("int", "uint", "bool")
            and intrinsic.name in ("floor", "ceil", "trunc", "round", "nearbyint")
        ):
            return exprs[0]
        if intrinsic.result == "bool" and not dt.is_float:
            return const(intrinsic.name == "isfinite", "bool")
        if intrinsic.result == "float" and not dt.is_float and not dt.is_custom:
            dt = DataType("float32" if dt.lanes == 1 else f"float32x{dt.lanes}")
            exprs = [cast(dt, e) for e in exprs]
        known = [numpy_dtype(dt).type(e.value) for e in exprs if isinstance(e, FloatImm) and not dt.is_custom]
        if len(known) == len(exprs) and intrinsic.result != "bool":
            with np.errstate(all="ignore"):
                value = float(intrinsic.reference(*known))
            if math.isfinite(value):
                return FloatImm(dt, value)
        result = ("bool" if dt.lanes == 1 else f"boolx{dt.lanes}") if intrinsic.result == "bool" else dt
        return Call(result, op, tuple(exprs))

    build.__name__ = intrinsic.name
    build.__doc__ = f"Build a call of the intrinsic ``{intrinsic.name}``."
    build.__signature__ = signature(parameters)  # type: ignore[attr-defined]
    return build


def dot_pairs(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Build sums of products of neighbours, which must fit: uint8 and int8 give int16, int16 and int16 give int32."""
    dt = DataType(b.dtype)
    result = f"int{2 * dt.bits}x{dt.lanes // 2}"
    return Call(result, Op.get("tir.dot_pairs"), (a, b))


# ``abs`` is weft.ir's, ``dot_accumulate`` no function of scalars of one type, ``mantissa`` only for logarithms.
exp, exp2, exp10, log, log2, log10, log1p, logb = map(
    _make, ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "logb")
)
sqrt, rsqrt, erf, sigmoid = map(_make, ("sqrt", "rsqrt", "erf", "sigmoid"))
sin, cos, tan, asin, acos, atan = map(_make, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, asinh, acosh, atanh = map(_make, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
floor, ceil, trunc, round, nearbyint, fabs = map(_make, ("floor", "ceil", "trunc", "round", "nearbyint", "fabs"))
isnan, isinf, isfinite, popcount, clz = map(_make, ("isnan", "isinf", "isfinite", "popcount", "clz"))
bitwise_not, bitwise_and, bitwise_or, bitwise_xor = map(
    _make, ("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor")
)
shift_left, shift_right, pow, fmod, fma = map(_make, ("shift_left", "shift_right", "pow", "fmod", "fma"))
atan2, hypot, copysign, ldexp, nextafter = map(_make, ("atan2", "hypot", "copysign", "ldexp", "nextafter"))
power = pow


def likely(cond: Value) -> PrimExpr:
    """Mark a condition as nearly always true."""
    cond = as_expr(cond)
    return cond if isinstance(cond, ir.IntImm) else Call("bool", Op.get("tir.likely"), (cond,))


@also_called(func_name="name")
def call_intrin(dtype: str, name: str | Op, *args: Any) -> PrimExpr:
    """Build a call of an intrinsic by its name (``"tir.exp"``) or operator."""
    return Call(DataType(dtype), Op.get(name) if isinstance(name, str) else name, tuple(as_expr(a) for a in args))


def message(text: str, *values: PrimExpr) -> PrimExpr:
    """Build the message of an :class:`~weft.tir.AssertStmt`: each ``%lld`` in `text` stands for an integer."""
    numbers = tuple(cast("int64", as_expr(v)) for v in values)
    return Call(DataType("handle"), Op.get("tir.message"), (StringImm(text), *numbers))


def call_packed(name: str, *args: Any) -> PrimExpr:
    """Call a packed function by its global name; tensors are passed as buffers."""
    return Call(
        DataType("int32"),
        Op.get("tir.tvm_call_packed"),
        (StringImm(name), *(a if hasattr(a, "data") else as_expr(a) for a in args)),
    )


def trace(args: object, trace_action: str = "tvm.default_trace_action") -> PrimExpr:
    """Show values to a packed function as they are computed.

    Parameters
    ----------
    args : list of PrimExpr or Buffer
        What the function gets; the last one is the value that the expression has.
    trace_action : str
        Global name of the function. What it returns other than None stands for the value.
    """
    if not isinstance(args, list) or not args:
        raise InvalidArgument("trace takes its arguments as a list", expected="at least one value", found=str(args))
    values = tuple(a if hasattr(a, "data") else as_expr(a) for a in args)
    return Call(DataType(values[-1].dtype), Op.get("tir.tvm_call_trace_packed"), (StringImm(trace_action), *values))


def _print_trace(*values: Any) -> None:
    print(list(values))


ffi.register_global_func("tvm.default_trace_action", _print_trace, override=True)


@also_called(func_name="name")
def call_extern(dtype: str, name: str, *args: Any) -> PrimExpr:
    """Call a C function by its symbol."""
    return Call(DataType(dtype or "void"), Op.get("tir.call_extern"), (StringImm(name), *(as_expr(a) for a in args)))


@also_called(func_name="name")
def call_pure_extern(dtype: str, name: str, *args: PrimExpr) -> PrimExpr:
    """Call a C function that only gives a value, so that it may be called as often as that is needed."""
    result, values = DataType(dtype or "void"), (as_expr(a) for a in args)
    return Call(result, Op.get("tir.call_pure_extern"), (StringImm(name), *values))


def call_llvm_intrin(dtype: str, name: str | int, *args: PrimExpr) -> PrimExpr:
    """Call an LLVM intrinsic by name (``"llvm.fma"``), overloaded on the result type; ``""`` is void.

    Older programs of TVM say first how many of the arguments overload the name, as a uint32; LLVM knows that itself.
    """
    return _llvm_call("tir.call_llvm_intrin", dtype, name, args)


def call_llvm_pure_intrin(dtype: str, name: str | int, *args: PrimExpr) -> PrimExpr:
    """Call an LLVM intrinsic without effects."""
    return _llvm_call("tir.call_llvm_pure_intrin", dtype, name, args)


def _llvm_call(op: str, dtype: str, name: str | int, args: tuple[Any, ...]) -> PrimExpr:
    named = StringImm(name) if isinstance(name, str) else as_expr(name)  # code is made of names only
    first = args[0] if args else None
    if isinstance(first, IntImm) and first.dtype == "uint32" and first.value < len(args):
        args = args[1:]
    return Call(DataType(dtype or "void"), Op.get(op), (named, *(as_expr(a) for a in args)))


def reinterpret(dtype: str, value: Value) -> PrimExpr:
    """Read the bits of a value as another type of the same size."""
    value = as_expr(value)
    return value if value.dtype == dtype else Call(DataType(dtype), Op.get("tir.reinterpret"), (value,))


def infinity(dtype: str) -> PrimExpr:
    """Positive infinity."""
    return FloatImm(DataType(dtype), float("inf"))


LEAST: dict[str, Callable[[int], Any]] = {}
"""By the code of a registered type: a function from its bits to its least value."""


def min_value(dtype: str) -> PrimExpr:
    """The least finite value of a type."""
    dt = DataType(dtype)
    if dt.is_custom:
        if dt.code not in LEAST:
            raise InvalidArgument(f"the least value of '{dt}' is not known", help="call datatype.register_min_func")
        return as_expr(LEAST[dt.code](dt.bits))
    if dt.is_float:
        return FloatImm(dt, float(_finfo(dt).min))
    return const(0 if dt.code in ("uint", "bool") else -(1 << (dt.bits - 1)), dt)


def max_value(dtype: str) -> PrimExpr:
    """The greatest finite value of a type."""
    dt = DataType(dtype)
    if dt.is_float:
        return FloatImm(dt, float(_finfo(dt).max))
    return const(1 if dt == "bool" else (1 << dt.bits) - 1 if dt.code == "uint" else (1 << (dt.bits - 1)) - 1, dt)


def _finfo(dt: DataType) -> Any:
    return ml_dtypes.finfo(numpy_dtype(dt))
