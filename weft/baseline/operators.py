"""ONNX operators as NumPy computes them: element by element, and those that move elements.

An operator is a function of its inputs, None where one is left out, whose keyword-only parameters are all attributes
that it knows, with ONNX's defaults; one that a node has besides keeps the model out of the baseline. What they meet
while they run and do not compute as ONNX says (a mixture of types, an index out of range) they refuse by any exception.
Source: the operators of ONNX from opset 13 on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

import numpy as np

from weft.baseline.onnx_file import ELEMENT_TYPES
from weft.baseline.refusal import NotInBaseline
from weft.registry import Registry

OPERATORS: Registry[Callable[..., Any]] = Registry()
"""By the name, behind the domain and a point where that is not ONNX's own."""

_FLOAT = np.dtype("float32")
_MOST_ELEMENTS = 1 << 28
_PART = 1 << 15  # elements that stay in the core's cache from one step of a formula to the next

operator = OPERATORS.on
"""Register the decorated function under names of operators."""


def floats(*arrays: Any) -> None:
    """Refuse arrays of another type than float32."""
    if any(a is not None and a.dtype != _FLOAT for a in arrays):
        raise NotInBaseline("an operator on another type than float32")


def _alike(*arrays: np.ndarray) -> None:
    if any(a.dtype != arrays[0].dtype for a in arrays):
        raise NotInBaseline("operands of several types")


def within(x: np.ndarray, other: np.ndarray) -> None:
    """Refuse an operand whose broadcasting would make the first one larger."""
    if np.broadcast_shapes(x.shape, other.shape) != x.shape:
        raise NotInBaseline("an operand that is larger than what it is spread over")


def bounded(*dims: int) -> None:
    """Refuse what grows past memory that is worth filling for a first answer."""
    if prod(map(abs, dims)) > _MOST_ELEMENTS:
        raise NotInBaseline("a result of gigabytes")


# ---- element by element ----------------------------------------------------------------------------------------------


def _unary(name: str, compute: Callable[[np.ndarray], Any], types: str = "f") -> None:
    def apply(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind not in types:
            raise NotInBaseline(f"{name} of {x.dtype}")
        return compute(x)

    operator(name)(apply)


def _activation(name: str, compute: Callable[..., Any]) -> None:
    @wraps(compute)  # whose parameters are the attributes
    def apply(x: np.ndarray, **attributes: Any) -> np.ndarray:
        floats(x)
        return compute(x, **attributes)

    operator(name)(apply)


def _binary(name: str, compute: Callable[[Any, Any], Any], types: str = "fi") -> None:
    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        _alike(a, b)
        if a.dtype.kind not in types:
            raise NotInBaseline(f"{name} of {a.dtype}")
        return compute(a, b)

    operator(name)(apply)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-x))``."""
    return 1 / (1 + np.exp(-x))


_ERF = [
    np.array(p, np.float32)
    for p in (
        (2.0747468e-08, -1.9792461e-06, 1.3763431e-04, 3.4629248e-03, 4.9786904e-02, 0.19390024, 1.1283791),
        (9.0308206e-04, 0.013852472, 0.11252043, 0.50517157, 1),
    )
]
"""Polynomials of x², the highest power first, whose quotient is erf(x) / x up to 3.85 within 4.2e-8 of itself."""


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function of float32 values within four units in the last place or so.

    Source: a fit by weighted least squares whose weights follow the largest error; beyond 3.85 it is 1.
    """
    flat, one, far = x.reshape(-1), np.float32(1), np.float32(3.85)
    out = np.empty(flat.shape, np.float32)
    for at in range(0, flat.size, _PART):
        part = np.clip(flat[at : at + _PART], -far, far)
        above, below = (np.polyval(p, part * part) for p in _ERF)
        np.clip(part * (above / below), -one, one, out=out[at : at + _PART])
    return out.reshape(x.shape)


def _gelu(x: np.ndarray, *, approximate: str = "none") -> np.ndarray:
    if approximate == "none":
        return x * np.float32(0.5) * (1 + erf(x * np.float32(0.5**0.5)))
    return x * np.float32(0.5) * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3)))


_UNARY: dict[str, Callable[[np.ndarray], Any]] = {
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sin": np.sin,
    "Cos": np.cos,
    "Erf": erf,
    "Reciprocal": lambda x: 1 / x,
    "Softplus": lambda x: np.logaddexp(x, np.float32(0)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + np.float32(0.5), 0, 1),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, np.float32(0))),
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "IsNaN": np.isnan,
}
_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "LeakyRelu": lambda x, *, alpha=0.01: np.where(x < 0, x * np.float32(alpha), x),
    "Elu": lambda x, *, alpha=1.0: np.where(x < 0, np.float32(alpha) * np.expm1(x), x),
    "Celu": lambda x, *, alpha=1.0: np.where(x < 0, np.float32(alpha) * np.expm1(x / np.float32(alpha)), x),
    "Selu": lambda x, *, alpha=1.6732632, gamma=1.050701: (
        np.float32(gamma) * np.where(x > 0, x, np.float32(alpha) * np.expm1(x))
    ),
    "Gelu": _gelu,
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: np.clip(x * np.float32(alpha) + np.float32(beta), 0, 1),
    "ThresholdedRelu": lambda x, *, alpha=1.0: np.where(x > np.float32(alpha), x, np.float32(0)),
    "Swish": lambda x, *, alpha=1.0: x * sigmoid(np.float32(alpha) * x),
}
_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "Add": (np.add, "fi"),
    "Sub": (np.subtract, "fi"),
    "Mul": (np.multiply, "fi"),
    "Equal": (np.equal, "fib"),
    "Greater": (np.greater, "fi"),
    "Less": (np.less, "fi"),
    "GreaterOrEqual": (np.greater_equal, "fi"),
    "LessOrEqual": (np.less_equal, "fi"),
    "And": (np.logical_and, "b"),
    "Or": (np.logical_or, "b"),
    "Xor": (np.logical_xor, "b"),
    "Pow": (np.power, "f"),
}

for _name, _compute in _UNARY.items():
    _unary(_name, _compute)
for _name, _compute in _ACTIVATIONS.items():
    _activation(_name, _compute)
for _name, _compute in (("Neg", np.negative), ("Abs", np.abs), ("Sign", np.sign)):
    _unary(_name, _compute, "fi")
_unary("Relu", lambda x: np.maximum(x, x.dtype.type(0)), "fi")
_unary("Not", np.logical_not, "b")
_unary("Identity", lambda x: x, "fib")
for _name, (_both, _kinds) in _BINARY.items():
    _binary(_name, _both, _kinds)


@operator("Div")
def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    _alike(a, b)
    if a.dtype == _FLOAT:
        return a / b
    if a.dtype.kind != "i" or not b.all() or (a < 0).any() or (b < 0).any():
        raise NotInBaseline("a division of integers whose rounding matters")
    return a // b


def _of_many(name: str, compute: Callable[[Any, Any], Any]) -> None:
    def apply(first: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        _alike(first, *rest)
        for other in rest:
            first = compute(first, other)
        return first

    operator(name)(apply)


_of_many("Min", np.minimum)
_of_many("Max", np.maximum)
_of_many("Sum", np.add)


@operator("Clip")
def _clip(x: np.ndarray, low: Any = None, high: Any = None) -> np.ndarray:
    for bound, compute in ((low, np.maximum), (high, np.minimum)):
        if bound is not None:
            _alike(x, bound)
            if bound.size != 1:
                raise NotInBaseline("a bound that is no number")
            x = compute(x, bound.reshape(()))
    return x


@operator("Where")
def _where(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    _alike(a, b)
    return np.where(condition, a, b)


@operator("PRelu")
def _prelu(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    floats(x, slope)
    within(x, slope)
    return np.where(x < 0, x * slope, x)


@operator("Mod")
def _mod(a: np.ndarray, b: np.ndarray, *, fmod: int = 0) -> np.ndarray:
    _alike(a, b)
    if a.dtype.kind not in ("fi" if fmod else "i") or not b.all():
        raise NotInBaseline("a remainder of another kind")
    return (np.fmod if fmod else np.mod)(a, b)


@operator("Cast")
def _cast(x: np.ndarray, *, to: int, saturate: int = 1) -> np.ndarray:
    kind = ELEMENT_TYPES[to]
    if x.dtype.kind != "f" or kind.kind not in "iu":
        return x.astype(kind)
    ends = np.iinfo(kind)  # what is beyond them, and NaN, become what compiled kernels make of them
    inside = np.where(x >= float(ends.max), ends.max, np.where(x <= float(ends.min), ends.min, x.astype(kind)))
    return np.where(np.isnan(x), kind.type(0), inside)


@operator("Dropout")
def _dropout(x: np.ndarray, ratio: Any = None, training: Any = None, *, seed: int = 0) -> tuple[Any, ...]:
    if training is not None and bool(training):
        raise NotInBaseline("random numbers")
    return x, np.ones(x.shape, np.bool_)


# ---- shapes ----------------------------------------------------------------------------------------------------------


def numbers(values: np.ndarray) -> tuple[int, ...]:
    """Return an integer tensor of one dimension as Python's numbers."""
    if values.dtype.kind != "i" or values.ndim > 1:
        raise NotInBaseline("indices that are no row of integers")
    return tuple(map(int, values.reshape(-1)))


def placed(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        raise NotInBaseline("an axis out of range")
    return axis % rank


@operator("Shape")
def _shape(x: np.ndarray, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(x.shape[start:end], np.int64)


@operator("Size")
def _size(x: np.ndarray) -> np.ndarray:
    return np.array(x.size, np.int64)


@operator("Reshape")
def _reshape(x: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    dims = numbers(shape)
    return x.reshape(dims if allowzero else tuple(x.shape[i] if d == 0 else d for i, d in enumerate(dims)))


@operator("Flatten")
def _flatten(x: np.ndarray, *, axis: int = 1) -> np.ndarray:
    at = x.ndim if axis == x.ndim else placed(axis, x.ndim)
    return x.reshape(int(np.prod(x.shape[:at])), int(np.prod(x.shape[at:])))


@operator("Squeeze")
def _squeeze(x: np.ndarray, axes: Any = None) -> np.ndarray:
    return np.squeeze(x, None if axes is None else numbers(axes))


@operator("Unsqueeze")
def _unsqueeze(x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return np.expand_dims(x, numbers(axes))


@operator("Transpose")
def _transpose(x: np.ndarray, *, perm: Sequence[int] | None = None) -> np.ndarray:
    return np.transpose(x, perm)


@operator("Concat")
def _concat(*values: np.ndarray, axis: int) -> np.ndarray:
    _alike(*values)
    return np.concatenate(values, placed(axis, values[0].ndim))


@operator("Split")
def _split(x: np.ndarray, sizes: Any = None, *, axis: int = 0, num_outputs: int | None = None) -> tuple[Any, ...]:
    length = x.shape[axis]
    if sizes is None and num_outputs is None:
        raise NotInBaseline("a split that counts its outputs")
    parts = num_outputs or 1
    part = -(-length // parts)
    widths = numbers(sizes) if sizes is not None else (*[part] * (parts - 1), length - part * (parts - 1))
    if sum(widths) != length or min(widths) < 0:
        raise NotInBaseline("parts that are not the whole")
    return tuple(np.split(x, np.cumsum(widths)[:-1], axis))


@operator("Slice")
def _slice(x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: Any = None, steps: Any = None) -> np.ndarray:
    first = numbers(starts)
    places = numbers(axes) if axes is not None else tuple(range(len(first)))
    strides = numbers(steps) if steps is not None else (1,) * len(first)
    cut = [slice(None)] * x.ndim
    for start, end, axis, step in zip(first, numbers(ends), places, strides, strict=True):
        at = placed(axis, x.ndim)
        size = x.shape[at]
        stop = end + size if end < 0 else end
        if step < 0 and start < -size:
            raise NotInBaseline("a slice that begins before the first element")
        # Python counts a negative end from behind; to the one before the first element it says None.
        cut[at] = slice(start, max(stop, 0) if step > 0 else stop if stop >= 0 else None, step)
    return x[tuple(cut)]


@operator("Gather")
def _gather(x: np.ndarray, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    return np.take(x, indices, placed(axis, x.ndim))  # raises where one is out of range


@operator("GatherElements")
def _gather_elements(x: np.ndarray, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    at = placed(axis, x.ndim)
    if any(i > d for n, (i, d) in enumerate(zip(indices.shape, x.shape, strict=True)) if n != at):
        raise NotInBaseline("more indices than elements")
    inside = tuple(slice(None) if n == at else slice(i) for n, i in enumerate(indices.shape))
    return np.take_along_axis(x[inside], indices, at)


@operator("Expand")
def _expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    bounded(*numbers(shape))
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, numbers(shape)))


@operator("Tile")
def _tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    times = numbers(repeats)
    if len(times) != x.ndim:
        raise NotInBaseline("repeats of another rank")
    bounded(x.size, *times)
    return np.tile(x, times)


@operator("Range")
def _range(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    _alike(start, limit, delta)
    if start.dtype.kind != "i":
        raise NotInBaseline("a range of floats")
    wanted = range(int(start), int(limit), int(delta))
    bounded(len(wanted))
    return np.arange(wanted.start, wanted.stop, wanted.step, dtype=start.dtype)


@operator("ConstantOfShape")
def _constant_of_shape(shape: np.ndarray, *, value: Any = None) -> np.ndarray:
    fill = np.float32(0) if value is None else value.reshape(())
    bounded(*numbers(shape))
    return np.full(numbers(shape), fill, fill.dtype)


@operator("EyeLike")
def _eye_like(x: np.ndarray, *, dtype: int | None = None, k: int = 0) -> np.ndarray:
    return np.eye(*x.shape, k=k, dtype=x.dtype if dtype is None else ELEMENT_TYPES[dtype])


@operator("Constant")
def _constant(
    *,
    value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
) -> np.ndarray:
    given = {
        np.float32: value_float if value_floats is None else value_floats,
        np.int64: value_int if value_ints is None else value_ints,
    }
    return value if value is not None else next(np.array(v, t) for t, v in given.items() if v is not None)


@operator("Pad")
def _pad(x: np.ndarray, pads: np.ndarray, value: Any = None, axes: Any = None, *, mode: str = "constant") -> np.ndarray:
    widths, n = numbers(pads), len(pads) // 2
    places = [placed(a, x.ndim) for a in numbers(axes)] if axes is not None else list(range(x.ndim))
    if mode not in ("constant", "reflect", "edge") or min(widths, default=0) < 0 or len(places) != n:
        raise NotInBaseline("a padding of another kind")
    around = [(0, 0)] * x.ndim
    for at, before, after in zip(places, widths[:n], widths[n:], strict=True):
        around[at] = (before, after)
        if mode == "reflect" and max(before, after) >= x.shape[at]:
            raise NotInBaseline("a padding longer than what it reflects")
    bounded(*(n + sum(beyond) for n, beyond in zip(x.shape, around, strict=True)))
    if mode == "constant":
        return np.pad(x, around, constant_values=0 if value is None else value.item())
    return np.pad(x, around, mode=mode)


@operator("Trilu")
def _trilu(x: np.ndarray, k: Any = None, *, upper: int = 1) -> np.ndarray:
    if x.ndim < 2:
        raise NotInBaseline("a triangle of no matrix")
    return (np.triu if upper else np.tril)(x, 0 if k is None else int(k.item()))
