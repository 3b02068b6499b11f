"""Sorting and the k greatest.

Stable: by digits, or by merging runs of positions where elements are wide or few. The k greatest are selected where k
is not most of a line.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, log2
from typing import Any

from weft import te, tir
from weft.ir import DataType, as_int, cast, const, int64, is_float, logical_and
from weft.te import Tensor
from weft.topi.heap import FEW_COLUMNS, before, first_of_columns, first_of_lines, lines
from weft.topi.known_values import is_target
from weft.topi.precision import narrowed
from weft.topi.radix import SHORT, has_key, radix_line
from weft.topi.reduce import reduced_index, reduced_shape
from weft.topi.shape import normalize_axes, normalize_axis, product, unravel
from weft.topi.typing import Axes, Buffers, Extent

_ZERO, _ONE = int64(0), int64(1)


def _register(name: str) -> tuple[Any, Any]:
    """A local number, and what it holds."""
    slot = tir.decl_buffer((_ONE,), "int64", name, scope="local")
    return slot, tir.BufferLoad(slot, (_ZERO,))


def _set(slot: Any, value: Any) -> Any:
    return tir.BufferStore(slot, value, (_ZERO,))


# --- all --------------------------------------------------------------------------------------------------------------


def _order(x: Any, axis: int, largest: bool) -> Any:
    """The positions of each line in sorted order (int64)."""

    def body(ins: Buffers, outs: Buffers) -> Any:
        extent = cast("int64", x.shape[axis])

        def line(at: Any) -> Any:
            merged = _merge_line(ins[0], outs[0], outs[1], extent, at, largest)
            if not has_key(x.dtype):
                return merged
            by_digits = logical_and(extent >= int64(SHORT), extent < int64(1 << 32))
            return tir.IfThenElse(by_digits, radix_line(ins[0], outs[0], extent, at, largest), merged)

        return lines(x.shape, axis, line)

    return te.extern([x.shape, x.shape], [x], body, name="sort", dtype=["int64", "int64"])[0]


def _merge_line(source: Any, order: Any, spare: Any, extent: Any, at: Any, largest: bool) -> Any:
    """Merge runs of 1, 2, 4, ... positions, from one buffer to the other and back."""
    j, block = tir.Var("j", "int64"), tir.Var("block", "int64")
    slot, width = _register("width")

    def each(body: Callable[[Any], Any]) -> Any:
        v = tir.Var("p", "int64")
        return tir.For(v, _ZERO, extent, tir.ForKind.SERIAL, body(v))

    double = width * int64(2)
    blocks = tir.floordiv(extent + double - _ONE, double)
    merge = _merge(source, order, spare, extent, at, block * double, width, largest)
    step = tir.seq(
        tir.For(block, _ZERO, blocks, tir.ForKind.SERIAL, merge),
        each(lambda p: tir.BufferStore(order, tir.BufferLoad(spare, at(p)), at(p))),
        _set(slot, double),
    )
    start = tir.For(j, _ZERO, extent, tir.ForKind.SERIAL, tir.BufferStore(order, j, at(j)))
    return tir.AllocBuffer(slot, tir.seq(start, _set(slot, _ONE), tir.While(width < extent, step)))


def _merge(source: Any, order: Any, spare: Any, extent: Any, at: Any, low: Any, width: Any, largest: bool) -> Any:
    """Merge two neighbouring runs of `order`, which begin at `low`, into `spare`."""
    out, middle, high = (tir.Var(n, "int64") for n in ("out", "middle", "high"))
    left_slot, left = _register("left")
    right_slot, right = _register("right")

    def run(i: Any) -> tuple[Any, Any]:
        index = tir.BufferLoad(order, at(i))
        return tir.BufferLoad(source, at(index)), index

    comes_first = tir.logical_not(before(*run(right), *run(left), largest))
    take_left = tir.if_then_else(
        right < high, tir.if_then_else(left < middle, comes_first, const(False, "bool")), const(True, "bool")
    )
    step = tir.IfThenElse(
        take_left,
        tir.seq(tir.BufferStore(spare, tir.BufferLoad(order, at(left)), at(out)), _set(left_slot, left + _ONE)),
        tir.seq(tir.BufferStore(spare, tir.BufferLoad(order, at(right)), at(out)), _set(right_slot, right + _ONE)),
    )
    body = tir.seq(
        _set(left_slot, low), _set(right_slot, middle), tir.For(out, low, high - low, tir.ForKind.SERIAL, step)
    )
    body = tir.LetStmt(
        middle, tir.min(low + width, extent), tir.LetStmt(high, tir.min(low + width * int64(2), extent), body)
    )
    return tir.AllocBuffer(left_slot, tir.AllocBuffer(right_slot, body))


def _along(x: Any, order: Any, axis: int, shape: Any) -> Any:
    """The elements at the given positions of each line."""
    return te.compute(shape, lambda *i: x(*(order(*i) if d == axis else v for d, v in enumerate(i))), name="T_sorted")


def topk(
    data: Tensor, k: Extent = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The k greatest (or, ascending, least) of each line, sorted; equal elements by index. A k of -1 means all."""
    a = normalize_axis("topk", axis, data.ndim)
    count = as_int(k)
    k = cast("int64", data.shape[a]) if count == -1 else int64(count) if count is not None else k
    shape = tuple(k if i == a else d for i, d in enumerate(data.shape))
    size = as_int(data.shape[a])
    if count != -1 and (count is None or size is None or _are_few(count, size, data.dtype)):
        values, order = _first(data, k, a, not is_ascend)
    else:
        order = _order(data, a, not is_ascend)
        values = _along(data, order, a, shape)
    if ret_type == "values":
        return te.compute(shape, lambda *i: values(*i), name="values") if values.op is order.op else values
    indices = te.compute(shape, lambda *i: cast(dtype, order(*i)), name="indices")
    return indices if ret_type == "indices" else (values, indices)


def _are_few(count: int, size: int, dtype: str) -> bool:
    """Whether a heap of `count` is made and emptied in less time than sorting takes: measured, in steps of a heap."""
    if size < SHORT or not has_key(dtype):
        return 2 * count < size or _are_inserted(count, size)
    steps = count * (log(size / count) + 2) * log2(count + 1) if count else 0
    return steps < size * DataType(dtype).bits / 16 or _are_inserted(count, size)


def _first(data: Tensor, k: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """Values and positions of the k first of each line, found in lines that are contiguous and no narrower than floats.

    Copying, in vectors, costs less than comparing from line to line, or converting for each comparison.
    """
    rank, wide = data.ndim, "float32" if is_float(data.dtype) and DataType(data.dtype).bits < 32 else data.dtype
    count, lines = as_int(k), [*(d for d in range(rank) if d != axis), axis]
    order = [axis, *lines[:-1]] if axis == rank - 1 else list(range(rank))
    few = (count == 1 and axis < rank - 1) or _are_inserted(count, as_int(data.shape[axis]))
    by_columns = few and rank > 1 and (as_int(data.shape[order[-1]]) or FEW_COLUMNS) >= FEW_COLUMNS
    if not by_columns:
        if wide == data.dtype and all(as_int(d) == 1 for d in data.shape[axis + 1 :]):
            return first_of_lines(data, k, axis, largest)
        order = lines

    def line(*i: Any) -> Any:
        return cast(wide, data(*(i[order.index(d)] for d in range(rank))))

    in_place = order == sorted(order)
    x = data if in_place and wide == data.dtype else te.compute([data.shape[d] for d in order], line, name="T_lines")
    at = order.index(axis)
    found = first_of_columns(x, count or 1, at, largest) if by_columns else first_of_lines(x, k, at, largest)
    if in_place:
        return narrowed(found[0], data.dtype), found[1]
    shape = [k if d == axis else n for d, n in enumerate(data.shape)]
    values, places = (
        te.compute(shape, lambda *i, x=x, t=t: cast(t, x(*(i[d] for d in order))), name="T_first")
        for x, t in zip(found, (data.dtype, "int64"), strict=True)
    )
    return values, places


def _are_inserted(count: int | None, size: int | None) -> bool:
    """Whether neighbouring lines are best walked in vectors, with each element put where it belongs.

    Threads of a GPU have a line each.
    """
    if count is None or size is None or is_target("gpu"):
        return False
    return 0 < count <= 16 and count * size <= 1024


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Any:
    """Sort each line; equal elements stay in order."""
    a = normalize_axis("sort", axis, data.ndim)
    return _along(data, _order(data, a, not is_ascend), a, data.shape)


def argsort(data: Tensor, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Any:
    """The positions that sort each line."""
    a = normalize_axis("argsort", axis, data.ndim)
    order = _order(data, a, not is_ascend)
    return te.compute(data.shape, lambda *i: cast(dtype, order(*i)), name="indices")


def median(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """The lower of the two elements in the middle, NaN being greatest; with its first position along a single axis."""
    over = normalize_axes("median", axis, x.ndim)
    rest, sizes = [a for a in range(x.ndim) if a not in over], [x.shape[a] for a in over]
    count = product(sizes)

    def element(*i: Any) -> Any:
        return x(*reduced_index(i[:-1], list(unravel(i[-1], sizes)), over, x.ndim, False))

    flat = te.compute((*(x.shape[a] for a in rest), count), element, name="lines") if over else x
    order, middle = _order(flat, flat.ndim - 1, False), tir.floordiv(count - _ONE, int64(2))
    shape = reduced_shape(x.shape, over, keepdims)

    def line(i: Any) -> Any:
        return [v for d, v in enumerate(i) if d not in over] if keepdims else i

    places = te.compute(shape, lambda *i: order(*line(i), middle), name="indices")
    values = te.compute(shape, lambda *i: flat(*line(i), places(*i)), name="T_median")
    return (values, places) if axis is not None and len(over) == 1 else values
