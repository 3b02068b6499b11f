"""Complex numbers as two real tensors each: their arithmetic, for every importer.

At a program's ends they are one tensor with one dimension of 2 more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft import ir, relax
from weft.error import UnsupportedOperator
from weft.frontend.building import Emitter
from weft.frontend.fourier import transformed
from weft.op import make_call


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor."""

    re: Any
    im: Any

    @property
    def ty(self) -> Any:
        """The type of each part."""
        return self.re.ty


def split(bb: relax.BlockBuilder, x: ir.Expr) -> Complex:
    """The parts of a tensor whose last dimension has both."""
    axis = len(x.ty.shape) - 1
    parts = bb.emit(make_call("split")(x, indices_or_sections=2, axis=axis))
    re, im = (bb.emit(make_call("squeeze")(bb.emit(ir.TupleGetItem(parts, i)), axis=(axis,))) for i in (0, 1))
    return Complex(re, im)


def joined(bb: relax.BlockBuilder, x: Complex) -> Any:
    """Both parts along a new last dimension."""
    return bb.emit(make_call("stack")(ir.Tuple((x.re, x.im)), axis=len(x.re.ty.shape)))


def times(b: Emitter, x: Complex, y: Complex, name: str = "multiply", **attrs: Any) -> Complex:
    """The product, or what another operator makes of products."""
    return Complex(
        b.op("subtract", b.op(name, x.re, y.re, **attrs), b.op(name, x.im, y.im, **attrs)),
        b.op("add", b.op(name, x.re, y.im, **attrs), b.op(name, x.im, y.re, **attrs)),
    )


def scaled(b: Emitter, x: Complex, by: ir.Expr, name: str = "multiply") -> Complex:
    """The product with a real number, or the quotient."""
    return Complex(b.op(name, x.re, by), b.op(name, x.im, by))


def conjugate(b: Emitter, x: Complex) -> Complex:
    """The mirror image at the real axis."""
    return Complex(x.re, b.op("negative", x.im))


def size(b: Emitter, x: Complex) -> Any:
    """The absolute value, from the parts over the larger one, whose squares do not overflow."""
    first, second = b.op("abs", x.re), b.op("abs", x.im)
    large, small = b.op("maximum", first, second), b.op("minimum", first, second)
    zero, one = b.scalar(0, x.ty.dtype), b.scalar(1, x.ty.dtype)
    plain = b.op("logical_or", b.op("equal", large, zero), b.op("isinf", large))
    ratio = b.op("divide", small, b.op("where", plain, one, large))
    root = b.op("sqrt", b.op("add", one, b.op("multiply", ratio, ratio)))
    return b.op("where", plain, large, b.op("multiply", large, root))


def quotient(b: Emitter, x: Complex, y: Complex) -> Complex:
    """By the divisor over its larger part, whose square does not overflow."""
    scale = b.op("maximum", b.op("abs", y.re), b.op("abs", y.im))
    unit = scaled(b, y, scale, "divide")
    square = b.op("add", b.op("multiply", unit.re, unit.re), b.op("multiply", unit.im, unit.im))
    top = times(b, x, conjugate(b, unit))
    return scaled(b, scaled(b, top, square, "divide"), scale, "divide")


def exponential(b: Emitter, x: Complex) -> Complex:
    """``e**x``."""
    return scaled(b, Complex(b.op("cos", x.im), b.op("sin", x.im)), b.op("exp", x.re))


def logarithm(b: Emitter, x: Complex) -> Complex:
    """The principal natural logarithm."""
    return Complex(b.op("log", size(b, x)), b.op("atan2", x.im, x.re))


def root(b: Emitter, x: Complex) -> Complex:
    """The root, whose larger part is that of the mean of size and real part, which does not cancel."""
    zero, half = b.scalar(0, x.ty.dtype), b.scalar(0.5, x.ty.dtype)
    large = b.op("add", size(b, x), b.op("abs", x.re))
    large = b.op("sqrt", b.op("multiply", large, half))
    safe = b.op("where", b.op("equal", large, zero), b.scalar(1, x.ty.dtype), large)
    small = b.op("divide", b.op("multiply", x.im, half), safe)
    right = b.op("greater_equal", x.re, zero)
    signed = b.op("where", b.op("less", x.im, zero), b.op("negative", large), large)
    parts = ((large, b.op("abs", small)), (small, signed))
    return Complex(*(b.op("where", right, near, far) for near, far in parts))


def circular(kind: str, b: Emitter, x: Complex) -> Complex:
    """Sine, cosine and tangent: those of the hyperbola, turned by a quarter, ``sinh(iz) = i sin(z)``."""
    turned = hyperbolic(kind + "h", b, Complex(b.op("negative", x.im), x.re))
    return turned if kind == "cos" else Complex(turned.im, b.op("negative", turned.re))


def hyperbolic(kind: str, b: Emitter, x: Complex) -> Complex:
    """``sinh``, ``cosh`` and ``tanh``."""
    if kind != "tanh":
        first, second = ("sinh", "cosh") if kind == "sinh" else ("cosh", "sinh")
        return Complex(
            b.op("multiply", b.op(first, x.re), b.op("cos", x.im)),
            b.op("multiply", b.op(second, x.re), b.op("sin", x.im)),
        )
    # both over exp(2 |re|), which does not overflow
    one, two = b.scalar(1, x.ty.dtype), b.scalar(2, x.ty.dtype)
    far = b.op("multiply", b.op("abs", x.re), b.scalar(-2, x.ty.dtype))
    near, twice = b.op("exp", far), b.op("multiply", x.im, two)
    wave = b.op("multiply", b.op("multiply", near, two), b.op("cos", twice))
    below = b.op("add", b.op("add", one, b.op("multiply", near, near)), wave)
    rise = b.op("negative", b.op("expm1", b.op("multiply", far, two)))
    re = b.op("where", b.op("less", x.re, b.scalar(0, x.ty.dtype)), b.op("negative", rise), rise)
    im = b.op("multiply", b.op("multiply", near, two), b.op("sin", twice))
    return scaled(b, Complex(re, im), below, "divide")


def direction(b: Emitter, x: Complex) -> Complex:
    """The number over its size; zero for zero."""
    length, zero = size(b, x), b.scalar(0, x.ty.dtype)
    length = b.op("where", b.op("equal", length, zero), b.scalar(1, x.ty.dtype), length)
    return scaled(b, x, length, "divide")


def power(b: Emitter, x: Complex, exponent: Complex) -> Complex:
    """By the logarithm; that of zero is zero, but for the exponent zero, where all are one."""
    zero, one = b.scalar(0, x.ty.dtype), b.scalar(1, x.ty.dtype)
    nothing, none = (b.op("logical_and", b.op("equal", z.re, zero), b.op("equal", z.im, zero)) for z in (x, exponent))
    found = exponential(b, times(b, exponent, logarithm(b, x)))
    special = b.op("logical_or", nothing, none)
    return Complex(
        b.op("where", special, b.op("where", none, one, zero), found.re), b.op("where", special, zero, found.im)
    )


def compared(name: str, b: Emitter, x: Complex, y: Complex) -> Any:
    """Whether both parts are equal, or one is not."""
    parts = b.op(name, x.re, y.re), b.op(name, x.im, y.im)
    return b.op("logical_and" if name == "equal" else "logical_or", *parts)


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def _along(b: Emitter, x: Complex, axis: int, inverse: bool) -> Complex:
    """Transform one axis; nothing is divided by its length. An imaginary part of None is zero."""
    rank = len(x.ty.shape)
    there = [i for i in range(rank) if i != axis % rank] + [axis % rank]
    re, im = (None if p is None else b.permute(p, there) for p in (x.re, x.im))
    back = [there.index(i) for i in range(rank)]
    return Complex(*(b.permute(p, back) for p in transformed(b.bb, (re, im), inverse)))


def _cut(b: Emitter, x: Any, axis: int, begin: int, end: Any) -> Any:
    """Take a part along an axis."""
    return b.op("strided_slice", x, axes=(axis,), begin=(begin,), end=(end,), assume_inbound=True)


def fourier(
    b: Emitter, x: ir.Expr | Complex, axes: Sequence[int], kind: str, inverse: bool, size: int | ir.PrimExpr | None
) -> Complex:
    """Transform axes; nothing is divided by their lengths.

    `kind` is ``c2c``; ``r2c`` from a real tensor, whose last axis is cut to `size`; or ``c2r``, where the last axis is
    half a spectrum of `size` elements: the other half is the mirror image, conjugated.
    """
    *others, last = axes
    x = x if isinstance(x, Complex) else Complex(x, None)
    if kind == "r2c":
        x = _along(b, x, last, inverse)
        x = x if size is None else Complex(*(_cut(b, part, last, 0, size) for part in (x.re, x.im)))
    for axis in axes if kind == "c2c" else others:
        x = _along(b, x, axis, inverse)
    if kind != "c2r":
        return x
    assert size is not None
    inner = (size + 1) // 2 if isinstance(size, int) else ir.floordiv(size + 1, 2)
    tail = Complex(*(b.op("flip", _cut(b, part, last, 1, inner), axis=last) for part in (x.re, x.im)))
    pairs = ((x.re, tail.re), (x.im, b.op("negative", tail.im)))
    return _along(b, Complex(*(b.op("concat", ir.Tuple(pair), axis=last) for pair in pairs)), last, inverse)


# --- operators --------------------------------------------------------------------------------------------------------


def _reciprocal(b: Emitter, x: Complex) -> Complex:
    return quotient(b, Complex(b.scalar(1, x.ty.dtype), b.scalar(0, x.ty.dtype)), x)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "abs": size,
    "multiply": times,
    "divide": quotient,
    "exp": exponential,
    "log": logarithm,
    "sqrt": root,
    "rsqrt": lambda b, x: _reciprocal(b, root(b, x)),
    "power": power,
    "sign": direction,
    "reciprocal": _reciprocal,
    "square": lambda b, x: times(b, x, x),
    "log2": lambda b, x: scaled(b, logarithm(b, x), b.scalar(1 / math.log(2), x.ty.dtype)),
    "log10": lambda b, x: scaled(b, logarithm(b, x), b.scalar(1 / math.log(10), x.ty.dtype)),
    **{name: partial(hyperbolic, name) for name in ("sinh", "cosh", "tanh")},
    **{name: partial(circular, name) for name in ("sin", "cos", "tan")},
    **{name: partial(compared, name) for name in ("equal", "not_equal")},
    **{name: partial(times, name=name) for name in ("matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d")},
}
"""What operators of real tensors are for complex ones, by their names: called with what binds calls first."""
_MOVED = frozenset(
    """add subtract negative sum mean where reshape broadcast_to permute_dims strided_slice concat take gather_elements
    gather_nd scatter_nd flip cumsum astype""".split()
)
"""What treats real and imaginary parts alike."""


class Arithmetic(Emitter):
    """Binds calls of operators whose operands may be complex."""

    __slots__ = ()

    def op(self, name: str, *args: Any, **attrs: Any) -> Any:
        """Bind a call of an operator; one of complex tensors is calls for their parts."""
        if not any(isinstance(x, Complex) for a in args for x in (a.fields if isinstance(a, ir.Tuple) else (a,))):
            return super().op(name, *args, **attrs)
        if name in ("multiply", "divide") and not isinstance(args[1], Complex):
            return scaled(self, args[0], args[1], name)
        if name in _OPERATORS:
            return _OPERATORS[name](self, *map(self.complex_of, args), **attrs)
        if name not in _MOVED or attrs.get("reduction", "add") not in ("add", "update"):
            raise UnsupportedOperator(
                f"'{name}' of complex numbers is not supported", expected=", ".join(sorted(_MOVED.union(_OPERATORS)))
            )
        plain = super().op
        return Complex(*(plain(name, *(self._part(a, i) for a in args), **attrs) for i in (0, 1)))

    def complex_of(self, x: Any) -> Complex:
        """A tensor as a complex one."""
        return x if isinstance(x, Complex) else Complex(x, self._part(x, 1))

    def _part(self, x: Any, i: int) -> Any:
        """The real or the imaginary part of an operand, which real floats have not; indices and shapes are both's."""
        if isinstance(x, ir.Tuple):
            return ir.Tuple(tuple(self._part(v, i) for v in x.fields))
        if isinstance(x, Complex):
            return (x.re, x.im)[i]
        if i == 0 or isinstance(x, ir.ShapeExpr) or not ir.DataType(x.ty.dtype).is_float:
            return x
        return super().op("full", ir.shape_expr(x.ty.shape), self.scalar(0, str(x.ty.dtype)))
