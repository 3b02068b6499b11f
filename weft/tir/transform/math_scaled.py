"""Exponentials and logarithms of float32 for machines that scale and split by powers of two in one instruction.

``ldexp(p, n)`` overflows to infinity and underflows by itself, so that only the argument is limited from above, and
results below the least normal number are cleared by the mask of that one instruction: 13 operations instead of 20.
``logb`` and ``mantissa`` take a number apart, denormal ones too, and their own results for zero, infinity and what is
negative come out of the formula as the logarithm's: 19 operations instead of 31.
"""

import math
from collections.abc import Callable

from weft.ir import PrimExpr
from weft.tir.transform import math_terms as terms
from weft.tir.transform.math_float32 import EXP_COEFFICIENTS, LN2_HI, LN2_LO, MAGIC

_LOG = (
    0.33333447575569153,
    -0.2500019371509552,
    0.19991116225719452,
    -0.16643762588500977,
    0.14467400312423706,
    -0.13186444342136383,
    0.10583565384149551,
    -0.046180982142686844,
)


@terms.bound
def _scaled(x: PrimExpr, r: PrimExpr, n: PrimExpr, low: float) -> terms.Steps:
    """``exp(r) * 2**n``, zero where `x` is below `low`."""
    r = yield r, "r"
    power = terms.call("ldexp", terms.horner(EXP_COEFFICIENTS, r), n)
    return terms.Select(terms.below(x, low), terms.number(0.0, x), power)


@terms.bound
def exp(x: PrimExpr) -> terms.Steps:
    """E to the x. At most 2 ULP; overflow gives infinity, underflow zero, NaN NaN."""
    magic = terms.number(MAGIC, x)
    v = yield terms.Min(x, terms.number(89.0, x)), "v"
    n = yield terms.Sub(terms.fma(v, terms.number(math.log2(math.e), x), magic), magic), "n"
    r = terms.fma(n, terms.number(-LN2_LO, x), terms.fma(n, terms.number(-LN2_HI, x), v))
    return _scaled(x, r, n, -87.33654)


@terms.bound
def exp2(x: PrimExpr) -> terms.Steps:
    """2 to the x. At most 2 ULP."""
    magic = terms.number(MAGIC, x)
    v = yield terms.Min(x, terms.number(129.0, x)), "v"
    n = yield terms.Sub(terms.Add(v, magic), magic), "n"
    return _scaled(x, terms.Mul(terms.Sub(v, n), terms.number(math.log(2), x)), n, -126.0)


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + exp(-x))``. At most 4 ULP."""
    return terms.Div(terms.number(1.0, x), terms.Add(terms.number(1.0, x), terms.let(terms.negated(x), exp, "m")))


@terms.bound
def log(x: PrimExpr) -> terms.Steps:
    """The natural logarithm.

    At most 2 ULP; zero gives minus infinity, negative numbers NaN; denormals count as their value.
    """
    m = yield terms.call("mantissa", x), "m"
    f = yield terms.Sub(m, terms.number(1.0, x)), "f"
    square = yield terms.Mul(f, f), "s"
    k = yield terms.Sub(terms.call("logb", x), terms.call("logb", m)), "k"
    low = terms.fma(terms.Mul(square, f), terms.horner(_LOG, f), terms.Mul(k, terms.number(LN2_LO, x)))
    return terms.fma(k, terms.number(LN2_HI, x), terms.Add(f, terms.fma(square, terms.number(-0.5, x), low)))


SCALED: dict[str, Callable[[PrimExpr], PrimExpr]] = {"tir." + f.__name__: f for f in (exp, exp2, log, sigmoid)}
"""Intrinsics that are shorter with ``ldexp``, ``logb`` and ``mantissa``."""
