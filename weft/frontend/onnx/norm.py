"""Normalizations and softmax."""

import math
from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.ir import TupleGetItem


@converter("Softmax", "LogSoftmax")
def _softmax(node: Node) -> Any:
    name = "nn.softmax" if node.op_type == "Softmax" else "nn.log_softmax"
    x, rank = node.x(), node.ndim()
    if node.opset >= 13:
        return node.op(name, x, axis=node.axis(node.attr("axis", -1)))
    axis = node.axis(node.attr("axis", 1)) if rank else 0
    if axis == rank - 1:
        return node.op(name, x, axis=axis)
    shape = node.shape()
    flat = node.reshape(x, [s.product(shape[:axis]), s.product(shape[axis:])])
    return node.reshape(node.op(name, flat, axis=1), shape)


# --- batch, instance, layer -------------------------------------------------------------------------------------------


@converter("BatchNormalization")
def _batch_norm(node: Node) -> Any:
    epsilon, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    training = bool(node.attr("training_mode", 0))
    if node.opset < 9 and not node.attr("spatial", 1):
        return _per_activation(node, epsilon)
    if training:
        return _training_batch_norm(node, epsilon, momentum)
    if len([o for o in node.proto.output if o]) > 1:
        node.unsupported(
            "training mode of opset 7 to 13 cannot be compiled",
            expected="one output",
            help="export the model for inference",
        )
    dtype = node.dtype()
    args = [node.astype(node.x(i), dtype) for i in range(5)]
    if node.ndim() < 2:
        args[0] = node.reshape(args[0], [*node.shape(), 1])
    out = node.op(
        "nn.batch_norm", *args, axis=1, epsilon=epsilon, momentum=momentum, center=True, scale=True, training=False
    )
    out = node.emit(TupleGetItem(out, 0))
    return node.reshape(out, node.shape()) if node.ndim() < 2 else out


def _normalized(node: Node, x: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    inverse = node.op("rsqrt", node.op("add", variance, node.scalar(epsilon, variance.ty.dtype)))
    return node.op("multiply", node.op("subtract", x, mean), inverse)


def _per_activation(node: Node, epsilon: float) -> Any:
    for i in range(1, 5):
        node.require_shape(i, node.shape()[1:])
    x, scale, bias, mean, variance = (node.x(i) for i in range(5))
    return node.op("add", node.op("multiply", _normalized(node, x, mean, variance, epsilon), scale), bias)


def _training_batch_norm(node: Node, epsilon: float, momentum: float) -> Any:
    x, rank, channels = node.x(), node.ndim(), node.shape()[1]
    for i in range(1, 5):
        node.require_shape(i, [channels])
    dtype, stats = node.dtype(), node.dtype(3)
    axes = tuple(a for a in range(rank) if a != 1)
    column = [1, channels, *([1] * (rank - 2))]
    wide = node.astype(x, stats)
    mean = node.op("mean", wide, axis=axes, keepdims=True)
    variance = node.op("variance", wide, axis=axes, keepdims=True)
    scale, bias = (node.reshape(node.astype(node.x(i), stats), column) for i in (1, 2))
    out = node.op("add", node.op("multiply", _normalized(node, wide, mean, variance, epsilon), scale), bias)

    def running(old: Any, new: Any) -> Any:
        kept = node.op("multiply", old, node.scalar(momentum, stats))
        return node.op(
            "add", kept, node.op("multiply", node.reshape(new, [channels]), node.scalar(1 - momentum, stats))
        )

    return node.astype(out, dtype), running(node.x(3), mean), running(node.x(4), variance)


@converter("MeanVarianceNormalization")
def _mean_variance_norm(node: Node) -> Any:
    default = [0, 1, 2, 3] if node.attr("across_channels", 0) else [0, 2, 3]
    axes, x = tuple(sorted({node.axis(a) for a in node.attr("axes", default)})), node.x()
    spread = node.op("sqrt", node.op("variance", x, axis=axes, keepdims=True))  # of differences: never below 0
    away = node.op("subtract", x, node.op("mean", x, axis=axes, keepdims=True))
    if not node.attr("normalize_variance", 1):
        return away
    return node.op("divide", away, node.op("add", spread, node.scalar(1e-9, node.dtype())))


@converter("InstanceNormalization")
def _instance_norm(node: Node) -> Any:
    node.require_rank(0, 3, math.inf)
    return node.op("nn.instance_norm", node.x(0), node.x(1), node.x(2), epsilon=node.attr("epsilon", 1e-5))


@converter("LayerNormalization")
def _layer_norm(node: Node) -> Any:
    axis, epsilon, dtype = node.axis(node.attr("axis", -1)), node.attr("epsilon", 1e-5), node.dtype()
    axes = tuple(range(axis, node.ndim()))
    inner = node.shape()[axis:]
    plain = all(
        len(node.shape(i)) == len(inner) and all(map(s.provably_equal, node.shape(i), inner))
        for i in (1, 2)
        if node.has(i)
    )
    said = dtype_name(node.attr("stash_type", 1), "LayerNormalization: attribute 'stash_type'")
    stats = dtype if dtype == "float64" else said
    wanted = [bool(o) for o in node.proto.output]
    if plain and wanted == [True]:
        return node.op("nn.layer_norm", *node.xs(), axes=tuple(a - node.ndim() for a in axes), epsilon=epsilon)
    for i in range(1, len(node.inputs)):
        node.require_broadcast_to(i, node.shape())
    wide = node.astype(node.x(0), stats)
    mean = node.op("mean", wide, axis=axes, keepdims=True)
    variance = node.op("variance", wide, axis=axes, keepdims=True)
    inverse = node.op("rsqrt", node.op("add", variance, node.scalar(epsilon, stats)))
    out = node.astype(node.op("multiply", node.op("subtract", wide, mean), inverse), dtype)
    out = node.op("multiply", out, node.x(1))
    out = node.op("add", out, node.x(2)) if node.has(2) else out
    return out, node.astype(mean, said), node.astype(inverse, said)


@converter("LRN")
def _lrn(node: Node) -> Any:
    size = node.attr("size")
    if size < 1 or size % 2 == 0:
        node.error("attribute 'size' has a wrong value", expected="odd and positive", found=str(size))
    parameters = {"alpha": node.attr("alpha", 1e-4), "beta": node.attr("beta", 0.75), "bias": node.attr("bias", 1.0)}
    return node.op("nn.lrn", node.x(), size=size, axis=1, **parameters)


@converter("LpNormalization")
def _lp_norm(node: Node) -> Any:
    axis, p, x = node.axis(node.attr("axis", -1)), node.attr("p", 2), node.x()
    if p not in (1, 2):
        node.error("attribute 'p' has an unknown value", expected="1 or 2", found=str(p))
    total = node.op("sum", node.op("abs", x) if p == 1 else node.op("multiply", x, x), axis=(axis,), keepdims=True)
    length = total if p == 1 else node.op("sqrt", total)
    zero = node.op("equal", length, node.scalar(0, node.dtype()))
    quotient = node.op("divide", x, node.op("where", zero, node.scalar(1, node.dtype()), length))
    return node.op("where", zero, node.scalar(0, node.dtype()), quotient)
