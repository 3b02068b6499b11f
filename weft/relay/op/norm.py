"""Softmax, normalisations, dropout."""

from typing import Any

import numpy as np

from weft import ir
from weft.op import tensor_arg
from weft.relay.expr import TupleWrapper
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import axis_of, dims, dtype_of, excluded, rank, vector, vectors
from weft.relay.typing import Value

for _name in ("nn.softmax", "nn.log_softmax", "nn.fast_softmax"):
    declare(
        _name,
        "data",
        {"axis": -1},
        expand=_name.replace("fast_", ""),
        doc="``exp(x) / sum(exp(x))`` along an axis" + (", logarithm of." if "log" in _name else "."),
    )


def _vectors(op: str, data: ir.Expr, axis: int, **vectors: ir.Expr) -> int:
    """Check the vectors of a normalisation against its axis, and return the axis."""
    at = axis_of(op, data, axis)
    for name, x in vectors.items():
        vector(op, name, x, dims(data)[at])
    return at


def _batch_norm(
    data: ir.Expr, gamma: ir.Expr, beta: ir.Expr, moving_mean: ir.Expr, moving_var: ir.Expr, axis: int, **attrs: Any
) -> ir.Expr:
    at = _vectors("nn.batch_norm", data, axis, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var)
    return shared("nn.batch_norm", data, gamma, beta, moving_mean, moving_var, axis=at, **attrs)


declare(
    "nn.batch_norm",
    "data gamma beta moving_mean moving_var",
    {"axis": 1, "epsilon": 1e-5, "center": True, "scale": True},
    expand=_batch_norm,
    outputs=3,
    completes=vectors(4),
    doc="Normalise each channel with given statistics; returns (output, mean, variance).",
)


def _layer_norm(data: ir.Expr, gamma: ir.Expr, beta: ir.Expr, axis: int, **attrs: Any) -> ir.Expr:
    at = _vectors("nn.layer_norm", data, axis, gamma=gamma, beta=beta)
    if at == rank(data) - 1:
        return shared("nn.layer_norm", data, gamma, beta, axes=(-1,), **attrs)
    order = (*(i for i in range(rank(data)) if i != at), at)
    last = shared("permute_dims", data, axes=order)
    out = shared("nn.layer_norm", last, gamma, beta, axes=(-1,), **attrs)
    return shared("permute_dims", out, axes=tuple(order.index(i) for i in range(rank(data))))


def _group_norm(data: ir.Expr, gamma: ir.Expr, beta: ir.Expr, axis: int, **attrs: Any) -> ir.Expr:
    at = _vectors("nn.group_norm", data, axis, gamma=gamma, beta=beta)
    return shared("nn.group_norm", data, gamma, beta, channel_axis=at, **attrs)


_SCALED: dict[str, Any] = {"epsilon": 1e-5, "center": True, "scale": True}
declare(
    "nn.layer_norm",
    "data gamma beta",
    {"axis": -1, **_SCALED},
    expand=_layer_norm,
    completes=vectors(2),
    doc="Normalise over an axis, then scale and shift.",
)
declare(
    "nn.group_norm",
    "data gamma beta",
    {"num_groups": REQUIRED, "axis": 1, **_SCALED},
    expand=_group_norm,
    completes=vectors(2),
    doc="Normalise groups of channels over channels and space, then scale and shift.",
)


def _instance_norm(
    data: ir.Expr, gamma: ir.Expr, beta: ir.Expr, axis: int, epsilon: float, center: bool, scale: bool
) -> ir.Expr:
    """Normalise with the channel axis at position 1."""
    at = _vectors("nn.instance_norm", data, axis, gamma=gamma, beta=beta)
    tensor_arg("nn.instance_norm", "data", data, min_ndim=2)
    rest = [i for i in range(rank(data)) if i != at]
    order = (rest[0], at, *rest[1:])
    x = data if at == 1 else shared("permute_dims", data, axes=order)
    gamma = gamma if scale else shared("ones_like", gamma)
    beta = beta if center else shared("zeros_like", beta)
    out = shared("nn.instance_norm", x, gamma, beta, epsilon=epsilon)
    return out if at == 1 else shared("permute_dims", out, axes=tuple(order.index(i) for i in range(rank(data))))


declare(
    "nn.instance_norm",
    "data gamma beta",
    {"axis": 1, **_SCALED},
    expand=_instance_norm,
    completes=vectors(2),
    doc="Normalise each channel of each sample over its spatial axes, then scale and shift.",
)


def _l2_normalize(data: ir.Expr, eps: float, axis: Any = None) -> ir.Expr:
    square = shared("sum", shared("multiply", data, data), axis=excluded("l2", axis, False, rank(data)), keepdims=True)
    low = ir.constant(np.array(eps, ir.numpy_dtype(dtype_of(data))))
    return shared("divide", data, shared("sqrt", shared("maximum", square, low)))


declare(
    "nn.l2_normalize",
    "data",
    {"eps": 1e-12, "axis": None},
    expand=_l2_normalize,
    doc="Divide by the root of the sum of squares over axes, which is at least ``sqrt(eps)``.",
)
declare(
    "nn.lrn", "data", {"bias": 2.0, "alpha": 1e-5}, expand="nn.lrn", doc="Local response normalisation across channels."
)


def _dropout(data: ir.Expr, rate: float) -> ir.Expr:
    ty = tensor_arg("nn.dropout", "data", data, kind="float")
    return ir.Tuple((data, shared("ones_like", data)), ty=ir.TupleType((ty, ty)))


declare(
    "nn.dropout",
    "data",
    {"rate": 0.5},
    expand=_dropout,
    outputs=2,
    doc="The tensor itself, as in inference, and the mask that keeps all elements.",
)


@constructs("nn.dropout")
def dropout(data: Value, rate: float = 0.5) -> ir.Expr:
    """Drop nothing: at inference the result is the tensor itself."""
    return call("nn.dropout", data, rate=rate)[0]


@constructs("nn.dropout_raw")
def dropout_raw(data: Value, rate: float = 0.5) -> TupleWrapper:
    """Return the tensor itself, as in inference, and the mask that keeps all elements."""
    return call("nn.dropout", data, rate=rate)


def _logsumexp(data: ir.Expr, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> ir.Expr:
    over = excluded("logsumexp", axis, exclude, rank(data))
    high = shared("max", data, axis=over, keepdims=True)
    total = shared("sum", shared("exp", shared("subtract", data, high)), axis=over, keepdims=True)
    out = shared("add", shared("log", total), high)
    axes = tuple(range(rank(data))) if over is None else over
    return out if keepdims or axes == () else shared("squeeze", out, axis=axes)


declare(
    "logsumexp",
    "data",
    {"axis": None, "keepdims": False, "exclude": False},
    expand=_logsumexp,
    doc="``log(sum(exp(x)))`` over axes, without overflow.",
)
