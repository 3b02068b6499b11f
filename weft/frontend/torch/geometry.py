"""Index geometry: triangles, distances of all pairs, bags of embeddings, windows put back."""

from typing import Any

import numpy as np

from weft import ir
from weft.frontend.fold import FoldedAxis, folded
from weft.frontend.torch.index import columns
from weft.frontend.torch.linear import each
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten
from weft.frontend.torch.symbols import Dim


@aten("triu_indices", "tril_indices")
def _triangle_indices(node: Node) -> Any:
    upper = "triu" in node.name
    found = _triangle(node, node["row"], node["col"], node["offset"], upper)
    return node.astype(node.op("stack", ir.Tuple(tuple(found)), axis=0), node.dtype)


def _triangle(node: Node, rows: Dim, cols: Dim, offset: int, upper: bool) -> list[Any]:
    """Rows and columns of a matrix's elements above or below a diagonal."""
    if isinstance(rows, int) and isinstance(cols, int):
        known = np.triu_indices(rows, offset, cols) if upper else np.tril_indices(rows, offset, cols)
        return [ir.constant(places) for places in known]
    diagonal = node.op("add", node.reshape(node.arange(rows), [rows, 1]), node.scalar(offset, "int64"))
    return columns(node, node.op("greater_equal" if upper else "less_equal", node.arange(cols), diagonal))


@aten("_cdist_forward", "cdist")
def _pairwise_distances(node: Node) -> Any:
    """Of each row of one matrix to each row of another."""
    node.get("compute_mode")  # how, not what
    a, b = node["x1"], node["x2"]
    a = node.reshape(a, [*node.dims(a)[:-1], 1, node.dims(a)[-1]])
    b = node.reshape(b, [*node.dims(b)[:-2], 1, *node.dims(b)[-2:]])
    return _norm(node, node.op("subtract", a, b), float(node["p"]))


@aten("_pdist_forward", "pdist")
def _distances(node: Node) -> Any:
    """Of each row of a matrix to each of those below."""
    x = node["self"]
    rows = node.dims(x)[0]
    a, b = (node.op("take", x, places, axis=0) for places in _triangle(node, rows, rows, 1, True))
    return _norm(node, node.op("subtract", a, b), float(node["p"]))


def _norm(node: Node, x: Any, order: float) -> Any:
    """The norm along the last axis."""
    kind, size = node.dtype, node.op("abs", x)
    if order == np.inf:
        return node.op("max", size, axis=(-1,)) if node.dims(x)[-1] != 0 else node.op("sum", size, axis=(-1,))
    if order == 0:
        size = node.astype(node.op("not_equal", x, node.scalar(0, kind)), kind)
    elif order == 2:
        size = node.op("multiply", x, x)
    elif order != 1:
        size = node.op("power", size, node.scalar(order, kind))
    total = node.op("sum", size, axis=(-1,))
    if order in (0, 1):
        return total
    return node.op("sqrt", total) if order == 2 else node.op("power", total, node.scalar(1 / order, kind))


@aten("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag")
def _bags(node: Node) -> Any:
    """Sums, means or greatest elements of runs of rows, each run a bag; rows with the padding's index count nothing."""
    places, mode = node.astype(node["indices"], "int64"), node["mode"]
    count, width = node.dims(places)[0], node.dims(node["weight"])[1]
    bags = node.dims(node["offsets"])[0] - int(node["include_last_offset"])
    if node.used & {3}:
        node.error("the places of the greatest elements of bags")
    bag = _bag_of(node, count)
    taken = node.full([count], True, "bool")
    if node.get("padding_idx", -1) >= 0:
        taken = node.op("not_equal", places, node.scalar(node["padding_idx"], "int64"))
    sizes = node.added(bags, bag, node.astype(taken, "int64"))
    rows = node.op("take", node["weight"], places, axis=0)
    if node["per_sample_weights"] is not None:
        rows = node.op("multiply", rows, node.reshape(node["per_sample_weights"], [count, 1]))
    neutral = node.scalar(-np.inf if mode == 2 else 0, node.dtype)
    rows = node.op("where", node.reshape(taken, [count, 1]), rows, neutral)
    room, how = node.full([bags, width], neutral, node.dtype), "max" if mode == 2 else "add"
    out = node.op("scatter_nd", room, node.reshape(bag, [count, 1]), rows, reduction=how)
    filled = node.op("maximum", node.reshape(sizes, [bags, 1]), node.scalar(1, "int64"))
    if mode == 1:
        out = node.op("divide", out, node.astype(filled, node.dtype))
    elif mode == 2:
        empty = node.op("equal", node.reshape(sizes, [bags, 1]), node.scalar(0, "int64"))
        out = node.op("where", empty, node.scalar(0, node.dtype), out)
    return [out, bag, sizes, None]


def _bag_of(node: Node, count: Dim) -> Any:
    """For each index the bag that it lies in: how many bags begin there or before, less one."""
    offsets = node.astype(node["offsets"], "int64")
    begins = node.added(count + 1, offsets, node.full(node.dims(offsets), 1, "int64"))
    begins = node.op("strided_slice", begins, axes=(0,), begin=(0,), end=(count,), assume_inbound=True)
    return node.op("subtract", node.op("cumsum", begins, axis=0), node.scalar(1, "int64"))


@aten("col2im")
def _folded(node: Node) -> Any:
    """Windows that `im2col` cut out, added where they overlap."""
    x, size = node["self"], list(node["output_size"])
    kernel, dilation, padding, stride = (each(node[k], 2) for k in ("kernel_size", "dilation", "padding", "stride"))
    axes = []
    for n, p, k, d, t in zip(size, padding, kernel, dilation, stride, strict=True):
        axes.append(FoldedAxis(k, (n + 2 * p - d * (k - 1) - 1) // t + 1, t, d, p, n))
    return node.reshape(folded(node, x, node.product(node.shape[:-2]), axes), node.shape)
