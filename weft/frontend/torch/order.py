"""What depends on the order of elements: medians, running extremes, distinct values, places in sorted sequences."""

from __future__ import annotations

from typing import Any

from weft import ir, tir, topi
from weft.frontend.torch.index import columns, counted
from weft.frontend.torch.node import Node
from weft.frontend.torch.reduce import ordered
from weft.frontend.torch.registry import aten


def _flat(node: Node, x: Any) -> Any:
    return node.reshape(x, [node.product(node.dims(x))])


def _lines(node: Node) -> tuple[Any, int, bool]:
    """The operand, the axis of its lines, and whether that stays; without an axis all elements are one line."""
    x, keep = node["self"], node.get("keepdim")
    if node.get("dim") is None or not x.ty.shape:
        return _flat(node, x), 0, False
    return x, node.axis(node["dim"], len(x.ty.shape)), keep


def _picked(node: Node, x: Any, axis: int, place: Any, keep: bool) -> list[Any]:
    """The value at a place of each sorted line, and where it was."""
    lines = [d if i != axis else 1 for i, d in enumerate(node.dims(x))]
    place = node.expand(place, lines)
    found = [node.op("gather_elements", part, place, axis=axis) for part in ordered(node, x, axis, False)]
    return found if keep else [node.op("squeeze", part, axis=(axis,)) for part in found]


@aten("kthvalue")
def _kth_value(node: Node) -> Any:
    x, axis, keep = _lines(node)
    return _picked(node, x, axis, node.tensor(node["k"] - 1, "int64"), keep)


@aten("median", "nanmedian")
def _median(node: Node) -> Any:
    """The lower one of two; what is no number is sorted behind all others, is the median itself, or does not count."""
    x, axis, keep = _lines(node)
    count = node.dims(x)[axis]
    if isinstance(count, int) and not count:
        node.error("a median of no elements")
    place = node.tensor((count - 1) // 2 if isinstance(count, int) else ir.floordiv(count - 1, 2), "int64")
    if ir.DataType(str(x.ty.dtype)).is_float:
        strange = node.op("sum", node.astype(node.op("isnan", x), "int64"), axis=(axis,), keepdims=True)
        last = node.tensor(count - 1, "int64")
        if "nanmedian" in node.name:
            left = node.op("maximum", node.op("subtract", last, strange), node.scalar(0, "int64"))
            place = node.op("floor_divide", left, node.scalar(2, "int64"))
        else:
            place = node.op("where", node.op("greater", strange, node.scalar(0, "int64")), last, place)
    found = _picked(node, x, axis, place, keep)
    return found if isinstance(node.value, (list, tuple)) else found[0]


def _scanned(node: Node, x: Any, axis: int, combine: Any, name: str) -> Any:
    neutral = ir.const(0, str(x.ty.dtype))
    return node.emit(node.bb.call_te(lambda t: topi.scanop(t, combine, neutral, name, axis), x))


@aten("cummax", "cummin")
def _running_extreme(node: Node) -> Any:
    """The last of equal elements counts, and what is no number stays from there on."""
    x, kind = node["self"], node.dtype
    if not x.ty.shape:
        return [x, node.scalar(0, "int64")]
    axis, strange = node.axis(node["dim"], len(x.ty.shape)), None
    x = node.astype(x, "uint8") if kind == "bool" else x
    floating = ir.DataType(kind).is_float

    def later(before: Any, value: Any) -> Any:
        better = tir.GE(value, before) if "cummax" in node.name else tir.LE(value, before)
        return tir.Select(tir.Or(better, tir.isnan(value)) if floating else better, value, before)

    values = _scanned(node, x, axis, later, "cumextreme")
    taken = node.op("equal", x, values)
    if floating:
        strange = node.op("isnan", x)
        taken = node.op("logical_or", taken, strange)
    shape = [d if i == axis else 1 for i, d in enumerate(node.dims(x))]
    places = node.expand(node.reshape(node.arange(node.dims(x)[axis]), shape), node.dims(x))
    places = node.op("where", taken, places, node.scalar(0, "int64"))
    places = _scanned(node, places, axis, tir.Max, "cumlast")
    return [node.astype(values, kind), places]


@aten("logcumsumexp")
def _running_log_sum(node: Node) -> Any:
    x = node["self"]
    if not x.ty.shape:
        return x

    def combine(a: Any, b: Any) -> Any:
        top, low = tir.Max(a, b), tir.Min(a, b)
        return tir.Select(tir.EQ(top, low), top + tir.log(tir.const(2, a.dtype)), top + tir.log1p(tir.exp(low - top)))

    return _scanned(node, x, node.axis(node["dim"], len(x.ty.shape)), combine, "cumlogsumexp")


@aten("_unique2", "unique_consecutive")
def _distinct(node: Node) -> Any:
    """Distinct values, which of them each element is, and how often each occurs."""
    x = node["self"]
    if node.get("dim") is not None:
        node.error("distinct slices along a dimension")
    flat = _flat(node, x)
    count, order = node.dims(flat)[0], None
    if "_unique2" in node.name:
        flat, order = ordered(node, flat, 0, False)
    place = node.arange(count)
    before = node.op("maximum", node.op("subtract", place, node.scalar(1, "int64")), node.scalar(0, "int64"))
    new = node.op("not_equal", flat, node.op("take", flat, before, axis=0))
    new = node.op("logical_or", new, node.op("equal", place, node.scalar(0, "int64")))
    starts = columns(node, new)[0]
    ranks = node.op("cumsum", node.astype(new, "int64"), axis=0)
    ranks = node.op("subtract", ranks, node.scalar(1, "int64"))
    often = node.added(node.dims(starts)[0], ranks, node.full([count], 1, "int64"))
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
    return node.added(size, x, given)


@aten("repeat_interleave.Tensor")
def _repeated(node: Node) -> Any:
    """Each place as often as its count says: how many runs have ended there."""
    counts = node.astype(node["repeats"], "int64")
    total = node.op("sum", counts, axis=(0,), keepdims=True)
    known = not any(node.symbols.unknown(d) for d in node.first.shape)
    size = node.shape[0] if known else counted(node, total)
    ends = node.op("cumsum", counts, axis=0)
    return _inserted(node, ends, node.arange(size), True)


def _inserted(node: Node, sequence: Any, values: Any, right: bool) -> Any:
    found = node.bb.call_te(topi.searchsorted, sequence, values, right, "int64")
    return node.astype(node.emit(found), node.dtype)


@aten("searchsorted", "bucketize")
def _place_in_order(node: Node) -> Any:
    """Where a value, or each of several, would be put into sorted sequences."""
    sequence = node["sorted_sequence"] if "searchsorted" in node.name else node["boundaries"]
    if node.get("sorter") is not None:
        sequence = node.op("gather_elements", sequence, node["sorter"], axis=len(sequence.ty.shape) - 1)
    kind = _common(str(sequence.ty.dtype), node["self"])
    sequence, values = node.astype(sequence, kind), node.tensor(node["self"], kind)
    right = node["right"] or node.get("side") == "right"
    node.read.update(("out_int32", "side"))
    dims = node.dims(values)
    values = values if len(sequence.ty.shape) > 1 else _flat(node, values)
    return node.reshape(_inserted(node, sequence, values, right), dims)


def _common(kind: str, value: Any) -> str:
    """The type in which both compare: integers and floats as float64."""
    other = str(value.ty.dtype) if hasattr(value, "ty") else "float64" if isinstance(value, float) else kind
    if ir.DataType(kind).is_float != ir.DataType(other).is_float:
        return "float64"
    return kind if ir.DataType(kind).bits >= ir.DataType(other).bits else other
