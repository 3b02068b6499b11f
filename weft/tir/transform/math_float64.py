"""Functions of float64 as polynomials, for machines without a C library.

Each function takes an expression (a variable, so that it may be used often) of type float64 or a vector of it and
returns an expression. Coefficients are Chebyshev fits of our own. The errors stated were measured against 60 digits,
with fused multiply-add; results below the least normal number keep the bits that they have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from weft.ir import Cast, Or, PrimExpr, Var
from weft.tir.transform import math_float32 as single
from weft.tir.transform import math_terms as m
from weft.tir.transform import math_trig as trig
from weft.tir.transform.math_power import signed_power

_EXP = m.coefficients("""
    0.5 0.16666666666666669 0.04166666666662416 0.008333333333330063 0.0013888888917199863 0.00019841269863042963
    2.4801521317484083e-05 2.7557268476553695e-06 2.7620078203806394e-07 2.5100377619606372e-08
""")
_LOG = m.coefficients("""
    0.6666666666666666 0.4000000000000088 0.28571428570803253 0.22222222391794727 0.18181795631498243
    0.15386240172447838 0.13268760562036724 0.1308675766695207
""")
_LOG_TAIL = m.coefficients("""
    0.20000000000000012 0.14285714285669254 0.11111111135550344 0.09090904123907029 0.07692787388413568
    0.06642979043898552 0.06456804803218566
""")
_ATAN = m.coefficients("""
    -0.3333333333333333 0.1999999999999753 -0.14285714285384132 0.11111111093490827 -0.09090908590891934
    0.07692298971033217 -0.06666564699289104 0.05881506877793656 -0.052579733342841106 0.04737749579527779
    -0.04260356632601652 0.03749486812535247 -0.031277189066996385 0.023696731580048622 -0.015535152475414177
    0.008368931178450162 -0.0034958859739163094 0.0010496035084968515 -0.00019996189377901382 1.806195461861215e-05
""")
_ASIN = m.coefficients("""
    0.1666666666666665 0.07500000000020764 0.044642857103423646 0.03038194736709848 0.02237204763174451
    0.017355259955786323 0.013929652902326633 0.011875494382636922 0.0078029494773533175 0.01603551434914882
    -0.010749050339697808 0.028169218060881414
""")
_ERF_SMALL = m.coefficients("""
    0.1283791670955126 -0.37612638903183715 0.11283791670953087 -0.02686617064468089 0.005223977620296008
    -0.0008548326676057783 0.0001205531808959657 -1.4925229024405205e-05 1.6454129701121747e-06 -1.626518495985192e-07
    1.3990995108423831e-08 -8.354981429959465e-10
""")
# -log(erfc(u + 3))
_ERF_LARGE = m.coefficients("""
    10.720363041981113 6.303753689003231 0.9573942188012466 0.007411891795622997 -0.0013533104380766211
    0.0002456921335610149 -4.3081790971449555e-05 7.115465778359552e-06 -1.0693892498732755e-06 1.3617630977062411e-07
    -1.1459848060887312e-08 -6.33478675324244e-10 6.101191574423871e-10 -1.8916592028820082e-10 4.414054441078394e-11
    -8.511541073272532e-12 1.3379911044406897e-12 -1.65434086780557e-13 1.3555858137257346e-14 2.6979404648285487e-15
    -2.2574527999415548e-15 6.705219779368409e-16 -9.698554766945032e-17 5.6360447007161915e-18
""")
_SIN = m.coefficients("""
    -0.16666666666666666 0.008333333333333331 -0.00019841269841265063 2.7557319219337312e-06 -2.5052106231802837e-08
    1.6058531516797758e-10 -7.586691094197958e-13
""")
_COS = m.coefficients("""
    0.041666666666666664 -0.0013888888888888887 2.4801587301584645e-05 -2.755731922140179e-07 2.0876755790721963e-09
    -1.1470460830795304e-11 4.7458685530816656e-14
""")
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
"""Their sum is pi / 2; the first three have 33 bits, whose products with whole numbers up to 2**20 are exact."""
_LN2_HI, _LN2_LO = 0.6931471803691238, 1.9082149292705877e-10  # the first has 33 bits: its product with n is exact
_LOG10_2_HI, _LOG10_2_LO = 0.30102999560767785, 5.6303348065105984e-11
_MAGIC = 6755399441055744.0  # 1.5 * 2**52
_SQRT_HALF = 0x3FE6A09E667F3BCD
_LEAST = 2.0**-1022


def _power_of_two(n: PrimExpr) -> PrimExpr:
    """2 to the `n`, the bits of an int64 within -1022 ... 1023."""
    return m.float_of(m.shift_left(m.Add(n, m.integer(1023, n)), 52))


def _scaled(p: Var, n: Var) -> PrimExpr:
    """``p * 2**n`` in two steps, of which only the second can round."""
    return m.let(m.shift_right(n, 1), lambda h: m.Mul(m.Mul(p, _power_of_two(h)), _power_of_two(m.Sub(n, h))), "h")


@m.bound
def _near(x: PrimExpr, scale: float, body: Callable[[Var, Var], PrimExpr]) -> m.Steps:
    """``body(n, bits)`` with the integer next to ``x * scale``, as a float64 and as an int64."""
    t = yield m.fma(x, m.number(scale, x), m.number(_MAGIC, x)), "t"
    n = yield m.Sub(t, m.number(_MAGIC, x)), "n"
    bits = yield m.Sub(m.bits_of(t), m.integer(0x4338000000000000, t)), "i"
    return body(n, bits)


@m.bound
def _exp_of(r: PrimExpr, n: Var) -> m.Steps:
    """``exp(r) * 2**n`` for `r` within half of log 2."""
    r = yield r, "r"
    p = yield m.Add(m.fma(m.Mul(r, r), m.horner(_EXP, r), r), m.number(1.0, r)), "p"
    return _scaled(p, n)


def _limited(x: PrimExpr, low: float, high: float, body: Callable[[Var], PrimExpr]) -> PrimExpr:
    """`body` of an argument moved between limits beyond which its value is 0 or infinite; NaN for NaN."""
    result = m.let(m.Max(m.Min(x, m.number(high, x)), m.number(low, x)), body, "v")
    return m.Select(m.is_nan(x), x, result)


def _exp_core(x: PrimExpr, rest: PrimExpr | None = None, bias: int = 0) -> PrimExpr:
    """``exp(x + rest) * 2**bias`` within limits that keep `n` small."""

    def value(n: Var, bits: Var) -> PrimExpr:
        r = m.fma(n, m.number(-_LN2_LO, x), m.fma(n, m.number(-_LN2_HI, x), x))
        r = m.Add(r, rest) if rest is not None else r
        return m.let(m.Add(bits, m.integer(bias, bits)) if bias else bits, lambda b: _exp_of(r, b), "k")

    return _near(x, math.log2(math.e), value)


def exp(x: PrimExpr) -> PrimExpr:
    """E to the x. At most 1 ULP."""
    return _limited(x, -746.0, 710.0, _exp_core)


def exp2(x: PrimExpr) -> PrimExpr:
    """2 to the x. At most 1 ULP."""
    return _limited(
        x,
        -1076.0,
        1025.0,
        lambda v: _near(v, 1.0, lambda n, bits: _exp_of(m.Mul(m.Sub(v, n), m.number(math.log(2), x)), bits)),
    )


def exp10(x: PrimExpr) -> PrimExpr:
    """10 to the x. At most 2 ULP."""

    def value(v: Var) -> PrimExpr:
        def reduced(n: Var, bits: Var) -> PrimExpr:
            f = m.fma(n, m.number(-_LOG10_2_LO, x), m.fma(n, m.number(-_LOG10_2_HI, x), v))
            return _exp_of(m.Mul(f, m.number(math.log(10), x)), bits)

        return _near(v, math.log2(10), reduced)

    return _limited(x, -324.0, 309.0, value)


def _expm1(x: Var) -> PrimExpr:
    """``exp(x) - 1`` for arguments within -30 ... 30."""

    def value(n: Var, bits: Var) -> PrimExpr:
        r = m.fma(n, m.number(-_LN2_LO, x), m.fma(n, m.number(-_LN2_HI, x), x))
        p = m.let(r, lambda r: m.fma(m.Mul(r, r), m.horner(_EXP, r), r), "r")
        return m.let(_power_of_two(bits), lambda s: m.fma(s, p, m.Sub(s, m.number(1.0, x))), "s")

    return _near(x, math.log2(math.e), value)


# --- logarithms -------------------------------------------------------------------------------------------------------


def _parts(x: PrimExpr, combine: Callable[[Var, Var], PrimExpr]) -> PrimExpr:
    """``combine(k, f)`` with ``x == 2**k (1 + f)`` and ``1 + f`` around 1, and special values."""

    @m.bound
    def value() -> m.Steps:
        y = yield m.Select(m.below(x, _LEAST), m.Mul(x, m.number(2.0**54, x)), x), "y"
        e = yield m.shift_right(m.Sub(m.bits_of(y), m.integer(_SQRT_HALF, y)), 52), "e"
        f = yield m.Sub(m.float_of(m.Sub(m.bits_of(y), m.shift_left(e, 52))), m.number(1.0, x)), "f"
        k = yield m.Add(Cast(x.dtype, e), m.Select(m.below(x, _LEAST), m.number(-54.0, x), m.number(0.0, x))), "k"
        return combine(k, f)

    result = m.Select(m.equal(x, math.inf), x, value())
    result = m.Select(m.equal(x, 0.0), m.number(-math.inf, x), result)
    return m.Select(x >= m.number(0.0, x), result, m.number(math.nan, x))


@m.bound
def _log_of(f: Var, added: PrimExpr | None = None) -> m.Steps:
    """``log(1 + f) + added``, by the series of the inverse hyperbolic tangent."""
    s = yield m.Div(f, m.Add(m.number(2.0, f), f)), "s"
    series = m.let(m.Mul(s, s), lambda z: m.Mul(z, m.horner(_LOG, z)), "z")
    half = yield m.Mul(m.Mul(f, f), m.number(0.5, f)), "half"
    tail = m.Mul(s, m.Add(half, series))
    return m.Sub(f, m.Sub(half, tail if added is None else m.Add(tail, added)))


def log(x: PrimExpr) -> PrimExpr:
    """The natural logarithm. At most 1 ULP; zero gives minus infinity, negative numbers NaN."""
    return _parts(x, lambda k, f: m.fma(k, m.number(_LN2_HI, x), _log_of(f, m.Mul(k, m.number(_LN2_LO, x)))))


def log2(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 2. At most 2 ULP."""
    return _parts(x, lambda k, f: m.fma(_log_of(f), m.number(math.log2(math.e), x), k))


def log10(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 10. At most 2 ULP."""

    def combine(k: Var, f: Var) -> PrimExpr:
        small = m.fma(_log_of(f), m.number(math.log10(math.e), x), m.Mul(k, m.number(_LOG10_2_LO, x)))
        return m.fma(k, m.number(_LOG10_2_HI, x), small)

    return _parts(x, combine)


def log1p(x: PrimExpr) -> PrimExpr:
    """``log(1 + x)``, exact for small `x`. At most 2 ULP."""
    return single.log1p(x, log=log)


# --- powers -----------------------------------------------------------------------------------------------------------


@m.bound
def _log_pair(k: Var, f: Var, body: Callable[[Var, PrimExpr], PrimExpr]) -> m.Steps:
    """``body(high, low)`` of a logarithm to 65 bits: twice the series of ``s = f / (2 + f)``, in pairs of numbers."""
    d = yield m.Add(m.number(2.0, f), f), "d"
    lost = m.Sub(f, m.Sub(d, m.number(2.0, f)))
    s = yield m.Div(f, d), "s"
    s_low = yield m.Div(m.fma(m.negated(s), lost, m.fma(m.negated(s), d, f)), d), "sl"
    z = yield m.Mul(s, s), "z"  # k log 2 + 2 (s + s z (1/3 + z Q(z)))
    third = m.number(1 / 3, z)
    z_low = m.fma(s, s, m.negated(z)) + m.Mul(m.Mul(m.number(2.0, s), s), s_low)
    q = yield m.Mul(z, m.horner(_LOG_TAIL, z)), "q"
    c = yield m.Add(third, q), "c"
    c_low = m.Add(m.Add(m.Sub(third, c), q), m.number(1 / 3 * 2.0**-54, z))  # 1/3 lacks that much as a float64
    w = yield m.Mul(z, c), "w"
    w_low = m.Add(m.fma(z, c, m.negated(w)), m.Add(m.Mul(z, c_low), m.Mul(z_low, c)))
    u = yield m.Mul(s, w), "u"
    u_low = m.Add(m.fma(s, w, m.negated(u)), m.Add(m.Mul(s, w_low), m.Mul(s_low, w)))
    rest = m.let(m.Add(s, u), lambda h: m.Add(m.Add(m.Sub(s, h), u), m.Add(s_low, u_low)), "h")
    h = yield m.Add(s, u), "h"
    twice = m.Mul(m.number(2.0, h), h)
    a = yield m.Mul(k, m.number(_LN2_HI, h)), "a"
    low = m.fma(k, m.number(_LN2_LO, h), m.Mul(m.number(2.0, h), rest))
    high = yield m.Add(a, twice), "high"
    return body(high, m.Add(m.Add(m.Sub(a, high), twice), low))


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """`x` to the power of `y`, with the special values of C's ``pow``. At most 2 ULP."""

    @m.bound
    def raised(high: Var, low: PrimExpr) -> m.Steps:
        p = yield m.Mul(y, high), "product"
        small = m.below(m.absolute(p), 800.0)
        rest = yield m.Select(small, m.Add(m.fma(y, high, m.negated(p)), m.Mul(y, low)), m.number(0.0, x)), "rest"
        near = yield m.Max(m.Min(p, m.number(800.0, x)), m.number(-800.0, x)), "v"
        return _exp_core(near, rest)

    @m.bound
    def value() -> m.Steps:
        a = yield m.absolute(x), "a"
        magnitude = _parts(a, lambda k, f: _log_pair(k, f, raised))
        up = m.above(y, 0.0)
        endless = m.Select(
            Or(m.equal(a, 0.0), m.equal(a, math.inf)),
            m.Select(
                m.equal(a, 0.0),
                m.Select(up, m.number(0.0, x), m.number(math.inf, x)),
                m.Select(up, m.number(math.inf, x), m.number(0.0, x)),
            ),
            magnitude,
        )
        turned = yield m.Select(m.equal(a, 1.0), m.number(1.0, x), endless), "m"
        return signed_power(x, y, turned)

    result = m.Select(m.is_nan(x), x, m.Select(m.is_nan(y), y, value()))
    return m.Select(Or(m.equal(y, 0.0), m.equal(x, 1.0)), m.number(1.0, x), result)


@m.bound
def hypot(x: PrimExpr, y: PrimExpr) -> m.Steps:
    """``sqrt(x**2 + y**2)`` without overflow. At most 2 ULP."""
    a = yield m.absolute(x), "a"
    b = yield m.absolute(y), "b"

    @m.bound
    def root() -> m.Steps:
        h = yield m.Max(a, b), "h"
        r = yield m.Div(m.Min(a, b), m.Select(m.equal(h, 0.0), m.number(1.0, x), h)), "r"
        return m.Mul(h, m.call("sqrt", m.fma(r, r, m.number(1.0, x))))

    return m.Select(Or(m.equal(a, math.inf), m.equal(b, math.inf)), m.number(math.inf, x), root())


# --- hyperbolic functions, angles, error function ---------------------------------------------------------------------


@m.bound
def tanh(x: PrimExpr) -> m.Steps:
    """The hyperbolic tangent. At most 2 ULP."""
    a = yield m.absolute(x), "a"
    e = m.let(m.Mul(m.Min(a, m.number(20.0, x)), m.number(2.0, x)), _expm1_or_exp, "c")
    result = m.let(e, lambda e: m.Div(e, m.Add(e, m.number(2.0, x))), "e")
    return m.Select(m.is_nan(x), x, m.with_sign_of(result, x))


def _expm1_or_exp(x: Var) -> PrimExpr:
    """``exp(x) - 1``; beyond 30 the one is lost."""
    return m.let(m.Min(x, m.number(40.0, x)), _expm1, "v")


@m.bound
def sinh(x: PrimExpr) -> m.Steps:
    """The hyperbolic sine. At most 2 ULP."""
    a = yield m.absolute(x), "a"
    e = m.let(m.Min(a, m.number(1.0, x)), _expm1, "v")
    near = m.let(e, lambda e: m.Mul(m.number(0.5, x), m.Add(e, m.Div(e, m.Add(e, m.number(1.0, x))))), "e")
    return m.Select(m.is_nan(x), x, m.with_sign_of(m.Select(m.below(a, 1.0), near, _half_exponentials(a, -1.0)), x))


def cosh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic cosine. At most 2 ULP."""
    return m.let(m.absolute(x), lambda a: m.Select(m.is_nan(x), x, _half_exponentials(a, 1.0)), "a")


def _half_exponentials(a: Var, sign: float) -> PrimExpr:
    """``(exp(a) + sign * exp(-a)) / 2`` for `a` of at least 0, without overflow before the result overflows."""
    half = m.let(m.Min(a, m.number(711.0, a)), lambda v: _exp_core(v, bias=-1), "c")
    return m.let(half, lambda h: m.Add(h, m.Div(m.number(0.25 * sign, a), h)), "h")


@m.bound
def _reduced(x: PrimExpr, value: Callable[[Var, PrimExpr], PrimExpr]) -> m.Steps:
    """``value(r, n)`` with ``x == n * pi / 2 + r``, `r` at most pi / 4 and `n` an int64, right in its low bits."""
    t = yield m.fma(x, m.number(2 / math.pi, x), m.number(_MAGIC, x)), "t"
    n = yield m.Sub(t, m.number(_MAGIC, x)), "n"
    first, second, third, fourth = (m.number(-part, x) for part in _HALF_PI)
    a = yield m.fma(n, first, x), "a"
    w = yield m.Mul(n, second), "w"
    b = yield m.Add(a, w), "b"
    lost = m.Add(m.Sub(a, b), w)
    r = yield m.Add(m.fma(n, third, b), m.fma(n, fourth, lost)), "r"
    return value(r, m.bits_of(t))


_WAVES = trig.Waves(_reduced, _SIN, _COS)


@m.bound
def erf(x: PrimExpr) -> m.Steps:
    """The error function. At most 2 ULP."""
    a = yield m.absolute(x), "a"
    small = m.let(m.Mul(x, x), lambda s: m.fma(x, m.horner(_ERF_SMALL, s), x), "s")
    u = m.Sub(m.Min(a, m.number(6.0, x)), m.number(3.0, x))
    log_erfc = m.negated(m.let(u, lambda u: m.horner(_ERF_LARGE, u), "u"))
    large = m.Sub(m.number(1.0, x), m.let(log_erfc, _exp_core, "l"))
    return m.Select(m.is_nan(x), x, m.Select(m.below(a, 0.92), small, m.with_sign_of(large, x)))


POLYNOMIALS64: dict[str, Callable[..., Any]] = {
    "tir." + f.__name__: f for f in (exp, exp2, exp10, log, log2, log10, log1p, tanh, sinh, cosh, erf, hypot)
} | {
    "tir.pow": power,
    "tir.sigmoid": lambda x: single.sigmoid(x, exp_of_negated=lambda x: m.let(m.negated(x), exp, "m")),
    "tir.asinh": lambda x: single.asinh(x, log=log, log1p=log1p),
    "tir.acosh": lambda x: single.acosh(x, log=log, log1p=log1p),
    "tir.atanh": lambda x: single.atanh(x, log1p=log1p),
    "tir.atan": partial(trig.atan, terms=_ATAN),
    "tir.atan2": partial(trig.atan2, terms=_ATAN),
    "tir.asin": partial(trig.asin, terms=_ASIN),
    "tir.acos": partial(trig.acos, terms=_ASIN),
}
"""Intrinsics that become polynomials on float64."""
WAVES64 = {f"tir.{f.__name__}": partial(f, waves=_WAVES) for f in (trig.sin, trig.cos, trig.tan)}
"""Those of vectors alone, at most 2.1, 2.1 and 3.2 ULP; for arguments far out the C library, or its like, answers."""
