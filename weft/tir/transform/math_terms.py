"""The vocabulary that the polynomials of ``math_*`` are written in: constants, fused multiply-adds, bits, bound values.

All work on scalars and vectors alike; `like` gives the number of lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import ParamSpec

from weft.ir import Broadcast, CallIntrin, Cast, DataType, FloatImm, Let, Op, PrimExpr, Var, const, with_lanes
from weft.ir import Select as Select
from weft.ir.scalar import EQ, GT, LT, NE, Sub
from weft.ir.scalar import Add as Add
from weft.ir.scalar import Div as Div
from weft.ir.scalar import Max as Max
from weft.ir.scalar import Min as Min
from weft.ir.scalar import Mul as Mul

_OPS = {
    name: Op.get("tir." + name)
    for name in (
        "fma fabs copysign reinterpret shift_left shift_right bitwise_and bitwise_or sqrt floor any_lane ldexp "
        "logb mantissa if_then_else"
    ).split()
}

P = ParamSpec("P")
Steps = Generator[tuple[PrimExpr, str], Var, PrimExpr]
"""What a function under :func:`bound` returns: the values that it names, and what it makes of them."""


def coefficients(text: str) -> tuple[float, ...]:
    """A table of numbers."""
    return tuple(map(float, text.split()))


def number(value: float, like: PrimExpr) -> PrimExpr:
    """A floating-point constant of the type of `like`."""
    dt = DataType(like.dtype)
    c = FloatImm(dt.element, value)
    return c if dt.lanes == 1 else Broadcast(c, dt.lanes)


def integer(value: int, like: PrimExpr) -> PrimExpr:
    """An integer constant with as many bits and lanes as `like`."""
    dt = DataType(like.dtype)
    c = const(value, f"int{dt.bits}")
    return c if dt.lanes == 1 else Broadcast(c, dt.lanes)


def call(name: str, *args: PrimExpr) -> PrimExpr:
    """Call an intrinsic that gives the type of its first argument."""
    return CallIntrin(args[0].dtype, _OPS[name], args)


def let(value: PrimExpr, body: Callable[[Var], PrimExpr], name: str = "t") -> PrimExpr:
    """Bind a value that `body` uses more than once."""
    if isinstance(value, Var):
        return body(value)
    var = Var(name, value.dtype)
    return Let(var, value, body(var))


def bound(steps: Callable[P, Steps]) -> Callable[P, PrimExpr]:
    """Let a function name values as it goes: ``v = yield value, "v"`` binds what it uses more than once."""

    @functools.wraps(steps)
    def build(*args: P.args, **kwargs: P.kwargs) -> PrimExpr:
        under_way = steps(*args, **kwargs)

        def rest(var: Var | None) -> PrimExpr:
            try:
                value, name = next(under_way) if var is None else under_way.send(var)
            except StopIteration as done:
                return done.value
            return let(value, rest, name)

        return rest(None)

    return build


def fma(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    """``a * b + c``, rounded once where the machine can."""
    return CallIntrin(a.dtype, _OPS["fma"], (a, b, c))


_BLOCK = 8
"""Terms of a polynomial that wait for one another; those of further powers are summed beside them."""


def horner(coefficients: tuple[float, ...], x: PrimExpr) -> PrimExpr:
    """``c0 + c1 x + c2 x^2 + ...``."""
    if len(coefficients) > _BLOCK + _BLOCK // 2:
        rest, first = coefficients[_BLOCK:], horner(coefficients[:_BLOCK], x)
        return let(eighth_power(x), lambda p: fma(horner(rest, x), p, first), "p")
    result = number(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, number(c, x))
    return result


@bound
def eighth_power(x: PrimExpr) -> Steps:
    """``x**8``, the power that the blocks of a long polynomial are apart."""
    square = yield Mul(x, x), "s"
    fourth = yield Mul(square, square), "f"
    return Mul(fourth, fourth)


def absolute(x: PrimExpr) -> PrimExpr:
    """The magnitude."""
    return call("fabs", x)


def negated(x: PrimExpr) -> PrimExpr:
    """``-x``."""
    return Sub(number(-0.0, x), x)


def with_sign_of(magnitude: PrimExpr, x: PrimExpr) -> PrimExpr:
    """`magnitude` with the sign of `x`."""
    return call("copysign", magnitude, x)


def below(a: PrimExpr, value: float) -> PrimExpr:
    """``a < value``."""
    return LT(a, number(value, a))


def above(a: PrimExpr, value: float) -> PrimExpr:
    """``a > value``."""
    return GT(a, number(value, a))


def equal(a: PrimExpr, value: float) -> PrimExpr:
    """``a == value``."""
    return EQ(a, number(value, a))


def any_else(condition: PrimExpr, far: PrimExpr, near: PrimExpr) -> PrimExpr:
    """`far` where the condition holds in any lane, which is rare and so tested once for a vector, else `near`."""
    return CallIntrin(near.dtype, _OPS["if_then_else"], (CallIntrin("bool", _OPS["any_lane"], (condition,)), far, near))


def is_nan(x: PrimExpr) -> PrimExpr:
    """Whether `x` is NaN."""
    return NE(x, x)


def bits_of(x: PrimExpr) -> PrimExpr:
    """The bits of a floating-point value."""
    dt = DataType(x.dtype)
    return CallIntrin(with_lanes(f"int{dt.bits}", dt.lanes), _OPS["reinterpret"], (x,))


def float_of(bits: PrimExpr) -> PrimExpr:
    """The floating-point value of some bits."""
    dt = DataType(bits.dtype)
    return CallIntrin(with_lanes(f"float{dt.bits}", dt.lanes), _OPS["reinterpret"], (bits,))


def shift_left(x: PrimExpr, by: int) -> PrimExpr:
    """``x << by``."""
    return call("shift_left", x, integer(by, x))


def shift_right(x: PrimExpr, by: int) -> PrimExpr:
    """``x >> by``, keeping the sign."""
    return call("shift_right", x, integer(by, x))


def double(x: PrimExpr) -> PrimExpr:
    """`x` as float64."""
    return x if DataType(x.dtype).bits == 64 else Cast(with_lanes("float64", DataType(x.dtype).lanes), x)


def convert(dtype: str, x: PrimExpr) -> PrimExpr:
    """`x` as another type."""
    return Cast(with_lanes(dtype, DataType(x.dtype).lanes), x)
