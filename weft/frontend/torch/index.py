"""Elements by index: gather, scatter, advanced indexing, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir
from weft.frontend.torch.node import Node, stop_unless
from weft.frontend.torch.registry import aten
from weft.frontend.torch.symbols import Dim
from weft.relax import Var, core_ops

_REDUCTIONS = dict(sum="add", add="add", prod="mul", multiply="mul", mean="mean", amax="max", amin="min")


@aten("embedding")
def _embedding(node: Node) -> Any:
    return node.op("take", node["weight"], node["indices"], axis=0)


@aten("index_select")
def _index_select(node: Node) -> Any:
    x, places = node["self"], _row(node, node["index"])
    if not x.ty.shape:
        return node.reshape(node.op("take", _row(node, x), places, axis=0), [])
    return node.op("take", x, places, axis=node.axis(node["dim"], len(x.ty.shape)))


@aten("gather")
def _gather(node: Node) -> Any:
    x, places = node["self"], node["index"]
    if 0 in node.dims(places):  # of any rank
        return node.full(node.shape, 0, node.dtype)
    if not x.ty.shape or not places.ty.shape:
        return node.reshape(node.op("gather_elements", _row(node, x), _row(node, places), axis=0), node.shape)
    return node.op("gather_elements", x, places, axis=node.axis(node["dim"], len(x.ty.shape)))


def _row(node: Node, x: Any) -> Any:
    """A scalar as a tensor of one element."""
    return x if x.ty.shape else node.reshape(x, [1])


@aten("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two", "scatter.reduce", "scatter.value_reduce")
def _scatter(node: Node) -> Any:
    x, places, axis = node["self"], node["index"], node.axis(node["dim"], max(len(node.shape), 1))
    src = node.get("src", node.get("value"))
    how = "add" if "scatter_add" in node.name else _REDUCTIONS.get(node.get("reduce"), "update")
    if 0 in node.dims(places):  # of any rank
        return x
    flat, kind = not x.ty.shape, node.dtype
    if kind == "bool" and how != "update":  # sums are "or", products "and"
        kind, how = "uint8", {"add": "max", "mul": "min"}.get(how, how)
    x, places = node.astype(_row(node, x), kind), _row(node, places)
    if isinstance(src, ir.Expr) and not isinstance(src, ir.PrimExpr):
        src = node.astype(_cut_to(node, _row(node, src), node.dims(places)), kind)
    else:
        src = node.full(node.dims(places), src, kind)
    alone = node.get("include_self", True) is False
    if alone and how == "mean":
        found = _means(node, x, places, src, axis)
    else:
        x = _left_out(node, x, places, axis, how) if alone else x
        found = node.op("scatter_elements", x, places, src, axis=axis, reduction=how)
    return node.reshape(found, []) if flat else found


@aten("put")
def _put(node: Node) -> Any:
    """Elements by their places among all of them."""
    x, places, src = (node.reshape(node[k], [node.product(node.dims(node[k]))]) for k in ("self", "index", "source"))
    given = {"self": x, "dim": 0, "index": places, "src": src, "reduce": "sum" if node["accumulate"] else None}
    return node.reshape(_scatter(node.with_args(given)), node.shape)


@aten("index_reduce")
def _index_reduce(node: Node) -> Any:
    """Parts that are combined with others: an index for each of their elements."""
    source, rank = _row(node, node["source"]), max(len(node.shape), 1)
    dims, axis = node.dims(source), node.axis(node["dim"], rank)
    places = node.reshape(node["index"], [n if i == axis else 1 for i, n in enumerate(dims)])
    given = {k: node[k] for k in ("self", "reduce", "include_self")}
    return _scatter(node.with_args({**given, "dim": axis, "index": node.expand(places, dims), "src": source}))


def _cut_to(node: Node, x: Any, dims: Any) -> Any:
    """The first elements of each axis: a source may be wider than its indices."""
    if node.same(node.dims(x), dims):
        return x
    axes = tuple(range(len(dims)))
    return node.op("strided_slice", x, axes=axes, begin=(0,) * len(dims), end=tuple(dims), assume_inbound=True)


def _left_out(node: Node, x: Any, places: Any, axis: int, how: str) -> Any:
    """`x` with the neutral element where something is written."""
    kind = str(x.ty.dtype)
    limits = np.iinfo(kind) if kind.startswith(("int", "uint")) else None
    low, high = (limits.min, limits.max) if limits else (-np.inf, np.inf)
    neutral = {"add": 0, "mul": 1, "max": low, "min": high}.get(how, 0)
    filler = node.full(node.dims(places), neutral, kind)
    return node.op("scatter_elements", x, places, filler, axis=axis, reduction="update")


def _means(node: Node, x: Any, places: Any, src: Any, axis: int) -> Any:
    """The mean of what is written to each place, which is counted once where it is the same; `x` where nothing is."""

    def added(shape: list[Dim], places: ir.Expr, part: ir.Expr) -> ir.Expr:
        return node.op("scatter_elements", node.full(shape, 0, node.dtype), places, part, axis=axis, reduction="add")

    total, (once, rest) = added(node.dims(x), places, src), _counted_once(node, x, places, axis)
    count = added(rest, once, node.full(node.dims(once), 1, node.dtype))
    written = node.op("greater", count, node.scalar(0, node.dtype))
    divisor = node.op("maximum", count, node.scalar(1, node.dtype))
    name = "divide" if ir.DataType(node.dtype).is_float else "floor_divide"
    return node.op("where", written, node.op(name, total, divisor), x)


def _counted_once(node: Node, x: ir.Expr, places: ir.Expr, axis: int) -> tuple[ir.Expr, list[Dim]]:
    """What indices repeat, and the shape of its counts, where it is the same for all of `x` beside the axis."""
    made, dims = node.bb.lookup_binding(places) if isinstance(places, Var) else None, node.dims(x)
    if isinstance(made, ir.Call) and core_ops.is_op(made, "broadcast_to"):
        given = node.dims(made.args[0])
        alone = [i for i, n in enumerate(given) if n == 1 and i != axis]
        if node.same(node.dims(places), [dims[i] if i in alone else n for i, n in enumerate(given)]):
            return made.args[0], [1 if i in alone else n for i, n in enumerate(dims)]
    return places, dims


def _arranged(node: Node, x: Any, indices: list[Any]) -> tuple[Any, list[Any], list[int], int]:
    """Bring the indexed axes to the front.

    Returns the tensor, its indices, the axes in their new order, and where the indexed ones belong in the result.
    """
    indices = [j for i in indices for j in ([i] if i is None or i.ty.dtype != "bool" else columns(node, i))]
    indices = [*indices, *[None] * (len(x.ty.shape) - len(indices))]
    taken = [axis for axis, i in enumerate(indices) if i is not None]
    together = taken == list(range(taken[0], taken[-1] + 1)) if taken else True
    rest = [axis for axis in range(len(indices)) if axis not in taken]
    return node.permute(x, [*taken, *rest]), [indices[a] for a in taken], [*taken, *rest], taken[0] if together else 0


def columns(node: Node, mask: ir.Expr) -> list[Any]:
    """Where a mask is true, as one vector of indices for each of its axes; how many there are, the data says."""
    dims = node.dims(mask)
    if not dims:
        node.error("an index by a mask without dimensions")
    size = node.product(dims)
    places, count = node.fields(node.op("places", node.reshape(mask, [size])))
    count = counted(node, count)
    places = node.op("strided_slice", places, axes=(0,), begin=(0,), end=(count,), assume_inbound=True)
    columns, below = [], 1
    for i, d in reversed(list(enumerate(dims))):
        rest = places if i == len(dims) - 1 else node.op("floor_divide", places, node.tensor(below, "int64"))
        columns.append(rest if i == 0 else node.op("floor_mod", rest, node.tensor(d, "int64")))
        below = below * d
    return columns[::-1]


def counted(node: Node, count: ir.Expr) -> Any:
    """A tensor of one integer as a size: the symbol that PyTorch gave it, where it waits for a value."""
    waiting = [s for d in node.first.shape for s in node.symbols.unknown(d)]
    var = node.symbols.define(waiting[0]) if waiting else node.symbols.fresh("count")
    node.bb.match_cast(node.emit(core_ops.tensor_to_shape(count)), ir.ShapeType((var,), 1))
    return var


@aten("nonzero")
def _nonzero(node: Node) -> Any:
    x = node["self"]
    if not x.ty.shape:
        x = node.reshape(x, [1])
        flat = columns(node, node.truth(x))
        return node.full([node.dims(flat[0])[0], 0], 0, "int64")
    return node.op("stack", ir.Tuple(tuple(columns(node, node.truth(x)))), axis=1)


@aten("nonzero_static")
def _nonzero_static(node: Node) -> Any:
    """The first so many places; rows of a number where there are fewer."""
    rest = node.full(node.shape, node["fill_value"], "int64")
    if not node["self"].ty.shape:
        return rest
    found = node.op("stack", ir.Tuple(tuple(columns(node, node.truth(node["self"])))), axis=1)
    return _cut_to(node, node.concat([found, rest], 0), node.shape)


@aten("histc")
def _histogram(node: Node) -> Any:
    """How many elements each of equally wide bins has; those outside of all are not counted."""
    x, bins, dtype = node["self"], node["bins"], node.dtype
    if not isinstance(bins, int):
        node.error("a histogram of an unknown number of bins")
    x = node.reshape(x, [node.product(node.dims(x))])
    low, high = (node.scalar(node[k], dtype) for k in ("min", "max"))
    if node["min"] == node["max"]:  # the data's own bounds
        low, high = (node.op(name, x) for name in ("min", "max"))
        finite = node.op("logical_and", node.op("isfinite", low), node.op("isfinite", high))
        stop_unless(node.bb, finite, "histc: the data's own bounds are not finite", node.name)
        apart = node.astype(node.op("equal", low, high), dtype)
        low, high = node.op("subtract", low, apart), node.op("add", high, apart)
    inside = node.op("logical_and", node.op("greater_equal", x, low), node.op("less_equal", x, high))
    wide = node.op("astype", node.op("where", inside, x, low), dtype="float64")
    first, last = (node.tensor(bound, "float64") for bound in (low, high))
    width = node.op("divide", node.op("subtract", last, first), node.scalar(bins, "float64"))
    places = node.op("divide", node.op("subtract", wide, first), width)
    places = node.op("minimum", node.op("astype", places, dtype="int64"), node.scalar(bins - 1, "int64"))
    return node.added(bins, places, node.astype(inside, dtype))


@aten("masked_select")
def _masked_select(node: Node) -> Any:
    mask, x = node["mask"], node["self"]
    dims = _broadcast([node.dims(mask), node.dims(x)])
    flat = columns(node, node.reshape(node.expand(mask, dims), [node.product(dims)]))
    return node.op("take", node.reshape(node.expand(x, dims), [node.product(dims)]), flat[0], axis=0, mode="clip")


@aten("masked_scatter")
def _masked_scatter(node: Node) -> Any:
    """The running count of the mask says which element of the source comes."""
    dims = node.shape
    mask, x = node.expand(node["mask"], dims), node.expand(node["self"], dims)
    source, size = node["source"], node.symbols.dim(node.metas["source"].numel())
    if isinstance(size, int) and size == 0:
        return x
    flat = node.reshape(mask, [node.product(dims)])
    places = node.op("subtract", node.op("cumsum", node.astype(flat, "int64"), axis=0), node.scalar(1, "int64"))
    taken = node.op("take", node.reshape(source, [size]), places, axis=0, mode="clip")
    return node.op("where", mask, node.reshape(taken, dims), x)


@aten("index.Tensor", "_unsafe_index.Tensor")
def _index(node: Node) -> Any:
    x, places, order, front = _arranged(node, node["self"], node["indices"])
    if not places:
        return x
    if len(places) == 1:
        found = node.op("take", x, places[0], axis=0)
    else:
        found = node.op("index_tensor", x, ir.Tuple(tuple(places)))
    width = len(node.shape) - (len(order) - len(places))
    axes = [*range(width, width + front), *range(width), *range(width + front, len(node.shape))]
    return node.permute(found, axes)


@aten("index_put", "_unsafe_index_put")
def _index_put(node: Node) -> Any:
    given = node["self"]
    mask = node["indices"][0] if len(node["indices"]) == 1 else None
    if mask is not None and mask.ty.dtype == "bool" and node.dims(node["values"]) in ([], [1]):
        return _masked_put(node, given, mask)
    x, places, order, front = _arranged(node, given, node["indices"])
    values = node.astype(node["values"], node.dtype)
    shape = _broadcast([node.dims(p) for p in places])
    rest = node.dims(x)[len(places) :]
    target = [*rest[:front], *shape, *rest[front:]]
    values = node.expand(values, target)
    values = node.permute(
        values, [*range(front, front + len(shape)), *range(front), *range(front + len(shape), len(target))]
    )
    found = node.op("index_put", x, ir.Tuple(tuple(places)), values, accumulate=node["accumulate"])
    back = [order.index(axis) for axis in range(len(order))]
    return node.permute(found, back)


def _masked_put(node: Node, x: Any, mask: Any) -> Any:
    values = node.reshape(node.astype(node["values"], node.dtype), [])
    mask = node.reshape(mask, [*node.dims(mask), *[1] * (len(x.ty.shape) - len(mask.ty.shape))])
    return node.op("where", mask, node.op("add", x, values) if node["accumulate"] else values, x)


def _broadcast(shapes: list[list[Any]]) -> list[Any]:
    """The shape that index tensors have together."""
    found: list[Any] = []
    for shape in shapes:
        wide = max(len(found), len(shape))
        a, b = [*[1] * (wide - len(found)), *found], [*[1] * (wide - len(shape)), *shape]
        found = [y if isinstance(x, int) and x == 1 else x for x, y in zip(a, b, strict=True)]
    return found
