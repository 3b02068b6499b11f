"""Functions of float64 as polynomials, for machines without a C library.

Each function takes an expression (a variable, so that it may be used often) of type float64 or a vector of it and
returns an expression. Coefficients are Chebyshev fits of our own. The errors stated were measured against 60 digits,
with fused multiply-add; results below the least normal number keep the bits that they have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.ir import Cast, Or, PrimExpr, Var
from weft.tir.transform import math_float32 as single
from weft.tir.transform import math_terms as mt
from weft.tir.transform import math_trig as trig
from weft.tir.transform.math_power import signed_power

_EXP = (
    0.5, 0.16666666666666669, 0.04166666666662416, 0.008333333333330063, 0.0013888888917199863, 0.00019841269863042963,
    2.4801521317484083e-05, 2.7557268476553695e-06, 2.7620078203806394e-07, 2.5100377619606372e-08,
)  # fmt: skip
_LOG = (
    0.6666666666666666, 0.4000000000000088, 0.28571428570803253, 0.22222222391794727, 0.18181795631498243,
    0.15386240172447838, 0.13268760562036724, 0.1308675766695207,
)  # fmt: skip
_LOG_TAIL = (
    0.20000000000000012, 0.14285714285669254, 0.11111111135550344, 0.09090904123907029, 0.07692787388413568,
    0.06642979043898552, 0.06456804803218566,
)  # fmt: skip
_ATAN = (
    -0.3333333333333333, 0.1999999999999753, -0.14285714285384132, 0.11111111093490827, -0.09090908590891934,
    0.07692298971033217, -0.06666564699289104, 0.05881506877793656, -0.052579733342841106, 0.04737749579527779,
    -0.04260356632601652, 0.03749486812535247, -0.031277189066996385, 0.023696731580048622, -0.015535152475414177,
    0.008368931178450162, -0.0034958859739163094, 0.0010496035084968515, -0.00019996189377901382,
    1.806195461861215e-05,
)  # fmt: skip
_ASIN = (
    0.1666666666666665, 0.07500000000020764, 0.044642857103423646, 0.03038194736709848, 0.02237204763174451,
    0.017355259955786323, 0.013929652902326633, 0.011875494382636922, 0.0078029494773533175, 0.01603551434914882,
    -0.010749050339697808, 0.028169218060881414,
)  # fmt: skip
_ERF_SMALL = (
    0.1283791670955126, -0.37612638903183715, 0.11283791670953087, -0.02686617064468089, 0.005223977620296008,
    -0.0008548326676057783, 0.0001205531808959657, -1.4925229024405205e-05, 1.6454129701121747e-06,
    -1.626518495985192e-07, 1.3990995108423831e-08, -8.354981429959465e-10,
)  # fmt: skip
_ERF_LARGE = (  # -log(erfc(u + 3))
    10.720363041981113, 6.303753689003231, 0.9573942188012466, 0.007411891795622997, -0.0013533104380766211,
    0.0002456921335610149, -4.3081790971449555e-05, 7.115465778359552e-06, -1.0693892498732755e-06,
    1.3617630977062411e-07, -1.1459848060887312e-08, -6.33478675324244e-10, 6.101191574423871e-10,
    -1.8916592028820082e-10, 4.414054441078394e-11, -8.511541073272532e-12, 1.3379911044406897e-12,
    -1.65434086780557e-13, 1.3555858137257346e-14, 2.6979404648285487e-15, -2.2574527999415548e-15,
    6.705219779368409e-16, -9.698554766945032e-17, 5.6360447007161915e-18,
)  # fmt: skip
_LN2_HI, _LN2_LO = 0.6931471803691238, 1.9082149292705877e-10  # the first has 33 bits: its product with n is exact
_LOG10_2_HI, _LOG10_2_LO = 0.30102999560767785, 5.6303348065105984e-11
_MAGIC = 6755399441055744.0  # 1.5 * 2**52
_SQRT_HALF = 0x3FE6A09E667F3BCD
_LEAST = 2.0**-1022


def _power_of_two(n: PrimExpr) -> PrimExpr:
    """2 to the `n`, the bits of an int64 within -1022 ... 1023."""
    return mt.float_of(mt.shift_left(mt.Add(n, mt.integer(1023, n)), 52))


def _scaled(p: Var, n: Var) -> PrimExpr:
    """``p * 2**n`` in two steps, of which only the second can round."""
    return mt.let(mt.shift_right(n, 1), lambda h: mt.Mul(mt.Mul(p, _power_of_two(h)), _power_of_two(mt.Sub(n, h))), "h")


@mt.bound
def _near(x: PrimExpr, scale: float, body: Callable[[Var, Var], PrimExpr]) -> mt.Steps:
    """``body(n, bits)`` with the integer next to ``x * scale``, as a float64 and as an int64."""
    t = yield mt.fma(x, mt.number(scale, x), mt.number(_MAGIC, x)), "t"
    n = yield mt.Sub(t, mt.number(_MAGIC, x)), "n"
    bits = yield mt.Sub(mt.bits_of(t), mt.integer(0x4338000000000000, t)), "i"
    return body(n, bits)


@mt.bound
def _exp_of(r: PrimExpr, n: Var) -> mt.Steps:
    """``exp(r) * 2**n`` for `r` within half of log 2."""
    r = yield r, "r"
    p = yield mt.Add(mt.fma(mt.Mul(r, r), mt.horner(_EXP, r), r), mt.number(1.0, r)), "p"
    return _scaled(p, n)


def _limited(x: PrimExpr, low: float, high: float, body: Callable[[Var], PrimExpr]) -> PrimExpr:
    """`body` of an argument moved between limits beyond which its value is 0 or infinite; NaN for NaN."""
    result = mt.let(mt.Max(mt.Min(x, mt.number(high, x)), mt.number(low, x)), body, "v")
    return mt.Select(mt.is_nan(x), x, result)


def _exp_core(x: PrimExpr, rest: PrimExpr | None = None, bias: int = 0) -> PrimExpr:
    """``exp(x + rest) * 2**bias`` within limits that keep `n` small."""

    def value(n: Var, bits: Var) -> PrimExpr:
        r = mt.fma(n, mt.number(-_LN2_LO, x), mt.fma(n, mt.number(-_LN2_HI, x), x))
        r = mt.Add(r, rest) if rest is not None else r
        return mt.let(mt.Add(bits, mt.integer(bias, bits)) if bias else bits, lambda b: _exp_of(r, b), "k")

    return _near(x, math.log2(math.e), value)


def exp(x: PrimExpr) -> PrimExpr:
    """E to the x. At most 1 ULP."""
    return _limited(x, -746.0, 710.0, _exp_core)


def exp2(x: PrimExpr) -> PrimExpr:
    """2 to the x. At most 1 ULP."""
    return _limited(x, -1076.0, 1025.0, lambda v: _near(
        v, 1.0, lambda n, bits: _exp_of(mt.Mul(mt.Sub(v, n), mt.number(math.log(2), x)), bits)))  # fmt: skip


def exp10(x: PrimExpr) -> PrimExpr:
    """10 to the x. At most 2 ULP."""

    def value(v: Var) -> PrimExpr:
        def reduced(n: Var, bits: Var) -> PrimExpr:
            f = mt.fma(n, mt.number(-_LOG10_2_LO, x), mt.fma(n, mt.number(-_LOG10_2_HI, x), v))
            return _exp_of(mt.Mul(f, mt.number(math.log(10), x)), bits)

        return _near(v, math.log2(10), reduced)

    return _limited(x, -324.0, 309.0, value)


def _expm1(x: Var) -> PrimExpr:
    """``exp(x) - 1`` for arguments within -30 ... 30."""

    def value(n: Var, bits: Var) -> PrimExpr:
        r = mt.fma(n, mt.number(-_LN2_LO, x), mt.fma(n, mt.number(-_LN2_HI, x), x))
        p = mt.let(r, lambda r: mt.fma(mt.Mul(r, r), mt.horner(_EXP, r), r), "r")
        return mt.let(_power_of_two(bits), lambda s: mt.fma(s, p, mt.Sub(s, mt.number(1.0, x))), "s")

    return _near(x, math.log2(math.e), value)


# --- logarithms -------------------------------------------------------------------------------------------------------


def _parts(x: PrimExpr, combine: Callable[[Var, Var], PrimExpr]) -> PrimExpr:
    """``combine(k, f)`` with ``x == 2**k (1 + f)`` and ``1 + f`` around 1, and special values."""

    @mt.bound
    def value() -> mt.Steps:
        y = yield mt.Select(mt.below(x, _LEAST), mt.Mul(x, mt.number(2.0**54, x)), x), "y"
        e = yield mt.shift_right(mt.Sub(mt.bits_of(y), mt.integer(_SQRT_HALF, y)), 52), "e"
        f = yield mt.Sub(mt.float_of(mt.Sub(mt.bits_of(y), mt.shift_left(e, 52))), mt.number(1.0, x)), "f"
        k = yield mt.Add(Cast(x.dtype, e), mt.Select(mt.below(x, _LEAST), mt.number(-54.0, x), mt.number(0.0, x))), "k"
        return combine(k, f)

    result = mt.Select(mt.equal(x, math.inf), x, value())
    result = mt.Select(mt.equal(x, 0.0), mt.number(-math.inf, x), result)
    return mt.Select(x >= mt.number(0.0, x), result, mt.number(math.nan, x))


@mt.bound
def _log_of(f: Var, added: PrimExpr | None = None) -> mt.Steps:
    """``log(1 + f) + added``, by the series of the inverse hyperbolic tangent."""
    s = yield mt.Div(f, mt.Add(mt.number(2.0, f), f)), "s"
    series = mt.let(mt.Mul(s, s), lambda z: mt.Mul(z, mt.horner(_LOG, z)), "z")
    half = yield mt.Mul(mt.Mul(f, f), mt.number(0.5, f)), "half"
    tail = mt.Mul(s, mt.Add(half, series))
    return mt.Sub(f, mt.Sub(half, tail if added is None else mt.Add(tail, added)))


def log(x: PrimExpr) -> PrimExpr:
    """The natural logarithm. At most 1 ULP; zero gives minus infinity, negative numbers NaN."""
    return _parts(x, lambda k, f: mt.fma(k, mt.number(_LN2_HI, x), _log_of(f, mt.Mul(k, mt.number(_LN2_LO, x)))))


def log2(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 2. At most 2 ULP."""
    return _parts(x, lambda k, f: mt.fma(_log_of(f), mt.number(math.log2(math.e), x), k))


def log10(x: PrimExpr) -> PrimExpr:
    """The logarithm to base 10. At most 2 ULP."""

    def combine(k: Var, f: Var) -> PrimExpr:
        small = mt.fma(_log_of(f), mt.number(math.log10(math.e), x), mt.Mul(k, mt.number(_LOG10_2_LO, x)))
        return mt.fma(k, mt.number(_LOG10_2_HI, x), small)

    return _parts(x, combine)


def log1p(x: PrimExpr) -> PrimExpr:
    """``log(1 + x)``, exact for small `x`. At most 2 ULP."""
    return single.log1p(x, log=log)


# --- powers -----------------------------------------------------------------------------------------------------------


@mt.bound
def _log_pair(k: Var, f: Var, body: Callable[[Var, PrimExpr], PrimExpr]) -> mt.Steps:
    """``body(high, low)`` of a logarithm to 65 bits: twice the series of ``s = f / (2 + f)``, in pairs of numbers."""
    d = yield mt.Add(mt.number(2.0, f), f), "d"
    lost = mt.Sub(f, mt.Sub(d, mt.number(2.0, f)))
    s = yield mt.Div(f, d), "s"
    s_low = yield mt.Div(mt.fma(mt.negated(s), lost, mt.fma(mt.negated(s), d, f)), d), "sl"
    z = yield mt.Mul(s, s), "z"  # k log 2 + 2 (s + s z (1/3 + z Q(z)))
    third = mt.number(1 / 3, z)
    z_low = mt.fma(s, s, mt.negated(z)) + mt.Mul(mt.Mul(mt.number(2.0, s), s), s_low)
    q = yield mt.Mul(z, mt.horner(_LOG_TAIL, z)), "q"
    c = yield mt.Add(third, q), "c"
    c_low = mt.Add(mt.Add(mt.Sub(third, c), q), mt.number(1 / 3 * 2.0**-54, z))  # 1/3 lacks that much as a float64
    w = yield mt.Mul(z, c), "w"
    w_low = mt.Add(mt.fma(z, c, mt.negated(w)), mt.Add(mt.Mul(z, c_low), mt.Mul(z_low, c)))
    u = yield mt.Mul(s, w), "u"
    u_low = mt.Add(mt.fma(s, w, mt.negated(u)), mt.Add(mt.Mul(s, w_low), mt.Mul(s_low, w)))
    rest = mt.let(mt.Add(s, u), lambda h: mt.Add(mt.Add(mt.Sub(s, h), u), mt.Add(s_low, u_low)), "h")
    h = yield mt.Add(s, u), "h"
    twice = mt.Mul(mt.number(2.0, h), h)
    a = yield mt.Mul(k, mt.number(_LN2_HI, h)), "a"
    low = mt.fma(k, mt.number(_LN2_LO, h), mt.Mul(mt.number(2.0, h), rest))
    high = yield mt.Add(a, twice), "high"
    return body(high, mt.Add(mt.Add(mt.Sub(a, high), twice), low))


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """`x` to the power of `y`, with the special values of C's ``pow``. At most 2 ULP."""

    @mt.bound
    def raised(high: Var, low: PrimExpr) -> mt.Steps:
        p = yield mt.Mul(y, high), "product"
        small = mt.below(mt.absolute(p), 800.0)
        rest = yield mt.Select(small, mt.Add(mt.fma(y, high, mt.negated(p)), mt.Mul(y, low)), mt.number(0.0, x)), "rest"
        near = yield mt.Max(mt.Min(p, mt.number(800.0, x)), mt.number(-800.0, x)), "v"
        return _exp_core(near, rest)

    @mt.bound
    def value() -> mt.Steps:
        a = yield mt.absolute(x), "a"
        magnitude = _parts(a, lambda k, f: _log_pair(k, f, raised))
        up = mt.above(y, 0.0)
        endless = mt.Select(Or(mt.equal(a, 0.0), mt.equal(a, math.inf)),
                         mt.Select(mt.equal(a, 0.0), mt.Select(up, mt.number(0.0, x), mt.number(math.inf, x)),
                                mt.Select(up, mt.number(math.inf, x), mt.number(0.0, x))), magnitude)  # fmt: skip
        m = yield mt.Select(mt.equal(a, 1.0), mt.number(1.0, x), endless), "m"
        return signed_power(x, y, m)

    result = mt.Select(mt.is_nan(x), x, mt.Select(mt.is_nan(y), y, value()))
    return mt.Select(Or(mt.equal(y, 0.0), mt.equal(x, 1.0)), mt.number(1.0, x), result)


@mt.bound
def hypot(x: PrimExpr, y: PrimExpr) -> mt.Steps:
    """``sqrt(x**2 + y**2)`` without overflow. At most 2 ULP."""
    a = yield mt.absolute(x), "a"
    b = yield mt.absolute(y), "b"

    @mt.bound
    def root() -> mt.Steps:
        h = yield mt.Max(a, b), "h"
        r = yield mt.Div(mt.Min(a, b), mt.Select(mt.equal(h, 0.0), mt.number(1.0, x), h)), "r"
        return mt.Mul(h, mt.call("sqrt", mt.fma(r, r, mt.number(1.0, x))))

    return mt.Select(Or(mt.equal(a, math.inf), mt.equal(b, math.inf)), mt.number(math.inf, x), root())


# --- hyperbolic functions, angles, error function ---------------------------------------------------------------------


@mt.bound
def tanh(x: PrimExpr) -> mt.Steps:
    """The hyperbolic tangent. At most 2 ULP."""
    a = yield mt.absolute(x), "a"
    e = mt.let(mt.Mul(mt.Min(a, mt.number(20.0, x)), mt.number(2.0, x)), _expm1_or_exp, "c")
    result = mt.let(e, lambda e: mt.Div(e, mt.Add(e, mt.number(2.0, x))), "e")
    return mt.Select(mt.is_nan(x), x, mt.with_sign_of(result, x))


def _expm1_or_exp(x: Var) -> PrimExpr:
    """``exp(x) - 1``; beyond 30 the one is lost."""
    return mt.let(mt.Min(x, mt.number(40.0, x)), _expm1, "v")


@mt.bound
def sinh(x: PrimExpr) -> mt.Steps:
    """The hyperbolic sine. At most 2 ULP."""
    a = yield mt.absolute(x), "a"
    e = mt.let(mt.Min(a, mt.number(1.0, x)), _expm1, "v")
    near = mt.let(e, lambda e: mt.Mul(mt.number(0.5, x), mt.Add(e, mt.Div(e, mt.Add(e, mt.number(1.0, x))))), "e")
    return mt.Select(
        mt.is_nan(x), x, mt.with_sign_of(mt.Select(mt.below(a, 1.0), near, _half_exponentials(a, -1.0)), x)
    )


def cosh(x: PrimExpr) -> PrimExpr:
    """The hyperbolic cosine. At most 2 ULP."""
    return mt.let(mt.absolute(x), lambda a: mt.Select(mt.is_nan(x), x, _half_exponentials(a, 1.0)), "a")


def _half_exponentials(a: Var, sign: float) -> PrimExpr:
    """``(exp(a) + sign * exp(-a)) / 2`` for `a` of at least 0, without overflow before the result overflows."""
    half = mt.let(mt.Min(a, mt.number(711.0, a)), lambda v: _exp_core(v, bias=-1), "c")
    return mt.let(half, lambda h: mt.Add(h, mt.Div(mt.number(0.25 * sign, a), h)), "h")


def _atan_unit(z: PrimExpr) -> PrimExpr:
    """The inverse tangent of 0 ... 1."""
    return mt.let(z, lambda z: mt.let(mt.Mul(z, z), lambda s: mt.fma(mt.Mul(s, z), mt.horner(_ATAN, s), z), "s"), "z")


def _asin_small(a: Var, s: Var) -> PrimExpr:
    return mt.fma(mt.Mul(s, a), mt.horner(_ASIN, s), a)


@mt.bound
def erf(x: PrimExpr) -> mt.Steps:
    """The error function. At most 2 ULP."""
    a = yield mt.absolute(x), "a"
    small = mt.let(mt.Mul(x, x), lambda s: mt.fma(x, mt.horner(_ERF_SMALL, s), x), "s")
    u = mt.Sub(mt.Min(a, mt.number(6.0, x)), mt.number(3.0, x))
    log_erfc = mt.negated(mt.let(u, lambda u: mt.horner(_ERF_LARGE, u), "u"))
    large = mt.Sub(mt.number(1.0, x), mt.let(log_erfc, _exp_core, "l"))
    return mt.Select(mt.is_nan(x), x, mt.Select(mt.below(a, 0.92), small, mt.with_sign_of(large, x)))


POLYNOMIALS64: dict[str, Callable[..., Any]] = {
    "tir." + f.__name__: f for f in (exp, exp2, exp10, log, log2, log10, log1p, tanh, sinh, cosh, erf, hypot)
} | {
    "tir.pow": power,
    "tir.sigmoid": lambda x: single.sigmoid(x, exp_of_negated=lambda x: mt.let(mt.negated(x), exp, "m")),
    "tir.asinh": lambda x: single.asinh(x, log=log, log1p=log1p),
    "tir.acosh": lambda x: single.acosh(x, log=log, log1p=log1p),
    "tir.atanh": lambda x: single.atanh(x, log1p=log1p),
    "tir.atan": lambda x: trig.atan(x, unit=_atan_unit),
    "tir.atan2": lambda y, x: trig.atan2(y, x, unit=_atan_unit),
    "tir.asin": lambda x: trig.asin(x, small_arc=_asin_small),
    "tir.acos": lambda x: trig.acos(x, small_arc=_asin_small),
}
"""Intrinsics that become polynomials on float64; of sine, cosine and tangent a target has code of its own."""
