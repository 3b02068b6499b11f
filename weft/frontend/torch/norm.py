"""Normalisation and softmax."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten


@aten("_safe_softmax")
def _safe_softmax(node: Node) -> Any:
    x = node.astype(node["self"], node.dtype)
    return masked_softmax(node, x, node.axis(node["dim"], len(x.ty.shape))) if x.ty.shape else _softmax(node)


def masked_softmax(node: Node, x: ir.Expr, axis: int) -> Any:
    """Softmax, and zeros where all along the axis is minus infinity."""
    nothing = node.op("equal", node.op("max", x, axis=(axis,), keepdims=True), node.scalar(float("-inf"), node.dtype))
    return node.op("where", nothing, node.scalar(0, node.dtype), node.op("nn.softmax", x, axis=axis))


@aten("softmax.int", "_softmax", "log_softmax.int", "_log_softmax")
def _softmax(node: Node) -> Any:
    x = node.astype(node["self"], node.dtype)
    name = "nn.log_softmax" if "log_softmax" in node.name else "nn.softmax"
    if not x.ty.shape:
        return node.full([], 0 if "log" in name else 1, node.dtype)
    return node.op(name, x, axis=node.axis(node["dim"], len(x.ty.shape)))


def _ones(node: Node, weight: Any, like: list[Any], value: int) -> Any:
    return node.full(like, value, node.dtype) if weight is None else weight


@aten("native_layer_norm", "layer_norm")
def _layer_norm(node: Node) -> Any:
    x, count = node["input"], len(node["normalized_shape"])
    axes = tuple(range(len(x.ty.shape) - count, len(x.ty.shape)))
    like = [node.symbols.dim(d) if not isinstance(d, (int, ir.PrimExpr)) else d for d in node["normalized_shape"]]
    weight, bias = _ones(node, node["weight"], like, 1), node["bias"]
    operands = [weight] if bias is None else [weight, bias]
    out = node.op("nn.layer_norm", x, *operands, axes=axes, epsilon=float(node["eps"]), center=bias is not None)
    return [out, *_statistics(node, x, axes)] if "native" in node.name else out


def _statistics(node: Node, x: Any, axes: tuple[int, ...]) -> list[Any]:
    """Mean and inverse deviation, where something reads them."""
    if not {1, 2} & node.used:
        return [None, None]
    mean = node.op("mean", x, axis=axes, keepdims=True)
    spread = node.op("variance", x, axis=axes, keepdims=True)
    return [mean, node.op("rsqrt", node.op("add", spread, node.scalar(node["eps"], x.ty.dtype)))]


@aten("native_group_norm", "group_norm")
def _group_norm(node: Node) -> Any:
    x = node["input"]
    groups = node.get("group", node.get("num_groups"))
    channels = [node.dims(x)[1]]
    weight, bias = _ones(node, node["weight"], channels, 1), _ones(node, node["bias"], channels, 0)
    axes = tuple(range(2, len(x.ty.shape)))
    out = node.op(
        "nn.group_norm", x, weight, bias, num_groups=groups, channel_axis=1, axes=axes, epsilon=float(node["eps"])
    )
    if "native" not in node.name:
        return out
    if not {1, 2} & node.used:
        return [out, None, None]
    batch, _, *space = node.dims(x)
    rows = node.reshape(x, [batch, groups, channels[0] // groups, node.product(space)])
    return [out, *(node.reshape(part, [batch, groups]) for part in _statistics(node, rows, (2, 3)))]


_BATCH_NORMS = """_native_batch_norm_legit_no_training _native_batch_norm_legit _native_batch_norm_legit.no_stats
    _native_batch_norm_legit_functional batch_norm native_batch_norm instance_norm
    _batch_norm_with_update_functional""".split()


@aten(*_BATCH_NORMS)
def _batch_norm(node: Node) -> Any:
    x = node["input"]
    own = node.get("training", "update" in node.name) or node.get("use_input_stats", False)
    if own or node.get("running_mean") is None:
        return _own_statistics(node, x)
    channels = [node.dims(x)[1]]
    weight, bias = _ones(node, node["weight"], channels, 1), _ones(node, node["bias"], channels, 0)
    running = node["running_mean"], node["running_var"]
    made = node.op("nn.batch_norm", x, weight, bias, *running, epsilon=float(node["eps"]))
    out = node.emit(ir.TupleGetItem(made, 0))
    if not isinstance(node.value, (tuple, list)):
        return out
    nothing = node.full([0], 0, node.dtype) if {1, 2} & node.used else None
    return [out, nothing, nothing, *running]


def _own_statistics(node: Node, x: Any) -> Any:
    """Normalise by the batch's own statistics, which also move the running ones."""
    rank = len(x.ty.shape)
    axes = tuple(range(2, rank)) if "instance_norm" in node.name else (0, *range(2, rank))
    mean = node.op("mean", x, axis=axes, keepdims=True)
    spread = node.op("variance", x, axis=axes, keepdims=True)
    scale = node.op("rsqrt", node.op("add", spread, node.scalar(node["eps"], x.ty.dtype)))
    out = node.op("multiply", node.op("subtract", x, mean), scale)
    column = [node.dims(x)[1], *[1] * (rank - 2)]
    for name, factor in (("multiply", node["weight"]), ("add", node["bias"])):
        out = out if factor is None else node.op(name, out, node.reshape(factor, column))
    if not isinstance(node.value, (tuple, list)):
        return out
    own = [node.reshape(part, column[:1]) for part in (mean, scale, spread)]
    reserved = [node.full([0], 0, "uint8")] if "update" in node.name else []  # for the kernels of gradients
    return [out, *own[:2], *reserved, *(_moved(node, x, own[0], own[2]) if {3, 4, 5} & node.used else [])]


def _moved(node: Node, x: Any, mean: Any, spread: Any) -> list[Any]:
    """Running statistics after a batch; the deviation of its elements is that of a sample."""
    kind, count = mean.ty.dtype, node.product([d for i, d in enumerate(node.dims(x)) if i != 1])
    whole = node.tensor(count, kind)
    spread = node.op("divide", node.op("multiply", spread, whole), node.op("subtract", whole, node.scalar(1, kind)))
    part = node.scalar(node["momentum"], kind)
    return [
        node.op("add", old, node.op("multiply", node.op("subtract", new, old), part))
        for old, new in ((node["running_mean"], mean), (node["running_var"], spread))
    ]


@aten("rms_norm", "_fused_rms_norm")
def _rms_norm(node: Node) -> Any:
    import torch

    x = node["input"]
    axes = tuple(range(len(x.ty.shape) - len(node["normalized_shape"]), len(x.ty.shape)))
    epsilon = node.get("eps", torch.finfo(node.first.dtype).eps)
    square = node.op("mean", node.op("multiply", x, x), axis=axes, keepdims=True)
    scale = node.op("rsqrt", node.op("add", square, node.scalar(epsilon, x.ty.dtype)))
    out = node.op("multiply", x, scale)
    out = out if node.get("weight") is None else node.op("multiply", out, node["weight"])
    return [out, scale] if isinstance(node.value, (tuple, list)) else out
