"""Operators that rearrange: reshape, transpose, slice, split, concat, pad, tile, expand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from weft import ir
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.axes import by_axis, inserted, remaining, split_axes
from weft.frontend.onnx.graph import depends_on_data
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim, Dims, Value
from weft.ir import PrimExpr, shape_expr

# --- reshape ----------------------------------------------------------------------------------------------------------


@converter("Reshape")
def _reshape(node: Node) -> Any:
    if not node.has(1):
        node.error("its input 'shape' is missing", expected="the new shape as a tensor")
    x, given = node.x(), node.ints(1)
    own = list(node.shape())
    allow_zero = bool(node.attr("allowzero", 0))
    if any(_is_runtime(d) for d in given):
        dims = node.graph.named(_runtime_dims(node, own, given, allow_zero), "r")
        return node.op("reshape", x, shape_expr([s.to_expr(d) for d in dims]))
    dims = []
    for i, d in enumerate(given):
        if isinstance(d, int) and d == 0 and not allow_zero:
            if i >= len(own):
                node.error(
                    "a 0 copies a dimension that the input does not have",
                    expected=f"at most {len(own)} dimensions before it",
                    found=f"position {i}",
                )
            d = own[i]
        elif isinstance(d, int) and d < -1:
            node.error("a dimension is negative", expected="-1 or more", found=str(d))
        dims.append(d)
    unknown = [i for i, d in enumerate(dims) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        node.error("more than one dimension is -1", found=str(given))
    if unknown:
        if allow_zero and 0 in dims:
            node.error("a dimension is -1 beside one of 0", found=str(given))
        rest = [d for i, d in enumerate(dims) if i != unknown[0]]
        dims[unknown[0]] = _remaining(node, own, rest)
    elif all(isinstance(d, int) for d in (*own, *dims)) and s.product(own) != s.product(dims):
        node.error("the number of elements changes", expected=f"{s.product(own)} elements", found=f"{dims}")
    return node.reshape(x, dims)


def _remaining(node: Node, own: Sequence[Dim], rest: Sequence[Dim]) -> Dim:
    """Return what a -1 stands for: all elements divided by the other dimensions."""
    if any(isinstance(d, int) and d == 0 for d in rest):
        return 0
    quotient = s.cancel_product(own, rest)
    if quotient is not None:
        return quotient
    total, known = s.product(own), s.product(rest)
    if isinstance(total, int) and isinstance(known, int):
        node.error("the elements do not divide", expected=f"a multiple of {known}", found=f"{total} elements")
    return s.divide(total, known)


def _is_runtime(d: Dim) -> bool:
    """Whether a dimension comes from a tensor's data, so that it may be 0 or -1."""
    return isinstance(d, PrimExpr) and depends_on_data(d) and not s.non_negative(d)


def _count(given: Sequence[Dim], value: int) -> Dim:
    total: Dim = 0
    for d in given:
        total = s.add(total, s.choose(s.compare("Equal", d, value), 1, 0))
    return total


def _runtime_dims(node: Node, own: Sequence[Dim], given: Sequence[Dim], allow_zero: bool) -> list[Dim]:
    unknown = _count(given, -1)
    node.require_between("dimensions that are -1", unknown, 0, 1)
    if allow_zero:
        beside = s.choose(s.compare("Greater", _count(given, 0), 0), 0, 1)
        node.require_between("dimensions that are -1, beside one of 0", unknown, 0, beside)
    copied = [
        d if allow_zero or i >= len(own) else s.choose(s.compare("Equal", d, 0), own[i], d) for i, d in enumerate(given)
    ]
    others = s.product(s.choose(s.compare("Equal", d, -1), 1, d) for d in copied)
    inferred = s.divide(s.product(own), s.maximum(others, 1))
    return [s.choose(s.compare("Equal", d, -1), inferred, d) for d in copied]


@converter("Flatten")
def _flatten(node: Node) -> Any:
    shape, axis = node.shape(), node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        node.error("an axis is out of range", expected=f"{-len(shape)}..{len(shape)}", found=str(axis))
    axis = axis + len(shape) if axis < 0 else axis
    return node.reshape(node.x(), [s.product(shape[:axis]), s.product(shape[axis:])])


@converter("Squeeze")
def _squeeze(node: Node) -> Any:
    axes, shape = node.axes() or None, node.shape()
    if axes is None:
        over = [i for i, d in enumerate(shape) if s.same(d, 1)]
        for i in set(range(len(shape))) - set(over):
            node.require_other(f"dimension {i} would be dropped, but the model does not say so", shape[i], 1)
    else:
        over = node.distinct_axes(axes)
        for d in split_axes(shape, over)[1]:
            node.require_equal("a dimension is not 1", d, 1)
        if not node.is_static(over):
            return node.reshape(node.x(), node.graph.named(remaining(shape, over)))
    return node.reshape(node.x(), [d for i, d in enumerate(shape) if i not in over])


@converter("Unsqueeze")
def _unsqueeze(node: Node) -> Any:
    axes = node.axes()
    if axes is None:
        node.error("its axes are missing")
    rank = node.ndim() + len(axes)
    over = node.distinct_axes(axes, rank)
    if not node.is_static(over):
        return node.reshape(node.x(), node.graph.named(inserted(node.shape(), over)))
    own = iter(node.shape())
    return node.reshape(node.x(), [1 if i in over else next(own) for i in range(rank)])


@converter("Transpose")
def _transpose(node: Node) -> Any:
    perm = node.attr("perm", list(range(node.ndim()))[::-1])
    if sorted(perm) != list(range(node.ndim())):
        node.error(
            "attribute 'perm' is no permutation of the axes",
            expected=f"0..{node.ndim() - 1} in some order",
            found=str(perm),
        )
    return node.permute(node.x(), perm)


@converter("DepthToSpace")
def _depth_to_space(node: Node) -> Any:
    n, c, h, w = _four(node)
    b, mode = node.attr("blocksize"), node.attr("mode", "DCR")
    depth = s.divide(c, b * b)
    x = node.x()
    if mode == "DCR":
        x = node.permute(node.reshape(x, [n, b, b, depth, h, w]), (0, 3, 4, 1, 5, 2))
    else:
        x = node.permute(node.reshape(x, [n, depth, b, b, h, w]), (0, 1, 4, 2, 5, 3))
    return node.reshape(x, [n, depth, s.multiply(h, b), s.multiply(w, b)])


@converter("SpaceToDepth")
def _space_to_depth(node: Node) -> Any:
    n, c, h, w = _four(node)
    b = node.attr("blocksize")
    x = node.reshape(node.x(), [n, c, s.divide(h, b), b, s.divide(w, b), b])
    x = node.permute(x, (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4))
    return node.reshape(x, [n, s.multiply(c, b * b), s.divide(h, b), s.divide(w, b)])


def _four(node: Node) -> Sequence[Dim]:
    node.require_rank(0, 4)
    return node.shape()


# --- join and part ----------------------------------------------------------------------------------------------------


@converter("Concat")
def _concat(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 1))
    return node.concat(node.xs(), axis)


@converter("Split")
def _split(node: Node) -> Any:
    axis, count = node.axis(node.attr("axis", 0)), len(node.proto.output)
    total = node.shape()[axis]
    if node.attr("num_outputs", count) != count:
        node.error(
            "attribute 'num_outputs' is not the number of outputs",
            expected=str(count),
            found=str(node.attr("num_outputs")),
        )
    lengths: Sequence[Dim] | None = (
        node.attr("split") if node.opset < 13 else node.ints(1, sizes=True) if node.has(1) else None
    )
    if lengths is None:
        chunk = s.ceildiv(total, count)
        lengths = [chunk] * (count - 1) + [s.subtract(total, s.multiply(chunk, count - 1))]
        if node.opset < 18:
            node.require_equal("the dimension does not divide evenly", total, s.multiply(chunk, count))
        node.require_between("the size of the last part", lengths[-1], 0, None)
    if len(lengths) != count:
        node.error("the number of lengths and of outputs differ", expected=str(count), found=str(len(lengths)))
    ends = [*accumulate(lengths, s.add)]
    node.require_equal("the lengths do not add up", ends[-1], total)
    x = node.x()
    return [node.slice(x, [axis], [begin], [end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


@converter("Slice")
def _slice(node: Node) -> Any:
    if node.opset < 10:
        starts, ends, axes, steps = node.attr("starts"), node.attr("ends"), node.attr("axes"), None
    else:
        starts, ends = node.ints(1), node.ints(2)
        axes, steps = (node.ints(i) if node.has(i) else None for i in (3, 4))
    axes = list(range(len(starts))) if axes is None else axes
    steps = steps if steps is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        node.error(
            "starts, ends, axes and steps differ in length",
            found=f"{len(starts)}, {len(ends)}, {len(axes)}, {len(steps)}",
        )
    for step in steps:
        node.require_other("a step is 0", step, 0)
    axes = node.distinct_axes(axes)
    if not node.is_static(axes):
        rank = node.ndim()
        starts = node.graph.named(by_axis(rank, axes, starts, [0] * rank), sizes=False)
        ends = node.graph.named(by_axis(rank, axes, ends, list(node.shape())), sizes=False)
        steps = node.graph.named(by_axis(rank, axes, steps, [1] * rank), sizes=False)
        axes = list(range(rank))
    x, forward = node.x(), []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if s.is_known(step) and step > 0:
            begin, stop = node.graph.named(_bounds(start, end, node.shape()[axis]))
            forward.append((axis, begin, stop, step))
        else:
            x = _slice_by_steps(node, x, axis, start, end, step)
    whole = [
        (a, b, e, t)
        for a, b, e, t in forward
        if not (t == 1 and isinstance(b, int) and b == 0 and s.provably_equal(e, node.shape()[a]))
    ]
    if whole:
        x = node.slice(x, *([part[i] for part in whole] for i in range(4)))  # type: ignore[arg-type]
    return x


_FAR = 2**31 - 1


def _inside(e: Dim, size: Dim, low: Dim = 0, high: Dim | None = None) -> Dim:
    """Bring a bound into ``low..high``, counting negative ones from the end."""
    high = size if high is None else high
    if isinstance(e, int) and e >= _FAR:
        return high
    if isinstance(e, int):
        return s.clamp(s.add(e, size), low, high) if e < 0 else s.minimum(e, high)
    if s.non_negative(e):
        return s.minimum(e, high)
    return s.clamp(s.choose(s.compare("Less", e, 0), s.add(e, size), e), low, high)


def _bounds(start: Dim, end: Dim, size: Dim) -> tuple[Dim, Dim]:
    """Return begin and end inside of the dimension, the end not before the begin."""
    begin, stop = _inside(start, size), _inside(end, size)
    return begin, stop if isinstance(begin, int) and begin == 0 else s.maximum(stop, begin)


def _slice_by_steps(node: Node, x: Any, axis: int, start: Dim, end: Dim, step: Dim) -> Any:
    """Slice backwards: the same elements forwards, then turned round; by a gather where the step is data."""
    size = node.dims(x)[axis]
    if not isinstance(step, int):
        return _gather_steps(node, x, axis, start, end, step)
    last = s.subtract(size, 1)
    begin = _inside(start, size, 0, last)  # a start is an element, where there is one
    stop = -1 if isinstance(end, int) and end < -_FAR else _inside(end, size, -1, last)
    begin, stop = node.graph.named([begin, stop], sizes=False)
    count = s.maximum(s.ceildiv(s.subtract(begin, stop), -step), 0)
    if isinstance(count, int) and count == 0:
        return node.slice(x, [axis], [0], [0])
    first = s.subtract(begin, s.multiply(s.subtract(count, 1), -step))
    return node.op("flip", node.slice(x, [axis], [first], [s.add(begin, 1)], [-step]), axis=axis)


def _gather_steps(node: Node, x: Any, axis: int, start: Dim, end: Dim, step: Dim) -> Any:
    size = node.dims(x)[axis]
    up = s.compare("Greater", step, 0)
    step = s.clamp(step, s.negate(s.add(size, 1)), s.add(size, 1))  # steps out of the dimension are all the same
    last = s.subtract(size, 1)
    begin = s.choose(up, _inside(start, size), _inside(start, size, 0, last))
    stop = s.choose(up, _inside(end, size), _inside(end, size, -1, last))
    span, stride = (
        s.choose(up, s.subtract(stop, begin), s.subtract(begin, stop)),
        s.maximum(s.choose(up, step, s.negate(step)), 1),
    )
    span, stride = node.graph.named([span, stride], sizes=False)
    (count,) = node.graph.named([s.divide(s.maximum(s.subtract(s.add(span, stride), 1), 0), stride)])
    steps = node.arange(count)
    scaled = node.op("multiply", steps, _as_tensor(node, step))
    return node.op("take", x, node.op("add", scaled, _as_tensor(node, begin)), axis=axis, mode="clip")


def _as_tensor(node: Node, e: Dim) -> Any:
    return node.graph.expr(Value.of_elements([e], "int64"))


@converter("Expand")
def _expand(node: Node) -> Any:
    given, own = node.ints(1, sizes=True), list(node.shape())
    rank = max(len(given), len(own))
    target = [*([1] * (rank - len(given))), *given]
    node.require_broadcast([*([1] * (rank - len(own))), *own], target)
    dims = [_broadcast(d, t) for d, t in zip([*([1] * (rank - len(own))), *own], target, strict=True)]
    if len(own) == rank and all(s.provably_equal(a, b) for a, b in zip(own, dims, strict=True)):
        return node.value(0)
    return node.op("broadcast_to", node.x(), shape_expr([s.to_expr(d) for d in dims]))


def _broadcast(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and a == 1:
        return b
    if (isinstance(b, int) and b == 1) or isinstance(a, int) or s.provably_equal(a, b):
        return a
    return b if isinstance(b, int) else s.choose(s.compare("Equal", a, 1), b, a)


@converter("Tile")
def _tile(node: Node) -> Any:
    x, repeats, own = node.x(), node.ints(1, sizes=True), node.shape()
    if len(repeats) != len(own):
        node.error("the number of repeats and the rank differ", expected=str(len(own)), found=str(len(repeats)))
    if all(isinstance(r, int) for r in repeats):
        return x if all(r == 1 for r in repeats) else node.op("tile", x, repeats=tuple(repeats))
    pairs = [d for r, n in zip(repeats, own, strict=True) for d in (r, n)]
    spread = node.reshape(x, [d for n in own for d in (1, n)])
    spread = node.op("broadcast_to", spread, shape_expr([s.to_expr(d) for d in pairs]))
    return node.reshape(spread, [s.multiply(r, n) for r, n in zip(repeats, own, strict=True)])


# --- pad --------------------------------------------------------------------------------------------------------------


@converter("Pad")
def _pad(node: Node) -> Any:
    rank, mode = node.ndim(), node.attr("mode", "constant")
    pads = node.attr("pads") if node.opset < 11 else node.ints(1)
    axes = node.ints(3) if node.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        node.error("a wrong number of pads", expected=f"{2 * len(axes)} for {len(axes)} axes", found=str(len(pads)))
    if mode not in ("constant", "reflect", "edge", "wrap"):
        node.error("attribute 'mode' has an unknown value", expected="constant, reflect, edge or wrap", found=mode)
    axes = node.distinct_axes(axes)
    for p in pads:
        if not s.is_known(p):  # so that no sum overflows
            node.require_between("a pad", p, -(1 << 48), 1 << 48)
    halves = (by_axis(rank, axes, part, [0] * rank) for part in (pads[: len(axes)], pads[len(axes) :]))
    before, after = (node.graph.named(half, sizes=False) for half in halves)
    value: Any = node.attr("value", 0.0) if node.opset < 11 else 0
    if node.opset >= 11 and node.has(2):
        data = node.const(2)
        value = node.reshape(node.x(2), ()) if data is None else data.reshape(-1)[0].item()
    return padded(node, node.x(), before, after, mode, value)


def padded(
    node: Node, x: ir.Expr, before: Dims, after: Dims, mode: str = "constant", value: ir.Expr | float = 0
) -> Any:
    """Pad; negative widths cut, before anything is copied from the edges.

    Parameters
    ----------
    before, after : sequence of int or PrimExpr
        Widths of each axis.
    value : number or expression of shape ()
        The fill of mode ``constant``.
    """
    copies = mode != "constant" or not isinstance(value, (bool, int, float))
    cut = [i for i, widths in enumerate(zip(before, after, strict=True)) if any(_may_cut(p, copies) for p in widths)]
    if cut:
        dims = node.dims(x)
        begin = [s.maximum(s.negate(before[i]), 0) for i in cut]
        end = [s.subtract(dims[i], s.maximum(s.negate(after[i]), 0)) for i in cut]
        for b, e in zip(begin, end, strict=True):
            node.require_between("padding cuts more than there is", e, b, None)
        x = node.slice(x, cut, begin, end)
        before, after = ([s.maximum(p, 0) if i in cut else p for i, p in enumerate(side)] for side in (before, after))
    widths = [p for b, a in zip(before, after, strict=True) for p in (b, a)]
    if all(isinstance(p, int) and p == 0 for p in widths):
        return x
    if isinstance(value, (bool, int, float)):
        return node.op("nn.pad", x, pad_width=tuple(widths), pad_mode=mode, pad_value=value)
    return _pad_by_joining(node, x, before, after, value)


def _may_cut(width: Dim, copies: bool) -> bool:
    """Whether to cut beforehand: `copies` says that what is copied depends on it, so that a width must not be data."""
    return width < 0 if isinstance(width, int) else copies and not s.non_negative(width)


def _pad_by_joining(node: Node, x: Any, before: Sequence[Dim], after: Sequence[Dim], value: Any) -> Any:
    """Pad with a value that is computed at run time."""
    dtype = x.ty.dtype
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        parts = []
        for width, inner in ((b, False), (0, True), (a, False)):
            if inner:
                parts.append(x)
            elif not (isinstance(width, int) and width == 0):
                dims = node.dims(x)
                dims[axis] = width
                parts.append(node.op("full", shape_expr([s.to_expr(d) for d in dims]), value, dtype=dtype))
        x = node.concat(parts, axis)
    return x
