"""The names of ``tvm.topi.random``: draws from distributions, each with the generator for what is drawn next."""

import importlib
import math
from typing import Any

from weft import error, te, tir
from weft.ir import as_expr, cast, const
from weft.topi.broadcast import broadcast_index
from weft.topi.scan import cumsum
from weft.topi.threefry import threefry_generate, threefry_split
from weft.topi.typing import Scalar, Shape

__all__ = ["multinomial", "normal", "threefry_generate", "threefry_split", "uniform"]

_LAYOUTS = {"float32": ("uint32", 32, 23), "float64": ("uint64", 64, 52)}


def _beside(value: Any, shape: Any, i: Any, dtype: str) -> Any:
    """A parameter for an element: of a tensor that broadcasts, or the scalar itself."""
    if isinstance(value, te.Tensor):
        return cast(dtype, value(*broadcast_index(value.shape, shape, i)))
    return cast(dtype, as_expr(value))


def _unit(gen: Any, shape: Any, dtype: str) -> tuple[Any, Any]:
    """Numbers in [0, 1): the bits of a word are the fraction of a number in [1, 2), from which 1 is taken."""
    if dtype not in _LAYOUTS:
        raise error.InvalidArgument(f"random numbers of {dtype} are not drawn", expected=" or ".join(_LAYOUTS))
    word, bits, fraction = _LAYOUTS[dtype]
    new, words = threefry_generate(gen, shape)
    exponent = const(((1 << (bits - fraction - 2)) - 1) << fraction, word)

    def element(*i: Any) -> Any:
        low = tir.shift_right(cast(word, words(*i)), const(bits - fraction, word))
        return tir.reinterpret(dtype, tir.bitwise_or(low, exponent)) - const(1.0, dtype)

    return new, te.compute(words.shape, element, name="uniform")


def uniform(gen: te.Tensor, low: Scalar, high: Scalar, out_shape: Shape, out_dtype: str) -> Any:
    """Numbers that are equally likely anywhere in [low, high)."""
    new, unit = _unit(gen, out_shape, out_dtype)

    def element(*i: Any) -> Any:
        first, last = (_beside(v, unit.shape, i, out_dtype) for v in (low, high))
        return unit(*i) * (last - first) + first

    return [new, te.compute(unit.shape, element, name="uniform_between")]


def normal(gen: te.Tensor, mean: te.Tensor, scale: te.Tensor, out_shape: Shape, out_dtype: str) -> Any:
    """Numbers of a normal distribution, each from two uniform ones by the method of Box and Muller."""
    new, unit = _unit(gen, (2, *out_shape), out_dtype)
    shape = unit.shape[1:]

    def element(*i: Any) -> Any:
        radius = tir.sqrt(const(-2.0, out_dtype) * tir.log(const(1.0, out_dtype) - unit(0, *i)))
        standard = radius * tir.sin(const(2 * math.pi, out_dtype) * unit(1, *i))
        return standard * _beside(scale, shape, i, out_dtype) + _beside(mean, shape, i, out_dtype)

    return [new, te.compute(shape, element, name="normal")]


def multinomial(gen: te.Tensor, probs: te.Tensor, num_samples: int) -> Any:
    """Indices, drawn with probabilities in proportion to the last axis of `probs`; negative ones count as 0.

    Returns
    -------
    list of Tensor
        The next generator, and (..., num_samples) int32.
    """
    wide = "float32"
    positive = te.compute(probs.shape, lambda *i: tir.max(cast(wide, probs(*i)), const(0.0, wide)), name="positive")
    running, n = cumsum(positive, probs.ndim - 1), probs.shape[-1]
    new, unit = _unit(gen, (*probs.shape[:-1], num_samples), wide)
    k = te.reduce_axis((0, n), "k")

    def passed(*i: Any) -> Any:
        total = running(*i[:-1], n - 1)
        return te.sum(cast("int32", running(*i[:-1], k.var) <= unit(*i) * total), axis=k)

    held = te.compute(unit.shape, passed, name="passed")
    return [new, te.compute(held.shape, lambda *i: tir.min(held(*i), cast("int32", n - 1)), name="multinomial")]


def __getattr__(name: str) -> Any:
    """``threefry_test_wrapping``, which compiles, loads the compiler when it is wanted."""
    if name == "threefry_test_wrapping":
        return importlib.import_module("weft.topi.wrapping").threefry_test_wrapping
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
