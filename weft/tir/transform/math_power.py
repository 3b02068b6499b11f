"""The power of float32 numbers, by a logarithm and an exponential in float64."""

from __future__ import annotations

import math

from weft.ir import And, Or, PrimExpr, Var
from weft.ir.scalar import EQ, NE
from weft.tir.transform.math_terms import (
    Add,
    Div,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    above,
    absolute,
    below,
    bits_of,
    call,
    convert,
    double,
    equal,
    float_of,
    fma,
    horner,
    integer,
    is_nan,
    let,
    negated,
    number,
    shift_left,
)

_LOG2 = (
    2.88539008177785, 0.9617966941139339, 0.5770779421864547, 0.41220927101589794, 0.3199049150369277,
    0.28291150008632776,
)  # fmt: skip
_EXP2 = (
    0.9999999999595487, 0.6931471805350312, 0.24022651213583657, 0.05550410976096408, 0.009618025604194586,
    0.0013333422656377487, 0.0001546973164098936, 1.531645902534402e-05,
)  # fmt: skip
_MAGIC = 6755399441055744.0  # 1.5 * 2**52
_MANTISSA = (1 << 52) - 1
_TWO_52 = 0x4330000000000000


def _log2(a: PrimExpr) -> PrimExpr:
    """The logarithm to base 2 of a positive float64, to 44 bits."""

    def from_bits(bits: Var) -> PrimExpr:
        # 0x3FE6A09E667F3BCD is sqrt(1/2); the difference is positive for every positive float32
        def split(e: Var) -> PrimExpr:
            exponent = Sub(float_of(call("bitwise_or", e, integer(_TWO_52, e))), number(2.0**52 + 1022, a))
            upper = call("bitwise_and", shifted, integer(_MANTISSA, bits))
            m = float_of(Add(upper, integer(0x3FE6A09E667F3BCD, bits)))

            def series(m: Var) -> PrimExpr:
                s = Div(Sub(m, number(1.0, a)), Add(m, number(1.0, a)))
                return let(s, lambda s: fma(s, horner(_LOG2, Mul(s, s)), exponent), "s")

            return let(m, series, "m")

        shifted = Sub(bits, integer(0x3FE6A09E667F3BCD - (1022 << 52), bits))
        return let(_unsigned_shift(shifted), split, "e")

    return let(bits_of(a), from_bits, "b")


def _unsigned_shift(x: PrimExpr) -> PrimExpr:
    """The exponent field of some bits that are not negative."""
    return call("shift_right", x, integer(52, x))


def _exp2(t: PrimExpr) -> PrimExpr:
    """2 to the t, in float64, for t within -1000 ... 1000."""

    def rounded(m: Var) -> PrimExpr:
        f = Sub(t, Sub(m, number(_MAGIC, t)))
        p = let(f, lambda f: horner(_EXP2, f), "f")
        return float_of(Add(bits_of(p), shift_left(bits_of(m), 52)))

    return let(Add(t, number(_MAGIC, t)), rounded, "m")


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """`x` to the power of `y`, with the special values of C's ``pow``. At most 1 ULP, denormal results included."""

    def value(a: Var) -> PrimExpr:
        log = let(double(a), _log2, "d")
        log = Select(equal(a, 0.0), number(-math.inf, double(a)), log)
        log = Select(equal(a, math.inf), number(math.inf, double(a)), log)
        t = Mul(double(y), log)
        clamped = let(t, lambda t: let(Max(Min(t, number(1000.0, t)), number(-1000.0, t)), _exp2, "c"), "t")
        magnitude = convert("float32", clamped)
        magnitude = Select(equal(a, 1.0), number(1.0, x), magnitude)  # also for an infinite exponent
        return let(magnitude, lambda m: signed_power(x, y, m), "p")

    result = let(absolute(x), value, "a")
    result = Select(is_nan(x), x, Select(is_nan(y), y, result))
    return Select(Or(equal(y, 0.0), equal(x, 1.0)), number(1.0, x), result)


def signed_power(x: PrimExpr, y: PrimExpr, magnitude: Var) -> PrimExpr:
    """Give the result the sign that an odd exponent keeps; a negative base with a broken exponent has no power."""
    half = Mul(y, number(0.5, y))
    is_whole = EQ(call("floor", y), y)
    is_odd = And(is_whole, NE(call("floor", half), half))
    is_negative = bits_of(x) < integer(0, bits_of(x))
    result = Select(And(is_negative, is_odd), negated(magnitude), magnitude)
    broken = And(And(below(x, 0.0), NE(call("floor", y), y)), above(x, -math.inf))
    return Select(broken, number(math.nan, x), result)
