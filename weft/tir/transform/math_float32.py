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

from weft.ir import CallIntrin, Cast, Op, Or, PrimExpr, Var
from weft.ir.scalar import LE
from weft.tir.transform import math_terms as m
from weft.tir.transform.math_power import power
from weft.tir.transform.math_trig import acos, asin, atan, atan2, cos, sin, tan

EXP_COEFFICIENTS = m.coefficients("""
    1.0 1.0 0.4999999403953552 0.1666652113199234 0.04166838899254799 0.008368716575205326 0.0013814597623422742
""")
# the same for 0 ... log(2)
_EXP = m.coefficients("""
    1.0 0.9999998211860657 0.500005841255188 0.16661003232002258 0.04191502183675766 0.007792273070663214
    0.0019487699028104544
""")
_LOG = m.coefficients("""
    0.3333331048488617 -0.24999986588954926 0.20002219080924988 -0.16669245064258575 0.14218780398368835
    -0.1238449439406395 0.11872309446334839 -0.11788799613714218 0.06915578246116638
""")
_TANH = (  # numerator and denominator in x ** 2, for magnitudes to 9.02
    (1.9671818017959595, 0.26326191425323486, 0.006880149245262146, 4.059461207361892e-05, 2.6329487923248962e-08),
    (1.9671818017959595, 0.9189889430999756, 0.0509193018078804, 0.0006469133077189326, 1.5324922060244717e-06),
)
_SINH = (0.1666666716337204, 0.008333350531756878, 0.0001983606634894386, 2.817435643009958e-06)
_ERF = (  # the same, to 3.93
    (
        2.0707216262817383,
        0.34912246465682983,
        0.09674589335918427,
        0.006893076002597809,
        0.0005216037970967591,
        3.754010549528175e-06,
    ),
    (
        1.8351292610168457,
        0.9211107492446899,
        0.20926746726036072,
        0.027436930686235428,
        0.0021276804618537426,
        6.975620635785162e-05,
    ),
)
LN2_HI, LN2_LO = 0.693145751953125, 1.428606765330187e-06
MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, which then stands in the low bits
_BELOW_HALF = 0.4999999701976776  # taken from a number that is then rounded, which rounds it down, zero to zero
_LEAST, _GREATEST = 1.17549435e-38, 3.4028234663852886e38


@m.bound
def _exp_reduced(r: PrimExpr, rounded: PrimExpr, bias: int = 0) -> m.Steps:
    """``exp(r) * 2**(n + bias)``, where `rounded` is the integer ``n`` plus the magic number."""
    r = yield r, "r"
    p = m.horner(EXP_COEFFICIENTS, r)
    bits = m.bits_of(rounded) if not bias else m.Add(m.bits_of(rounded), m.integer(bias, r))
    return m.float_of(m.Add(m.bits_of(p), m.shift_left(bits, 23)))


@m.bound
def _exp_core(x: PrimExpr, bias: int = 0) -> m.Steps:
    """``exp(x) * 2**bias`` for arguments whose result is a normal number or underflows; no upper clamp."""
    v = yield m.Max(x, m.number(-87.33654, x)), "v"
    t = yield m.fma(v, m.number(math.log2(math.e), x), m.number(MAGIC, x)), "t"
    n = yield m.Sub(t, m.number(MAGIC, x)), "n"
    return _exp_reduced(m.fma(n, m.number(-LN2_LO, x), m.fma(n, m.number(-LN2_HI, x), v)), t, bias)


def _between(x: PrimExpr, low: float, high: float) -> PrimExpr:
    """Limit `x`, written so that NaN, which fails comparisons, stays NaN."""
    return m.Max(m.number(low, x), m.Min(m.number(high, x), x))


def _limited(x: PrimExpr, result: PrimExpr, low: float, high: float) -> PrimExpr:
    """Zero below `low`, infinity above `high`, NaN for NaN."""
    return m.Select(
        LE(x, m.number(high, x)), m.Select(m.below(x, low), m.number(0.0, x), result), m.Mul(x, m.number(math.inf, x))
    )


def exp(x: PrimExpr) -> PrimExpr:
    """E to the x. At most 2 ULP; overflow gives infinity, underflow zero, NaN NaN.

    The exponent is rounded down, so that its power of two is infinite or zero where the result is, and a factor.
    """
    return m.let(_between(x, -88.0, 88.9), lambda v: _power_of_e(v, v, 1.0, _EXP, _BELOW_HALF), "v")


def _exp_of_negated(x: PrimExpr) -> PrimExpr:
    """``exp(-x)``, infinite from ``2**127.5`` on."""
    return m.let(_between(x, -88.9, 88.0), lambda v: _power_of_e(v, m.negated(v), -1.0, EXP_COEFFICIENTS), "v")


@m.bound
def _power_of_e(v: Var, signed: PrimExpr, sign: float, coefficients: tuple[float, ...], less: float = 0.0) -> m.Steps:
    """``exp(sign * v)``, given ``sign * v``, too: a polynomial times 2 to the rounded power, less `less` before."""
    magic, power = m.number(MAGIC + 127, v), m.number(sign * math.log2(math.e), v)
    t = yield m.Add(m.fma(v, power, m.number(-less, v)), magic) if less else m.fma(v, power, magic), "t"
    r = m.let(m.Sub(t, magic), lambda n: m.fma(n, m.number(-LN2_LO, v), m.fma(n, m.number(-LN2_HI, v), signed)), "n")
    return m.Mul(m.let(r, lambda r: m.horner(coefficients, r), "r"), m.float_of(m.shift_left(m.bits_of(t), 23)))


def exp2(x: PrimExpr) -> PrimExpr:
    """2 to the x. At most 2 ULP."""

    @m.bound
    def value() -> m.Steps:
        v = yield m.Max(m.Min(x, m.number(127.99999, x)), m.number(-126.0, x)), "v"
        t = yield m.Add(v, m.number(MAGIC, x)), "t"
        return _exp_reduced(m.Mul(m.Sub(v, m.Sub(t, m.number(MAGIC, x))), m.number(math.log(2), x)), t)

    return _limited(x, value(), -126.0, 127.99999)


def exp10(x: PrimExpr) -> PrimExpr:
    """10 to the x. At most 2 ULP."""

    @m.bound
    def value() -> m.Steps:
        v = yield m.Max(m.Min(x, m.number(38.531837, x)), m.number(-37.929775, x)), "v"
        t = yield m.fma(v, m.number(math.log2(10), x), m.number(MAGIC, x)), "t"
        n = yield m.Sub(t, m.number(MAGIC, x)), "n"
        f = m.fma(n, m.number(-4.6050390665e-06, x), m.fma(n, m.number(-0.301025390625, x), v))
        return _exp_reduced(m.Mul(f, m.number(math.log(10), x)), t)

    return _limited(x, value(), -37.929775, 38.531837)


# --- logarithms -------------------------------------------------------------------------------------------------------


def _log_parts(x: PrimExpr, combine: Callable[[Var, Var, PrimExpr], PrimExpr]) -> PrimExpr:
    """``combine(k, f, rest)`` with ``x == 2**k (1 + f)``, ``log(1 + f) == f - f**2 / 2 + rest``, and special values."""

    @m.bound
    def value() -> m.Steps:
        y = yield m.Select(m.below(x, _LEAST), m.Mul(x, m.number(8388608.0, x)), x), "y"
        bits = yield m.bits_of(y), "b"
        # 0x3F3504F3 is sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
        e = yield m.shift_right(m.Sub(bits, m.integer(0x3F3504F3, x)), 23), "e"
        f = yield m.Sub(m.float_of(m.Sub(bits, m.shift_left(e, 23))), m.number(1.0, x)), "f"
        k = yield m.Add(Cast(x.dtype, e), m.Select(m.below(x, _LEAST), m.number(-23.0, x), m.number(0.0, x))), "k"
        return combine(k, f, m.Mul(m.Mul(m.Mul(f, f), f), m.horner(_LOG, f)))

    result = m.Select(m.equal(x, math.inf), x, value())
    result = m.Select(m.equal(x, 0.0), m.number(-math.inf, x), result)
    return m.Select(x >= m.number(0.0, x), result, m.number(math.nan, x))


def log(x: PrimExpr) -> PrimExpr:
    """The natural logarithm.

    At most 2 ULP; zero gives minus infinity, negative numbers NaN; denormals count as their value.
    """

    def combine(k: Var, f: Var, rest: PrimExpr) -> PrimExpr:
        p = m.fma(m.Mul(f, f), m.number(-0.5, x), m.fma(k, m.number(-2.12194440e-4, x), rest))
        return m.fma(k, m.number(0.693359375, x), m.Add(f, p))

    return _log_parts(x, combine)


def _log_base(x: PrimExpr, per_nat: float, hi: float, per_two_hi: float, per_two_lo: float) -> PrimExpr:
    """A logarithm of another base.

    ``per_nat`` units a nat, of which `hi` has few bits, and ``per_two`` units a factor of two.
    """

    @m.bound
    def combine(k: Var, f: Var, rest: PrimExpr) -> m.Steps:
        h = yield _cleared(f), "h"
        low = yield m.Add(m.Sub(f, h), m.Add(m.Mul(m.number(-0.5, x), m.Mul(f, f)), rest)), "low"
        small = m.fma(h, m.number(per_nat - hi, x), m.Mul(low, m.number(per_nat, x)))
        if per_two_lo:
            small = m.fma(k, m.number(per_two_lo, x), small)
        return m.fma(k, m.number(per_two_hi, x), m.fma(h, m.number(hi, x), small))

    return _log_parts(x, combine)


def _cleared(f: PrimExpr) -> PrimExpr:
    """`f` without its twelve lowest bits, so that its product with a short constant is exact."""
    return m.float_of(m.call("bitwise_and", m.bits_of(f), m.integer(-4096, f)))


def log2(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 2. At most 2 ULP."""
    return _log_base(x, math.log2(math.e), 1.4423828125, 1.0, 0.0)


def log10(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 10. At most 2 ULP."""
    return _log_base(x, math.log10(math.e), 0.434326171875, 0.301025390625, 4.605038981195214e-06)


@m.bound
def log1p(x: PrimExpr, *, log: Callable[..., PrimExpr] = log) -> m.Steps:
    """``log(1 + x)``, exact for small `x`. At most 3 ULP."""
    u = yield m.Add(x, m.number(1.0, x)), "u"
    lost = m.Div(m.Sub(x, m.Sub(u, m.number(1.0, x))), u)
    result = m.Add(log(u), m.Select(m.below(m.absolute(u), math.inf), lost, m.number(0.0, x)))
    return m.Select(m.equal(u, 0.0), m.number(-math.inf, x), m.Select(m.equal(u, 1.0), x, result))


# --- hyperbolic functions, error function -----------------------------------------------------------------------------


@m.bound
def _odd_ratio(x: PrimExpr, ratio: tuple[tuple[float, ...], tuple[float, ...]], reach: float) -> m.Steps:
    """``x P(x^2) / Q(x^2)`` between -1 and 1, which it meets at `reach`."""
    t = yield _between(x, -reach, reach), "t"
    quotient = m.let(m.Mul(t, t), lambda s: m.Div(m.Mul(t, m.horner(ratio[0], s)), m.horner(ratio[1], s)), "s")
    return _between(quotient, -1.0, 1.0)


def tanh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic tangent. At most 6 ULP."""
    return _odd_ratio(x, _TANH, 9.02)


@m.bound
def sinh(x: PrimExpr) -> m.Steps:
    """The hyperbolic sine. At most 3 ULP."""
    a = yield m.absolute(x), "a"
    small = m.let(m.Mul(x, x), lambda s: m.fma(m.Mul(s, x), m.horner(_SINH, s), x), "s")
    return m.Select(m.is_nan(x), x, m.Select(m.below(a, 1.0), small, m.with_sign_of(_half_exponentials(a, -1.0), x)))


def cosh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic cosine. At most 3 ULP."""
    return m.let(m.absolute(x), lambda a: m.Select(m.is_nan(x), x, _half_exponentials(a, 1.0)), "a")


def _half_exponentials(a: Var, sign: float) -> PrimExpr:
    """``(exp(a) + sign * exp(-a)) / 2`` for `a` of at least 0, without overflow before the result overflows."""
    half = m.let(m.Min(a, m.number(89.41598, a)), lambda v: _exp_core(v, -1), "c")
    result = m.let(half, lambda h: m.Add(h, m.Div(m.number(0.25 * sign, a), h)), "h")
    return m.Select(m.above(a, 89.41598), m.number(math.inf, a), result)


@m.bound
def asinh(x: PrimExpr, *, log: Callable[..., PrimExpr] = log, log1p: Callable[..., PrimExpr] = log1p) -> m.Steps:
    """The inverse hyperbolic sine. At most 4 ULP."""
    a = yield m.absolute(x), "a"
    square = m.Mul(a, a)
    root = m.call("sqrt", m.Add(square, m.number(1.0, x)))
    small = m.let(m.Add(a, m.Div(square, m.Add(m.number(1.0, x), root))), log1p, "l")
    large = m.Add(m.let(a, log, "l"), m.number(math.log(2), x))
    return m.with_sign_of(m.Select(m.above(a, 1e18), large, small), x)


@m.bound
def acosh(x: PrimExpr, *, log: Callable[..., PrimExpr] = log, log1p: Callable[..., PrimExpr] = log1p) -> m.Steps:
    """The inverse hyperbolic cosine; NaN below 1. At most 4 ULP."""
    t = yield m.Sub(x, m.number(1.0, x)), "t"
    root = m.call("sqrt", m.fma(t, t, m.Mul(m.number(2.0, x), t)))
    small = m.let(m.Add(t, root), log1p, "l")
    large = m.Add(log(x), m.number(math.log(2), x))
    return m.Select(m.below(x, 1.0), m.number(math.nan, x), m.Select(m.above(x, 1e18), large, small))


@m.bound
def atanh(x: PrimExpr, *, log1p: Callable[..., PrimExpr] = log1p) -> m.Steps:
    """The inverse hyperbolic tangent; NaN outside of -1 ... 1. At most 4 ULP."""
    a = yield m.absolute(x), "a"
    ratio = m.Div(m.Mul(m.number(2.0, x), a), m.Sub(m.number(1.0, x), a))
    return m.with_sign_of(m.Mul(m.number(0.5, x), m.let(ratio, log1p, "l")), x)


def sigmoid(x: PrimExpr, *, exp_of_negated: Callable[..., PrimExpr] = _exp_of_negated) -> PrimExpr:
    """``1 / (1 + exp(-x))``. At most 4 ULP."""
    return m.Div(m.number(1.0, x), m.Add(m.number(1.0, x), exp_of_negated(x)))


def erf(x: PrimExpr) -> PrimExpr:
    """The error function. At most 6 ULP."""
    return _odd_ratio(x, _ERF, 3.93)


def hypot(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``sqrt(x**2 + y**2)`` without overflow. At most 1 ULP."""

    @m.bound
    def wide() -> m.Steps:
        a = yield m.double(x), "a"
        b = yield m.double(y), "b"
        return m.convert("float32", m.call("sqrt", m.fma(a, a, m.Mul(b, b))))

    infinite = Or(m.equal(m.absolute(x), math.inf), m.equal(m.absolute(y), math.inf))
    return m.Select(infinite, m.number(math.inf, x), wide())


@m.bound
def fmod(x: PrimExpr, y: PrimExpr) -> m.Steps:
    """The remainder of ``x / y`` with the sign of `x`. At most 0 ULP; the C library's beyond 2**23 multiples.

    A rounded quotient is at most one too great, and times `y` (below infinity, as 0 times that is no number) it has
    47 bits: the product is exact in float64, and its difference from `x` in float32.
    """
    by = yield m.absolute(y), "by"
    quotient = yield m.Div(m.absolute(x), by), "quotient"
    taken = m.Mul(m.double(m.call("floor", quotient)), m.double(m.Min(by, m.number(_GREATEST, by))))
    rest = yield m.convert("float32", m.Sub(m.double(m.absolute(x)), taken)), "rest"
    near = m.with_sign_of(m.Select(m.below(rest, 0.0), m.Add(rest, by), rest), x)
    far = CallIntrin(x.dtype, Op.get("tir.fmod"), (x, y))
    return m.any_else(Or(m.is_nan(quotient), m.above(quotient, 2.0**23)), far, near)


_EXPONENTIAL = (exp, exp2, exp10, log, log2, log10, log1p, sigmoid, tanh, sinh, cosh, asinh, acosh, atanh, erf)
_OTHERS = (hypot, fmod, sin, cos, tan, asin, acos, atan, atan2)
POLYNOMIALS: dict[str, Callable[..., Any]] = {"tir." + f.__name__: f for f in (*_EXPONENTIAL, *_OTHERS)}
POLYNOMIALS["tir.pow"] = power
"""Intrinsics that become polynomials on float32."""
