"""Functions of float32 as polynomials: exponentials, logarithms, hyperbolic functions, the error function.

Each function takes an expression (a variable, so that it may be used often) of type float32 or a vector of it and
returns an expression. Coefficients are minimax fits of our own. The errors stated are against float64, measured over
the whole range in steps of a few ULP, with fused multiply-add. Results below the least normal float32 are flushed to
zero where the function underflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.ir import Cast, Or, PrimExpr, Var
from weft.ir.scalar import LE
from weft.tir.transform.math_power import power
from weft.tir.transform.math_terms import (
    Add,
    Div,
    Max,
    Min,
    Mul,
    Select,
    Steps,
    Sub,
    above,
    absolute,
    below,
    bits_of,
    bound,
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
    shift_right,
    with_sign_of,
)
from weft.tir.transform.math_trig import acos, asin, atan, atan2, cos, sin, tan

EXP_COEFFICIENTS = (
    1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368716575205326, 0.0013814597623422742,
)  # fmt: skip
_EXP = (  # the same for 0 ... log(2)
    1.0, 0.9999998211860657, 0.500005841255188, 0.16661003232002258, 0.04191502183675766, 0.007792273070663214,
    0.0019487699028104544,
)  # fmt: skip
_LOG = (
    0.3333331048488617, -0.24999986588954926, 0.20002219080924988, -0.16669245064258575, 0.14218780398368835,
    -0.1238449439406395, 0.11872309446334839, -0.11788799613714218, 0.06915578246116638,
)  # fmt: skip
_TANH = (  # numerator and denominator in x ** 2, for magnitudes to 9.02
    (1.9671818017959595, 0.26326191425323486, 0.006880149245262146, 4.059461207361892e-05, 2.6329487923248962e-08),
    (1.9671818017959595, 0.9189889430999756, 0.0509193018078804, 0.0006469133077189326, 1.5324922060244717e-06),
)
_SINH = (0.1666666716337204, 0.008333350531756878, 0.0001983606634894386, 2.817435643009958e-06)
_ERF = (  # the same, to 3.93
    (
        2.0707216262817383, 0.34912246465682983, 0.09674589335918427, 0.006893076002597809, 0.0005216037970967591,
        3.754010549528175e-06,
    ),
    (
        1.8351292610168457, 0.9211107492446899, 0.20926746726036072, 0.027436930686235428, 0.0021276804618537426,
        6.975620635785162e-05,
    ),
)  # fmt: skip
LN2_HI, LN2_LO = 0.693145751953125, 1.428606765330187e-06
MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, which then stands in the low bits
_BELOW_HALF = 0.4999999701976776  # taken from a number that is then rounded, which rounds it down, zero to zero
_LEAST = 1.17549435e-38


@bound
def _exp_reduced(r: PrimExpr, rounded: PrimExpr, bias: int = 0) -> Steps:
    """``exp(r) * 2**(n + bias)``, where `rounded` is the integer ``n`` plus the magic number."""
    r = yield r, "r"
    p = horner(EXP_COEFFICIENTS, r)
    bits = bits_of(rounded) if not bias else Add(bits_of(rounded), integer(bias, r))
    return float_of(Add(bits_of(p), shift_left(bits, 23)))


@bound
def _exp_core(x: PrimExpr, bias: int = 0) -> Steps:
    """``exp(x) * 2**bias`` for arguments whose result is a normal number or underflows; no upper clamp."""
    v = yield Max(x, number(-87.33654, x)), "v"
    t = yield fma(v, number(math.log2(math.e), x), number(MAGIC, x)), "t"
    n = yield Sub(t, number(MAGIC, x)), "n"
    return _exp_reduced(fma(n, number(-LN2_LO, x), fma(n, number(-LN2_HI, x), v)), t, bias)


def _between(x: PrimExpr, low: float, high: float) -> PrimExpr:
    """Limit `x`, written so that NaN, which fails comparisons, stays NaN."""
    return Max(number(low, x), Min(number(high, x), x))


def _limited(x: PrimExpr, result: PrimExpr, low: float, high: float) -> PrimExpr:
    """Zero below `low`, infinity above `high`, NaN for NaN."""
    return Select(LE(x, number(high, x)), Select(below(x, low), number(0.0, x), result), Mul(x, number(math.inf, x)))


def exp(x: PrimExpr) -> PrimExpr:
    """E to the x. At most 2 ULP; overflow gives infinity, underflow zero, NaN NaN.

    The exponent is rounded down, so that its power of two is infinite or zero where the result is, and a factor.
    """
    return let(_between(x, -88.0, 88.9), lambda v: _power_of_e(v, v, 1.0, _EXP, _BELOW_HALF), "v")


def _exp_of_negated(x: PrimExpr) -> PrimExpr:
    """``exp(-x)``, infinite from ``2**127.5`` on."""
    return let(_between(x, -88.9, 88.0), lambda v: _power_of_e(v, negated(v), -1.0, EXP_COEFFICIENTS), "v")


@bound
def _power_of_e(v: Var, signed: PrimExpr, sign: float, coefficients: tuple[float, ...], below: float = 0.0) -> Steps:
    """``exp(sign * v)``, given ``sign * v``, too: a polynomial times 2 to the rounded power, less `below` before."""
    magic, power = number(MAGIC + 127, v), number(sign * math.log2(math.e), v)
    t = yield Add(fma(v, power, number(-below, v)), magic) if below else fma(v, power, magic), "t"
    r = let(Sub(t, magic), lambda n: fma(n, number(-LN2_LO, v), fma(n, number(-LN2_HI, v), signed)), "n")
    return Mul(let(r, lambda r: horner(coefficients, r), "r"), float_of(shift_left(bits_of(t), 23)))


def exp2(x: PrimExpr) -> PrimExpr:
    """2 to the x. At most 2 ULP."""

    @bound
    def value() -> Steps:
        v = yield Max(Min(x, number(127.99999, x)), number(-126.0, x)), "v"
        t = yield Add(v, number(MAGIC, x)), "t"
        return _exp_reduced(Mul(Sub(v, Sub(t, number(MAGIC, x))), number(math.log(2), x)), t)

    return _limited(x, value(), -126.0, 127.99999)


def exp10(x: PrimExpr) -> PrimExpr:
    """10 to the x. At most 2 ULP."""

    @bound
    def value() -> Steps:
        v = yield Max(Min(x, number(38.531837, x)), number(-37.929775, x)), "v"
        t = yield fma(v, number(math.log2(10), x), number(MAGIC, x)), "t"
        n = yield Sub(t, number(MAGIC, x)), "n"
        f = fma(n, number(-4.6050390665e-06, x), fma(n, number(-0.301025390625, x), v))
        return _exp_reduced(Mul(f, number(math.log(10), x)), t)

    return _limited(x, value(), -37.929775, 38.531837)


# --- logarithms -------------------------------------------------------------------------------------------------------


def _log_parts(x: PrimExpr, combine: Callable[[Var, Var, PrimExpr], PrimExpr]) -> PrimExpr:
    """``combine(k, f, rest)`` with ``x == 2**k (1 + f)``, ``log(1 + f) == f - f**2 / 2 + rest``, and special values."""

    @bound
    def value() -> Steps:
        y = yield Select(below(x, _LEAST), Mul(x, number(8388608.0, x)), x), "y"
        bits = yield bits_of(y), "b"
        # 0x3F3504F3 is sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
        e = yield shift_right(Sub(bits, integer(0x3F3504F3, x)), 23), "e"
        f = yield Sub(float_of(Sub(bits, shift_left(e, 23))), number(1.0, x)), "f"
        k = yield Add(Cast(x.dtype, e), Select(below(x, _LEAST), number(-23.0, x), number(0.0, x))), "k"
        return combine(k, f, Mul(Mul(Mul(f, f), f), horner(_LOG, f)))

    result = Select(equal(x, math.inf), x, value())
    result = Select(equal(x, 0.0), number(-math.inf, x), result)
    return Select(x >= number(0.0, x), result, number(math.nan, x))


def log(x: PrimExpr) -> PrimExpr:
    """The natural logarithm.

    At most 2 ULP; zero gives minus infinity, negative numbers NaN; denormals count as their value.
    """

    def combine(k: Var, f: Var, rest: PrimExpr) -> PrimExpr:
        p = fma(Mul(f, f), number(-0.5, x), fma(k, number(-2.12194440e-4, x), rest))
        return fma(k, number(0.693359375, x), Add(f, p))

    return _log_parts(x, combine)


def _log_base(x: PrimExpr, per_nat: float, hi: float, per_two_hi: float, per_two_lo: float) -> PrimExpr:
    """A logarithm of another base.

    ``per_nat`` units a nat, of which `hi` has few bits, and ``per_two`` units a factor of two.
    """

    @bound
    def combine(k: Var, f: Var, rest: PrimExpr) -> Steps:
        h = yield _cleared(f), "h"
        low = yield Add(Sub(f, h), Add(Mul(number(-0.5, x), Mul(f, f)), rest)), "low"
        small = fma(h, number(per_nat - hi, x), Mul(low, number(per_nat, x)))
        if per_two_lo:
            small = fma(k, number(per_two_lo, x), small)
        return fma(k, number(per_two_hi, x), fma(h, number(hi, x), small))

    return _log_parts(x, combine)


def _cleared(f: PrimExpr) -> PrimExpr:
    """`f` without its twelve lowest bits, so that its product with a short constant is exact."""
    return float_of(call("bitwise_and", bits_of(f), integer(-4096, f)))


def log2(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 2. At most 2 ULP."""
    return _log_base(x, math.log2(math.e), 1.4423828125, 1.0, 0.0)


def log10(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 10. At most 2 ULP."""
    return _log_base(x, math.log10(math.e), 0.434326171875, 0.301025390625, 4.605038981195214e-06)


@bound
def log1p(x: PrimExpr, *, log: Callable[..., PrimExpr] = log) -> Steps:
    """``log(1 + x)``, exact for small `x`. At most 3 ULP."""
    u = yield Add(x, number(1.0, x)), "u"
    lost = Div(Sub(x, Sub(u, number(1.0, x))), u)
    result = Add(log(u), Select(below(absolute(u), math.inf), lost, number(0.0, x)))
    return Select(equal(u, 0.0), number(-math.inf, x), Select(equal(u, 1.0), x, result))


# --- hyperbolic functions, error function -----------------------------------------------------------------------------


@bound
def _odd_ratio(x: PrimExpr, ratio: tuple[tuple[float, ...], tuple[float, ...]], reach: float) -> Steps:
    """``x P(x^2) / Q(x^2)`` between -1 and 1, which it meets at `reach`."""
    t = yield _between(x, -reach, reach), "t"
    quotient = let(Mul(t, t), lambda s: Div(Mul(t, horner(ratio[0], s)), horner(ratio[1], s)), "s")
    return _between(quotient, -1.0, 1.0)


def tanh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic tangent. At most 6 ULP."""
    return _odd_ratio(x, _TANH, 9.02)


@bound
def sinh(x: PrimExpr) -> Steps:
    """The hyperbolic sine. At most 3 ULP."""
    a = yield absolute(x), "a"
    small = let(Mul(x, x), lambda s: fma(Mul(s, x), horner(_SINH, s), x), "s")
    return Select(is_nan(x), x, Select(below(a, 1.0), small, with_sign_of(_half_exponentials(a, -1.0), x)))


def cosh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic cosine. At most 3 ULP."""
    return let(absolute(x), lambda a: Select(is_nan(x), x, _half_exponentials(a, 1.0)), "a")


def _half_exponentials(a: Var, sign: float) -> PrimExpr:
    """``(exp(a) + sign * exp(-a)) / 2`` for `a` of at least 0, without overflow before the result overflows."""
    half = let(Min(a, number(89.41598, a)), lambda v: _exp_core(v, -1), "c")
    result = let(half, lambda h: Add(h, Div(number(0.25 * sign, a), h)), "h")
    return Select(above(a, 89.41598), number(math.inf, a), result)


@bound
def asinh(x: PrimExpr, *, log: Callable[..., PrimExpr] = log, log1p: Callable[..., PrimExpr] = log1p) -> Steps:
    """The inverse hyperbolic sine. At most 4 ULP."""
    a = yield absolute(x), "a"
    square = Mul(a, a)
    root = call("sqrt", Add(square, number(1.0, x)))
    small = let(Add(a, Div(square, Add(number(1.0, x), root))), log1p, "l")
    large = Add(let(a, log, "l"), number(math.log(2), x))
    return with_sign_of(Select(above(a, 1e18), large, small), x)


@bound
def acosh(x: PrimExpr, *, log: Callable[..., PrimExpr] = log, log1p: Callable[..., PrimExpr] = log1p) -> Steps:
    """The inverse hyperbolic cosine; NaN below 1. At most 4 ULP."""
    t = yield Sub(x, number(1.0, x)), "t"
    root = call("sqrt", fma(t, t, Mul(number(2.0, x), t)))
    small = let(Add(t, root), log1p, "l")
    large = Add(log(x), number(math.log(2), x))
    return Select(below(x, 1.0), number(math.nan, x), Select(above(x, 1e18), large, small))


@bound
def atanh(x: PrimExpr, *, log1p: Callable[..., PrimExpr] = log1p) -> Steps:
    """The inverse hyperbolic tangent; NaN outside of -1 ... 1. At most 4 ULP."""
    a = yield absolute(x), "a"
    ratio = Div(Mul(number(2.0, x), a), Sub(number(1.0, x), a))
    return with_sign_of(Mul(number(0.5, x), let(ratio, log1p, "l")), x)


def sigmoid(x: PrimExpr, *, exp_of_negated: Callable[..., PrimExpr] = _exp_of_negated) -> PrimExpr:
    """``1 / (1 + exp(-x))``. At most 4 ULP."""
    return Div(number(1.0, x), Add(number(1.0, x), exp_of_negated(x)))


def erf(x: PrimExpr) -> PrimExpr:
    """The error function. At most 6 ULP."""
    return _odd_ratio(x, _ERF, 3.93)


def hypot(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``sqrt(x**2 + y**2)`` without overflow. At most 1 ULP."""

    @bound
    def wide() -> Steps:
        a = yield double(x), "a"
        b = yield double(y), "b"
        return convert("float32", call("sqrt", fma(a, a, Mul(b, b))))

    infinite = Or(equal(absolute(x), math.inf), equal(absolute(y), math.inf))
    return Select(infinite, number(math.inf, x), wide())


POLYNOMIALS: dict[str, Callable[..., Any]] = {
    "tir." + f.__name__: f
    for f in (
        exp, exp2, exp10, log, log2, log10, log1p, tanh, sinh, cosh, asinh, acosh, atanh, sigmoid, erf, hypot, sin, cos,
        tan, asin, acos, atan, atan2,
    )
} | {"tir.pow": power}  # fmt: skip
"""Intrinsics that become polynomials on float32."""
