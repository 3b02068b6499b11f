"""Complex numbers as two real tensors each: their arithmetic, for every importer.

At a program's ends they are one tensor with one dimension of 2 more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft import ir
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


def split(bb: Any, x: Any) -> Complex:
    """The parts of a tensor whose last dimension has both."""
    axis = len(x.ty.shape) - 1
    parts = bb.emit(make_call("split")(x, indices_or_sections=2, axis=axis))
    re, im = (bb.emit(make_call("squeeze")(bb.emit(ir.TupleGetItem(parts, i)), axis=(axis,))) for i in (0, 1))
    return Complex(re, im)


def joined(bb: Any, x: Complex) -> Any:
    """Both parts along a new last dimension."""
    return bb.emit(make_call("stack")(ir.Tuple((x.re, x.im)), axis=len(x.re.ty.shape)))


def number(b: Emitter, value: complex, dtype: Any) -> Complex:
    """A number whose parts have an element type."""
    return Complex(b.scalar(value.real, dtype), b.scalar(value.imag, dtype))


def both(b: Emitter, name: str, *given: Complex) -> Complex:
    """What an operator does to the real parts, and to the imaginary ones."""
    return Complex(b.op(name, *(x.re for x in given)), b.op(name, *(x.im for x in given)))


def times(b: Emitter, x: Complex, y: Complex, name: str = "multiply", **attrs: Any) -> Complex:
    """The product, or what another operator makes of products."""
    return Complex(
        b.op("subtract", b.op(name, x.re, y.re, **attrs), b.op(name, x.im, y.im, **attrs)),
        b.op("add", b.op(name, x.re, y.im, **attrs), b.op(name, x.im, y.re, **attrs)),
    )


def scaled(b: Emitter, x: Complex, by: Any, name: str = "multiply") -> Complex:
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


def circular(b: Emitter, kind: str, x: Complex) -> Complex:
    """Sine, cosine and tangent: those of the hyperbola, turned by a quarter, ``sinh(iz) = i sin(z)``."""
    turned = hyperbolic(b, kind + "h", Complex(b.op("negative", x.im), x.re))
    return turned if kind == "cos" else Complex(turned.im, b.op("negative", turned.re))


def hyperbolic(b: Emitter, kind: str, x: Complex) -> Complex:
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


def compared(b: Emitter, name: str, x: Complex, y: Complex) -> Any:
    """Whether both parts are equal, or one is not."""
    found = both(b, name, x, y)
    return b.op("logical_and" if name == "equal" else "logical_or", found.re, found.im)


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def along(b: Any, x: Complex, axis: int, inverse: bool) -> Complex:
    """Transform one axis; nothing is divided by its length. An imaginary part of None is zero."""
    rank = len(x.ty.shape)
    there = [i for i in range(rank) if i != axis % rank] + [axis % rank]
    parts = tuple(None if p is None else b.permute(p, there) for p in (x.re, x.im))
    return Complex(*(b.permute(p, [there.index(i) for i in range(rank)]) for p in transformed(b.bb, parts, inverse)))


def cut(b: Emitter, x: Any, axis: int, begin: int, end: Any) -> Any:
    """Take a part along an axis."""
    return b.op("strided_slice", x, axes=(axis,), begin=(begin,), end=(end,), assume_inbound=True)


def whole(b: Emitter, x: Complex, axis: int, size: Any) -> Complex:
    """A spectrum of which half is given: the other half is the mirror image, conjugated."""
    inner = (size - 1) // 2 + 1 if isinstance(size, int) else ir.floordiv(size - 1, 2) + 1
    tail = Complex(*(b.op("flip", cut(b, p, axis, 1, inner), axis=axis) for p in (x.re, x.im)))
    pairs = zip((x.re, x.im), (tail.re, conjugate(b, tail).im), strict=True)
    return Complex(*(b.op("concat", ir.Tuple(pair), axis=axis) for pair in pairs))


# --- operators --------------------------------------------------------------------------------------------------------


def _one(b: Emitter, x: Complex) -> Complex:
    return number(b, 1, x.ty.dtype)


def _expm1(b: Emitter, x: Complex) -> Complex:
    """Of which nothing cancels near zero: ``cos(y) - 1`` is ``-2 sin(y / 2)**2``."""
    half = b.op("sin", b.op("multiply", x.im, b.scalar(0.5, x.ty.dtype)))
    below = b.op("multiply", b.op("multiply", half, half), b.scalar(2, x.ty.dtype))
    re = b.op("multiply", b.op("expm1", x.re), b.op("cos", x.im))
    return Complex(b.op("subtract", re, below), b.op("multiply", b.op("exp", x.re), b.op("sin", x.im)))


def _log1p(b: Emitter, x: Complex) -> Complex:
    """The square of the size is ``1 + re * (re + 2) + im**2``, exact near zero."""
    far = both(b, "add", x, _one(b, x))
    square = b.op("multiply", x.re, b.op("add", x.re, b.scalar(2, x.ty.dtype)))
    square = b.op("log1p", b.op("add", square, b.op("multiply", x.im, x.im)))
    small = b.op("less", size(b, x), b.scalar(0.5, x.ty.dtype))
    near = b.op("multiply", square, b.scalar(0.5, x.ty.dtype))
    return Complex(b.op("where", small, near, logarithm(b, far).re), b.op("atan2", x.im, far.re))


OPERATORS: dict[str, Callable[..., Any]] = {
    "abs": size, "multiply": times, "divide": quotient, "exp": exponential, "log": logarithm, "sqrt": root,
    "rsqrt": lambda b, x: quotient(b, _one(b, x), root(b, x)), "power": power, "sign": direction,
    "square": lambda b, x: times(b, x, x), "expm1": _expm1, "log1p": _log1p,
    "sigmoid": lambda b, x: quotient(b, _one(b, x), both(b, "add", _one(b, x), exponential(b, both(b, "negative", x)))),
}  # fmt: skip
"""What operators of real tensors are for complex ones, by their names."""
for _name in ("sin", "cos", "tan"):
    OPERATORS[_name] = lambda b, x, name=_name: circular(b, name, x)
    OPERATORS[_name + "h"] = lambda b, x, name=_name + "h": hyperbolic(b, name, x)
for _name in ("equal", "not_equal"):
    OPERATORS[_name] = lambda b, x, y, name=_name: compared(b, name, x, y)
for _name in ("matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d"):
    OPERATORS[_name] = lambda b, x, y, name=_name, **attrs: times(b, x, y, name, **attrs)
MOVED = frozenset(
    """add subtract negative sum where reshape broadcast_to permute_dims strided_slice concat take gather_elements
    gather_nd scatter_nd flip cumsum astype""".split()
)
"""What treats real and imaginary parts alike."""
