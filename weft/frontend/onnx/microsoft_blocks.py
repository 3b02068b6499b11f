"""Quantised weights of ``com.microsoft`` that are looked up or belong to layers: blocks, tables of 16 numbers, LSTMs.

Source: schemas of ONNX Runtime 1.32; behaviour is that of its CPU kernels, where these compute in floats.
"""

from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import call, calls, microsoft
from weft.frontend.onnx.microsoft import embedded, real, unpacked
from weft.frontend.onnx.node import Node
from weft.ir import Expr, constant

_FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
_QUANTILES = """
    -1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635 -0.18477343022823334
    -0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725 0.24611230194568634 0.33791524171829224
    0.44070982933044434 0.5626170039176941 0.7229568362236023 1.0
"""
_NF4 = np.array(_QUANTILES.split(), np.float32)
"""The quantiles of a normal distribution: Dettmers et al., QLoRA, 2023, appendix E."""


@microsoft("GatherBlockQuantized", attributes="bits block_size gather_axis quantize_axis", inputs=(3, 4))
def _gather_blocks(node: Node) -> Any:
    """Gather integers, their scales and zero points, and multiply what was gathered; a place outside gives zeros."""
    if node.dtype(0) not in ("int8", "uint8"):
        node.unsupported("its data are integers", expected="int4, uint4 or uint8", found=node.logical(0))
    rank, packed = node.ndim(), node.logical(0) == "uint8"
    along, gathered = node.axis(node.attr("quantize_axis", 1)), node.axis(node.attr("gather_axis", 0))
    if packed and gathered == rank - 1:
        node.unsupported("to gather along the axis of packed bytes is not supported")
    bits, group = node.attr("bits", 4), node.attr("block_size", 128)
    indices, size = node.x(1), node.shape()[gathered]
    zero, limit = node.scalar(0, node.dtype(1)), node.number(size, node.dtype(1))
    indices = node.op("where", node.op("less", indices, zero), node.op("add", indices, limit), indices)
    outside = node.op("logical_or", node.op("less", indices, zero), node.op("greater_equal", indices, limit))
    blocks = node.op("floor_divide", indices, node.scalar(group, node.dtype(1))) if along == gathered else indices

    def taken(i: int, at: Expr) -> Any:
        found = node.op("take", node.x(i), at, axis=gathered, mode="clip")
        return unpacked(node, found, bits) if packed and i in (0, 3) else found

    data, scales = taken(0, indices), taken(2, blocks)
    axis = along + (node.ndim(1) - 1 if along > gathered else 0)
    if node.has(3):
        shift = node.slice(taken(3, blocks), [len(data.ty.shape) - 1], [0], node.dims(scales)[-1:])
    else:
        shift = node.full(node.dims(scales), 1 << (bits - 1) if packed else 0, node.dtype())
    group = 1 if along == gathered else group
    out = node.op("dequantize_groups", data, scales, shift, axis=axis, group=group, out_dtype=node.dtype(2))
    outside = node.reshape(outside, [*[1] * gathered, *node.shape(1), *[1] * (rank - gathered - 1)])
    return node.op("where", outside, node.scalar(0, node.dtype(2)), out)


@microsoft("MatMulBnb4", attributes="K N block_size quant_type training_mode transB", inputs=(3, 3))
def _matmul_bnb4(node: Node) -> Any:
    """A product with weights that are places in a table of 16 numbers, with one scale for each block of them."""
    k, n, block = (node.attr(name) for name in ("K", "N", "block_size"))
    table = np.concatenate([_FP4, -_FP4]) if node.attr("quant_type") == 0 else _NF4
    dtype, blocks = node.dtype(), -(-n * k // block)
    node.require_equal("the number of bytes of weights", s.product(node.shape(1)), (n * k + 1) // 2)
    node.require_equal("the number of scales", s.product(node.shape(2)), blocks)
    pairs = node.reshape(node.x(1), [(n * k + 1) // 2, 1])
    places = node.op("right_shift", pairs, constant(np.array([4, 0], np.uint8)))  # the higher bits come first
    places = node.op("bitwise_and", places, node.scalar(15, "uint8"))
    places = node.slice(node.reshape(places, [(n * k + 1) // 2 * 2]), [0], [0], [n * k])
    weights = node.op("take", constant(table.astype(dtype)), node.astype(places, "int32"), axis=0, mode="clip")
    scales = node.op("repeat", node.reshape(node.x(2), [blocks]), repeats=block, axis=0)
    weights = node.op("multiply", weights, node.slice(scales, [0], [0], [n * k]))
    weights = node.reshape(weights, [n, k])
    return node.op("matmul", node.x(), node.permute(weights, [1, 0]) if node.attr("transB", 1) else weights)


@microsoft(
    "DynamicQuantizeLSTM",
    attributes="activation_alpha activation_beta activations clip direction hidden_size input_forget",
    inputs=(12, 12),
)
def _dynamic_lstm(node: Node) -> Any:
    """The layer with its weights as floats: what it rounds between the steps stays exact."""

    def weights(i: int, scale: int) -> Any:
        directions, _, gates = node.shape(i)
        shape = [directions, 1, gates if node.ndim(scale) == 2 else 1]
        shifted = node.op(
            "subtract", *(node.astype(x, "float32") for x in (node.x(i), node.reshape(node.x(scale + 1), shape)))
        )
        return node.permute(node.op("multiply", shifted, node.reshape(node.x(scale), shape)), [0, 2, 1])

    rest = [node.inputs[i] if node.has(i) else None for i in range(3, 8)]
    attrs = {name: node.attr(name) for name in node.attrs}
    return calls(node, "LSTM", [node.value(0), weights(1, 8), weights(2, 10), *rest], 3, **attrs)


@microsoft("QEmbedLayerNormalization", attributes="epsilon", inputs=(18, 18))
def _qembed(node: Node) -> Any:
    tables = [real(node, i, i + 6, i + 11) if node.has(i) else None for i in range(2, 7)]
    return embedded(node, *tables)[:2]


@microsoft("QLinearConv", inputs=(8, 9), attributes="auto_pad channels_last dilations group kernel_shape pads strides")
def _qlinear_conv(node: Node) -> Any:
    """The standard operator, of pixels whose channels may come last."""
    attrs = {name: node.attr(name) for name in node.attrs if name != "channels_last"}
    if not node.attr("channels_last", 0):
        return calls(node, "QLinearConv", node.inputs, **attrs)
    rank = node.ndim()
    x = node.permute(node.x(), [0, rank - 1, *range(1, rank - 1)])
    out = call(node, "QLinearConv", x, *node.inputs[1:], **attrs)
    return node.permute(out, [0, *range(2, rank), 1])
