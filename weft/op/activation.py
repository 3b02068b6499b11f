"""Activation functions."""

import math
from typing import Any

import numpy as np

from weft.ir import Expr, TensorType, Tuple, TupleType, as_int
from weft.op.attributes import axis, number
from weft.op.elementwise import erf_reference
from weft.op.infer import broadcast, normalize_axis, same_as, same_dtype, tensor_arg
from weft.op.registry import Fusion, declare, make_call
from weft.op.relations import demand_equal
from weft.topi.activation import ACTIVATIONS, prelu
from weft.topi.broadcast import elementwise
from weft.topi.create import full_like


def _elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


def _activation(name: str, doc: str, reference: Any, rtol: float = 1e-5, **attrs: Any) -> None:
    """Declare ``nn.<name>``; the reference computes in float64 (integers in their own type)."""

    def ref(x: Any, **values: Any) -> Any:
        with np.errstate(all="ignore"):
            wide = x if x.dtype.kind in "iu" else x.astype(np.float64)
            return np.asarray(reference(wide, **values)).astype(x.dtype)

    any_type = name in ("relu", "relu6")
    declare(
        f"nn.{name}",
        "x",
        {k: number(v) for k, v in attrs.items()},
        infer=same_as(f"nn.{name}", kind="" if any_type else "float"),
        lower=lambda x, **values: elementwise(lambda v: ACTIVATIONS[name](v, **values), x, name="T_" + name),
        reference=ref,
        fusion=Fusion.ELEMENTWISE,
        rtol=rtol,
        doc=doc,
        tags=("unary",),
    )


_activation("relu", "``max(x, 0)``.", lambda x: np.maximum(x, 0))
_activation("relu6", "``min(max(x, 0), 6)``.", lambda x: np.clip(x, 0, 6))
_activation(
    "gelu",
    "``x * Phi(x)`` with the normal distribution's Phi, by the error function.",
    lambda x: 0.5 * x * (1 + erf_reference(x / math.sqrt(2))),
    1e-4,
)
_activation(
    "gelu_tanh",
    "GELU by a hyperbolic tangent.",
    lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    1e-4,
)
_activation("silu", "``x * sigmoid(x)``.", lambda x: x / (1 + np.exp(-x)))
_activation(
    "softplus",
    "``log(1 + exp(beta * x)) / beta``, and `x` itself where ``beta * x`` is beyond the `threshold`.",
    lambda x, beta, threshold: np.where(x * beta > threshold, x, _softplus(x * beta) / beta),
    1e-4,
    beta=1.0,
    threshold=20.0,
)
_activation("mish", "``x * tanh(softplus(x))``.", lambda x: x * np.tanh(_softplus(x)), 1e-4)
_activation("hardswish", "``x * clip(x / 6 + 0.5, 0, 1)``.", lambda x: x * np.clip(x / 6 + 0.5, 0, 1))
_activation("softsign", "``x / (1 + abs(x))``.", lambda x: x / (1 + np.abs(x)))
_activation(
    "leakyrelu", "``x`` where positive, else ``alpha * x``.", lambda x, alpha: np.where(x > 0, x, x * alpha), alpha=0.01
)
_activation("elu", "``x`` where positive, else ``alpha * (exp(x) - 1)``.", _elu, alpha=1.0)
_activation(
    "selu",
    "Scaled exponential linear unit.",
    lambda x, alpha, gamma: gamma * _elu(x, alpha),
    alpha=1.6732632423543772,
    gamma=1.0507009873554805,
)
_activation(
    "hardsigmoid",
    "``clip(alpha * x + beta, 0, 1)``.",
    lambda x, alpha, beta: np.clip(x * alpha + beta, 0, 1),
    alpha=1 / 6,
    beta=0.5,
)
_activation(
    "celu",
    "Continuously differentiable exponential linear unit.",
    lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    alpha=1.0,
)
_activation(
    "thresholded_relu",
    "``x`` where greater than `alpha`, else 0.",
    lambda x, alpha: np.where(x > alpha, x, 0),
    alpha=1.0,
)
_activation(
    "shrink",
    "Shrink towards zero.",
    lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    bias=0.0,
    lambd=0.5,
)


def _prelu_infer(x: Expr, alpha: Expr, axis: int | None) -> TensorType:
    ty, slope = tensor_arg("nn.prelu", "x", x), tensor_arg("nn.prelu", "alpha", alpha)
    if axis is None or slope.ndim != 1 or slope.shape is None or as_int(slope.shape[0]) == 1:
        return broadcast("nn.prelu", x, alpha)
    dtype = same_dtype("nn.prelu", x, alpha)
    if ty.shape is not None:
        channels = ty.shape[normalize_axis("nn.prelu", axis, ty.ndim)]
        demand_equal("nn.prelu: length of 'alpha', one for each channel", slope.shape[0], channels, x.span)
    return TensorType(ty.shape, dtype, ty.ndim)


def _prelu_ref(x: Any, alpha: Any, axis: int | None) -> Any:
    if axis is not None and alpha.ndim == 1 and alpha.size != 1:
        alpha = alpha.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])
    return np.where(x > 0, x, x * alpha).astype(x.dtype)


declare(
    "nn.prelu",
    "x alpha",
    {"axis": axis(1, checked=False).or_none(1)},
    infer=_prelu_infer,
    lower=prelu,
    reference=_prelu_ref,
    fusion=Fusion.BROADCAST,
    doc="``x`` where positive, else ``alpha * x``; a vector `alpha` lies along `axis`, others broadcast.",
)

declare(
    "nn.dropout",
    "x",
    {"rate": number(0.5)},
    infer=lambda x, rate: TupleType((tensor_arg("nn.dropout", "x", x),) * 2),
    lower=lambda x: [elementwise(lambda v: v, x, name="compute"), full_like(x, 1)],
    reference=lambda x: (x, np.ones_like(x)),
    decompose=lambda x: Tuple((x, make_call("ones_like")(x))),
    fusion=Fusion.ELEMENTWISE,
    doc="What is left, at inference all, and the mask that says so.",
)
