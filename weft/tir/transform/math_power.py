"""The power of float32 numbers, by a logarithm and an exponential in float64."""

import math

from weft import ir
from weft.tir.transform import math_terms as terms

_LOG2 = terms.coefficients("""
    2.88539008177785 0.9617966941139339 0.5770779421864547 0.41220927101589794 0.3199049150369277 0.28291150008632776
""")
_EXP2 = terms.coefficients("""
    0.9999999999595487 0.6931471805350312 0.24022651213583657 0.05550410976096408 0.009618025604194586
    0.0013333422656377487 0.0001546973164098936 1.531645902534402e-05
""")
_MAGIC = 6755399441055744.0  # 1.5 * 2**52
_MANTISSA = (1 << 52) - 1
_TWO_52 = 0x4330000000000000


@terms.bound
def _log2(a: ir.PrimExpr) -> terms.Steps:
    """The logarithm to base 2 of a positive float64, to 44 bits."""
    bits = yield terms.bits_of(a), "b"
    # 0x3FE6A09E667F3BCD is sqrt(1/2); the difference is positive for every positive float32
    shifted = terms.Sub(bits, terms.integer(0x3FE6A09E667F3BCD - (1022 << 52), bits))
    e = yield terms.call("shift_right", shifted, terms.integer(52, shifted)), "e"  # the exponent field
    whole = terms.float_of(terms.call("bitwise_or", e, terms.integer(_TWO_52, e)))
    exponent = terms.Sub(whole, terms.number(2.0**52 + 1022, a))
    upper = terms.call("bitwise_and", shifted, terms.integer(_MANTISSA, bits))
    m = yield terms.float_of(terms.Add(upper, terms.integer(0x3FE6A09E667F3BCD, bits))), "m"
    s = yield terms.Div(terms.Sub(m, terms.number(1.0, a)), terms.Add(m, terms.number(1.0, a))), "s"
    return terms.fma(s, terms.horner(_LOG2, terms.Mul(s, s)), exponent)


@terms.bound
def _exp2(t: ir.PrimExpr) -> terms.Steps:
    """2 to the t, in float64, for t within -1000 ... 1000."""
    m = yield terms.Add(t, terms.number(_MAGIC, t)), "m"
    f = terms.Sub(t, terms.Sub(m, terms.number(_MAGIC, t)))
    p = terms.let(f, lambda f: terms.horner(_EXP2, f), "f")
    return terms.float_of(terms.Add(terms.bits_of(p), terms.shift_left(terms.bits_of(m), 52)))


def power(x: ir.PrimExpr, y: ir.PrimExpr) -> ir.PrimExpr:
    """`x` to the power of `y`, with the special values of C's ``pow``. At most 1 ULP, denormal results included."""

    def limited(t: ir.Var) -> ir.PrimExpr:
        return terms.let(terms.Max(terms.Min(t, terms.number(1000.0, t)), terms.number(-1000.0, t)), _exp2, "c")

    @terms.bound
    def value() -> terms.Steps:
        a = yield terms.absolute(x), "a"
        log = terms.let(terms.double(a), _log2, "d")
        log = terms.Select(terms.equal(a, 0.0), terms.number(-math.inf, terms.double(a)), log)
        log = terms.Select(terms.equal(a, math.inf), terms.number(math.inf, terms.double(a)), log)
        magnitude = terms.convert("float32", terms.let(terms.Mul(terms.double(y), log), limited, "t"))
        one = terms.number(1.0, x)  # also for an infinite exponent
        p = yield terms.Select(terms.equal(a, 1.0), one, magnitude), "p"
        return signed_power(x, y, p)

    result = terms.Select(terms.is_nan(x), x, terms.Select(terms.is_nan(y), y, value()))
    return terms.Select(ir.Or(terms.equal(y, 0.0), terms.equal(x, 1.0)), terms.number(1.0, x), result)


def signed_power(x: ir.PrimExpr, y: ir.PrimExpr, magnitude: ir.Var) -> ir.PrimExpr:
    """Give the result the sign that an odd exponent keeps; a negative base with a broken exponent has no power."""
    half = terms.Mul(y, terms.number(0.5, y))
    is_whole = ir.EQ(terms.call("floor", y), y)
    is_odd = ir.And(is_whole, ir.NE(terms.call("floor", half), half))
    is_negative = terms.bits_of(x) < terms.integer(0, terms.bits_of(x))
    result = terms.Select(ir.And(is_negative, is_odd), terms.negated(magnitude), magnitude)
    broken = ir.And(ir.And(terms.below(x, 0.0), ir.NE(terms.call("floor", y), y)), terms.above(x, -math.inf))
    return terms.Select(broken, terms.number(math.nan, x), result)
