"""Normalisations and softmax."""

from typing import Any

import numpy as np

from weft import error, ir
from weft.op.attributes import axes, axis, flag, integer, number
from weft.op.infer import normalize_axes, normalize_axis, tensor_arg
from weft.op.registry import Fusion, Layout, declare
from weft.op.relations import demand_divisible, demand_same_shape
from weft.topi.norm import batch_norm, group_norm, instance_norm, layer_norm, log_softmax, lrn, rms_norm, softmax


def _along(op: str) -> Any:
    """The rule of an operator along one axis of floating-point data."""

    def infer(data: ir.Expr) -> ir.TensorType:
        return _floats(op, "data", data)

    return infer


def _floats(op: str, name: str, arg: ir.Expr, **checks: Any) -> ir.TensorType:
    ty = tensor_arg(op, name, arg, **checks)
    if ty.dtype and not ir.DataType(ty.dtype).is_real:
        raise error.DTypeMismatch(
            f"{op}: '{name}' must be floating-point",
            expected="a float type",
            found=ty.dtype,
            where=arg.span,
            help="use astype",
        )
    return ty


def _scaled(op: str, *names: str, axes: Any = None) -> Any:
    """The rule of a normalisation of `data` with scale and shift of the rank of the axes (None: of one axis)."""

    def infer(data: ir.Expr, *vectors: ir.Expr, **attrs: Any) -> ir.TensorType:
        ty = _floats(op, "data", data)
        over = attrs.get("axes", axes) if axes is not None else None
        rank = len(over) if isinstance(over, (tuple, list)) else 1
        over = normalize_axes(op, over, ty.ndim) if ty.ndim >= 0 and over is not None else over
        for name, vector in zip(names, vectors, strict=False):
            shape = _floats(op, name, vector, ndim=rank).shape
            if ty.shape is not None:
                scaled = over if over is not None else (normalize_axis(op, attrs.get("channel_axis", 1), ty.ndim),)
                demand_same_shape(f"{op}: '{name}'", shape, [ty.shape[a] for a in scaled], data.span)
        if ty.shape is not None and "num_groups" in attrs:
            channels = ty.shape[normalize_axis(op, attrs.get("channel_axis", 1), ty.ndim)]
            demand_divisible(f"{op}: channels of 'data'", channels, attrs["num_groups"], data.span)
        return ty

    return infer


def _softmax_ref(x: Any, axis: int) -> Any:
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis, keepdims=True)).astype(x.dtype)


declare(
    "nn.softmax",
    "data",
    {"axis": axis(-1)},
    infer=_along("nn.softmax"),
    lower=softmax,
    reference=_softmax_ref,
    fusion=Fusion.REDUCTION,
    layout=Layout.AXES,
    doc="``exp(x) / sum(exp(x))`` along an axis.",
)


declare(
    "nn.log_softmax",
    "data",
    {"axis": axis(-1)},
    infer=_along("nn.log_softmax"),
    lower=log_softmax,
    reference=lambda x, axis: (lambda y: (y - np.log(np.exp(y).sum(axis, keepdims=True))).astype(x.dtype))(
        x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True, initial=-np.inf)
    ),
    fusion=Fusion.REDUCTION,
    rtol=1e-4,
    layout=Layout.AXES,
    doc="The logarithm of softmax.",
)


def _layer_norm_ref(
    x: Any, gamma: Any, beta: Any = None, *, axes: Any, epsilon: float, center: bool, scale: bool
) -> Any:
    over = normalize_axes("nn.layer_norm", axes, x.ndim)
    y = x.astype(np.float64)
    y = (y - y.mean(over, keepdims=True)) / np.sqrt(y.var(over, keepdims=True) + epsilon)
    shape = [n if d in over else 1 for d, n in enumerate(x.shape)]
    y = y * (gamma.reshape(shape) if scale else 1)
    return (y + (beta.reshape(shape) if center and beta is not None else 0)).astype(x.dtype)


_AFFINE = {"center": flag(True), "scale": flag(True)}

declare(
    "nn.layer_norm",
    "data gamma beta?",
    {"axes": axes((-1,)), "epsilon": number(1e-5), **_AFFINE},
    infer=_scaled("nn.layer_norm", "gamma", "beta", axes=(-1,)),
    lower=layer_norm,
    reference=_layer_norm_ref,
    fusion=Fusion.REDUCTION,
    rtol=1e-4,
    doc="Normalise over trailing axes, then scale and shift.",
)


declare(
    "nn.rms_norm",
    "data weight",
    {"axes": axes((-1,)), "epsilon": number(1e-5)},
    infer=_scaled("nn.rms_norm", "weight", axes=(-1,)),
    lower=rms_norm,
    reference=lambda x, weight, axes, epsilon: (
        x
        / np.sqrt(np.mean(x.astype(np.float64) ** 2, normalize_axes("rms_norm", axes, x.ndim), keepdims=True) + epsilon)
        * weight.reshape([n if d in normalize_axes("rms_norm", axes, x.ndim) else 1 for d, n in enumerate(x.shape)])
    ).astype(x.dtype),
    fusion=Fusion.REDUCTION,
    rtol=1e-4,
    doc="Divide by the root of the mean square over trailing axes, then scale.",
)


def _instance_norm_ref(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    over, y, shape = tuple(range(2, x.ndim)), x.astype(np.float64), (1, -1, *[1] * (x.ndim - 2))
    y = (y - y.mean(over, keepdims=True)) / np.sqrt(y.var(over, keepdims=True) + epsilon)
    return (y * gamma.reshape(shape) + beta.reshape(shape)).astype(x.dtype)


declare(
    "nn.instance_norm",
    "data gamma beta",
    {"epsilon": number(1e-5)},
    infer=_scaled("nn.instance_norm", "gamma", "beta"),
    lower=instance_norm,
    reference=_instance_norm_ref,
    fusion=Fusion.REDUCTION,
    rtol=1e-4,
    doc="Normalise each channel of each sample over its spatial axes.",
)


def _group_norm_ref(
    x: Any,
    gamma: Any,
    beta: Any,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    c = channel_axis % x.ndim
    y = np.moveaxis(x.astype(np.float64), c, 1)
    over = (
        tuple(2 + n for n in range(y.ndim - 1))
        if axes is None
        else _after_split(normalize_axes("nn.group_norm", axes, x.ndim), c)
    )
    grouped = y.reshape(y.shape[0], num_groups, y.shape[1] // num_groups, *y.shape[2:])
    grouped = (grouped - grouped.mean(over, keepdims=True)) / np.sqrt(grouped.var(over, keepdims=True) + epsilon)
    column = (1, -1, *[1] * (x.ndim - 2))
    y = grouped.reshape(y.shape) * (gamma.reshape(column) if scale else 1) + (beta.reshape(column) if center else 0)
    return np.ascontiguousarray(np.moveaxis(y, 1, c)).astype(x.dtype)


def _after_split(axes: Any, channel: int) -> tuple[int, ...]:
    """Axes of a tensor, as axes of (n, groups, channels of a group, the rest)."""
    rest = [a for a in axes if a not in (0, channel)]
    return (2, *(a + 1 if a > channel else a + 2 for a in rest))


declare(
    "nn.group_norm",
    "data gamma beta",
    {"num_groups": integer(1, at_least=1), "channel_axis": axis(1), "axes": axes(), "epsilon": number(1e-5), **_AFFINE},
    infer=_scaled("nn.group_norm", "gamma", "beta"),
    lower=group_norm,
    reference=_group_norm_ref,
    fusion=Fusion.REDUCTION,
    rtol=1e-4,
    doc="Normalise groups of channels over channels and space.",
)


# --- batch norm -------------------------------------------------------------------------------------------------------


def _batch_norm_infer(data: ir.Expr, *vectors: ir.Expr, axis: int, training: bool) -> ir.TupleType:
    ty = _floats("nn.batch_norm", "data", data)
    names = ("gamma", "beta", "moving_mean", "moving_var")
    types = [_floats("nn.batch_norm", name, v, ndim=1) for name, v in zip(names, vectors, strict=True)]
    if ty.shape is not None:
        channels = ty.shape[normalize_axis("nn.batch_norm", axis, ty.ndim)]
        for name, t in zip(names, types, strict=True):
            demand_same_shape(f"nn.batch_norm: '{name}'", t.shape, (channels,), data.span)
    if training:
        raise error.InvalidArgument(
            "nn.batch_norm: training mode is not supported", expected="training=False", where=data.span
        )
    return ir.TupleType((ty, types[2], types[3]))


def _batch_norm_ref(
    x: Any, gamma: Any, beta: Any, mean: Any, var: Any, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    y = (x.astype(np.float64) - mean.reshape(shape)) / np.sqrt(var.astype(np.float64).reshape(shape) + epsilon)
    y = (y * gamma.reshape(shape) if scale else y) + (beta.reshape(shape) if center else 0)
    return y.astype(x.dtype), mean, var


declare(
    "nn.batch_norm",
    "data gamma beta moving_mean moving_var",
    {"axis": axis(1), "epsilon": number(1e-5), **_AFFINE, "momentum": number(0.1), "training": flag(False)},
    infer=_batch_norm_infer,
    lower=batch_norm,
    reference=_batch_norm_ref,
    rtol=1e-4,
    doc="Batch normalisation with given statistics; returns (output, mean, variance).",
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
    "nn.lrn",
    "data",
    {"size": integer(5, at_least=1), "axis": axis(1), "bias": number(1.0), "alpha": number(1e-4), "beta": number(0.75)},
    infer=_along("nn.lrn"),
    lower=lrn,
    reference=_lrn_ref,
    rtol=1e-4,
    doc="Local response normalisation across channels.",
)
