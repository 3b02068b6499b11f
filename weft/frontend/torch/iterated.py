"""What is found by steps that are repeated until no element needs another: divisors, recurrences, series."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import ir, tir
from weft.frontend.building import loop
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten
from weft.topi import elementwise, special

_WIDE = "float64"
_EPSILON = 2.0**-53
_INFINITE = math.inf


def _operands(node: Node, dtype: str, *names: str) -> list[Any]:
    """Operands of an element type and the result's shape."""
    return [node.expand(node.tensor(node[name], dtype), node.shape) for name in names]


def _each(node: Node, fn: Callable[..., Any], state: Sequence[Any]) -> Any:
    return node.emit(node.bb.call_te(lambda *x: elementwise(fn, *x), *state))


def _repeated(
    node: Node, state: Sequence[Any], around: Sequence[Any], needed: Callable[..., Any], *steps: Callable[..., Any]
) -> list[Any]:
    """Tensors after as many steps as the element needs that needs most.

    Each tensor of the state has a function of elements, of the whole state and of what is around it, for its step.
    """

    def test(state: Sequence[Any]) -> Any:
        more = node.reshape(_each(node, needed, [*state, *around]), [node.product(node.shape)])
        total = node.op("sum", node.astype(more, "int64"), axis=(0,))
        return node.op("greater", total, node.scalar(0, "int64"))

    return loop(node.bb, state, test, lambda state: [_each(node, step, [*state, *around]) for step in steps])


@aten("gcd", "lcm")
def _divisor(node: Node) -> Any:
    """Euclid's algorithm."""
    a, b = (node.op("abs", x) for x in _operands(node, "int64", "self", "other"))

    def rest(a: Any, b: Any) -> Any:
        return ir.floormod(a, ir.select(b.equal(0), ir.const(1, "int64"), b))  # nothing, where there is nothing to do

    found, _ = _repeated(node, [a, b], [], lambda _, b: b > 0, lambda a, b: ir.select(b.equal(0), a, b), rest)
    if "gcd" in node.name:
        return node.astype(found, node.dtype)
    parts = node.op("floor_divide", a, node.op("maximum", found, node.scalar(1, "int64")))
    return node.astype(node.op("multiply", parts, b), node.dtype)


# --- orthogonal polynomials -------------------------------------------------------------------------------------------

Next = Callable[[Any, Any, Any, Any], Any]


def _chebyshev(k: Any, x: Any, p: Any, q: Any) -> Any:
    return tir.const(2, _WIDE) * x * p - q


_POLYNOMIALS: dict[str, tuple[Callable[[Any], Any], Next]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: x + x, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: x + x - 1.0, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: x + x + 1.0, _chebyshev),
    "hermite_polynomial_h": (lambda x: x + x, lambda k, x, p, q: (x * p - k * q) * 2.0),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (lambda x: 1.0 - x, lambda k, x, p, q: ((k + k + 1.0 - x) * p - k * q) / (k + 1.0)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x, p, q: ((k + k + 1.0) * x * p - k * q) / (k + 1.0)),
}
"""The polynomial of degree 1, and that of degree k + 1 out of those of degrees k and k - 1."""


@aten(*(f"special_{name}" for name in _POLYNOMIALS), *(f"special_shifted_{n}" for n in _POLYNOMIALS if n[0] == "c"))
def _polynomial(node: Node) -> Any:
    """Polynomials whose degrees are data; those of degrees below 0 are 0."""
    name = node.name.split(".")[1].removeprefix("special_")
    first, following = _POLYNOMIALS[name.removeprefix("shifted_")]
    x, n = _operands(node, _WIDE, "x", "n")
    if name.startswith("shifted"):
        x = _each(node, lambda x: x + x - 1.0, [x])
    one, n = node.full(node.shape, 1, _WIDE), node.op("trunc", n)
    _, found, _ = _repeated(
        node,
        [one, _each(node, first, [x]), one],
        [x, n],
        lambda k, p, q, x, n: k < n,
        lambda k, p, q, x, n: k + 1.0,
        lambda k, p, q, x, n: ir.select(k < n, following(k, x, p, q), p),
        lambda k, p, q, x, n: p,
    )

    def chosen(n: Any, p: Any) -> Any:
        return ir.select(n < 1.0, ir.select(n < 0.0, tir.const(0, _WIDE), tir.const(1, _WIDE)), p)

    return node.astype(_each(node, chosen, [n, found]), node.dtype)


# --- incomplete gamma functions ---------------------------------------------------------------------------------------


@aten("igamma", "igammac", "special_gammainc", "special_gammaincc")
def _incomplete_gamma(node: Node) -> Any:
    """The lower part by its series where x < a + 1 (6.5.29), the upper one by its continued fraction (6.5.31)."""
    a, x = _operands(node, _WIDE, "self", "other")
    one = node.full(node.shape, 1, _WIDE)
    usual = _each(node, lambda a, x: tir.all(a > 0.0, x > 0.0, a < _INFINITE, x < _INFINITE), [a, x])
    a1, x1 = (node.op("where", usual, v, one) for v in (a, x))
    _, _, total = _repeated(
        node,
        [one, one, one],
        [a1, x1],
        lambda k, t, s, a, x: tir.all(x < a + 1.0, t > s * _EPSILON),
        lambda k, t, s, a, x: k + 1.0,
        lambda k, t, s, a, x: t * x / (a + k),
        lambda k, t, s, a, x: s + t * x / (a + k),
    )

    def lentz(k: Any, c: Any, d: Any, a: Any, x: Any) -> tuple[Any, Any]:
        above, below = k * (a - k), x + 1.0 - a + k + k
        return below + above / c, 1.0 / (above * d + below)

    start = _each(node, lambda a, x: 1.0 / (x + 1.0 - a), [a1, x1])
    *_, fraction = _repeated(
        node,
        [one, node.full(node.shape, 1e300, _WIDE), start, start],
        [a1, x1],
        lambda k, c, d, h, a, x: tir.all(x >= a + 1.0, tir.abs(c * d - 1.0) > 4 * _EPSILON),
        lambda k, *rest: k + 1.0,
        lambda k, c, d, h, a, x: lentz(k, c, d, a, x)[0],
        lambda k, c, d, h, a, x: lentz(k, c, d, a, x)[1],
        lambda k, c, d, h, a, x: h * math.prod(lentz(k, c, d, a, x)),
    )
    size = _each(node, lambda a, x: tir.exp(a * tir.log(x) - x - special.lgamma(a)), [a1, x1])
    upper = "gammac" in node.name or "gammaincc" in node.name

    def chosen(a: Any, x: Any, size: Any, total: Any, fraction: Any) -> Any:
        """Outside of where both are positive and finite: no part, the whole, or no number."""
        low = size * total / a if not upper else 1.0 - size * total / a
        high = size * fraction if upper else 1.0 - size * fraction
        none, whole = tir.const(float(upper), _WIDE), tir.const(float(not upper), _WIDE)
        strange = tir.any(a < 0.0, x < 0.0, tir.all(a.equal(0.0), tir.Not(x > 0.0)))
        strange = tir.any(strange, tir.all(a.equal(_INFINITE), x.equal(_INFINITE)))
        nan = tir.const(math.nan, _WIDE)
        found = ir.select(tir.isnan(a + x), nan, ir.select(x < a + 1.0, low, high))
        found = ir.select(tir.any(x.equal(0.0), a.equal(_INFINITE)), none, found)
        found = ir.select(tir.any(a.equal(0.0), x.equal(_INFINITE)), whole, found)
        return ir.select(strange, nan, found)

    return node.astype(_each(node, chosen, [a, x, size, total, fraction]), node.dtype)
