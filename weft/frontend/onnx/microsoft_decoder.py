"""What decoders of ``com.microsoft`` have besides attention: gates, causal convolutions, recurrences, small lookups.

Source: schemas of ONNX Runtime 1.32; behaviour is that of its CPU kernels.
"""

from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import call, calls, microsoft
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.value import Value


def _activated(node: Node, x: Any, default: str) -> Any:
    kind = node.attr("activation", default)
    known = {"silu": "nn.silu", "swish": "nn.silu", "sigmoid": "sigmoid", "none": ""}
    if kind not in known:
        node.unsupported("an unknown activation", expected=", ".join(known), found=kind)
    return node.op(known[kind], x) if known[kind] else x


@microsoft("ScaledSiLU", attributes="alpha", inputs=(1, 2))
def _scaled_silu(node: Node) -> Any:
    scale = node.astype(node.x(1), node.dtype()) if node.has(1) else node.scalar(node.attr("alpha", 1.0), node.dtype())
    return node.op("nn.silu", node.op("multiply", node.x(), node.reshape(scale, [])))


@microsoft("GatedAdd", inputs=(3, 3))
def _gated_add(node: Node) -> Any:
    return node.op("add", node.x(0), node.op("multiply", node.x(1), node.x(2)))


@microsoft("GatedRMSNorm", attributes="activation epsilon", inputs=(3, 3))
def _gated_norm(node: Node) -> Any:
    size = node.shape(1)[0]
    rows = [*node.shape()[:-1], s.divide(node.shape()[-1], size), size]
    x = node.reshape(node.astype(node.x(), "float32"), rows)
    scale = Value.of_expr(node.astype(node.x(1), "float32"))
    x = node.reshape(
        call(node, "RMSNormalization", x, scale, axis=-1, epsilon=node.attr("epsilon", 1e-5)), node.shape()
    )
    gate = _activated(node, node.astype(node.x(2), "float32"), "silu")
    return node.astype(node.op("multiply", x, gate), node.dtype())


def _branches(node: Node) -> tuple[Any, list[Any]]:
    """Return streams (..., branches, size), and their shape."""
    shape, count = list(node.shape()), node.attr("num_branches", 0)
    parts = [*shape[:-1], count, s.divide(shape[-1], count)] if count else shape
    return node.reshape(node.x(), parts), parts


@microsoft("BranchwiseRMSNorm", attributes="num_branches epsilon", inputs=(1, 2))
def _branchwise_norm(node: Node) -> Any:
    x, parts = _branches(node)
    x = node.astype(x, "float32")
    ones = node.full([parts[-1]], 1.0, "float32")
    x = call(node, "RMSNormalization", x, ones, axis=-1, epsilon=node.attr("epsilon", 1e-5))
    if node.has(1):
        scale = node.astype(node.x(1), "float32")
        flat = node.ndim(1) == 1 and not s.provably_equal(node.shape(1)[0], parts[-1])
        x = node.op("multiply", x, node.reshape(scale, parts[-2:]) if flat else scale)
    return node.astype(node.reshape(x, node.shape()), node.dtype())


def _gates(node: Node, i: int, parts: list[Any]) -> Any:
    """Return an input as it multiplies streams: (..., branches, 1 or size)."""
    flat = node.ndim(i) == len(parts) - 1
    if flat and not s.same(node.shape(i)[-1], parts[-2]):
        return node.reshape(node.x(i), parts)
    return node.reshape(node.x(i), [*node.shape(i), 1]) if flat else node.x(i)


@microsoft("HyperConnectionPreMix", attributes="num_branches reduction_scale", inputs=(2, 2))
def _pre_mix(node: Node) -> Any:
    x, parts = _branches(node)
    product = node.op("multiply", node.astype(x, "float32"), node.astype(_gates(node, 1, parts), "float32"))
    total = node.op("sum", product, axis=(len(parts) - 2,), keepdims=False)
    return node.astype(node.emit(total * node.attr("reduction_scale", 1.0)), node.dtype())


@microsoft("HyperConnectionPostMix", attributes="num_branches", inputs=(3, 4))
def _post_mix(node: Node) -> Any:
    """Streams, mixed by a matrix if there is one, and a feature that each gets its share of."""
    x, parts = _branches(node)
    x = node.astype(x, "float32")
    if node.has(3):
        rank = node.ndim(3)
        mix = node.permute(node.astype(node.x(3), "float32"), [*range(rank - 2), rank - 1, rank - 2])
        x = node.op("matmul", mix, x)
    feature = node.reshape(node.astype(node.x(1), "float32"), [*parts[:-2], 1, parts[-1]])
    x = node.op("add", x, node.op("multiply", node.astype(_gates(node, 2, parts), "float32"), feature))
    return node.astype(node.reshape(x, node.shape()), node.dtype())


@microsoft("LinearAttentionGate", inputs=(3, 4))
def _linear_attention_gate(node: Node) -> Any:
    raised = node.op("nn.softplus", node.op("add", node.astype(node.x(0), "float32"), node.x(1)))
    decay = node.astype(node.op("multiply", raised, node.x(2)), node.dtype())
    return decay, node.op("sigmoid", node.x(3)) if node.has(3) else None


@microsoft(
    "LinearAttention", attributes="chunk_size kv_num_heads q_num_heads scale state_window update_rule", inputs=(3, 6)
)
def _linear_attention(node: Node) -> Any:
    if node.attr("state_window", 0):
        node.unsupported("'state_window' is not supported", expected="0")
    heads, groups = node.attr("q_num_heads"), node.attr("kv_num_heads")
    if heads % groups:
        node.unsupported(
            "more heads of keys than of queries are not supported",
            expected=f"a multiple of {groups} heads of queries",
            found=str(heads),
        )
    inputs = [node.inputs[i] if node.has(i) else None for i in range(6)]
    attrs = {k: node.attr(k) for k in ("kv_num_heads", "q_num_heads", "scale", "update_rule")}
    return calls(node, "LinearAttention", inputs, 2, opset=27, **attrs)


@microsoft("CausalConvWithState", attributes="activation channels_last dilation ndim state_window", inputs=(2, 4))
def _causal_conv(node: Node) -> Any:
    """A convolution of each channel with its past, whose end is what the next call continues."""
    if node.attr("ndim", 1) != 1 or node.attr("state_window", 0):
        node.unsupported(
            "several dimensions and windows of states are not supported", expected="ndim 1, state_window 0"
        )
    channels, _, size = node.shape(1)
    if not s.is_known(channels, size):
        node.unsupported("the size of its weights must be known before the model runs")
    dilation, last, shape = node.attr("dilation", 1), bool(node.attr("channels_last", 0)), node.shape()
    past = (size - 1) * dilation
    x = node.x()
    x = node.permute(node.reshape(x, [*shape[:2], channels]), [0, 2, 1]) if last else x
    if node.has(3):
        state = node.x(3)
        state = node.permute(node.reshape(state, [shape[0], past, channels]), [0, 2, 1]) if last else state
        whole = node.concat([state, x], 2)
    else:
        whole = padded(node, x, [0, 0, past], [0, 0, 0], "constant", 0)
    length = node.dims(whole)[2]
    bias = node.x(2) if node.has(2) else None
    out = call(node, "Conv", whole, node.x(1), bias, group=channels, dilations=[dilation], kernel_shape=[size])
    out = _activated(node, out, "none")
    state = node.slice(whole, [2], [s.subtract(length, past)], [length])
    if last:
        out, state = (
            node.reshape(node.permute(v, [0, 2, 1]), [shape[0], n, *shape[2:]])
            for v, n in ((out, shape[1]), (state, past))
        )
    return out, state


# --- lookups and products ---------------------------------------------------------------------------------------------


@microsoft("UnfoldTensor", attributes="dim size step", inputs=(1, 1))
def _unfold(node: Node) -> Any:
    axis, size, step = node.axis(node.attr("dim", -1)), node.attr("size"), node.attr("step", 1)
    count = s.add(s.floor_divide(s.subtract(node.shape()[axis], size), step), 1)
    starts = node.op("multiply", node.arange(count), node.scalar(step, "int64"))
    places = node.op("add", node.reshape(starts, [count, 1]), node.arange(size))
    out = node.op("take", node.x(), places, axis=axis, mode="clip")
    rank = node.ndim()
    return node.permute(out, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


@microsoft("NGramRepeatBlock", attributes="ngram_size", inputs=(2, 2))
def _ngram_repeat(node: Node) -> Any:
    """Tokens that would repeat a run of tokens get minus infinity."""
    (batch, length), size, (_, vocabulary) = node.shape(), node.attr("ngram_size"), node.shape(1)
    ids, count = node.x(0), s.maximum(s.subtract(length, size - 1), 0)
    starts = node.arange(count)
    repeats: Any = node.full([batch, count], True, "bool")
    for i in range(size - 1):
        old = node.op("take", ids, node.op("add", starts, node.scalar(i, "int64")), axis=1, mode="clip")
        end = node.number(s.maximum(s.add(s.subtract(length, size - 1), i), 0), "int64")
        new = node.op("take", ids, node.reshape(end, [1]), axis=1, mode="clip")
        repeats = node.op("logical_and", repeats, node.op("equal", old, new))
    following = node.op("take", ids, node.op("add", starts, node.scalar(size - 1, "int64")), axis=1, mode="clip")
    words = node.arange(vocabulary, node.dtype())
    hits = node.op("equal", node.reshape(following, [batch, count, 1]), words)
    hits = node.op("logical_and", hits, node.reshape(repeats, [batch, count, 1]))
    total = node.op("sum", node.astype(hits, "int32"), axis=(1,), keepdims=False)
    banned = node.op("greater", total, node.scalar(0, "int32"))
    return node.op("where", banned, node.scalar(-np.inf, node.dtype(1)), node.x(1))


@microsoft("Unique", inputs=(1, 1))
def _unique(node: Node) -> Any:
    """Elements in the order in which they are met, the place of each in these, and how often there is one."""
    values, _, places, counts = calls(node, "Unique", [node.value(0)], 4, sorted=0)
    return values, places, counts


@microsoft("MatMulInteger16", inputs=(2, 2))
def _matmul_integer16(node: Node) -> Any:
    wide = "uint32" if node.dtype(0) == node.dtype(1) == "uint16" else "int32"
    return node.op("matmul", *(node.astype(node.x(i), wide) for i in (0, 1)))


@microsoft("CDist", attributes="metric", inputs=(2, 2))
def _cdist(node: Node) -> Any:
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        node.unsupported("an unknown metric", expected="sqeuclidean or euclidean", found=metric)
    (rows, width), (others, _) = node.shape(0), node.shape(1)
    apart = node.op("subtract", node.reshape(node.x(0), [rows, 1, width]), node.reshape(node.x(1), [1, others, width]))
    total = node.op("sum", node.op("multiply", apart, apart), axis=(2,), keepdims=False)
    return node.op("sqrt", total) if metric == "euclidean" else total
