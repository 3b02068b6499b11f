"""``relay.random``: draws that are a function of a generator, each with the generator for what is drawn next."""

import math
from typing import Any

import numpy as np

from weft import error, ir
from weft.relay.expr import Constant, const
from weft.relay.op.construct import constructs, namespace
from weft.relay.op.elementwise import scalar
from weft.relay.op.registry import REQUIRED, declare, op_call, shared
from weft.relay.typing import Dims, Value

__getattr__, __dir__ = namespace("random.")

_BITS = {"float32": ("uint32", 32, 23), "float64": ("uint64", 64, 52)}


def _item(pair: ir.Expr, i: int) -> Any:
    return ir.TupleGetItem(pair, i, ty=pair.ty.fields[i])  # type: ignore[union-attr]


def _unit(key: ir.Expr, shape: Any, dtype: str) -> tuple[Any, ir.Expr]:
    """The next generator, and numbers in [0, 1): the first bits of words, as many as a fraction has."""
    if dtype not in _BITS:
        raise error.InvalidArgument(f"random numbers of {dtype} are not drawn", expected=" or ".join(_BITS))
    word, bits, fraction = _BITS[dtype]
    drawn = shared("threefry_generate", key, out_shape=tuple(shape))
    words = shared("astype", _item(drawn, 1), dtype=word)
    kept = shared("right_shift", words, scalar(bits - fraction, word))
    return _item(drawn, 0), shared("multiply", shared("astype", kept, dtype=dtype), scalar(2.0**-fraction, dtype))


def _pair(*fields: ir.Expr) -> ir.Expr:
    return ir.Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)))


def _uniform(key: ir.Expr, low: ir.Expr, high: ir.Expr, out_shape: Any, out_dtype: str) -> ir.Expr:
    new, unit = _unit(key, out_shape, out_dtype)
    scaled = shared("multiply", unit, shared("subtract", high, low))
    return _pair(new, shared("add", scaled, low))


def _normal(key: ir.Expr, mean: ir.Expr, scale: ir.Expr, out_shape: Any, out_dtype: str) -> ir.Expr:
    new, unit = _unit(key, (2, *out_shape), out_dtype)
    first, second = (
        shared("squeeze", _item(shared("split", unit, indices_or_sections=2, axis=0), i), axis=(0,)) for i in range(2)
    )
    one, two = scalar(1.0, out_dtype), scalar(-2.0, out_dtype)
    radius = shared("sqrt", shared("multiply", two, shared("log", shared("subtract", one, first))))
    wave = shared("sin", shared("multiply", scalar(2 * math.pi, out_dtype), second))
    standard = shared("multiply", radius, wave)
    return _pair(new, shared("add", shared("multiply", standard, scale), mean))


declare(
    "random.threefry_generate",
    "key",
    {"out_shape": REQUIRED},
    expand=lambda key, out_shape: shared("threefry_generate", key, out_shape=tuple(out_shape)),
    doc="Draw 64-bit words.",
)
declare(
    "random.threefry_split", "key", expand="threefry_split", doc="Make two generators of one, which is used up by that."
)
declare(
    "random.uniform",
    "key low high",
    {"out_shape": REQUIRED, "out_dtype": "float32"},
    expand=_uniform,
    doc="Draw numbers that are equally likely anywhere in [low, high).",
)
declare(
    "random.normal",
    "key mean scale",
    {"out_shape": REQUIRED, "out_dtype": "float32"},
    expand=_normal,
    doc="Draw numbers of a normal distribution, by the method of Box and Muller.",
)


def threefry_key(seed: int) -> Constant:
    """Make the generator of a seed."""
    words = np.zeros(10, np.uint64)
    words[0], words[8] = np.uint64(seed & ((1 << 64) - 1)), np.uint64(1 << 63)
    return const(words, "uint64")


@constructs("random.uniform")
def uniform(key: Value, shape: Dims, dtype: str = "float32", low: Value = 0.0, high: Value = 1.0) -> Any:
    """Draw numbers that are equally likely anywhere in [low, high).

    Parameters
    ----------
    key : Expr
        The generator.
    shape : sequence of int
        The shape.
    dtype : str
        ``float32`` or ``float64``.
    low, high : float or Expr
        The bounds, which are broadcast.

    Returns
    -------
    Call
        Of a tuple: the generator for what is drawn next, and the numbers.
    """
    return _drawn("random.uniform", key, low, high, shape, dtype)


@constructs("random.normal")
def normal(key: Value, shape: Dims, dtype: str = "float32", mean: Value = 0.0, scale: Value = 1.0) -> Any:
    """Draw numbers of a normal distribution; parameters and results are those of :func:`uniform`."""
    return _drawn("random.normal", key, mean, scale, shape, dtype)


def _drawn(name: str, key: Any, a: Any, b: Any, shape: Any, dtype: str) -> Any:
    first, second = (const(float(v), dtype) if isinstance(v, (int, float)) else v for v in (a, b))
    return op_call(name, key, first, second, out_shape=tuple(shape), out_dtype=dtype)
