"""Normalisations and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import DataType, Expr, IntImm, TensorType, TupleType, cast, const, int64
from weft.op.infer import normalize_axes, normalize_axis, product, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.reduce import reduce

__all__: list[str] = []


def _same(op: str, first: str = "data") -> Any:
    def infer(data: Expr, *_: Any, **__: Any) -> TensorType:
        return tensor_arg(op, first, data)

    return infer


def _at(i: Any, axes: Any) -> list[Any]:
    """Indices with zeros on the reduced axes."""
    return [const(0, v.dtype) if d in axes else v for d, v in enumerate(i)]


def _wide(x: Any) -> Any:
    """16-bit values as float32, for stable accumulation."""
    if DataType(x.dtype).bits != 16:
        return x
    return te.compute(x.shape, lambda *i: cast("float32", x(*i)), name="wide")


def _narrow(y: Any, dtype: str) -> Any:
    return y if y.dtype == dtype else te.compute(y.shape, lambda *i: cast(dtype, y(*i)), name="narrow")


def _softmax(x: Any, axis: int = -1) -> Any:
    axes = (normalize_axis("nn.softmax", axis, x.ndim),)
    dtype, x = x.dtype, _wide(x)
    top = reduce("max", x, axes, True, name="T_softmax_max")
    e = te.compute(x.shape, lambda *i: tir.exp(x(*i) - top(*_at(i, axes))), name="T_softmax_exp")
    total = reduce("sum", e, axes, True, name="T_softmax_sum")
    # one division a row: a vector division costs as much as a dozen products
    inverse = te.compute(total.shape, lambda *i: const(1.0, x.dtype) / total(*i), name="T_softmax_inverse")
    return _narrow(te.compute(x.shape, lambda *i: e(*i) * inverse(*_at(i, axes)), name="T_softmax_norm"), dtype)


def _softmax_ref(x: Any, axis: int) -> Any:
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis, keepdims=True)).astype(x.dtype)


declare(
    "nn.softmax", "data", {"axis": -1}, infer=_same("nn.softmax"), lower=_softmax, reference=_softmax_ref, fusion=Fusion.REDUCTION,
    doc="``exp(x) / sum(exp(x))`` along an axis.",
)  # fmt: skip


def _log_softmax(x: Any, axis: int = -1) -> Any:
    axes = (normalize_axis("nn.log_softmax", axis, x.ndim),)
    dtype, x = x.dtype, _wide(x)
    top = reduce("max", x, axes, True, name="T_softmax_max")
    e = te.compute(x.shape, lambda *i: tir.exp(x(*i) - top(*_at(i, axes))), name="T_softmax_exp")
    total = reduce("sum", e, axes, True, name="T_softmax_sum")
    log_total = te.compute(total.shape, lambda *i: tir.log(total(*i)), name="T_softmax_log")
    return _narrow(
        te.compute(x.shape, lambda *i: x(*i) - top(*_at(i, axes)) - log_total(*_at(i, axes)), name="T_log_softmax"),
        dtype,
    )


declare(
    "nn.log_softmax", "data", {"axis": -1}, infer=_same("nn.log_softmax"), lower=_log_softmax,
    reference=lambda x, axis: (lambda y: (y - np.log(np.exp(y).sum(axis, keepdims=True))).astype(x.dtype))(
        x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True, initial=-np.inf)
    ),
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="The logarithm of softmax.",
)  # fmt: skip


def _moments(x: Any, axes: Any, epsilon: float, prefix: str) -> tuple[Any, Any]:
    """Mean and reciprocal standard deviation over axes, which stay as extents of 1."""
    n: Any = int64(1)
    for a in axes:
        n = n * x.shape[a]
    scale = (
        const(1.0, x.dtype) / cast(x.dtype, n) if not isinstance(n, IntImm) else const(1.0 / max(n.value, 1), x.dtype)
    )
    total = reduce("sum", x, axes, True, name=prefix + "_sum")
    mean = te.compute(total.shape, lambda *i: total(*i) * scale, name=prefix + "_mean")
    square = reduce_centred(x, mean, axes, prefix)
    inverse = te.compute(
        total.shape, lambda *i: tir.rsqrt(square(*i) * scale + const(epsilon, x.dtype)), name=prefix + "_rstd"
    )
    return mean, inverse


def reduce_centred(x: Any, mean: Any, axes: Any, prefix: str) -> Any:
    """Sum of squared differences from the mean."""
    ks = {a: te.reduce_axis((int64(0), x.shape[a]), f"k{a}") for a in axes}

    def element(*i: Any) -> Any:
        at = [ks[d].var if d in ks else v for d, v in enumerate(i)]
        d = x(*at) - mean(*i)
        return te.sum(d * d, axis=list(ks.values()))

    return te.compute(mean.shape, element, name=prefix + "_var")


def _layer_norm(
    x: Any,
    gamma: Any,
    beta: Any = None,
    axes: Any = (-1,),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    over = normalize_axes("nn.layer_norm", axes, x.ndim)
    dtype, x = x.dtype, _wide(x)
    mean, inverse = _moments(x, over, epsilon, "T_layer_norm")

    def element(*i: Any) -> Any:
        at, inner = _at(i, over), [i[a] for a in over]
        y = (x(*i) - mean(*at)) * inverse(*at)
        y = y * cast(x.dtype, gamma(*inner)) if scale else y
        return y + cast(x.dtype, beta(*inner)) if center and beta is not None else y

    return _narrow(te.compute(x.shape, element, name="T_layer_norm"), dtype)


def _layer_norm_ref(
    x: Any,
    gamma: Any,
    beta: Any = None,
    axes: Any = (-1,),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    over = normalize_axes("nn.layer_norm", axes, x.ndim)
    y = x.astype(np.float64)
    y = (y - y.mean(over, keepdims=True)) / np.sqrt(y.var(over, keepdims=True) + epsilon)
    return (y * (gamma if scale else 1) + (beta if center and beta is not None else 0)).astype(x.dtype)


declare(
    "nn.layer_norm", "data gamma beta?", {"axes": (-1,), "epsilon": 1e-5, "center": True, "scale": True}, infer=_same("nn.layer_norm"), lower=_layer_norm,
    reference=_layer_norm_ref, fusion=Fusion.REDUCTION, rtol=1e-4, doc="Normalise over trailing axes, then scale and shift.",
)  # fmt: skip


def _rms_norm(x: Any, weight: Any, axes: Any = (-1,), epsilon: float = 1e-5) -> Any:
    over = normalize_axes("nn.rms_norm", axes, x.ndim)
    dtype, x = x.dtype, _wide(x)
    n: Any = product([x.shape[a] for a in over])
    total = reduce("sum", x, over, True, lambda v: v * v, name="T_rms_norm_sum")
    inverse = te.compute(
        total.shape,
        lambda *i: tir.rsqrt(total(*i) / cast(x.dtype, n) + const(epsilon, x.dtype)),
        name="T_rms_norm_rstd",
    )
    y = te.compute(
        x.shape,
        lambda *i: x(*i) * inverse(*_at(i, over)) * cast(x.dtype, weight(*[i[a] for a in over])),
        name="T_rms_norm",
    )
    return _narrow(y, dtype)


declare(
    "nn.rms_norm", "data weight", {"axes": (-1,), "epsilon": 1e-5}, infer=_same("nn.rms_norm"), lower=_rms_norm,
    reference=lambda x, weight, axes, epsilon: (
        x / np.sqrt(np.mean(x.astype(np.float64) ** 2, normalize_axes("rms_norm", axes, x.ndim), keepdims=True) + epsilon) * weight
    ).astype(x.dtype),
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="Divide by the root of the mean square over trailing axes, then scale.",
)  # fmt: skip


def _instance_norm(x: Any, gamma: Any, beta: Any, epsilon: float = 1e-5) -> Any:
    over = tuple(range(2, x.ndim))
    dtype, x = x.dtype, _wide(x)
    mean, inverse = _moments(x, over, epsilon, "T_instance_norm")
    y = te.compute(
        x.shape,
        lambda *i: (
            (x(*i) - mean(*_at(i, over))) * inverse(*_at(i, over)) * cast(x.dtype, gamma(i[1]))
            + cast(x.dtype, beta(i[1]))
        ),
        name="T_instance_norm",
    )
    return _narrow(y, dtype)


def _instance_norm_ref(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    over, y, shape = tuple(range(2, x.ndim)), x.astype(np.float64), (1, -1, *[1] * (x.ndim - 2))
    y = (y - y.mean(over, keepdims=True)) / np.sqrt(y.var(over, keepdims=True) + epsilon)
    return (y * gamma.reshape(shape) + beta.reshape(shape)).astype(x.dtype)


declare(
    "nn.instance_norm", "data gamma beta", {"epsilon": 1e-5}, infer=_same("nn.instance_norm"), lower=_instance_norm, reference=_instance_norm_ref,
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="Normalise each channel of each sample over its spatial axes.",
)  # fmt: skip


def _group_norm(
    x: Any, gamma: Any, beta: Any, num_groups: int = 1, channel_axis: int = 1, axes: Any = None, epsilon: float = 1e-5
) -> Any:
    n, c, *spatial = x.shape
    size = c // num_groups
    view = te.compute(
        (n, int64(num_groups), size, *spatial), lambda b, g, k, *i: x(b, g * size + k, *i), name="grouped"
    )
    over = tuple(range(2, view.ndim))
    mean, inverse = _moments(view, over, epsilon, "T_group_norm")
    zeros = [int64(0)] * len(over)
    return te.compute(
        x.shape,
        lambda b, k, *i: (
            (x(b, k, *i) - mean(b, k // size, *zeros)) * inverse(b, k // size, *zeros) * gamma(k) + beta(k)
        ),
        name="T_group_norm",
    )


def _group_norm_ref(
    x: Any, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any, epsilon: float
) -> Any:
    y = x.astype(np.float64).reshape(x.shape[0], num_groups, -1)
    y = ((y - y.mean(2, keepdims=True)) / np.sqrt(y.var(2, keepdims=True) + epsilon)).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return (y * gamma.reshape(shape) + beta.reshape(shape)).astype(x.dtype)


declare(
    "nn.group_norm", "data gamma beta", {"num_groups": 1, "channel_axis": 1, "axes": None, "epsilon": 1e-5}, infer=_same("nn.group_norm"), lower=_group_norm,
    reference=_group_norm_ref, fusion=Fusion.REDUCTION, rtol=1e-4, doc="Normalise groups of channels over channels and space.",
)  # fmt: skip


# --- batch norm --------------------------------------------------------------------------------------------------------


def _batch_norm_infer(data: Expr, gamma: Expr, beta: Expr, mean: Expr, var: Expr, **_: Any) -> TupleType:
    return TupleType(
        (
            tensor_arg("nn.batch_norm", "data", data),
            tensor_arg("nn.batch_norm", "mean", mean),
            tensor_arg("nn.batch_norm", "var", var),
        )
    )


def _batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    **_: Any,
) -> Any:
    a = normalize_axis("nn.batch_norm", axis, x.ndim)

    def element(*i: Any) -> Any:
        c = i[a]
        y = (x(*i) - cast(x.dtype, mean(c))) * tir.rsqrt(cast(x.dtype, var(c)) + const(epsilon, x.dtype))
        y = y * cast(x.dtype, gamma(c)) if scale else y
        return y + cast(x.dtype, beta(c)) if center else y

    out = te.compute(x.shape, element, name="T_batch_norm")
    return (
        out,
        te.compute(mean.shape, lambda i: mean(i), name="mean"),
        te.compute(var.shape, lambda i: var(i), name="var"),
    )


def _batch_norm_ref(
    x: Any, gamma: Any, beta: Any, mean: Any, var: Any, axis: int, epsilon: float, center: bool, scale: bool, **_: Any
) -> Any:
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    y = (x.astype(np.float64) - mean.reshape(shape)) / np.sqrt(var.astype(np.float64).reshape(shape) + epsilon)
    y = (y * gamma.reshape(shape) if scale else y) + (beta.reshape(shape) if center else 0)
    return y.astype(x.dtype), mean, var


declare(
    "nn.batch_norm", "data gamma beta moving_mean moving_var",
    {"axis": 1, "epsilon": 1e-5, "center": True, "scale": True, "momentum": 0.1, "training": False},
    infer=_batch_norm_infer, lower=_batch_norm, reference=_batch_norm_ref, fusion=Fusion.OPAQUE, rtol=1e-4,
    doc="Batch normalisation with given statistics; returns (output, mean, variance).",
)  # fmt: skip


def _lrn(x: Any, size: int = 5, axis: int = 1, bias: float = 1.0, alpha: float = 1e-4, beta: float = 0.75) -> Any:
    a = normalize_axis("nn.lrn", axis, x.ndim)
    before = (size - 1) // 2
    k = te.reduce_axis((int64(0), int64(size)), "k")

    def windowed(*i: Any) -> Any:
        j = i[a] + k.var - int64(before)
        inside = tir.all(j >= int64(0), j < x.shape[a])
        value = x(*(j if d == a else v for d, v in enumerate(i)))
        return te.sum(tir.if_then_else(inside, value * value, const(0, x.dtype)), axis=k)

    total = te.compute(x.shape, windowed, name="T_lrn_sum")
    return te.compute(
        x.shape,
        lambda *i: (
            x(*i) / tir.power(const(bias, x.dtype) + const(alpha / size, x.dtype) * total(*i), const(beta, x.dtype))
        ),
        name="T_lrn",
    )


def _lrn_ref(x: Any, size: int, axis: int, bias: float, alpha: float, beta: float) -> Any:
    y, square = x.astype(np.float64), np.zeros(x.shape)
    before, n = (size - 1) // 2, x.shape[axis]
    for c in range(n):
        at = [slice(None)] * x.ndim
        at[axis] = slice(max(0, c - before), min(n, c - before + size))
        into = list(at)
        into[axis] = c
        square[tuple(into)] = (y[tuple(at)] ** 2).sum(axis)
    return (y / (bias + alpha / size * square) ** beta).astype(x.dtype)


declare(
    "nn.lrn", "data", {"size": 5, "axis": 1, "bias": 1.0, "alpha": 1e-4, "beta": 0.75}, infer=_same("nn.lrn"), lower=_lrn, reference=_lrn_ref,
    fusion=Fusion.OPAQUE, rtol=1e-4, doc="Local response normalisation across channels.",
)  # fmt: skip
