"""Activation functions, each one scalar expression."""

import math
from collections.abc import Callable
from typing import Any

from weft import ir, te, tir
from weft.topi.broadcast import elementwise
from weft.topi.shape import normalize_axis


def _c(x: Any, value: float) -> Any:
    return ir.const(value, x.dtype)


def _relu(x: Any) -> Any:
    return tir.max(x, _c(x, 0))


def _gelu(x: Any, of: Any = tir) -> Any:
    return x * (0.5 + of.erf(x * 0.5**0.5) * 0.5)


def _gelu_tanh(x: Any, of: Any = tir) -> Any:
    return 0.5 * x * (1.0 + of.tanh((2 / math.pi) ** 0.5 * x * (1.0 + 0.044715 * x * x)))


def _silu(x: Any, of: Any = tir) -> Any:
    return x * of.sigmoid(x)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = x if beta == 1.0 else x * _c(x, beta)
    rest = tir.log1p(tir.exp(-tir.abs(scaled)))  # a sum with one would lose all but the exponent of large negatives
    soft = tir.max(x, _c(x, 0)) + (rest if beta == 1.0 else rest * _c(x, 1 / beta))
    return soft if threshold >= 20 else ir.select(scaled > _c(x, threshold), x, soft)  # beyond 20 both are `x`


def _mish(x: Any) -> Any:
    e = tir.exp(tir.min(x, _c(x, 20)))  # beyond it the quotient is 1
    rest = e * (e + _c(x, 2))  # tanh(log(1 + e)) without what tanh and log cost
    return x * (rest / (rest + _c(x, 2)))


def _hard_sigmoid(x: Any, alpha: float = 1 / 6, beta: float = 0.5) -> Any:
    return tir.min(tir.max(x * _c(x, alpha) + _c(x, beta), _c(x, 0)), _c(x, 1))


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return ir.select(x > _c(x, 0), x, _c(x, alpha) * (tir.exp(tir.min(x, _c(x, 0))) - _c(x, 1)))


def _shrink(x: Any, bias: float = 0.0, lambd: float = 0.5) -> Any:
    return ir.select(x < _c(x, -lambd), x + _c(x, bias), ir.select(x > _c(x, lambd), x - _c(x, bias), _c(x, 0)))


def _celu(x: Any, alpha: float = 1.0) -> Any:
    return tir.max(x, _c(x, 0)) + tir.min(_c(x, 0), _c(x, alpha) * (tir.exp(x * _c(x, 1 / alpha)) - _c(x, 1)))


def _rounded_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with float32 between its steps where values are of 16 bits.

    Each step that rounds to 16 bits would lose what a sum with one cancels: all of GELU's tail.
    """

    def apply(x: Any, **values: float) -> Any:
        if x.dtype not in ("float16", "bfloat16"):
            return function(x, **values)
        return tir.Cast(x.dtype, function(tir.Cast("float32", x), **values))

    return apply


STEPWISE: dict[str, Callable[..., Any]] = {
    "celu": _celu,
    "elu": _elu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "hardsigmoid": _hard_sigmoid,
    "hardswish": lambda x: x * _hard_sigmoid(x),
    "mish": _mish,
    "selu": lambda x, alpha=1.6732632423543772, gamma=1.0507009873554805: _c(x, gamma) * _elu(x, alpha),
    "silu": _silu,
    "softplus": _softplus,
    "softsign": lambda x: x / (_c(x, 1) + tir.abs(x)),
}
"""Functions of one value in its own type; those that take `of` are functions of tensors, too, given ``topi``."""
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    **{name: _rounded_once(function) for name, function in STEPWISE.items()},
    "leakyrelu": lambda x, alpha=0.01: ir.select(x > _c(x, 0), x, x * _c(x, alpha)),
    "relu": _relu,
    "relu6": lambda x: tir.min(_relu(x), _c(x, 6)),
    "shrink": _shrink,
    "thresholded_relu": lambda x, alpha=1.0: ir.select(x > _c(x, alpha), x, _c(x, 0)),
}
"""Functions of one value, by operator name without ``nn.``."""


def relu(x: te.Tensor) -> Any:
    """``max(x, 0)``."""
    return elementwise(_relu, x, name="T_relu")


def leaky_relu(x: te.Tensor, alpha: float) -> Any:
    """``x`` where positive, else ``alpha * x``."""
    return elementwise(lambda v: ACTIVATIONS["leakyrelu"](v, alpha), x, name="T_leaky_relu")


def prelu(x: te.Tensor, slope: te.Tensor, axis: int | None = 1) -> Any:
    """``x`` where positive, else ``slope * x``.

    A vector `slope` has a value for each index along `axis`; another tensor, or any where `axis` is None, broadcasts.
    """
    if axis is not None and len(slope.shape) == 1 and ir.as_int(slope.shape[0]) != 1:
        channel = normalize_axis("nn.prelu", axis, len(x.shape))
        negative = lambda *i: ir.select(x(*i) > _c(x, 0), x(*i), x(*i) * slope(i[channel]))  # noqa: E731
        return te.compute(x.shape, negative, name="T_prelu")
    return elementwise(lambda v, a: ir.select(v > _c(v, 0), v, v * a), x, slope, name="T_prelu")
