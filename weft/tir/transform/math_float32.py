"""Vector mathematics: float32 functions as polynomials in TIR, so that no loop calls out of its vectors.

Each function takes an expression (a variable, so that it may be used often) of type float32 or a vector of it and returns an expression.
Coefficients are minimax fits of our own; the error against float64, measured over the whole range in steps of a few ULP, is in each
docstring. Results below the least normal float32 are flushed to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.ir import Broadcast, CallIntrin, Cast, DataType, FloatImm, IntImm, Let, Op, PrimExpr, Select, Var, with_lanes
from weft.ir.scalar import Add, Div, Max, Min, Mul, Sub

__all__ = ["POLYNOMIALS"]

_EXP = (0.5, 0.1666651964187622, 0.04166620597243309, 0.008368882350623608, 0.0013950476422905922)
_LOG = (
    0.3333331048488617, -0.24999986588954926, 0.20002219080924988, -0.16669245064258575, 0.14218780398368835, -0.1238449439406395,
    0.11872309446334839, -0.11788799613714218, 0.06915578246116638,
)  # fmt: skip
_TANH = (-0.3333328366279602, 0.13331493735313416, -0.05374366044998169, 0.020651042461395264, -0.005717495456337929)
_ERF_SMALL = (
    0.12837916612625122, -0.37612634897232056, 0.11283694207668304, -0.02685927040874958, 0.005200634244829416, -0.0008137437398545444,
    8.345225069206208e-05,
)  # fmt: skip
_ERF_LARGE = (
    -0.0001758745638653636, 1.1295207738876343, 0.6333346366882324, 0.10829394310712814, -0.025128625333309174, 0.004174643196165562,
    -0.000435218884376809, 2.1161906261113472e-05,
)  # fmt: skip


def _f(value: float, like: PrimExpr) -> PrimExpr:
    lanes = DataType(like.dtype).lanes
    c = FloatImm(DataType("float32"), value)
    return c if lanes == 1 else Broadcast(c, lanes)


def _i(value: int, like: PrimExpr) -> PrimExpr:
    lanes = DataType(like.dtype).lanes
    c = IntImm(DataType("int32"), value)
    return c if lanes == 1 else Broadcast(c, lanes)


def _int_type(x: PrimExpr) -> str:
    return with_lanes("int32", DataType(x.dtype).lanes)


def _call(name: str, *args: PrimExpr) -> PrimExpr:
    return CallIntrin(args[0].dtype, Op.get("tir." + name), args)


def _reinterpret(dtype: str, x: PrimExpr) -> PrimExpr:
    return CallIntrin(dtype, Op.get("tir.reinterpret"), (x,))


def _let(value: PrimExpr, body: Callable[[Var], PrimExpr], name: str = "t") -> PrimExpr:
    if isinstance(value, Var):
        return body(value)
    var = Var(name, value.dtype)
    return Let(var, value, body(var))


def _horner(coefficients: tuple[float, ...], x: PrimExpr) -> PrimExpr:
    """``c0 + c1 x + c2 x^2 + ...``."""
    result = _f(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = _call("fma", result, x, _f(c, x))
    return result


def _exp_core(x: PrimExpr) -> PrimExpr:
    """exp for arguments whose result is a normal number or underflows; no upper clamp."""
    t = Max(x, _f(-87.33654, x))

    magic = _f(12582912.0, x)  # 1.5 * 2**23: adding it rounds to an integer, which then stands in the low bits

    def reduced(v: Var) -> PrimExpr:
        def rounded(t: Var) -> PrimExpr:
            def scaled(n: Var) -> PrimExpr:
                r = _call("fma", n, _f(-0.693145751953125, x), v)
                r = _call("fma", n, _f(-1.428606765330187e-06, x), r)

                def value(r: Var) -> PrimExpr:
                    p = _call("fma", Mul(r, r), _horner(_EXP, r), Add(r, _f(1.0, x)))
                    bits = CallIntrin(
                        _int_type(x), Op.get("tir.shift_left"), (_reinterpret(_int_type(x), t), _i(23, x))
                    )
                    return _reinterpret(x.dtype, Add(_reinterpret(_int_type(x), p), bits))

                return _let(r, value, "r")

            return _let(Sub(t, magic), scaled, "n")

        return _let(_call("fma", v, _f(math.log2(math.e), x), magic), rounded, "t")

    return _let(t, reduced, "v")


def exp(x: PrimExpr) -> PrimExpr:
    """e to the x. At most 2 ULP; overflow gives infinity, underflow zero, NaN NaN."""
    clamped = Min(x, _f(88.72283, x))
    result = _let(clamped, _exp_core, "c")
    result = Select(x < _f(-87.33654, x), _f(0.0, x), result)
    return Select(x > _f(88.72283, x), _f(math.inf, x), result)


def log(x: PrimExpr) -> PrimExpr:
    """The natural logarithm. At most 2 ULP; zero gives minus infinity, negative numbers NaN; denormals count as their value."""
    it = _int_type(x)

    def scaled(y: Var) -> PrimExpr:
        def from_bits(bits: Var) -> PrimExpr:
            shifted = Sub(bits, _i(0x3F3504F3, x))  # sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
            exponent = CallIntrin(it, Op.get("tir.shift_right"), (shifted, _i(23, x)))

            def split(e: Var) -> PrimExpr:
                mantissa = _reinterpret(x.dtype, Sub(bits, CallIntrin(it, Op.get("tir.shift_left"), (e, _i(23, x)))))
                scale = Select(x < _f(1.17549435e-38, x), _f(-23.0, x), _f(0.0, x))

                def value(f: Var) -> PrimExpr:
                    def combine(k: Var) -> PrimExpr:
                        sq = Mul(f, f)
                        p = Mul(Mul(sq, f), _horner(_LOG, f))
                        p = _call("fma", k, _f(-2.12194440e-4, x), p)
                        p = _call("fma", sq, _f(-0.5, x), p)
                        return _call("fma", k, _f(0.693359375, x), Add(f, p))

                    return _let(Add(Cast(x.dtype, e), scale), combine, "k")

                return _let(Sub(mantissa, _f(1.0, x)), value, "f")

            return _let(exponent, split, "e")

        return _let(_reinterpret(it, y), from_bits, "b")

    result = _let(Select(x < _f(1.17549435e-38, x), Mul(x, _f(8388608.0, x)), x), scaled, "y")
    result = Select(x.equal(_f(math.inf, x)), x, result)
    result = Select(x.equal(_f(0.0, x)), _f(-math.inf, x), result)
    return Select(x >= _f(0.0, x), result, _f(math.nan, x))


def tanh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic tangent. At most 3 ULP."""
    a = _call("fabs", x)

    def value(t: Var) -> PrimExpr:
        s = Mul(x, x)
        small = _let(s, lambda s: _call("fma", Mul(s, x), _horner(_TANH, s), x), "s")
        e = _let(Mul(Min(t, _f(20.0, x)), _f(2.0, x)), _exp_core, "c")
        large = Sub(_f(1.0, x), Div(_f(2.0, x), Add(e, _f(1.0, x))))
        result = Select(t < _f(0.625, x), small, _call("copysign", large, x))
        return Select(x != x, x, result)  # noqa: PLR0124 - NaN

    return _let(a, value, "a")


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + exp(-x))``. At most 4 ULP."""
    negated = Sub(_f(0.0, x), x)
    e = _let(negated, lambda v: exp(v), "m")
    return Div(_f(1.0, x), Add(_f(1.0, x), e))


def erf(x: PrimExpr) -> PrimExpr:
    """The error function. At most 4 ULP."""

    def value(t: Var) -> PrimExpr:
        s = Mul(x, x)
        small = _let(s, lambda s: _call("fma", x, _horner(_ERF_SMALL, s), x), "s")
        log_erfc = Sub(_f(0.0, x), _let(Min(t, _f(4.0, x)), lambda c: _horner(_ERF_LARGE, c), "c"))
        large = Sub(_f(1.0, x), _let(log_erfc, _exp_core, "l"))
        result = Select(t < _f(0.92, x), small, _call("copysign", large, x))
        return Select(x != x, x, result)  # noqa: PLR0124 - NaN

    return _let(_call("fabs", x), value, "a")


POLYNOMIALS: dict[str, Callable[[Any], PrimExpr]] = {
    "tir.exp": exp,
    "tir.log": log,
    "tir.tanh": tanh,
    "tir.sigmoid": sigmoid,
    "tir.erf": erf,
}
"""Intrinsics that become polynomials on float32."""
