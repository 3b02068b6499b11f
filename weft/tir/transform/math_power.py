"""The power of float32 numbers, by a logarithm and an exponential in float64."""

from __future__ import annotations

import math

from weft.ir import And, Or, PrimExpr, Var
from weft.ir.scalar import EQ, NE
from weft.tir.transform import math_terms

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
            exponent = math_terms.Sub(
                math_terms.float_of(math_terms.call("bitwise_or", e, math_terms.integer(_TWO_52, e))),
                math_terms.number(2.0**52 + 1022, a),
            )
            upper = math_terms.call("bitwise_and", shifted, math_terms.integer(_MANTISSA, bits))
            m = math_terms.float_of(math_terms.Add(upper, math_terms.integer(0x3FE6A09E667F3BCD, bits)))

            def series(m: Var) -> PrimExpr:
                s = math_terms.Div(
                    math_terms.Sub(m, math_terms.number(1.0, a)), math_terms.Add(m, math_terms.number(1.0, a))
                )
                return math_terms.let(
                    s, lambda s: math_terms.fma(s, math_terms.horner(_LOG2, math_terms.Mul(s, s)), exponent), "s"
                )

            return math_terms.let(m, series, "m")

        shifted = math_terms.Sub(bits, math_terms.integer(0x3FE6A09E667F3BCD - (1022 << 52), bits))
        return math_terms.let(_unsigned_shift(shifted), split, "e")

    return math_terms.let(math_terms.bits_of(a), from_bits, "b")


def _unsigned_shift(x: PrimExpr) -> PrimExpr:
    """The exponent field of some bits that are not negative."""
    return math_terms.call("shift_right", x, math_terms.integer(52, x))


def _exp2(t: PrimExpr) -> PrimExpr:
    """2 to the t, in float64, for t within -1000 ... 1000."""

    def rounded(m: Var) -> PrimExpr:
        f = math_terms.Sub(t, math_terms.Sub(m, math_terms.number(_MAGIC, t)))
        p = math_terms.let(f, lambda f: math_terms.horner(_EXP2, f), "f")
        return math_terms.float_of(
            math_terms.Add(math_terms.bits_of(p), math_terms.shift_left(math_terms.bits_of(m), 52))
        )

    return math_terms.let(math_terms.Add(t, math_terms.number(_MAGIC, t)), rounded, "m")


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """`x` to the power of `y`, with the special values of C's ``pow``. At most 1 ULP, denormal results included."""

    def value(a: Var) -> PrimExpr:
        log = math_terms.let(math_terms.double(a), _log2, "d")
        log = math_terms.Select(math_terms.equal(a, 0.0), math_terms.number(-math.inf, math_terms.double(a)), log)
        log = math_terms.Select(math_terms.equal(a, math.inf), math_terms.number(math.inf, math_terms.double(a)), log)
        t = math_terms.Mul(math_terms.double(y), log)
        clamped = math_terms.let(
            t,
            lambda t: math_terms.let(
                math_terms.Max(math_terms.Min(t, math_terms.number(1000.0, t)), math_terms.number(-1000.0, t)),
                _exp2,
                "c",
            ),
            "t",
        )
        magnitude = math_terms.convert("float32", clamped)
        magnitude = math_terms.Select(
            math_terms.equal(a, 1.0), math_terms.number(1.0, x), magnitude
        )  # also for an infinite exponent
        return math_terms.let(magnitude, lambda m: signed_power(x, y, m), "p")

    result = math_terms.let(math_terms.absolute(x), value, "a")
    result = math_terms.Select(math_terms.is_nan(x), x, math_terms.Select(math_terms.is_nan(y), y, result))
    return math_terms.Select(Or(math_terms.equal(y, 0.0), math_terms.equal(x, 1.0)), math_terms.number(1.0, x), result)


def signed_power(x: PrimExpr, y: PrimExpr, magnitude: Var) -> PrimExpr:
    """Give the result the sign that an odd exponent keeps; a negative base with a broken exponent has no power."""
    half = math_terms.Mul(y, math_terms.number(0.5, y))
    is_whole = EQ(math_terms.call("floor", y), y)
    is_odd = And(is_whole, NE(math_terms.call("floor", half), half))
    is_negative = math_terms.bits_of(x) < math_terms.integer(0, math_terms.bits_of(x))
    result = math_terms.Select(And(is_negative, is_odd), math_terms.negated(magnitude), magnitude)
    broken = And(And(math_terms.below(x, 0.0), NE(math_terms.call("floor", y), y)), math_terms.above(x, -math.inf))
    return math_terms.Select(broken, math_terms.number(math.nan, x), result)
