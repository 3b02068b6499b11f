"""Special functions of a scalar, as expressions; narrow types are computed in float64.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions; Giles, Approximating the erfinv function, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from weft import tir
from weft.ir import FloatImm, Let, PrimExpr, Var, cast, const, select

_WIDE = "float64"
_BERNOULLI = tuple(float(Fraction(f)) for f in "1/6 -1/30 1/42 -1/30 5/66 -691/2730 7/6 -3617/510".split())
"""Of the orders 2, 4, …."""
_CHAIN = 8
"""How many operations may wait for one another: terms of a polynomial, factors of a power."""
_SHIFT = 8
"""From here on asymptotic series have the digits of a double."""


def number(value: float) -> PrimExpr:
    """A number of the type that all is computed in."""
    return const(value, _WIDE)


def let(value: PrimExpr, body: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    """Bind what `body` uses more than once."""
    var = Var("t", value.dtype)
    return Let(var, value, body(var))


def widened(fn: Callable[[PrimExpr], PrimExpr]) -> Callable[[Any], PrimExpr]:
    """A function of doubles as one of its argument's type."""

    def apply(x: Any) -> PrimExpr:
        return cast(x.dtype, let(cast(_WIDE, x), fn))

    apply.__name__, apply.__doc__ = fn.__name__, fn.__doc__
    return apply


def _table(text: str) -> list[float]:
    return [float(f) for f in text.split()]


def polynomial(x: PrimExpr, factors: Sequence[float]) -> PrimExpr:
    """Horner's scheme, the highest power first; blocks of a long one side by side, since each waits for its sums."""
    if len(factors) > _CHAIN:
        high, low = factors[:-_CHAIN], polynomial(x, factors[-_CHAIN:])
        square = let(x * x, lambda s: s * s)
        return let(let(square, lambda f: f * f), lambda p: tir.fma(polynomial(x, high), p, low))
    total = number(factors[0])
    for factor in factors[1:]:
        total = tir.fma(total, x, number(factor))
    return total


_ERFCX = """-1.791502752209178e-10 -7.652918351368929e-11 2.282283310732059e-09 7.054882560385151e-10
-1.8096905734635933e-08 -2.762829273945234e-10 1.2678363974294932e-07 -7.440134079315679e-08 -8.477202827598295e-07
1.4235437808888834e-06 4.6949536005148395e-06 -1.8860655174390427e-05 -3.6352864144616853e-06 0.00017681276781310884
-0.0004550526714402559 -0.0002809588591250074 0.00611205565561393 -0.02637005334070314 0.0763815149091835
-0.17401093723993213 0.33085158787802266 -0.5408538313132345 0.7732087022652369 -0.976548729080882 1.095995661000491"""
"""``erfcx(x) * (x + 4)`` in powers of ``(x - 4) / (x + 4)`` for x >= 0: a Chebyshev series, the highest power first."""


def _erfcx_positive(x: PrimExpr) -> PrimExpr:
    def by(s: PrimExpr) -> PrimExpr:
        return s * let(number(1) - number(8) * s, lambda t: polynomial(t, _table(_ERFCX)))

    return let(number(1) / (x + number(4)), by)


@widened
def erfc(x: PrimExpr) -> PrimExpr:
    """``erfcx(|x|) * exp(-x * x)``, less what the square is rounded by; below zero what is missing to 2."""

    def scaled(z: PrimExpr) -> PrimExpr:
        square = z * z
        return let(_erfcx_positive(z) * tir.exp(-square), lambda y: y - y * tir.fma(z, z, -square))

    size = let(tir.min(tir.abs(x), number(30)), scaled)
    return let(size, lambda y: select(x < number(0), number(2) - y, y))


@widened
def erfcx(x: PrimExpr) -> PrimExpr:
    """``erfc(x) * exp(x * x)``, of which the second alone is too large far from zero."""
    size = let(tir.abs(x), _erfcx_positive)
    return select(x < number(0), number(2) * tir.exp(x * x) - size, size)


_ERFINV = {
    -2.5: """2.81022636e-08 3.43273939e-07 -3.5233877e-06 -4.39150654e-06 0.00021858087 -0.00125372503 -0.00417768164
    0.246640727 1.50140941""",
    -3: """-0.000200214257 0.000100950558 0.00134934322 -0.00367342844 0.00573950773 -0.0076224613 0.00943887047
    1.00167406 2.83297682""",
}


@widened
def erfinv(x: PrimExpr) -> PrimExpr:
    """Giles' polynomials, which have a float's digits, and a step of Halley's method."""

    def first(w: PrimExpr) -> PrimExpr:
        places = zip((w, tir.sqrt(w)), _ERFINV.items(), strict=True)
        near, far = (polynomial(v + number(c), _table(text)) for v, (c, text) in places)
        return select(w < number(5), near, far) * x

    def step(y: PrimExpr) -> PrimExpr:
        away = (tir.erf(y) - x) * number(math.sqrt(math.pi) / 2) * tir.exp(y * y)
        return let(away, lambda d: y - d / (number(1) + y * d))

    found = let(let(-tir.log1p(-x * x), first), step)
    return select(tir.abs(x).equal(number(1)), x * number(math.inf), found)


def _lgamma_positive(x: PrimExpr) -> PrimExpr:
    """Stirling's series (6.1.41), of small numbers behind the recurrence."""

    def series(z: PrimExpr) -> PrimExpr:
        factors = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
        rest = let(number(1) / (z * z), lambda s: polynomial(s, factors[::-1])) / z
        return (z - number(0.5)) * tir.log(z) - z + number(math.log(2 * math.pi) / 2) + rest

    product = x
    for k in range(1, _SHIFT):
        product = product * (x + number(k))
    small = x < number(_SHIFT)
    moved = let(select(small, x + number(_SHIFT), x), series)
    return select(x.equal(number(math.inf)), x, moved - select(small, tir.log(product), number(0)))


@widened
def lgamma(x: PrimExpr) -> PrimExpr:
    """The logarithm of the gamma function's size; below zero by reflection (6.1.17)."""
    size = tir.abs(x)
    mirrored = tir.log(number(math.pi) / tir.abs(size * tir.sin(number(math.pi) * (x - tir.round(x)))))
    return let(_lgamma_positive(size), lambda y: select(x >= number(0), y, select(tir.isinf(x), size, mirrored - y)))


@widened
def digamma(x: PrimExpr) -> PrimExpr:
    """The derivative of `lgamma` (6.3.18); below zero by reflection (6.3.7)."""

    def series(z: PrimExpr) -> PrimExpr:
        factors = [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
        rest = let(number(1) / (z * z), lambda s: s * polynomial(s, factors[::-1]))
        return tir.log(z) - number(0.5) / z - rest

    def positive(z: PrimExpr) -> PrimExpr:
        before = number(1) / z
        for k in range(1, _SHIFT):
            before = before + number(1) / (z + number(k))
        small = z < number(_SHIFT)
        return let(select(small, z + number(_SHIFT), z), series) - select(small, before, number(0))

    angle = number(math.pi) * (x - tir.round(x))
    below = let(number(1) - x, positive) - number(math.pi) / tir.tan(angle)
    whole = tir.all(x < number(0), x.equal(tir.round(x)))
    found = select(x > number(0), let(tir.max(x, number(1e-300)), positive), below)
    return select(whole, number(math.nan), select(x.equal(number(0)), number(-1) / x, found))


def _bessel(order: int, x: PrimExpr, scaled: bool) -> PrimExpr:
    """The modified Bessel function of the first kind (9.6.10, far from zero 9.7.1), times exp(-|x|) where `scaled`."""
    near, far = [], [1.0]
    for k in range(60):
        near.append(1 / (math.factorial(k) * math.factorial(k + order)))
        far.append(-far[-1] * (4 * order * order - (2 * k + 1) ** 2) / (8 * (k + 1)))

    def both(size: PrimExpr) -> PrimExpr:
        low, high = tir.min(size, number(20)), tir.max(size, number(20))
        small = let(low * low / number(4), lambda q: polynomial(q, near[::-1]))
        small = small * (x / number(2) if order else number(1))
        large = polynomial(number(1) / high, far[24::-1]) / tir.sqrt(number(2 * math.pi) * high)
        large = large * select(x < number(0), number(-1), number(1)) if order else large
        if scaled:
            small = small * tir.exp(-size)
        else:
            large = large * tir.exp(size)
        return select(size > number(20), large, small)

    return let(tir.abs(x), both)


def bessel(order: int, scaled: bool) -> Callable[[Any], PrimExpr]:
    """The modified Bessel function of the first kind of order 0 or 1; `scaled` by exp(-|x|)."""
    return widened(lambda x: _bessel(order, x, scaled))


def _zeta(s: PrimExpr, q: PrimExpr) -> PrimExpr:
    """Hurwitz' sum of ``(q + k) ** -s`` over k >= 0 by Euler and Maclaurin, for ``s > 1`` and ``q > 0``."""
    whole = int(s.value) if isinstance(s, FloatImm) else 0

    def power(z: PrimExpr, less: int = 0) -> PrimExpr:
        count = whole - less
        return number(1) / math.prod([z] * count) if 0 < count <= _CHAIN else tir.power(z, number(less) - s)

    found = number(0)
    for k in range(12):
        found = found + let(q + number(k), power)

    def tail(z: PrimExpr) -> PrimExpr:
        held = tir.min(s, number(1e6))  # whose powers are finite
        rest, rising = number(0.5), held / z
        for k, b in enumerate(_BERNOULLI, 1):
            rest = rest + rising * number(b / math.factorial(2 * k))
            rising = rising * ((held + number(2 * k - 1)) * (held + number(2 * k))) / (z * z)
        return power(z, 1) * (number(1) / (s - number(1)) + rest / z)

    return found + let(q + number(12), tail)


def zeta(s: PrimExpr, q: PrimExpr) -> PrimExpr:
    """Hurwitz' zeta function: infinite for ``s == 1`` and at whole numbers up to 0, no number elsewhere outside."""

    def of(x: PrimExpr, y: PrimExpr) -> PrimExpr:
        held = _zeta(tir.max(x, number(1 + 2.0**-40)), tir.max(y, number(1e-300)))
        pole = tir.any(x.equal(number(1)), tir.all(y <= number(0), y.equal(tir.floor(y)), x > number(1)))
        inside = tir.all(x > number(1), y > number(0))
        return select(pole, number(math.inf), select(inside, held, number(math.nan)))

    return cast(s.dtype, let(cast(_WIDE, s), lambda x: let(cast(_WIDE, q), lambda y: of(x, y))))


def polygamma_of(order: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The polygamma function of an order that is data, of positive numbers; no number elsewhere."""

    def of(n: PrimExpr, y: PrimExpr) -> PrimExpr:
        size = let(_lgamma_positive(n + number(1)), tir.exp) * zeta(n + number(1), y)
        odd = tir.floor(n / number(2)) * number(2) < n
        found = select(n.equal(number(0)), digamma(y), select(odd, size, -size))
        whole = tir.all(n >= number(0), n.equal(tir.floor(n)))
        return select(whole, found, number(math.nan))

    return cast(x.dtype, let(cast(_WIDE, order), lambda n: let(cast(_WIDE, x), lambda y: of(n, y))))


def polygamma(order: int) -> Callable[[Any], PrimExpr]:
    """The derivative of `digamma` of an order of at least 1 (6.4.10), below zero by reflection (6.4.7)."""
    sign = 1 if order % 2 else -1
    cotangent = [0.0, math.pi]  # the derivatives of pi cot(pi x) as polynomials of the cotangent, lowest power first
    for _ in range(order):
        slopes = [-math.pi * k * f for k, f in enumerate(cotangent)][1:]
        cotangent = [a + b for a, b in zip([*slopes, 0, 0], [0, 0, *slopes], strict=True)]

    def of(x: PrimExpr) -> PrimExpr:
        above = select(x > number(0), tir.max(x, number(1e-300)), number(1) - x)
        size = number(math.factorial(order)) * let(above, lambda q: _zeta(number(order + 1), q))
        angle = number(math.pi) * (x - tir.round(x))
        turned = let(number(1) / tir.tan(angle), lambda c: polynomial(c, cotangent[::-1]))
        return let(size, lambda y: select(x > number(0), number(sign) * y, -y - turned))

    return widened(of)
