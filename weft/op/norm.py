"""Normalisations and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir import Expr, TensorType, TupleType
from weft.op.infer import normalize_axes, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.norm import batch_norm, group_norm, instance_norm, layer_norm, log_softmax, lrn, rms_norm, softmax

__all__: list[str] = []


def _same(op: str, first: str = "data") -> Any:
    def infer(data: Expr, *_: Any, **__: Any) -> TensorType:
        return tensor_arg(op, first, data)

    return infer


def _softmax_ref(x: Any, axis: int) -> Any:
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis, keepdims=True)).astype(x.dtype)


declare(
    "nn.softmax", "data", {"axis": -1}, infer=_same("nn.softmax"), lower=softmax, reference=_softmax_ref, fusion=Fusion.REDUCTION,
    doc="``exp(x) / sum(exp(x))`` along an axis.",
)  # fmt: skip


declare(
    "nn.log_softmax", "data", {"axis": -1}, infer=_same("nn.log_softmax"), lower=log_softmax,
    reference=lambda x, axis: (lambda y: (y - np.log(np.exp(y).sum(axis, keepdims=True))).astype(x.dtype))(
        x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True, initial=-np.inf)
    ),
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="The logarithm of softmax.",
)  # fmt: skip


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
    "nn.layer_norm", "data gamma beta?", {"axes": (-1,), "epsilon": 1e-5, "center": True, "scale": True}, infer=_same("nn.layer_norm"), lower=layer_norm,
    reference=_layer_norm_ref, fusion=Fusion.REDUCTION, rtol=1e-4, doc="Normalise over trailing axes, then scale and shift.",
)  # fmt: skip


declare(
    "nn.rms_norm", "data weight", {"axes": (-1,), "epsilon": 1e-5}, infer=_same("nn.rms_norm"), lower=rms_norm,
    reference=lambda x, weight, axes, epsilon: (
        x / np.sqrt(np.mean(x.astype(np.float64) ** 2, normalize_axes("rms_norm", axes, x.ndim), keepdims=True) + epsilon) * weight
    ).astype(x.dtype),
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="Divide by the root of the mean square over trailing axes, then scale.",
)  # fmt: skip


def _instance_norm_ref(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    over, y, shape = tuple(range(2, x.ndim)), x.astype(np.float64), (1, -1, *[1] * (x.ndim - 2))
    y = (y - y.mean(over, keepdims=True)) / np.sqrt(y.var(over, keepdims=True) + epsilon)
    return (y * gamma.reshape(shape) + beta.reshape(shape)).astype(x.dtype)


declare(
    "nn.instance_norm", "data gamma beta", {"epsilon": 1e-5}, infer=_same("nn.instance_norm"), lower=instance_norm, reference=_instance_norm_ref,
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="Normalise each channel of each sample over its spatial axes.",
)  # fmt: skip


def _group_norm_ref(
    x: Any, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any, epsilon: float
) -> Any:
    y = x.astype(np.float64).reshape(x.shape[0], num_groups, -1)
    y = ((y - y.mean(2, keepdims=True)) / np.sqrt(y.var(2, keepdims=True) + epsilon)).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return (y * gamma.reshape(shape) + beta.reshape(shape)).astype(x.dtype)


declare(
    "nn.group_norm", "data gamma beta", {"num_groups": 1, "channel_axis": 1, "axes": None, "epsilon": 1e-5}, infer=_same("nn.group_norm"), lower=group_norm,
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
    infer=_batch_norm_infer, lower=batch_norm, reference=_batch_norm_ref, fusion=Fusion.OPAQUE, rtol=1e-4,
    doc="Batch normalisation with given statistics; returns (output, mean, variance).",
)  # fmt: skip


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
    "nn.lrn", "data", {"size": 5, "axis": 1, "bias": 1.0, "alpha": 1e-4, "beta": 0.75}, infer=_same("nn.lrn"), lower=lrn, reference=_lrn_ref,
    fusion=Fusion.OPAQUE, rtol=1e-4, doc="Local response normalisation across channels.",
)  # fmt: skip
