"""Bessel functions of orders 0 and 1, and Airy's function, in float64.

Near zero they are integrals by the trapezoidal rule, whose error falls faster than any power of its step where the
integrand is periodic or vanishes fast at both ends; far from zero they are asymptotic series.

Source: Abramowitz and Stegun, chapters 9 and 10; Trefethen and Weideman, The exponentially convergent trapezoidal rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft import tir
from weft.ir import PrimExpr, select
from weft.topi.special import let, number, polynomial, widened

_EULER = 0.57721566490153286
_FAR = 25.0
"""From here on the error of Hankel's series, about exp(-2 x), is none."""
_NODES = [math.pi * (i + 0.5) / 96 for i in range(48)]
"""Of a quarter of the period: below `_FAR` the rule's error is a Bessel function of order 192."""
_STEPS = 48
"""Of the rule from 0 to where the integrand of the second kind is exp(-40) of its value there."""


def _mean(order: int, x: PrimExpr, weights: Sequence[float] = (1.0,) * len(_NODES)) -> PrimExpr:
    """The mean over a quarter of the period of ``cos(x sin t)``, or ``sin(t) sin(x sin t)``, times weights."""
    total = number(0)
    for t, weight in zip(_NODES, weights, strict=True):
        y, share = math.sin(t), weight / len(_NODES)
        total = total + (tir.sin(x * y) * (y * share) if order else tir.cos(x * y) * share)
    return total


def _near_second(order: int, x: PrimExpr) -> PrimExpr:
    """Neumann's series (9.1.88), summed under the integral that makes its terms; order 1 is the derivative."""
    weights = [sum((-1) ** k * math.cos(2 * k * t) / k for k in range(1, 41)) * (-4 / math.pi) for t in _NODES]
    found = (tir.log(x / 2.0) + _EULER) * (2 / math.pi) * _mean(order, x) + _mean(order, x, weights)
    return found - _mean(0, x) / x * (2 / math.pi) if order else found


def _far(square: float, shift: float, x: PrimExpr, second: bool) -> PrimExpr:
    """Hankel's series (9.2.5, 9.2.6) of an order whose square is given; `shift` is that of the phase."""
    factors = [1.0]
    for k in range(19):
        factors.append(factors[-1] * (4 * square - (2 * k + 1) ** 2) / (8 * (k + 1)))
    signed = [[(-1) ** i * f for i, f in enumerate(factors[odd::2])][::-1] for odd in (0, 1)]

    def wave(inverse: PrimExpr) -> PrimExpr:
        p, q = (let(inverse * inverse, lambda s, part=part: polynomial(s, part)) for part in signed)
        q, angle = q * inverse, x - shift
        turned = (p * tir.sin(angle) + q * tir.cos(angle)) if second else (p * tir.cos(angle) - q * tir.sin(angle))
        return tir.sqrt(inverse * (2 / math.pi)) * turned

    return let(number(1) / x, wave)


def _cylinder(order: int, second: bool) -> Callable[[PrimExpr], PrimExpr]:
    """The Bessel function of an order, of the first or the second kind."""

    def of(x: PrimExpr) -> PrimExpr:
        def positive(size: PrimExpr) -> PrimExpr:
            low, high = tir.min(size, number(_FAR)), tir.max(size, number(_FAR))
            near = let(low, lambda y: _near_second(order, y) if second else _mean(order, y))
            far = let(high, lambda y: _far(order * order, math.pi * (2 * order + 1) / 4, y, second))
            return select(size > _FAR, far, near)

        if not second:
            found = let(tir.abs(x), positive)
            return found * select(x < 0.0, number(-1), number(1)) if order else found
        ends = select(x.equal(0.0), number(-math.inf), number(math.nan))
        return select(x > 0.0, let(tir.max(x, number(1e-300)), positive), ends)

    return of


def _decaying(order: float, x: PrimExpr) -> PrimExpr:
    """The modified function of the second kind times ``exp(x)``, of positive numbers that are not tiny (9.6.24)."""

    def rule(step: PrimExpr) -> PrimExpr:
        total = number(0.5)
        for k in range(1, _STEPS + 1):
            wave = let(step * float(k), lambda t: tir.exp(-x * _risen(t)) * (tir.exp(t * order) + tir.exp(-t * order)))
            total = total + wave * 0.5
        return total * step

    return let(tir.log1p(let(number(40) / x, lambda r: r + tir.sqrt(r * (r + 2.0)))) / float(_STEPS), rule)


def _risen(t: PrimExpr) -> PrimExpr:
    """``cosh(t) - 1`` with all its digits."""
    return let(tir.exp(t * 0.5) - tir.exp(t * -0.5), lambda d: d * d * 0.5)


def _modified(order: int, scaled: bool) -> Callable[[PrimExpr], PrimExpr]:
    """The modified function of the second kind (near zero 9.6.13 and its derivative), times exp(x) where `scaled`."""

    def of(x: PrimExpr) -> PrimExpr:
        def near(y: PrimExpr) -> PrimExpr:
            log, s = tir.log(y / 2.0) + _EULER, y * y / 4.0
            if order:
                return number(1) / y + y * 0.5 * (log * (1.0 + s * 0.5) - 0.5 - s * 0.625)
            return -log * (1.0 + s * (1.0 + s * 0.25)) + s * (1.0 + s * 0.375)

        small = let(tir.min(tir.max(x, number(1e-300)), number(1e-3)), near) * (tir.exp(x) if scaled else 1.0)
        large = let(tir.max(x, number(1e-3)), lambda y: _decaying(order, y)) * (1.0 if scaled else tir.exp(-x))
        found = select(x < 1e-3, small, select(x.equal(math.inf), number(0), large))
        return select(x > 0.0, found, select(x.equal(0.0), number(math.inf), number(math.nan)))

    return of


def bessel_j(order: int) -> Callable[[PrimExpr], PrimExpr]:
    """The Bessel function of the first kind of order 0 or 1."""
    return widened(_cylinder(order, False))


def bessel_y(order: int) -> Callable[[PrimExpr], PrimExpr]:
    """The Bessel function of the second kind of order 0 or 1: no number below 0."""
    return widened(_cylinder(order, True))


def bessel_k(order: int, scaled: bool) -> Callable[[PrimExpr], PrimExpr]:
    """The modified Bessel function of the second kind of order 0 or 1; `scaled` by exp(x)."""
    return widened(_modified(order, scaled))


@widened
def spherical_bessel_j0(x: PrimExpr) -> PrimExpr:
    """``sin(x) / x``."""
    found = tir.sin(x) / select(x.equal(0.0), number(1), x)
    return select(x.equal(0.0), number(1), select(tir.isinf(x), number(0), found))


@widened
def airy_ai(x: PrimExpr) -> PrimExpr:
    """Airy's function: its series near zero (10.4.2), functions of order 1/3 elsewhere (10.4.14, 10.4.15)."""

    def near(y: PrimExpr) -> PrimExpr:
        even, odd = [0.355028053887817239], [0.258819403792806798]
        for k in range(1, 36):
            even.append(even[-1] / ((3 * k - 1) * 3 * k))
            odd.append(odd[-1] / (3 * k * (3 * k + 1)))
        return let(y * y * y, lambda c: polynomial(c, even[::-1]) - y * polynomial(c, odd[::-1]))

    def above(y: PrimExpr) -> PrimExpr:
        z = y * tir.sqrt(y) * (2 / 3)
        return let(z, lambda z: tir.sqrt(y / 3.0) / math.pi * _decaying(1 / 3, z) * tir.exp(-z))

    def below(y: PrimExpr) -> PrimExpr:
        """The sum of both functions of order 1/3 is one function with another phase."""
        z = y * tir.sqrt(y) * (2 / 3)
        return let(z, lambda z: tir.sqrt(y / 3.0) * _far(1 / 9, math.pi / 4, z, False))

    found = select(x > 1.0, let(tir.max(x, number(1)), above), let(tir.min(tir.max(x, number(-7)), number(1)), near))
    return select(x < -7.0, let(tir.max(-x, number(7)), below), found)
