"""Shapes and places: views, joins, cuts, pads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir, te, tir
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten
from weft.frontend.torch.symbols import Dim, as_expr
from weft.frontend.torch.views import memory_order

_VIEWS = """view reshape _unsafe_view unsqueeze squeeze flatten unflatten view_copy _reshape_alias squeeze_copy
    unsqueeze_copy reshape_as view_as""".split()


@aten(*_VIEWS)
def _view(node: Node) -> Any:
    node.get("other")  # gives its shape alone
    if node.name == "aten.view.dtype":
        node.error("a view with another element type")
    return node.reshape(node["self"], node.shape)


@aten("expand", "expand_copy", "expand_as")
def _expand(node: Node) -> Any:
    node.get("other")  # gives its shape alone
    return node.expand(node["self"], node.shape)


@aten("permute", "permute_copy")
def _permute(node: Node) -> Any:
    x = node["self"]
    return node.permute(x, [node.axis(d, len(x.ty.shape)) for d in node["dims"]])


@aten("t", "transpose", "transpose_copy", "numpy_T")
def _transpose(node: Node) -> Any:
    x = node["self"]
    order = list(range(len(x.ty.shape)))
    a, b = (node.axis(node.get(k, k), len(order)) for k in ("dim0", "dim1")) if "dim0" in node.args else (-1, 0)
    if order:
        order[a], order[b] = order[b], order[a]
    return node.permute(x, order)


@aten("cat")
def _concatenate(node: Node) -> Any:
    parts = [x for x in node["tensors"] if len(x.ty.shape) > 1 or node.dims(x) != [0]]
    if not parts:
        return node.full(node.shape, 0, node.dtype)
    return node.concat([node.astype(x, node.dtype) for x in parts], node.axis(node["dim"], len(node.shape)))


@aten("stack")
def _stack(node: Node) -> Any:
    parts = tuple(node.astype(x, node.dtype) for x in node["tensors"])
    return node.op("stack", ir.Tuple(parts), axis=node.axis(node["dim"], len(node.shape)))


def _along(node: Node) -> tuple[Any, int]:
    """The tensor of a call and the axis that it names."""
    x = node["self"]
    return x, node.axis(node["dim"], len(x.ty.shape))


def _from_front(node: Node, place: Dim, size: Dim) -> Dim:
    """A place in a dimension, of which one below 0 is counted from the end."""
    if isinstance(place, int):
        return place + size if place < 0 else place
    return node.symbols.analyzer.simplify(ir.Select(place < 0, place + size, place))


def _bounds(node: Node, x: Any, axis: int) -> tuple[Dim, Dim]:
    """Where a slice begins and how long its dimension is, both counted as PyTorch does."""
    size, given = node.dims(x)[axis], node.get("start", 0)
    start = _from_front(node, given, size)
    if not isinstance(given, int) or given < 0:
        start = _positive(node, start)
    return min(start, size) if isinstance(start, int) and isinstance(size, int) else start, size


def _cut(node: Node, x: Any, axis: int, start: Dim, length: Dim, step: int = 1) -> Any:
    end = start + (length - 1) * step + 1 if step != 1 else start + length
    if isinstance(end, ir.PrimExpr):
        end = node.symbols.analyzer.simplify(end)
    empty = isinstance(length, int) and length == 0
    places = {"axes": (axis,), "begin": (start,), "end": (start if empty else end,), "strides": (step,)}
    return node.op("strided_slice", x, **places, assume_inbound=True)


def _within(node: Node, place: Dim, size: Dim) -> Dim:
    """A place as a slice takes it: counted from the end if negative, no further than the ends."""
    place = as_expr(_positive(node, _from_front(node, place, size)))
    return node.symbols.analyzer.simplify(ir.min_(place, as_expr(size)))


@aten("slice.Tensor", "slice_copy")
def _slice(node: Node) -> Any:
    x, axis = _along(node)
    start, size = _bounds(node, x, axis)
    for symbol in node.symbols.unknown(node.first.shape[axis]):  # PyTorch leaves it to the run how ends are cut off
        start = _within(node, node.get("start", 0), size)
        end = size if node["end"] is None else _within(node, node["end"], size)
        length = ir.floordiv(as_expr(end) - start + (node["step"] - 1), node["step"])
        node.symbols.equate(symbol, node.symbols.analyzer.simplify(ir.max_(length, as_expr(0))))
    if node.same(node.dims(x), node.shape) and node["step"] == 1:
        return x
    return _cut(node, x, axis, start, node.shape[axis], node["step"])


@aten("narrow", "narrow_copy")
def _narrow(node: Node) -> Any:
    x, axis = _along(node)
    return _cut(node, x, axis, _bounds(node, x, axis)[0], node["length"])


@aten("select.int", "select_copy")
def _select(node: Node) -> Any:
    x, axis = _along(node)
    return node.reshape(_cut(node, x, axis, _from_front(node, node["index"], node.dims(x)[axis]), 1), node.shape)


@aten("split_with_sizes", "split.Tensor", "split", "chunk", "unsafe_split", "unsafe_chunk", "split_with_sizes_copy")
def _split(node: Node) -> Any:
    x, axis = _along(node)
    found, start = [], 0
    for i, value in enumerate(node.value):
        length = node.symbols.dim(value.shape[axis])
        found.append(_cut(node, x, axis, start, length) if i in node.used else None)
        start = start + length
    return found


@aten("unbind", "unbind_copy")
def _unbind(node: Node) -> Any:
    x, axis = _along(node)
    rest = [d for i, d in enumerate(node.dims(x)) if i != axis]
    return [node.reshape(_cut(node, x, axis, i, 1), rest) if i in node.used else None for i in range(len(node.value))]


@aten("diff")
def _differences(node: Node) -> Any:
    """Of each element to the one before it, as often as asked for."""
    own, axis = _along(node)
    x = node.concat([part for part in (node["prepend"], own, node["append"]) if part is not None], axis)
    for _ in range(node["n"]):
        left = node.dims(x)[axis] - 1
        if left == -1:
            break
        both = _cut(node, x, axis, 1, left), _cut(node, x, axis, 0, left)
        x = node.op("not_equal" if x.ty.dtype == "bool" else "subtract", *both)
    return x


def _between(node: Node, x: Any, src: Any, axis: int, start: Dim, length: Dim, step: int) -> Any:
    """`x` with a slice replaced: gathered from the source where an index lies in the slice."""
    size = node.dims(x)[axis]
    if isinstance(start, int) and isinstance(length, int) and step == 1:
        return node.op("slice_scatter", x, src, *map(ir.prim_value, (start, start + length, step)), axis=axis)
    places = node.op("subtract", node.arange(size), node.tensor(start, "int64"))
    behind, before = node.scalar(0, "int64"), node.tensor(length * step, "int64")
    inside = node.op("logical_and", node.op("greater_equal", places, behind), node.op("less", places, before))
    if step != 1:
        left = node.op("floor_mod", places, node.scalar(step, "int64"))
        inside = node.op("logical_and", inside, node.op("equal", left, node.scalar(0, "int64")))
        places = node.op("floor_divide", places, node.scalar(step, "int64"))
    taken = node.op("take", src, places, axis=axis, mode="clip")
    column = [size if i == axis else 1 for i in range(len(x.ty.shape))]
    return node.op("where", node.reshape(inside, column), taken, x)


@aten("slice_scatter")
def _slice_scatter(node: Node) -> Any:
    src = node.astype(node["src"], node.dtype)
    x, axis = _along(node)
    start, _ = _bounds(node, x, axis)
    length, step = node.dims(src)[axis], node["step"]
    return x if isinstance(length, int) and length == 0 else _between(node, x, src, axis, start, length, step)


@aten("select_scatter")
def _select_scatter(node: Node) -> Any:
    x, axis = _along(node)
    dims = node.dims(node["src"])
    src = node.reshape(node.astype(node["src"], node.dtype), [*dims[:axis], 1, *dims[axis:]])
    return _between(node, x, src, axis, _from_front(node, node["index"], node.dims(x)[axis]), 1, 1)


@aten("repeat")
def _repeat(node: Node) -> Any:
    """Between the dimensions of the tensor stand the repeats."""
    x, repeats = node["self"], list(node["repeats"])
    own = [*[1] * (len(repeats) - len(x.ty.shape)), *node.dims(x)]
    between: list[Dim] = [d for pair in zip([1] * len(own), own, strict=True) for d in pair]
    wide = [d for pair in zip(repeats, own, strict=True) for d in pair]
    return node.reshape(node.expand(node.reshape(x, between), wide), node.shape)


@aten("repeat_interleave.self_int")
def _repeat_interleave(node: Node) -> Any:
    x, repeats = node["self"], node["repeats"]
    if node["dim"] is None:
        x = node.reshape(x, [node.product(node.dims(x))])
    axis = node.axis(node.get("dim", 0), len(x.ty.shape))
    before, behind = node.dims(x)[: axis + 1], node.dims(x)[axis + 1 :]
    wide = node.expand(node.reshape(x, [*before, 1, *behind]), [*before, repeats, *behind])
    return node.reshape(wide, node.shape)


@aten("flip")
def _flip(node: Node) -> Any:
    x = node["self"]
    for axis in node["dims"]:
        x = node.op("flip", x, axis=node.axis(axis, len(x.ty.shape)))
    return x


@aten("roll")
def _roll(node: Node) -> Any:
    x, dims = node["self"], node.get("dims") or []
    if not dims:
        flat = node.reshape(x, [node.product(node.dims(x))])
        return node.reshape(_rolled(node, flat, 0, node["shifts"][0]), node.shape)
    for shift, axis in zip(node["shifts"], dims, strict=True):
        x = _rolled(node, x, node.axis(axis, len(x.ty.shape)), shift)
    return x


def _rolled(node: Node, x: Any, axis: int, shift: Dim) -> Any:
    size = node.dims(x)[axis]
    if isinstance(size, int) and isinstance(shift, int):
        if not size or not shift % size:
            return x
        back = size - shift % size
        parts = _cut(node, x, axis, back, size - back), _cut(node, x, axis, 0, back)
        return node.op("concat", ir.Tuple(parts), axis=axis)
    places = node.op("subtract", node.arange(size), node.tensor(shift, "int64"))
    return node.op("take", x, node.op("floor_mod", places, node.tensor(size, "int64")), axis=axis, mode="clip")


@aten("diagonal", "diagonal_copy")
def _diagonal(node: Node) -> Any:
    x, rank = node["self"], len(node["self"].ty.shape)
    a, b = node.axis(node["dim1"], rank), node.axis(node["dim2"], rank)
    rest = [i for i in range(rank) if i not in (a, b)]
    x = node.permute(x, [*rest, a, b])
    *outer, rows, columns = node.dims(x)
    count, offset = node.shape[-1], node["offset"]
    first = offset if offset >= 0 else -offset * columns
    flat = node.reshape(x, [*outer, rows * columns])
    places = node.op("multiply", node.arange(count), node.tensor(columns + 1, "int64"))
    return node.op("take", flat, node.op("add", places, node.tensor(first, "int64")), axis=len(outer), mode="clip")


@aten("unfold", "unfold_copy")
def _windows(node: Node) -> Any:
    """Windows that move along an axis; their elements are a new last one."""
    x, size, step = node["self"], node["size"], node["step"]
    rank = len(x.ty.shape)
    if not rank:
        return node.reshape(x, [1]) if size == 1 else node.reshape(x, [0])
    axis = node.axis(node["dimension"], rank)
    starts = node.op("multiply", node.arange(node.shape[axis]), node.scalar(step, "int64"))
    places = node.op("add", node.reshape(starts, [node.shape[axis], 1]), node.arange(size))
    found = node.op("take", x, places, axis=axis, mode="clip")
    return node.permute(found, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


def _strided(node: Node, sizes: Sequence[Dim]) -> tuple[Any, Any, list[int]]:
    """A tensor's elements in the order of its memory, the place there of each of a view by strides, and that order."""
    value, offset = node.metas["self"], node["storage_offset"]
    start = 0 if offset is None else offset - node.symbols.dim(value.storage_offset())
    reach = [start, *((size - 1) * stride for size, stride in zip(sizes, node["stride"], strict=True))]
    numel = node.product(node.dims(node["self"]))
    order = memory_order(value) or list(range(value.dim()))
    if not value.permute(order).is_contiguous():
        node.error("as_strided of a tensor with gaps between its elements")
    if all(isinstance(d, int) for d in (*reach, numel)) and (start < 0 or (0 not in sizes and sum(reach) >= numel)):
        node.error("as_strided beyond the elements of its tensor")
    place: Any = node.tensor(start, "int64")
    for i, (size, stride) in enumerate(zip(sizes, node["stride"], strict=True)):
        steps = node.op("multiply", node.arange(size), node.tensor(stride, "int64"))
        place = node.op("add", place, node.reshape(steps, [size if j == i else 1 for j in range(len(sizes))]))
    return node.reshape(node.permute(node["self"], order), [numel]), place, order


@aten("as_strided", "as_strided_copy")
def _as_strided(node: Node) -> Any:
    flat, place, _ = _strided(node, node["size"])
    return node.op("take", flat, place, axis=0)


@aten("as_strided_scatter")
def _as_strided_scatter(node: Node) -> Any:
    flat, place, order = _strided(node, node["size"])
    count = [node.product(node["size"])]
    parts = node.reshape(place, count), node.reshape(node.astype(node["src"], node.dtype), count)
    written = node.op("scatter_elements", flat, *parts, axis=0, reduction="update")
    back = [order.index(axis) for axis in range(len(order))]
    return node.permute(node.reshape(written, [node.shape[axis] for axis in order]), back)


def _widths(pad: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """PyTorch counts from the last axis; Weft has all, from the first."""
    pairs = [tuple(pad[i : i + 2]) for i in range(0, len(pad), 2)]
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    return tuple(n for pair in pairs for n in pair)


@aten("diagonal_scatter")
def _diagonal_scatter(node: Node) -> Any:
    """What a program writes to a diagonal, as functions do that."""
    x, src, offset = node["self"], node["src"], node["offset"]
    row, column = (node.axis(node[name], len(x.ty.shape)) for name in ("dim1", "dim2"))
    begin = _positive(node, offset)

    def written(x: Any, src: Any) -> Any:
        def element(*i: Any) -> Any:
            around = (v for n, v in enumerate(i) if n not in (row, column))
            return tir.if_then_else(ir.EQ(i[column] - i[row], as_expr(offset)), src(*around, i[column] - begin), x(*i))

        return te.compute(x.shape, element, name="diagonal_written")

    return node.emit(node.bb.call_te(written, x, src))


@aten("constant_pad_nd", "pad", *(f"{how}_pad{rank}d" for how in ("reflection", "replication") for rank in (1, 2, 3)))
def _pad(node: Node) -> Any:
    x, pad = node["self"], node.get("pad", node.get("padding"))
    words = {"reflection_pad": "reflect", "replication_pad": "replicate"}
    mode = next((m for key, m in words.items() if key in node.name), node.get("mode", "constant"))
    widths = list(_widths(pad, len(x.ty.shape)))
    cuts = [_positive(node, -w) for w in widths]  # less than nothing is cut off
    cut_first = mode in ("constant", "circular")  # others repeat elements that are cut off, too
    x = _cut_sides(node, x, cuts) if cut_first else x
    widths = [_positive(node, w) for w in widths]
    if widths != [0] * len(widths):
        x = node.astype(x, "uint8") if x.ty.dtype == "bool" else x
        fill = node.get("value") or 0
        fill = fill if ir.DataType(x.ty.dtype).is_real else int(fill)
        x = node.op("nn.pad", x, pad_width=tuple(widths), pad_mode=mode, pad_value=fill)
    return x if cut_first else _cut_sides(node, x, cuts)


def _cut_sides(node: Node, x: Any, cuts: list[Dim]) -> Any:
    """`x` without so many elements before and behind along each axis."""
    for axis, (low, high) in enumerate(zip(cuts[::2], cuts[1::2], strict=True)):
        if [low, high] != [0, 0]:
            x = _cut(node, x, axis, low, node.dims(x)[axis] - low - high)
    return x


def _positive(node: Node, d: Dim) -> Dim:
    """A size, or 0 where it is negative."""
    if isinstance(d, int):
        return max(d, 0)
    found = node.symbols.analyzer.simplify(ir.max_(d, as_expr(0)))
    return found.value if isinstance(found, ir.IntImm) else found


@aten("pixel_shuffle")
def _pixel_shuffle(node: Node) -> Any:
    return node.op("nn.pixel_shuffle", node["self"], upscale_factor=node["upscale_factor"])
