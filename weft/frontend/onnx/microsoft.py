"""Operators of ``com.microsoft`` that ONNX Runtime's optimizer and quantizers write: fused and quantised ones.

Source: ContribOperators.md of ONNX Runtime; behaviour is that of its CPU kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir, runtime
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import call, calls, microsoft
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.signal import solved
from weft.frontend.onnx.value import Value

# --- activations and normalisations -----------------------------------------------------------------------------------


@microsoft("Gelu", "BiasGelu", "FastGelu", inputs=(1, 2))
def _gelu(node: Node) -> Any:
    x = node.op("add", *node.broadcasting(node.x(0), node.x(1))) if node.has(1) else node.x()
    return node.op("nn.gelu_tanh" if node.op_type == "FastGelu" else "nn.gelu", x)


@microsoft("QuickGelu", attributes="alpha", inputs=(1, 1))
def _quick_gelu(node: Node) -> Any:
    x = node.x()
    return node.op("multiply", x, node.op("sigmoid", node.emit(x * node.attr("alpha", 1.702))))


@microsoft("BiasSplitGelu", inputs=(2, 2))
def _bias_split_gelu(node: Node) -> Any:
    halves = calls(node, "Split", [node.op("add", node.x(0), node.x(1))], 2, axis=-1, num_outputs=2)
    return node.op("multiply", node.graph.expr(halves[0]), node.op("nn.gelu", node.graph.expr(halves[1])))


@microsoft("BiasAdd", inputs=(3, 3))
def _bias_add(node: Node) -> Any:
    return node.op("add", node.op("add", node.x(0), node.x(1)), node.x(2))


@microsoft("BiasSoftmax", attributes="axis is_inner_broadcast", inputs=(2, 2))
def _bias_softmax(node: Node) -> Any:
    """Softmax over all axes from `axis` on, of data whose bias is repeated along inner or outer dimensions."""
    axis, shape, bias = node.axis(node.attr("axis", 1)), node.shape(), node.x(1)
    if node.attr("is_inner_broadcast", 1) == 0 or len(node.shape(1)) == node.ndim():
        total = node.op("add", node.x(0), bias)
    else:
        total = node.op("add", node.x(0), node.reshape(bias, [*node.shape(1), *[1] * (node.ndim() - node.ndim(1))]))
    flat = node.reshape(total, [s.product(shape[:axis]), s.product(shape[axis:])])
    return node.reshape(node.op("nn.softmax", flat, axis=1), shape)


@microsoft("SkipLayerNormalization", attributes="epsilon", inputs=(3, 5))
@microsoft("SkipSimplifiedLayerNormalization", attributes="epsilon", inputs=(3, 4))
def _skip_norm(node: Node) -> Any:
    whole = node.op_type == "SkipLayerNormalization"
    total, bias = node.op("add", *node.broadcasting(node.x(0), node.x(1))), 4 if whole else 3
    total = node.op("add", total, node.x(bias)) if node.has(bias) else total
    inputs = [total, node.x(2)] + ([node.x(3)] if whole and node.has(3) else [])
    epsilon = node.attr("epsilon", 1e-12)
    if whole:
        outputs = 3 if any(node.proto.output[1:3]) else 1
        out, *moments = calls(node, "LayerNormalization", inputs, outputs, axis=-1, epsilon=epsilon)
        return out, *(moments or (None, None)), total
    out = call(node, "RMSNormalization", *inputs, axis=-1, epsilon=epsilon)
    squares = node.op("mean", node.op("square", node.astype(total, "float32")), axis=(-1,), keepdims=True)
    # its mean is 0, which this norm does not subtract
    return out, node.full(node.dims(squares), 0, "float32"), node.op("rsqrt", node.emit(squares + epsilon)), total


@microsoft("SimplifiedLayerNormalization", attributes="axis epsilon stash_type", inputs=(2, 2), domain="")
def _simplified(node: Node) -> Any:
    attrs = {"axis": node.attr("axis", -1), "epsilon": node.attr("epsilon", 1e-5)}
    return call(node, "RMSNormalization", node.x(0), node.x(1), **attrs)


@microsoft("GroupNorm", "SkipGroupNorm", attributes="epsilon groups activation channels_last", inputs=(3, 5))
def _group_norm(node: Node) -> Any:
    """Group normalisation of channels that come last, SiLU behind it where `activation` is 1."""
    last, rank = bool(node.attr("channels_last", 1)), node.ndim()
    x = node.x()
    if node.op_type == "SkipGroupNorm":
        skip = node.x(3)
        skip = (
            node.reshape(skip, [node.shape(3)[0], *[1] * (rank - 2), node.shape(3)[1]]) if node.ndim(3) == 2 else skip
        )
        x = node.op("add", x, skip)
        x = node.op("add", x, node.x(4)) if node.has(4) else x
    moved = node.permute(x, [0, rank - 1, *range(1, rank - 1)]) if last else x
    gamma, beta = (node.astype(node.x(i), node.dtype()) for i in (1, 2))
    attrs = {"num_groups": node.attr("groups"), "axes": tuple(range(2, rank)), "epsilon": node.attr("epsilon", 1e-5)}
    out = node.op("nn.group_norm", moved, gamma, beta, **attrs)
    out = node.permute(out, [0, *range(2, rank), 1]) if last else out
    out = node.op("nn.silu", out) if node.attr("activation") else out
    return (out, x) if node.op_type == "SkipGroupNorm" else out


@microsoft("EmbedLayerNormalization", attributes="epsilon mask_index_type", inputs=(7, 9))
def _embed(node: Node) -> Any:
    return embedded(node, *(node.x(i) if node.has(i) else None for i in range(2, 7)), places=8)


def embedded(
    node: Node,
    words: ir.Expr | None,
    positions: ir.Expr | None,
    segments: ir.Expr | None,
    gamma: ir.Expr | None,
    beta: ir.Expr | None,
    places: int | None = None,
) -> tuple[Any, Any, Any]:
    """Look words (input 0), places and segments (input 1) up and normalise the sum; count what the mask (7) has."""
    batch, length = node.shape()
    total = call(node, "Gather", words, node.x(0))
    if places is not None and node.has(places):
        total = node.op("add", total, call(node, "Gather", positions, node.x(places)))
    else:
        total = node.op("add", total, node.slice(positions, [0], [0], [length]))
    if node.has(1) and segments is not None:
        total = node.op("add", total, call(node, "Gather", segments, node.x(1)))
    out = call(node, "LayerNormalization", total, gamma, beta, axis=-1, epsilon=node.attr("epsilon", 1e-12))
    if node.has(7):
        mask = node.op("sum", node.astype(node.x(7), "int32"), axis=(1,), keepdims=False)
    else:
        mask = node.full([batch], 0, "int32")
    return out, mask, total


# --- products ---------------------------------------------------------------------------------------------------------


def _turned(node: Node, i: int) -> Any:
    """Return an operand of FusedMatMul in the order of a matrix product."""
    side, rank = "AB"[i], node.ndim(i)
    order = list(range(rank))
    if rank > 2 and node.attr(f"transBatch{side}", 0):  # the first axis stands before the last but one
        order = [*order[1:-1], 0, order[-1]]
    if rank > 1 and node.attr(f"trans{side}", 0):
        order[-1], order[-2] = order[-2], order[-1]
    return node.permute(node.x(i), order)


@microsoft("FusedMatMul", "TransposeMatMul", attributes="alpha transA transB transBatchA transBatchB", inputs=(2, 2))
def _fused_matmul(node: Node) -> Any:
    out, alpha = node.op("matmul", _turned(node, 0), _turned(node, 1)), node.attr("alpha", 1.0)
    return out if alpha == 1.0 else node.emit(out * alpha)


_ACTIVATIONS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "HardSwish": (),
    "Softplus": (),
}


def activated(node: Node, x: ir.Expr, params: list[float]) -> Any:
    """Apply the activation that a node was fused with, if it was."""
    name = node.attr("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        node.unsupported("an unknown activation", expected=", ".join(_ACTIVATIONS), found=name)
    if name == "Clip":
        return node.op("clip", x, min=params[0], max=params[1])
    return call(node, name, x, **dict(zip(_ACTIVATIONS[name], params, strict=False)))


@microsoft(
    "FusedGemm",
    inputs=(2, 3),
    attributes="alpha beta transA transB activation activation_alpha activation_beta activation_gamma",
)
def _fused_gemm(node: Node) -> Any:
    attrs = {k: node.attr(k) for k in ("alpha", "beta", "transA", "transB")}
    out = call(node, "Gemm", *node.inputs, **attrs)
    return activated(
        node, out, [node.attr(f"activation_{k}") for k in ("alpha", "beta") if f"activation_{k}" in node.attrs]
    )


_CONV = "auto_pad dilations group kernel_shape pads strides activation activation_params"


@microsoft("FusedConv", "NhwcConv", "NhwcFusedConv", attributes=_CONV, inputs=(2, 4))
def _fused_conv(node: Node) -> Any:
    order, last = list(range(node.ndim())), node.op_type != "FusedConv"
    order = [0, order[-1], *order[1:-1]] if last else order
    inputs = [node.permute(node.x(i), order) for i in (0, 1)] + ([node.x(2)] if node.has(2) else [])
    out = call(node, "Conv", *inputs, **{k: node.attr(k) for k in _CONV.split()[:6]})
    out = node.permute(out, [0, *range(2, node.ndim()), 1]) if last else out
    out = node.op("add", out, node.x(3)) if node.has(3) else out
    return activated(node, out, node.attr("activation_params", []))


@microsoft("NhwcMaxPool", attributes="auto_pad ceil_mode dilations kernel_shape pads strides", inputs=(1, 1))
def _nhwc_max_pool(node: Node) -> Any:
    rank = node.ndim()
    x = node.permute(node.x(), [0, rank - 1, *range(1, rank - 1)])
    out = call(node, "MaxPool", x, **{k: node.attr(k) for k in node.attrs})
    return node.permute(out, [0, *range(2, rank), 1])


@microsoft("MatMulNBits", inputs=(3, 6), attributes="K N bits block_size accuracy_level weight_prepacked")
def _matmul_nbits(node: Node) -> Any:
    """A product with weights of 2, 4 or 8 bits in blocks along the sum, each with a scale and a zero point."""
    bits, block, k, n = (node.attr(name, 4) for name in ("bits", "block_size", "K", "N"))
    if bits not in (2, 4, 8) or node.attr("weight_prepacked", 0):
        node.unsupported("weights of 2, 4 or 8 bits as they are", found=f"{bits} bits")
    blocks = -(-k // block)
    node.require_equal("the number of weights", s.product(node.shape(1)), n * blocks * block * bits // 8)
    constants = all(node.const(i) is not None for i in (1, 2, 3) if node.has(i))
    order = _block_order(node, k, block) if constants else None
    if order is None:
        x, weights = node.x(), _computed_weights(node)
    else:
        x = node.x() if (order == np.arange(k)).all() else node.op("take", node.x(), ir.constant(order), axis=-1)
        weights = _known_weights(node, order)
    out = node.op("matmul", x, node.permute(weights, [1, 0]))
    return node.op("add", out, node.x(5)) if node.has(5) else out


def _block_order(node: Node, k: int, block: int) -> np.ndarray | None:
    """Return the order in which columns stand in their blocks (input 4), or None where they do not fill these."""
    if not node.has(4):
        return np.arange(k)
    blocks = node.const(4)
    order = None if blocks is None else np.argsort(blocks[:k], kind="stable")
    return order if blocks is not None and (blocks[order] == np.arange(k) // block).all() else None


def _known_weights(node: Node, order: np.ndarray) -> Any:
    """Return constant weights (n, k), in an order of their columns, as a dequantisation of small integers."""
    bits, block, k, n = (node.attr(name, 4) for name in ("bits", "block_size", "K", "N"))
    dtype, blocks = node.dtype(), -(-k // block)
    given, scales, zeros = (node.const(i) for i in (1, 2, 3))
    assert given is not None and scales is not None
    if zeros is None:
        zeros = np.full((n, blocks), 1 << (bits - 1), np.uint8)
    elif zeros.dtype == np.uint8:
        zeros = _taken_apart(zeros.reshape(n, -1), bits)[:, :blocks]
    q = _taken_apart(given.reshape(n, -1), bits)[:, order]
    parts = [
        ir.constant(runtime.aligned(np.ascontiguousarray(a)))
        for a in (q, scales.reshape(n, blocks), zeros.reshape(n, blocks))
    ]
    rows = "int8" if node.attr("accuracy_level", 0) == 4 else "float32"
    return node.op("dequantize_groups", *parts, axis=1, group=block, out_dtype=dtype, rows=rows)


def _taken_apart(a: np.ndarray, bits: int) -> np.ndarray:
    """Take bytes apart, the lowest bits first, along the last axis."""
    out = np.empty((*a.shape, 8 // bits), np.uint8)
    for i in range(8 // bits):
        np.bitwise_and(a >> np.uint8(i * bits), np.uint8((1 << bits) - 1), out=out[..., i])
    return out.reshape(*a.shape[:-1], -1)


def _computed_weights(node: Node) -> Any:
    """Return weights (n, k) that are known at run time, or whose columns belong to any blocks."""
    bits, block, k, n = (node.attr(name, 4) for name in ("bits", "block_size", "K", "N"))
    dtype, blocks = node.dtype(), -(-k // block)
    if node.has(4):
        node.require_indices("a column's block", node.x(4), 0, blocks)

    def of_columns(parameter: Any) -> Any:
        each = node.reshape(parameter, [n, blocks])
        if node.has(4):
            return node.op("take", each, node.x(4), axis=1, mode="clip")
        return node.slice(node.op("repeat", each, repeats=block, axis=1), [1], [0], [k])

    weights = node.reshape(unpacked(node, node.x(1), bits), [n, blocks * block])
    weights = node.astype(node.slice(weights, [1], [0], [k]), dtype)
    if not node.has(3):
        zero: Any = node.scalar(1 << (bits - 1), dtype)
    elif node.dtype(3) == "uint8":
        packed = node.reshape(node.x(3), [n, -(-blocks * bits // 8)])
        zero = of_columns(node.slice(unpacked(node, packed, bits), [1], [0], [blocks]))
    else:
        zero = of_columns(node.x(3))
    real = node.op("subtract", weights, node.astype(zero, dtype))
    return node.op("multiply", real, node.astype(of_columns(node.x(2)), dtype))


def unpacked(node: Node, x: ir.Expr, bits: int) -> Any:
    """Take bytes apart, the lowest bits first, along the last axis."""
    if bits == 8:
        return x
    dims = node.dims(x)
    shifts = ir.constant(np.arange(0, 8, bits, dtype=np.uint8))
    parts = node.op("right_shift", node.reshape(x, [*dims, 1]), shifts)
    parts = node.op("bitwise_and", parts, node.scalar((1 << bits) - 1, "uint8"))
    return node.reshape(parts, [*dims[:-1], s.multiply(dims[-1], 8 // bits)])


@microsoft("MatMulIntegerToFloat", inputs=(4, 7))
def _integer_to_float(node: Node) -> Any:
    zeros = [node.x(i) if node.has(i) else None for i in (4, 5)]
    return _scaled_product(node, node.value(0), node.value(1), node.x(2), node.x(3), zeros, 6)


def _scaled_product(node: Node, a: Any, b: Any, a_scale: Any, b_scale: Any, zeros: list[Any], bias: int) -> Any:
    product = call(node, "MatMulInteger", a, b, *zeros)
    scale = node.op("multiply", a_scale, b_scale)
    out = node.op("multiply", node.astype(product, scale.ty.dtype), scale)
    return node.op("add", out, node.x(bias)) if node.has(bias) else out


@microsoft("DynamicQuantizeMatMul", inputs=(3, 5))
def _dynamic_quantize_matmul(node: Node) -> Any:
    a, scale, zero = calls(node, "DynamicQuantizeLinear", [node.x()], 3)
    zeros = [zero, node.x(3) if node.has(3) else None]
    return _scaled_product(node, a, node.value(1), node.graph.expr(scale), node.x(2), zeros, 4)


# --- quantised operators: dequantise, compute, quantise ---------------------------------------------------------------


def real(node: Node, data: int, scale: int, zero: int, axis: int = 1) -> Any:
    """Return quantised input `data` as real numbers."""
    return call(
        node, "DequantizeLinear", *(node.value(i) if node.has(i) else None for i in (data, scale, zero)), axis=axis
    )


def _quantised(node: Node, x: Any, scale: int, zero: int) -> Any:
    given = node.value(zero) if node.has(zero) else Value.of_array(np.zeros((), node.dtype()))
    return call(node, "QuantizeLinear", x, node.value(scale), given)


@microsoft("QLinearAdd", "QLinearMul", inputs=(7, 8))
@microsoft("QLinearSigmoid", "QLinearLeakyRelu", attributes="alpha", inputs=(4, 5))
def _qlinear(node: Node) -> Any:
    operands = (0, 3) if len(node.inputs) > 5 else (0,)
    attrs, op = {k: node.attr(k) for k in node.attrs}, node.op_type.removeprefix("QLinear")
    out = call(node, op, *(real(node, i, i + 1, i + 2) for i in operands), **attrs if op == "LeakyRelu" else {})
    return _quantised(node, out, 3 * len(operands), 3 * len(operands) + 1)


@microsoft("QLinearSoftmax", attributes="axis opset", inputs=(5, 5))
def _qlinear_softmax(node: Node) -> Any:
    axis = node.attr("axis", -1)
    out = calls(node, "Softmax", [real(node, 0, 1, 2)], opset=13 if node.attr("opset") >= 13 else 11, axis=axis)[0]
    return _quantised(node, out, 3, 4)


@microsoft("QLinearWhere", inputs=(9, 9))
def _qlinear_where(node: Node) -> Any:
    out = call(node, "Where", node.value(0), real(node, 1, 2, 3), real(node, 4, 5, 6))
    return _quantised(node, out, 7, 8)


@microsoft("QLinearReduceMean", attributes="axes keepdims", inputs=(4, 5))
def _qlinear_reduce_mean(node: Node) -> Any:
    axes = Value.of_array(np.array(node.attr("axes"), np.int64))
    return _quantised(node, call(node, "ReduceMean", real(node, 0, 1, 2), axes, keepdims=node.attr("keepdims")), 3, 4)


_POOL = "auto_pad ceil_mode count_include_pad kernel_shape pads strides"


@microsoft("QLinearAveragePool", "QLinearGlobalAveragePool", attributes=f"{_POOL} channels_last", inputs=(4, 5))
def _qlinear_pool(node: Node) -> Any:
    rank, last = node.ndim(), node.attr("channels_last", 0)
    x = real(node, 0, 1, 2)
    x = node.permute(x, [0, rank - 1, *range(1, rank - 1)]) if last else x
    out = call(node, node.op_type.removeprefix("QLinear"), x, **{k: node.attr(k) for k in _POOL.split()})
    return _quantised(node, node.permute(out, [0, *range(2, rank), 1]) if last else out, 3, 4)


@microsoft("QLinearConcat", attributes="axis", inputs=(5, 1 << 20))
def _qlinear_concat(node: Node) -> Any:
    parts = [real(node, i, i + 1, i + 2) for i in range(2, len(node.inputs), 3)]
    return _quantised(node, call(node, "Concat", *parts, axis=node.attr("axis")), 0, 1)


@microsoft("QGemm", attributes="alpha transA transB", inputs=(6, 9))
def _qgemm(node: Node) -> Any:
    attrs = {k: node.attr(k) for k in ("alpha", "transA", "transB")}
    b = real(node, 3, 4, 5, axis=0 if node.attr("transB", 0) else 1)
    bias = None
    if node.has(6):
        scale = node.emit(node.op("multiply", node.x(1), node.x(4)) * node.attr("alpha", 1.0))
        bias = node.op("multiply", node.astype(node.x(6), scale.ty.dtype), scale)
    out = call(node, "Gemm", real(node, 0, 1, 2), b, bias, **attrs)
    return _quantised(node, out, 7, 8) if node.has(7) else out


# --- others -----------------------------------------------------------------------------------------------------------


@microsoft("QuantizeLinear", "DequantizeLinear", attributes="axis", inputs=(2, 3))
@microsoft("Trilu", attributes="upper", inputs=(1, 2))
@microsoft("Pad", attributes="mode", inputs=(2, 3))
@microsoft("GridSample", attributes="align_corners mode padding_mode", inputs=(2, 2))
def _standard(node: Node) -> Any:
    """The standard operator of that name means the same."""
    return calls(node, node.op_type, node.inputs, **{k: node.attr(k) for k in node.attrs})


@microsoft("GatherND", inputs=(2, 2))
def _gather_nd(node: Node) -> Any:
    return call(node, "GatherND", node.x(0), node.astype(node.x(1), "int64"))


@microsoft("Range", inputs=(2, 3))
def _range(node: Node) -> Any:
    delta = node.value(2) if node.has(2) else Value.of_array(np.ones((), node.dtype()))
    return calls(node, "Range", [node.value(0), node.value(1), delta])


@microsoft("ExpandDims", inputs=(2, 2))
def _expand_dims(node: Node) -> Any:
    return calls(node, "Unsqueeze", [node.value(0), Value.of_elements([node.one(1)], "int64")])


@microsoft("Inverse", inputs=(1, 1))
def _inverse(node: Node) -> Any:
    found = solved(node, node.shape()[-1], "Inverse: a matrix has none")[0]
    return node.astype(node.reshape(found, node.shape()), node.dtype())


@microsoft("ReduceSumInteger", attributes="axes keepdims", inputs=(1, 1))
def _reduce_sum_integer(node: Node) -> Any:
    axes = Value.of_array(np.array(node.attr("axes"), np.int64))
    wide = node.astype(node.x(), "uint32" if node.dtype() == "uint8" else "int32")
    return calls(node, "ReduceSum", [wide, axes], keepdims=node.attr("keepdims", 1))


@microsoft("IsAllFinite", attributes="isinf_only isnan_only", inputs=(1, 1 << 20))
def _is_all_finite(node: Node) -> Any:
    test = "isinf" if node.attr("isinf_only", 0) else "isnan" if node.attr("isnan_only", 0) else "isfinite"
    found: Any = None
    for x in node.xs():
        good = node.op(test, x)
        good = good if test == "isfinite" else node.op("logical_not", good)
        whole = node.op("min", node.astype(good, "uint8"), axis=None, keepdims=False)
        found = whole if found is None else node.op("minimum", found, whole)
    return node.astype(found, "bool")
