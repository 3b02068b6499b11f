"""Mixtures of experts of ``com.microsoft``: each row goes through a few of many small networks.

Source: schemas of ONNX Runtime 1.32; behaviour is that of its CPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import calls, microsoft
from weft.frontend.onnx.graph import Scope
from weft.frontend.onnx.microsoft import unpacked
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.value import Value
from weft.ir import If, shape_expr

_ATTRIBUTES = (
    "k activation_type normalize_routing_weights use_sparse_mixer activation_alpha activation_beta swiglu_limit "
    "swiglu_limit_after_activation swiglu_fusion"
)
_PLAIN = {"relu": "nn.relu", "gelu": "nn.gelu_tanh", "silu": "nn.silu"}
Layer = Callable[[Any], tuple[Any, Any]]
"""The weights (experts, outputs, inputs) and biases (experts, 1, outputs) of a layer; those of some experts only, where
their numbers are given."""


@microsoft("MoE", attributes=_ATTRIBUTES, inputs=(5, 8))
def _moe(node: Node) -> Any:
    def layer(weights: int) -> Layer | None:
        if not node.has(weights):
            return None
        return lambda chosen: (_of(node, node.x(weights), chosen), _bias(node, weights + 1, chosen))

    return _mixture(node, [layer(i) for i in (2, 4, 6)])


@microsoft(
    "QMoE",
    attributes=f"{_ATTRIBUTES} expert_weight_bits block_size quant_type weights_prepacked "
    "fc1_expert_weight_bits fc2_expert_weight_bits fc3_expert_weight_bits",
    inputs=(6, 15),
)
def _qmoe(node: Node) -> Any:
    if node.attr("quant_type", "int") != "int" or node.attr("weights_prepacked", -1) == 1:
        node.unsupported(
            "weights of another format are not supported",
            expected="quant_type='int', not prepacked",
            found=str(node.attr("quant_type", "int")),
        )

    def layer(i: int) -> Layer | None:
        if not node.has(2 + 3 * i):
            return None
        bits = node.attr(f"fc{i + 1}_expert_weight_bits", node.attr("expert_weight_bits", 4))
        if bits not in (2, 4, 8):
            node.unsupported("weights have 2, 4 or 8 bits", found=f"{bits} bits")
        return lambda chosen: (_dequantised(node, 2 + 3 * i, 11 + i, bits, chosen), _bias(node, 4 + 3 * i, chosen))

    return _mixture(node, [layer(i) for i in range(3)])


def _of(node: Node, x: Any, chosen: Any) -> Any:
    """Return what belongs to some of the experts, or to all."""
    return x if chosen is None else node.op("take", x, chosen, axis=0, mode="clip")


def _bias(node: Node, i: int, chosen: Any) -> Any:
    if not node.has(i):
        return None
    bias = _of(node, node.x(i), chosen)
    return node.reshape(bias, [node.dims(bias)[0], 1, node.dims(bias)[1]])


def _dequantised(node: Node, i: int, zeros: int, bits: int, chosen: Any) -> Any:
    """Read weights of bits, whose scales are input `i` + 1, as numbers (experts, outputs, inputs)."""
    weights, scales = (_of(node, node.x(k), chosen) for k in (i, i + 1))
    weights = unpacked(node, weights, bits)
    experts, rows, columns = node.dims(weights)
    per_row = len(scales.ty.shape) == 2
    if per_row:
        scales = node.reshape(scales, [experts, rows, 1])
    blocks = node.dims(scales)[2]
    group = columns if per_row else node.attr("block_size")
    if not s.is_known(columns, group):
        node.unsupported("the size of its weights must be known before the model runs")
    if node.has(zeros):
        shift = unpacked(node, _of(node, node.x(zeros), chosen), bits)
        axis = len(shift.ty.shape) - 1
        shift = node.slice(shift, [axis], [0], [rows if per_row else blocks])
        shift = node.reshape(shift, node.dims(scales))
    else:
        shift = node.full(node.dims(scales), 1 << (bits - 1), "uint8")
    return node.op("dequantize_groups", weights, scales, shift, axis=2, group=group, out_dtype=node.dtype())


def _mixture(node: Node, layers: Sequence[Layer | None]) -> Any:
    """Mix the chosen experts' results; few rows read only the weights that they need."""
    kind, fusion, count = node.attr("activation_type", "relu"), node.attr("swiglu_fusion", 0), node.attr("k", 1)
    if kind not in (*_PLAIN, "identity", "swiglu"):
        node.unsupported("an unknown activation", expected=", ".join((*_PLAIN, "identity", "swiglu")), found=kind)
    for name in ("use_sparse_mixer", "swiglu_limit_after_activation"):
        if node.attr(name, 0):
            node.unsupported(f"'{name}' is not supported")
    if (layers[2] is not None) != (kind == "swiglu" and fusion == 0):
        node.unsupported("a third layer goes with activation 'swiglu' that is not fused, and only there")
    experts = next((d for d in (node.shape(1)[1], node.shape(2)[0]) if isinstance(d, int)), node.shape(1)[1])
    node.require_equal("experts of the router", node.shape(1)[1], experts)
    if not isinstance(experts, int) or not 1 <= count <= experts:
        node.error(
            "the number of experts is wrong",
            expected="1 <= k <= experts, which are known",
            found=f"k = {count} of {experts}",
        )
    x = node.reshape(node.x(), [s.product(node.shape()[:-1]), node.shape()[-1]])
    rows = node.dims(x)[0]
    node.require_equal("rows of the router", node.shape(1)[0], rows)
    weights, chosen = _routes(node, count)

    def few() -> Any:
        width, pairs = node.dims(x)[1], s.multiply(rows, count)
        shape = shape_expr([s.to_expr(d) for d in (rows, count, width)])
        each = node.reshape(node.op("broadcast_to", node.reshape(x, [rows, 1, width]), shape), [pairs, 1, width])
        out = _network(node, layers, each, node.reshape(chosen, [pairs]))
        out = node.op("multiply", node.reshape(out, [rows, count, node.dims(out)[2]]), weights)
        return node.op("sum", out, axis=(1,), keepdims=False)

    def all_of_them() -> Any:
        out = _network(node, layers, node.reshape(x, [1, *node.dims(x)]), None)
        numbers = node.arange(experts, chosen.ty.dtype)
        share = node.op("where", node.op("equal", chosen, numbers), weights, node.scalar(0, x.ty.dtype))
        share = node.permute(node.op("sum", share, axis=(1,), keepdims=False), [1, 0])
        out = node.op("multiply", out, node.reshape(share, [experts, rows, 1]))
        return node.op("sum", out, axis=(0,), keepdims=False)

    is_few = s.compare("LessOrEqual", s.multiply(rows, count), experts)
    return node.reshape(_either(node, is_few, few, all_of_them), node.shape())


def _routes(node: Node, count: int) -> tuple[Any, Any]:
    """Return the weights of the chosen experts (rows, k, 1), and which they are (rows, k, 1).

    Quantised mixtures have always those that add up to one, as ONNX Runtime has them.
    """
    normalised, is_quantised = node.attr("normalize_routing_weights", 0), node.op_type == "QMoE"
    after = normalised or is_quantised
    scores = node.x(1) if after else node.op("nn.softmax", node.x(1), axis=-1)
    best, places = calls(node, "TopK", [scores, Value.of_array(np.array([count], np.int64))], 2, axis=-1)
    weights, chosen = node.graph.expr(best), node.graph.expr(places)
    if is_quantised and node.has(14):  # what the experts weigh, beside what chooses them
        weights = node.op("gather_elements", node.x(14), chosen, axis=1)
        if normalised:
            weights = node.op("divide", weights, node.op("sum", weights, axis=(1,), keepdims=True))
    elif after:
        weights = node.op("nn.softmax", weights, axis=-1)
    shape = [*node.dims(weights), 1]
    return node.reshape(weights, shape), node.reshape(chosen, shape)


def _network(node: Node, layers: Sequence[Layer | None], x: Any, chosen: Any) -> Any:
    """Run rows (experts or 1, rows, inputs) through the experts: (experts, rows, outputs)."""

    def product(layer: Layer, x: Any) -> Any:
        weights, bias = layer(chosen)
        out = node.op("matmul", x, node.permute(weights, [0, 2, 1]))
        return out if bias is None else node.op("add", out, bias)

    first, second, third = layers
    assert first is not None and second is not None
    hidden, kind = product(first, x), node.attr("activation_type", "relu")
    if kind == "swiglu":
        hidden = _gated(node, hidden, None if third is None else product(third, x))
    elif kind in _PLAIN:
        hidden = node.op(_PLAIN[kind], hidden)
    return product(second, hidden)


def _gated(node: Node, gate: Any, linear: Any) -> Any:
    """``g sigmoid(alpha g) (l + beta)``, both limited; g and l take turns or lie side by side where they are one."""
    axis = len(gate.ty.shape) - 1
    if linear is None:
        *outer, width = node.dims(gate)
        half = s.divide(width, 2)
        interleaved = node.attr("swiglu_fusion", 0) == 1
        gate = node.reshape(gate, [*outer, half, 2] if interleaved else [*outer, 2, half])
        part = axis + 1 if interleaved else axis
        gate, linear = (node.reshape(node.slice(gate, [part], [i], [i + 1]), [*outer, half]) for i in (0, 1))
    dtype, limit = gate.ty.dtype, node.attr("swiglu_limit")
    if limit is not None:
        gate = node.op("minimum", gate, node.scalar(limit, dtype))
        linear = node.op("clip", linear, min=-limit, max=limit)
    alpha, beta = (node.scalar(node.attr(f"activation_{k}", d), dtype) for k, d in (("alpha", 1.0), ("beta", 0.0)))
    gate = node.op("multiply", gate, node.op("sigmoid", node.op("multiply", gate, alpha)))
    return node.op("multiply", gate, node.op("add", linear, beta))


def _either(node: Node, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Convert one of two ways to compute something, or both where sizes decide between them."""
    if isinstance(condition, (bool, np.bool_)):
        return then() if condition else otherwise()
    graph = node.graph
    test = node.astype(node.number(s.choose(condition, 1, 0), "int64"), "bool")
    branches = []
    for way in (then, otherwise):
        with graph.branch(Scope(graph.scope, graph.scope.opsets)) as inner:
            branches.append(graph.bb.finish(inner, way()))
    return graph.emit(If(test, *branches))
