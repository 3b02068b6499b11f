"""Operators that are imported by the function bodies of their schemas, after what ONNX demands of their inputs.

The bodies do not ask: they reshape and broadcast, and give some result for inputs that contradict one another.
"""

from __future__ import annotations

from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import call
from weft.frontend.onnx.function_body import inline_schema
from weft.frontend.onnx.importer import convert_nodes
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim, Value


def _require_divisible(node: Node, what: str, found: Dim, divisor: int) -> None:
    if divisor < 1:
        node.error(f"the number that divides the {what} is wrong", expected="at least 1", found=str(divisor))
    whole = s.multiply(s.divide(found, divisor), divisor)
    node.require_equal(f"{what} (a multiple of {divisor})", found, whole)


# --- losses -----------------------------------------------------------------------------------------------------------


@converter("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(node: Node) -> Any:
    """Losses; the mean of none, of an empty batch or where all are ignored, is 0 / 0: NaN.

    PyTorch gives NaN, too; ONNX Runtime does where all are ignored, but 0 for an empty batch, and ONNX's reference the
    other way round.
    """
    batch, classes, *space = node.shape()
    node.require_shape(1, [batch, *space])
    if node.has(2):
        node.require_shape(2, [classes])
    target, ignored = node.x(1), node.attr("ignore_index")
    if ignored is not None:
        dtype = node.dtype(1)
        is_ignored = node.op("equal", target, node.scalar(ignored, dtype))
        target = node.op("where", is_ignored, node.scalar(0, dtype), target)
    node.require_indices("classes of input 1", target, 0, classes)
    return inline_schema(node, convert_nodes)


# --- normalization, activations ---------------------------------------------------------------------------------------


@converter("GroupNormalization")
def _group_norm(node: Node) -> Any:
    channels, groups = node.shape()[1], node.attr("num_groups")
    _require_divisible(node, "channels of input 0", channels, groups)
    for i in (1, 2):
        node.require_shape(i, [channels] if node.opset >= 21 else [groups])
    return inline_schema(node, convert_nodes)


@converter("RMSNormalization")
def _rms_norm(node: Node) -> Any:
    node.axis(node.attr("axis", -1))
    return inline_schema(node, convert_nodes)


@converter("SwiGLU")
def _swiglu(node: Node) -> Any:
    node.require_shape(1, node.shape())
    return inline_schema(node, convert_nodes)


# --- attention --------------------------------------------------------------------------------------------------------


@converter("RotaryEmbedding")
def _rotary_embedding(node: Node) -> Any:
    shape, heads = node.shape(), node.attr("num_heads", 0)
    if len(shape) == 4:
        batch, length, size = shape[0], shape[2], shape[3]
    else:
        batch, length, hidden = shape
        _require_divisible(node, "size of the last dimension of input 0", hidden, heads)
        size = s.divide(hidden, heads)
    rotated = node.attr("rotary_embedding_dim", 0) or size
    node.require_between("attribute 'rotary_embedding_dim'", rotated, 0, size)
    _require_divisible(node, "number of elements that are rotated", rotated, 2)
    positions = [node.shape(1)[0]] if node.has(3) else [batch, length]
    for i in (1, 2):
        node.require_shape(i, [*positions, s.divide(rotated, 2)])
    if node.has(3):
        node.require_shape(3, [batch, length])
    half = s.divide(rotated, 2)
    by_heads = len(shape) == 4
    lead: list[Dim] = [batch, shape[1], length] if by_heads else [batch, length, heads]
    pair, between = ([half, 2], [half, 1]) if node.attr("interleaved", 0) else ([2, half], [1, half])
    cosines, sines = (
        node.reshape(
            call(node, "Gather", node.value(i), node.value(3)) if node.has(3) else node.x(i),
            [batch, *([1, length] if by_heads else [length, 1]), *between],
        )
        for i in (1, 2)
    )
    axis = 4 if node.attr("interleaved", 0) else 3
    signed = node.op("concat", [node.op("negative", sines), sines], axis=axis)
    x = node.reshape(node.x(), [*lead, size]) if len(shape) == 3 else node.x()
    kept = None if rotated == size else node.slice(x, [3], [rotated], [size])
    x = node.reshape(x if kept is None else node.slice(x, [3], [0], [rotated]), [*lead, *pair])
    turned = node.op("multiply", node.op("flip", x, axis=axis), signed)  # one kernel: the flip moves whole vectors
    out = node.reshape(node.op("add", node.op("multiply", x, cosines), turned), [*lead, rotated])
    return node.reshape(out if kept is None else node.op("concat", [out, kept], axis=3), list(shape))


@converter("Attention")
@converter("FlexAttention", domain="ai.onnx.preview")
def _attention(node: Node) -> Any:
    batch, heads, rows, size = _by_heads(node, 0, "q_num_heads")
    _, kv_heads, length, _ = key = _by_heads(node, 1, "kv_num_heads")
    value = _by_heads(node, 2, "kv_num_heads")
    for i, found, expected in ((1, key, (batch, kv_heads, length, size)), (2, value, (batch, kv_heads, length))):
        for name, f, e in zip(("batch", "heads", "length", "size of a head"), found, expected, strict=False):
            node.require_equal(f"{name} of input {i}", f, e)
        own = node.shape(i)
        _settle(node, i, [batch, kv_heads, length, own[3]] if len(own) == 4 else [batch, length, own[2]])
    node.require_between("length of input 1", length, 1, None)
    node.require_between("heads of input 1", kv_heads, 1, None)
    per_head = s.divide(heads, s.maximum(kv_heads, 1))
    node.require_equal("heads of input 0 (a multiple of those of input 1)", heads, s.multiply(per_head, kv_heads))
    if node.op_type == "Attention":
        past = _past_length(node, [batch, kv_heads], size, value[3])
        if node.has(3):
            _require_mask(node, [batch, heads, rows], s.add(past, length))
        if node.has(6):
            node.require_shape(6, [batch])
            _settle(node, 6, [batch])
            node.require_indices("a number of keys that are no padding", node.x(6), 0, s.add(s.add(past, length), 1))
    return inline_schema(node, convert_nodes)


@converter("LinearAttention")
def _linear_attention(node: Node) -> Any:
    heads, kv_heads = node.attr("q_num_heads"), node.attr("kv_num_heads")
    shapes = [node.shape(i) for i in range(3)]
    for i, (shape, n) in enumerate(zip(shapes, (heads, kv_heads, kv_heads), strict=True)):
        node.require_shape(i, [*shapes[0][:2], *shape[2:]][:3])
        _require_divisible(node, f"size of the last dimension of input {i}", shape[2], n)
    _require_divisible(node, "attribute 'q_num_heads'", heads, kv_heads)
    size, value_size = s.divide(shapes[1][2], kv_heads), s.divide(shapes[2][2], kv_heads)
    node.require_equal("size of a head of input 1", size, s.divide(shapes[0][2], heads))
    if node.has(3):
        node.require_shape(3, [shapes[0][0], kv_heads, size, value_size])
    for i in (4, 5):
        if node.has(i):
            node.require_shape(i, [*shapes[0][:2], *node.shape(i)[2:]][:3])
    return inline_schema(node, convert_nodes)


def _past_length(node: Node, leading: list[Dim], size: Dim, value_size: Dim) -> Dim:
    """Return how many keys and values there are from before, whose shapes fit those of the inputs."""
    if not node.has(4) or node.ndim(4) != 4:
        return 0
    past = node.shape(4)[2]
    for i, last in ((4, size), (5, value_size)):
        if node.has(i):
            node.require_shape(i, [*leading, past, last])
            _settle(node, i, [*leading, past, last])
    return past


def _settle(node: Node, i: int, dims: list[Dim]) -> None:
    """Give an input the dimensions that were required of it: names of its own would broadcast, and hide what it is."""
    if not all(map(s.provably_equal, node.shape(i), dims)):
        value = Value.of_expr(node.with_dims(node.x(i), dims), node.value(i).kind)
        node.inputs = (*node.inputs[:i], value, *node.inputs[i + 1 :])


def _require_mask(node: Node, rows: list[Dim], keys: Dim) -> None:
    """Require that the mask can be repeated for all rows of scores; from opset 24 on it may leave out the last keys."""
    *leading, last = shape = node.shape(3)
    for axis, (f, e) in enumerate(zip(leading, rows[len(rows) - len(leading) :], strict=True)):
        node.require_equal(f"dimension {axis} of input 3", f, s.choose(s.compare("Equal", f, 1), f, e))
    if node.opset >= 24:
        node.require_between(f"dimension {len(shape) - 1} of input 3", last, None, keys)
    else:
        node.require_equal(f"dimension {len(shape) - 1} of input 3", last, keys)
        _settle(node, 3, [*leading, keys])


def _by_heads(node: Node, i: int, attribute: str) -> tuple[Dim, ...]:
    """Return (batch, heads, length, size of a head) of an input, which may hold all heads in its last dimension."""
    shape = node.shape(i)
    if len(shape) == 4:
        return tuple(shape)
    node.require_rank(i, 3, 4)
    heads = node.attr(attribute, 0)
    _require_divisible(node, f"size of the last dimension of input {i}", shape[2], heads)
    return shape[0], heads, shape[1], s.divide(shape[2], heads)
