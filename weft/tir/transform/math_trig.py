"""Functions of float32 as polynomials: trigonometric functions and their inverses.

Arguments are reduced in float64, which is exact enough up to 2**20; above that (rare, so tested once for a whole
vector) the C library's float64 functions answer. Errors are stated against float64, which has its own ``Waves``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from weft.ir import CallIntrin, Op, PrimExpr, Var
from weft.ir.scalar import EQ, GT, NE
from weft.tir.transform import math_terms as m

_SIN = (-0.16666655242443085, 0.008332177996635437, -0.00019517327018547803)
_COS = (0.04166664555668831, -0.0013887368841096759, 2.443855191813782e-05)
_ATAN = m.coefficients("""
    -0.33333301544189453 0.19998641312122345 -0.142652690410614 0.10957687348127365 -0.08419762551784515
    0.05823945626616478 -0.03146035969257355 0.011066840961575508 -0.0018277307972311974
""")
_ASIN = (0.16666753590106964, 0.07495252043008804, 0.04547600820660591, 0.02415234036743641, 0.042211294174194336)
_HALF_PI_HI, _HALF_PI_LO = 1.5707963267341256, 6.077100506506192e-11  # the first has 31 bits
_MAGIC = 6755399441055744.0  # 1.5 * 2**52
_EXACT = 1048576.0


@m.bound
def _reduced(x: PrimExpr, value: Callable[[Var, PrimExpr], PrimExpr]) -> m.Steps:
    """``value(r, n)`` with ``x == n * pi / 2 + r``, `r` at most pi / 4 and `n` an int32, right in its low bits."""
    d = yield m.double(x), "d"
    t = yield m.fma(d, m.number(2 / math.pi, d), m.number(_MAGIC, d)), "t"
    whole = m.Sub(t, m.number(_MAGIC, d))
    near = m.let(whole, lambda n: m.fma(n, m.number(-_HALF_PI_LO, d), m.fma(n, m.number(-_HALF_PI_HI, d), d)), "n")
    r = yield m.convert("float32", near), "r"
    return value(r, m.convert("int32", m.bits_of(t)))


class Waves(NamedTuple):
    """How arguments are reduced, and the coefficients of sine and cosine up to pi / 4 behind the first terms."""

    reduced: Callable[[PrimExpr, Callable[[Var, PrimExpr], PrimExpr]], PrimExpr]
    sin: tuple[float, ...]
    cos: tuple[float, ...]


def _sin_of(r: Var, s: Var, waves: Waves) -> PrimExpr:
    return m.fma(m.Mul(s, r), m.horner(waves.sin, s), r)


def _cos_of(s: Var, waves: Waves) -> PrimExpr:
    return m.fma(m.Mul(s, s), m.horner(waves.cos, s), m.fma(s, m.number(-0.5, s), m.number(1.0, s)))


_WAVES = Waves(_reduced, _SIN, _COS)


def _has_bit(n: PrimExpr, bit: int) -> PrimExpr:
    return NE(m.call("bitwise_and", n, m.integer(bit, n)), m.integer(0, n))


def _with_far_arguments(x: PrimExpr, near: PrimExpr, name: str) -> PrimExpr:
    """Choose the C library's function where an argument is too far out for `near`."""
    far = CallIntrin(m.double(x).dtype, Op.get("tir." + name), (m.double(x),))
    far = far if far.dtype == x.dtype else m.convert("float32", far)
    return m.any_else(GT(m.absolute(x), m.number(_EXACT, x)), far, near)


def _wave(x: PrimExpr, quarter: int, name: str, waves: Waves) -> PrimExpr:
    @m.bound
    def value(r: Var, n: PrimExpr) -> m.Steps:
        q = yield m.Add(n, m.integer(quarter, n)) if quarter else n, "q"
        s = yield m.Mul(r, r), "s"
        p = yield m.Select(_has_bit(q, 1), _cos_of(s, waves), _sin_of(r, s, waves)), "p"
        return m.Select(_has_bit(q, 2), m.negated(p), p)

    return _with_far_arguments(x, waves.reduced(x, value), name)


def sin(x: PrimExpr, *, waves: Waves = _WAVES) -> PrimExpr:
    """The sine. At most 2 ULP."""
    return m.Select(m.equal(x, 0.0), x, _wave(x, 0, "sin", waves))


def cos(x: PrimExpr, *, waves: Waves = _WAVES) -> PrimExpr:
    """The cosine. At most 2 ULP."""
    return _wave(x, 1, "cos", waves)


def tan(x: PrimExpr, *, waves: Waves = _WAVES) -> PrimExpr:
    """The tangent. At most 4 ULP."""

    @m.bound
    def value(r: Var, n: PrimExpr) -> m.Steps:
        s = yield m.Mul(r, r), "s"
        a = yield _sin_of(r, s, waves), "a"
        b = yield _cos_of(s, waves), "b"
        odd = _has_bit(n, 1)
        return m.Div(m.Select(odd, m.negated(b), a), m.Select(odd, a, b))

    return m.Select(m.equal(x, 0.0), x, _with_far_arguments(x, waves.reduced(x, value), "tan"))


def _atan_unit(z: PrimExpr, terms: tuple[float, ...]) -> PrimExpr:
    """The inverse tangent of 0 ... 1."""
    return m.let(z, lambda z: m.let(m.Mul(z, z), lambda s: m.fma(m.Mul(s, z), m.horner(terms, s), z), "s"), "z")


@m.bound
def atan(x: PrimExpr, *, terms: tuple[float, ...] = _ATAN) -> m.Steps:
    """The inverse tangent. At most 3 ULP."""
    a = yield m.absolute(x), "a"
    p = yield _atan_unit(m.Select(m.above(a, 1.0), m.Div(m.number(1.0, x), a), a), terms), "p"
    return m.with_sign_of(m.Select(m.above(a, 1.0), m.Sub(m.number(math.pi / 2, x), p), p), x)


def atan2(y: PrimExpr, x: PrimExpr, *, terms: tuple[float, ...] = _ATAN) -> PrimExpr:
    """The angle of the point (x, y). At most 4 ULP."""

    @m.bound
    def value() -> m.Steps:
        ay = yield m.absolute(y), "ay"
        ax = yield m.absolute(x), "ax"
        low, high = m.Min(ax, ay), m.Max(ax, ay)
        p = yield _atan_unit(m.let(low, lambda lo: m.let(high, lambda hi: _ratio(lo, hi), "hi"), "lo"), terms), "p"
        q = yield m.Select(GT(ay, ax), m.Sub(m.number(math.pi / 2, x), p), p), "q"
        is_left = m.bits_of(x) < m.integer(0, m.bits_of(x))  # minus zero too
        return m.with_sign_of(m.Select(is_left, m.Sub(m.number(math.pi, x), q), q), y)

    return m.Select(NE(x, x), x, m.Select(NE(y, y), y, value()))


def _ratio(low: Var, high: Var) -> PrimExpr:
    """``low / high``; 0 for 0 / 0 and 1 for two infinities."""
    plain = m.Select(EQ(low, high), m.number(1.0, low), m.Div(low, high))
    return m.Select(m.equal(high, 0.0), m.number(0.0, low), plain)


@m.bound
def _asin_parts(a: Var, terms: tuple[float, ...], value: Callable[[Var, PrimExpr], PrimExpr]) -> m.Steps:
    """``value(p, is_small)`` with ``p`` the inverse sine of `a` up to 0.5, and of ``sqrt((1 - a) / 2)`` above."""
    small = m.below(a, 0.5)
    s = yield m.Select(small, m.Mul(a, a), m.fma(a, m.number(-0.5, a), m.number(0.5, a))), "s"
    z = yield m.Select(small, a, m.call("sqrt", s)), "z"
    p = yield m.fma(m.Mul(s, z), m.horner(terms, s), z), "p"
    return value(p, small)


def asin(x: PrimExpr, *, terms: tuple[float, ...] = _ASIN) -> PrimExpr:
    """The inverse sine; NaN outside of -1 ... 1. At most 3 ULP."""

    def value(p: Var, small: PrimExpr) -> PrimExpr:
        return m.with_sign_of(m.Select(small, p, m.fma(p, m.number(-2.0, x), m.number(math.pi / 2, x))), x)

    return m.let(m.absolute(x), lambda a: _asin_parts(a, terms, value), "a")


def acos(x: PrimExpr, *, terms: tuple[float, ...] = _ASIN) -> PrimExpr:
    """The inverse cosine; NaN outside of -1 ... 1. At most 3 ULP."""

    def value(p: Var, small: PrimExpr) -> PrimExpr:
        middle = m.Sub(m.number(math.pi / 2, x), m.with_sign_of(p, x))
        twice = m.Mul(m.number(2.0, x), p)
        outer = m.Select(m.below(x, 0.0), m.Sub(m.number(math.pi, x), twice), twice)
        return m.Select(small, middle, outer)

    return m.let(m.absolute(x), lambda a: _asin_parts(a, terms, value), "a")
