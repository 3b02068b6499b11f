"""Attention as ONNX Runtime's optimizer fuses it, brought to the standard operator: heads, masks, caches, rotation.

Source: ContribOperators.md of ONNX Runtime; behaviour is that of its CPU kernels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import call, calls, microsoft
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.value import Dim
from weft.ir import as_int, constant, shape_expr


def _heads(node: Node, x: Any, count: int) -> Any:
    """Bring (batch, length, heads * size) to (batch, heads, length, size)."""
    batch, length, width = node.dims(x)
    node.require_equal("heads of equal size", s.multiply(s.divide(width, count), count), width)
    return node.permute(node.reshape(x, [batch, length, count, s.divide(width, count)]), [0, 2, 1, 3])


def _joined(node: Node, x: Any) -> Any:
    """Bring (batch, heads, length, size) to (batch, length, heads * size)."""
    batch, heads, length, size = node.dims(x)
    return node.reshape(node.permute(x, [0, 2, 1, 3]), [batch, length, s.multiply(heads, size)])


def _added(node: Node, valid: Any, dtype: str) -> Any:
    """Return what is added to scores: nothing where a key is valid, else a large negative number."""
    filtered = node.scalar(node.attr("mask_filter_value", -10000.0), dtype)
    return node.op("where", valid, node.scalar(0.0, dtype), filtered)


def _padding(node: Node, i: int, batch: Dim, total: Dim, dtype: str) -> Any:
    """Read a mask of keys: lengths, where keys end and begin, or 1 for each valid key, of each query or of all."""
    rank, mask = node.ndim(i), node.x(i)
    ends, starts = mask, None
    if rank == 1:
        given, packed = node.shape(i)[0], s.add(s.multiply(batch, 3), 2)
        if s.provably_equal(given, s.multiply(batch, 2)):
            ends, starts = (node.slice(mask, [0], [s.multiply(batch, k)], [s.multiply(batch, k + 1)]) for k in (0, 1))
        elif s.provably_equal(given, packed):  # where queries and keys of a packed batch begin, which this is not
            ends = node.slice(mask, [0], [0], [batch])
        else:
            node.require_equal("lengths in the mask", given, batch)
    if rank == 1:
        line = node.arange(total)
        valid = node.op("less", line, node.reshape(node.astype(ends, "int64"), [batch, 1]))
        if starts is not None:
            first = node.reshape(node.astype(starts, "int64"), [batch, 1])
            valid = node.op("logical_and", valid, node.op("greater_equal", line, first))
        return node.reshape(_added(node, valid, dtype), [batch, 1, 1, total])
    if rank not in (2, 3):
        node.unsupported("a mask of this rank is not supported", expected="1 to 3", found=str(rank))
    valid = node.op("not_equal", mask, node.scalar(0, node.dtype(i)))
    node.require_equal("the mask's keys", node.shape(i)[-1], total)
    return node.reshape(_added(node, valid, dtype), [batch, 1, node.shape(i)[1] if rank == 3 else 1, total])


def _attend(node: Node, q: Any, k: Any, v: Any, masks: list[Any], past: tuple[Any, Any] | None) -> tuple[Any, Any, Any]:
    """Compute attention of heads and return its result, all keys and all values."""
    mask, before = None, node.dims(past[0])[2] if past is not None else 0
    for m in masks:
        mask = m if mask is None else node.op("add", mask, m)
    if past is not None:
        k, v = (node.concat([old, new], 2) for old, new in zip(past, (k, v), strict=True))
    if node.attr("unidirectional", 0):
        queries, keys = node.dims(q)[2], node.dims(k)[2]
        node.require_equal("keys of causal attention (past and new ones)", keys, s.add(before, queries))
        last = node.op("add", node.reshape(node.arange(queries), [queries, 1]), node.number(before, "int64"))
        reached = node.op("less_equal", node.arange(keys), last)
        dtype = q.ty.dtype
        causal = node.op("where", reached, node.scalar(0.0, dtype), node.scalar(float("-inf"), dtype))
        mask = causal if mask is None else node.op("add", mask, causal)
    if mask is not None:  # of all queries, as the standard operator takes it
        queries, keys = node.dims(q)[2], node.dims(k)[2]
        batch, heads, *_ = node.dims(mask) if len(mask.ty.shape) == 4 else (1, 1)
        mask = node.op("broadcast_to", mask, [batch, heads, queries, keys])
    scale = node.attr("scale", 0.0) or None
    out = call(node, "Attention", q, k, v, mask, scale=scale)
    return _joined(node, out), k, v


@microsoft("MultiHeadAttention", attributes="num_heads mask_filter_value scale unidirectional", inputs=(1, 8))
def _multi_head(node: Node) -> Any:
    heads = node.attr("num_heads")
    q, k, v = _inputs(node, heads)
    past = (node.x(6), node.x(7)) if node.has(6) and node.has(7) else None
    total = s.add(node.dims(k)[2], node.shape(6)[2]) if past is not None else node.dims(k)[2]
    masks = [_padding(node, 4, node.dims(q)[0], total, q.ty.dtype)] if node.has(4) else []
    masks += [node.x(5)] if node.has(5) else []
    return _attend(node, q, k, v, masks, past)


def _inputs(node: Node, heads: int) -> tuple[Any, Any, Any]:
    """Read query, key and value of heads, which may be packed into one or two of them."""
    if not node.has(1):
        parts = _fields(node, 0)
    elif node.ndim(1) == 5:
        parts = [_heads(node, node.x(0), heads), *_fields(node, 1)]
    elif node.ndim(1) == 4:  # keys and values of another sequence, which have had their bias
        return _heads(node, _biased(node, node.x(0), 0, node.shape(0)[-1]), heads), node.x(1), node.x(2)
    else:
        begin: Dim = 0
        parts = []
        for i in range(3):
            end = s.add(begin, node.shape(i)[-1])
            parts.append(_heads(node, _biased(node, node.x(i), begin, end), heads))
            begin = end
        return parts[0], parts[1], parts[2]
    if node.has(3):
        node.unsupported("a bias of packed keys is not supported")
    return parts[0], parts[1], parts[2]


def _fields(node: Node, i: int) -> list[Any]:
    """Take (batch, length, heads, fields, size) apart."""
    batch, length, heads, count, size = node.shape(i)
    return [
        node.permute(node.reshape(node.slice(node.x(i), [3], [f], [f + 1]), [batch, length, heads, size]), [0, 2, 1, 3])
        for f in range(int(count))
    ]


def _biased(node: Node, x: Any, begin: Dim, end: Dim) -> Any:
    return node.op("add", x, node.slice(node.x(3), [0], [begin], [end])) if node.has(3) else x


@microsoft("Attention", attributes="num_heads mask_filter_value scale unidirectional qkv_hidden_sizes", inputs=(2, 6))
def _attention(node: Node) -> Any:
    return _packed_attention(node, node.op("matmul", node.x(0), node.x(1)), 2, 3, 4, 5)


@microsoft("QAttention", attributes="num_heads mask_filter_value scale unidirectional", inputs=(5, 9))
def _qattention(node: Node) -> Any:
    zeros = [node.x(i) if node.has(i) else None for i in (6, 7)]
    product = call(node, "MatMulInteger", node.value(0), node.value(1), *zeros)
    scale = node.op("multiply", node.x(3), node.x(4))
    return _packed_attention(node, node.op("multiply", node.astype(product, "float32"), scale), 2, 5, 8, None)


def _packed_attention(node: Node, x: Any, bias: int, mask: int, past: int, added: int | None) -> Any:
    """Attend with query, key and value side by side in the last axis."""
    x = node.op("add", x, node.x(bias)) if node.has(bias) else x
    heads, width = node.attr("num_heads"), node.dims(x)[-1]
    sizes = node.attr("qkv_hidden_sizes") or [s.divide(width, 3)] * 3
    parts, begin = [], 0
    for size in sizes:
        end = s.add(begin, size)
        parts.append(_heads(node, node.slice(x, [2], [begin], [end]), heads))
        begin = end
    q, k, v = parts
    older, total = None, node.dims(k)[2]
    if node.has(past):
        both = [node.slice(node.x(past), [0], [i], [i + 1]) for i in (0, 1)]
        older = tuple(node.reshape(p, node.dims(p)[1:]) for p in both)
        total = s.add(total, node.shape(past)[3])
    masks = [_padding(node, mask, node.dims(q)[0], total, q.ty.dtype)] if node.has(mask) else []
    masks += [node.x(added)] if added is not None and node.has(added) else []
    out, k, v = _attend(node, q, k, v, masks, older)  # type: ignore[arg-type]
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return out
    return out, node.concat([node.reshape(p, [1, *node.dims(p)]) for p in (k, v)], 0)


# --- rotation and grouped queries -------------------------------------------------------------------------------------


@microsoft(
    "RotaryEmbedding", attributes="interleaved is_packed_batching num_heads rotary_embedding_dim scale", inputs=(4, 4)
)
def _rotary(node: Node) -> Any:
    batch, length = node.shape()[0], node.shape()[2 if node.ndim() == 4 else 1]
    places = node.x(1)
    if node.ndim(1) == 1:  # the place of the first
        places = node.op("broadcast_to", node.op("add", node.arange(length), places), [batch, length])
    return _rotated(node, node.value(2), node.value(3), places)


def _rotated(node: Node, cos: Any, sin: Any, places: Any = None) -> Any:
    partial, heads = node.attr("rotary_embedding_dim", 0), node.attr("num_heads", 0)
    if node.ndim() == 3 and not heads:
        half = node.shape(2)[1]
        heads = s.divide(node.shape()[2], s.multiply(half, 2))
        if not s.is_known(heads):
            node.unsupported("the number of heads is not known")
    return calls(
        node,
        "RotaryEmbedding",
        [node.value(0), cos, sin, places],
        interleaved=node.attr("interleaved", 0),
        num_heads=heads or None,
        rotary_embedding_dim=partial or None,
    )


@microsoft(
    "MRotaryEmbedding",
    inputs=(4, 4),
    attributes="interleaved is_packed_batching mrope_layout mrope_section num_heads rotary_embedding_dim scale",
)
def _multimodal_rotary(node: Node) -> Any:
    """Rotation by three places of each token, each of which has its sections of the angles, apart or in turns."""
    if node.attr("is_packed_batching", 0) or node.attr("scale", 1.0) != 1.0:
        node.unsupported("packed batches and scales are not supported")
    sections, half = node.attr("mrope_section"), node.shape(2)[1]
    if len(sections) != 3 or min(sections) < 0 or not s.same(sum(sections), half):
        node.error("three sections fill the tables' rows", expected=str(half), found=str(sections))
    stream = np.repeat(np.arange(3), sections)
    if node.attr("mrope_layout", 0):
        stream[:] = 0
        for i in (1, 2):
            stream[i : 3 * sections[i] : 3] = i
    places = [node.reshape(node.slice(node.x(1), [0], [i], [i + 1]), node.shape(1)[1:]) for i in range(3)]
    tables: list[Any] = []
    for table in (node.x(2), node.x(3)):
        angles = [call(node, "Gather", table, at) for at in places]
        for i in (1, 2):
            angles[0] = node.op("where", constant(stream == i), angles[i], angles[0])
        tables.append(angles[0])
    return _rotated(node, *tables)


@microsoft(
    "GroupQueryAttention",
    inputs=(7, 12),
    attributes="num_heads kv_num_heads scale softcap do_rotary rotary_interleaved local_window_size "
    "smooth_softmax qk_output k_quant_type v_quant_type kv_cache_bit_width causal",
)
def _group_query(node: Node) -> Any:
    """Attention of groups of queries that share keys, behind caches that each sequence fills by its own length."""
    if node.attr("kv_cache_bit_width", 0) or any(node.attr(f"{k}_quant_type", "NONE") != "NONE" for k in "kv"):
        node.unsupported("quantised caches are not supported")
    shown = node.attr("qk_output", 0)  # the scores: 1 before and 2 after the softmax
    if shown not in (0, 1, 2):
        node.unsupported("an unknown 'qk_output'", expected="0, 1 or 2", found=str(shown))
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    q, k, v = _grouped_inputs(node, heads, groups)
    batch, _, length, _ = node.dims(q)
    ends = node.reshape(node.op("add", node.astype(node.x(5), "int64"), node.scalar(1, "int64")), [batch])
    total = node.one(6, sizes=True)
    held: Dim = node.shape(3)[2] if node.has(3) else 0
    size = node.graph.named([s.maximum(held, total)])[0]
    first, places = _places(node, ends, total, length)
    q, k = _turned(node, q, k, 7, node.x(9) if node.has(9) else places)
    smooth = node.has(11) or node.attr("smooth_softmax", 0) == 1
    causal = node.attr("causal", 1)
    plain = causal and not node.has(10) and not smooth and not shown and node.attr("local_window_size", -1) >= -1
    if plain and all((as_int(x.ty.shape[3]) or 1) % 8 == 0 for x in (q, v)):  # heads of whole vectors
        node.require_indices("a place to write at", first, 0, s.add(s.subtract(size, length), 1))
        keys, values = (_appended(node, i, new, size, first) for i, new in ((3, k), (4, v)))
        out = node.op(
            "nn.cached_attention",
            q,
            keys,
            values,
            first,
            scale=node.attr("scale", 0.0) or None,
            window=node.attr("local_window_size", -1),
            softcap=node.attr("softcap", 0.0),
        )
        return _joined(node, out), keys, values
    keys, values = (_cached(node, i, new, size, first) for i, new in ((3, k), (4, v)))
    at, place = node.arange(size), node.reshape(places, [batch, 1, length, 1])
    valid = node.op("less_equal", at, place if causal else node.reshape(node.emit(ends - 1), [batch, 1, 1, 1]))
    window = node.attr("local_window_size", -1)
    if window >= 0:
        valid = node.op("logical_and", valid, node.op("greater", at, node.emit(place - window)))
    mask: Any = node.op("where", valid, node.scalar(0.0, q.ty.dtype), node.scalar(float("-inf"), q.ty.dtype))
    if node.has(10):
        rest = s.subtract(size, node.shape(10)[3])
        mask = node.op("add", mask, padded(node, node.x(10), [0] * 4, [0, 0, 0, rest], "constant", 0))
    seen = [keys, values]
    if smooth:
        mask = _with_sink(node, mask, [batch, heads, length, size])
        seen = [padded(node, x, [0] * 4, [0, 0, 1, 0], "constant", 0) for x in seen]
    options: dict[str, Any] = {"scale": node.attr("scale", 0.0) or None, "softcap": node.attr("softcap", 0.0)}
    if not shown:
        return _joined(node, call(node, "Attention", q, *seen, mask, **options)), keys, values
    made = calls(node, "Attention", [q, *seen, mask], 4, qk_matmul_output_mode=shown + 1, **options)
    out, scores = (node.graph.expr(made[i]) for i in (0, 3))
    scores, valid = (node.slice(x, [3], [0], [total]) for x in (scores, valid))
    if shown == 1:
        scores = node.op("where", valid, scores, node.scalar(0.0, q.ty.dtype))
    return _joined(node, out), keys, values, scores


def _with_sink(node: Node, mask: Any, shape: list[Dim]) -> Any:
    """Add what each head's softmax has in its denominator beside the keys: one key of zeros with this score."""
    sink = node.x(11) if node.has(11) else node.full([shape[1]], 0, mask.ty.dtype)
    mask = node.op("broadcast_to", mask, shape_expr([s.to_expr(d) for d in shape]))
    last = [*shape[:3], 1]
    sink = node.op("broadcast_to", node.reshape(sink, [1, shape[1], 1, 1]), shape_expr([s.to_expr(d) for d in last]))
    return node.concat([mask, sink], 3)


def _places(node: Node, ends: Any, total: Dim, length: Dim) -> tuple[Any, Any]:
    """Return where the new tokens of each sequence begin, which is 0 in a prompt, and the places of all."""
    newest = node.op("subtract", ends, node.number(length, "int64"))
    prompt = s.compare("Equal", total, length)
    first = node.op("multiply", newest, node.number(s.choose(prompt, 0, 1), "int64"))
    return first, node.op("add", node.reshape(first, [*node.dims(first), 1]), node.arange(length))


def _turned(node: Node, q: Any, k: Any, tables: int, places: Any) -> Any:
    """Rotate queries and keys by the tables that begin at an input, if the node asks for it."""
    if not node.attr("do_rotary", 0):
        return q, k
    attrs = {"interleaved": node.attr("rotary_interleaved", 0)}
    return [
        call(node, "RotaryEmbedding", x, node.value(tables), node.value(tables + 1), places, **attrs) for x in (q, k)
    ]


@microsoft(
    "SparseAttention",
    inputs=(9, 11),
    attributes="do_rotary kv_num_heads num_heads rotary_interleaved scale sparse_block_size",
)
def _sparse_attention(node: Node) -> Any:
    """Attention of groups of queries to those blocks of keys before them that a layout of their head has."""
    heads = node.attr("num_heads")
    q, k, v = _grouped_inputs(node, heads, node.attr("kv_num_heads"))
    batch, _, length, _ = node.dims(q)
    ends, size = node.reshape(node.astype(node.x(8), "int64"), [batch]), node.shape(3)[2]
    first, places = _places(node, ends, node.one(7, sizes=True), length)
    q, k = _turned(node, q, k, 9, places)
    keys, values = (_cached(node, i, new, size, first) for i, new in ((3, k), (4, v)))
    at = node.arange(size)
    allowed = _allowed(node, heads)
    block = node.scalar(node.attr("sparse_block_size"), "int64")
    for axis, place in ((1, places), (3, at)):  # layouts, batch, queries, keys
        allowed = node.op("take", allowed, node.op("floor_divide", place, block), axis=axis, mode="clip")
    layouts = int(allowed.ty.shape[0])
    allowed = node.op("tile", node.permute(allowed, [1, 0, 2, 3]), repeats=(1, heads // layouts, 1, 1))
    before = node.op("less_equal", at, node.reshape(places, [batch, 1, length, 1]))
    seen = node.op("logical_and", before, allowed)
    out = call(node, "Attention", q, keys, values, seen, scale=node.attr("scale", 0.0) or None)
    return _joined(node, out), keys, values


def _allowed(node: Node, heads: int) -> Any:
    """Return (layouts, blocks, blocks), whether a block of queries sees one of keys."""
    rows, columns = node.const(5), node.const(6)
    if rows is None or columns is None:
        node.unsupported("the blocks that see each other must be constants")
    layouts, count = rows.shape[0], rows.shape[1] - 1
    table = np.zeros((layouts, count, count), bool)
    for layout, block in np.ndindex(layouts, count):
        seen = columns[layout, rows[layout, block] : rows[layout, block + 1]]
        if len(seen) and not 0 <= seen.min() <= seen.max() < count:
            node.error("a block that there is not", expected=f"0..{count - 1}", found=str(seen))
        table[layout, block, seen] = True
    if heads % layouts:
        node.error("heads are a multiple of the layouts", expected=str(layouts), found=str(heads))
    return constant(table)


def _appended(node: Node, i: int, new: Any, size: Dim, first: Any) -> Any:
    """Write new keys or values into the cache, which grows where it is too short."""
    batch, groups, _, width = node.dims(new)
    old = node.x(i) if node.has(i) else node.full([batch, groups, 0, width], 0, new.ty.dtype)
    return node.op("nn.cache_append", old, new, first, shape_expr([s.to_expr(d) for d in (batch, groups, size, width)]))


def _grouped_inputs(node: Node, heads: int, groups: int) -> tuple[Any, Any, Any]:
    if node.has(1) and node.has(2):
        return _heads(node, node.x(0), heads), _heads(node, node.x(1), groups), _heads(node, node.x(2), groups)
    whole = _heads(node, node.x(0), heads + 2 * groups)
    ends = (0, heads, heads + groups, heads + 2 * groups)
    parts = [node.slice(whole, [1], [a], [b]) for a, b in pairwise(ends)]
    return parts[0], parts[1], parts[2]


def _cached(node: Node, i: int, new: Any, size: Dim, first: Any) -> Any:
    """Write new keys or values into the cache, which grows where it is too short."""
    if not node.has(i):
        batch, groups, _, width = node.dims(new)
        old = node.full([batch, groups, size, width], 0, new.ty.dtype)
    else:
        rest = s.subtract(size, node.shape(i)[2])
        old = node.x(i) if s.same(rest, 0) else padded(node, node.x(i), [0] * 4, [0, 0, rest, 0], "constant", 0)
    return call(node, "TensorScatter", old, new, first, axis=2)
