"""Distinct values, how often each occurs, repetitions."""

from __future__ import annotations

from typing import Any

from weft import ir, topi
from weft.frontend.torch.index import columns, counted
from weft.frontend.torch.node import Node
from weft.frontend.torch.reduce import ordered
from weft.frontend.torch.registry import aten


@aten("_unique2", "unique_consecutive")
def _distinct(node: Node) -> Any:
    """Distinct values, which of them each element is, and how often each occurs."""
    x = node["self"]
    if node.get("dim") is not None:
        node.error("distinct slices along a dimension")
    count, order = node.product(node.dims(x)), None
    flat = node.reshape(x, [count])
    if "_unique2" in node.name:
        flat, order = ordered(node, flat, 0, False)
    place = node.arange(count)
    before = node.op("maximum", node.op("subtract", place, node.scalar(1, "int64")), node.scalar(0, "int64"))
    new = node.op("not_equal", flat, node.op("take", flat, before, axis=0))
    new = node.op("logical_or", new, node.op("equal", place, node.scalar(0, "int64")))
    starts = columns(node, new)[0]
    ranks = node.op("cumsum", node.astype(new, "int64"), axis=0)
    ranks = node.op("subtract", ranks, node.scalar(1, "int64"))
    often = node.op("scatter_elements", node.full(node.dims(starts), 0, "int64"), ranks,
                    node.full([count], 1, "int64"), axis=0, reduction="add")  # fmt: skip
    if order is not None:
        ranks = node.op("scatter_elements", node.full([count], 0, "int64"), order, ranks, axis=0)
    node.read.update(("sorted", "return_inverse", "return_counts"))
    return [node.op("take", flat, starts, axis=0), node.reshape(ranks, node.dims(x)), often]


@aten("bincount")
def _occurrences(node: Node) -> Any:
    x = node.astype(node["self"], "int64")
    least = node.reshape(node.tensor(node["minlength"], "int64"), [1])
    ends = node.op("add", x, node.scalar(1, "int64"))
    size = counted(node, node.op("max", node.op("concat", ir.Tuple((ends, least)), axis=0), axis=(0,), keepdims=True))
    weights = node.get("weights")
    given = node.full(node.dims(x), 1, node.dtype) if weights is None else node.astype(weights, node.dtype)
    return node.op("scatter_elements", node.full([size], 0, node.dtype), x, given, axis=0, reduction="add")


@aten("repeat_interleave.Tensor")
def _repeated(node: Node) -> Any:
    """Each place as often as its count says: how many runs have ended there."""
    counts = node.astype(node["repeats"], "int64")
    total = node.op("sum", counts, axis=(0,), keepdims=True)
    known = not any(node.symbols.unknown(d) for d in node.first.shape)
    size = node.shape[0] if known else counted(node, total)
    ends = node.op("cumsum", counts, axis=0)
    return node.emit(node.bb.call_te(topi.searchsorted, ends, node.arange(size), True, "int64"))
