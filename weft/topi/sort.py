"""Sorting and the k greatest.

A stable merge sort of positions, and an insertion into k kept elements where k is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.ir import DataType, as_int, cast, const, int64, logical_and, logical_or
from weft.topi.shape import normalize_axis

__all__ = ["argsort", "sort", "topk"]

_FEW = 32  # up to so many are kept sorted by insertion; more are sorted whole
_ZERO, _ONE = int64(0), int64(1)


def _before(a: Any, ia: Any, b: Any, ib: Any, largest: bool) -> Any:
    """Whether (a, ia) comes before (b, ib): by value, NaN counting as greatest, then by index."""
    first = a > b if largest else a < b
    equal = a.equal(b)
    if DataType(a.dtype).is_float:
        nan_a, nan_b = a != a, b != b
        first = logical_or(
            first,
            logical_and(nan_a, tir.logical_not(nan_b)) if largest else logical_and(nan_b, tir.logical_not(nan_a)),
        )
        equal = logical_or(equal, logical_and(nan_a, nan_b))
    return logical_or(first, logical_and(equal, ia < ib))


def _lines(shape: Any, axis: int, body: Callable[[Callable[[Any], tuple[Any, ...]]], Any]) -> Any:
    """Loops over the lines along an axis, in parallel, around ``body(at)``.

    ``at(j)`` are the indices of element j of the line.
    """
    outer = [d for i, d in enumerate(shape) if i != axis]
    loops = [tir.Var(f"i{n}", "int64") for n in range(len(outer))]

    def at(j: Any) -> tuple[Any, ...]:
        rest = iter(loops)
        return tuple(j if i == axis else next(rest) for i in range(len(shape)))

    stmt = body(at)
    for n, (v, d) in enumerate(reversed(list(zip(loops, outer, strict=True)))):
        kind = tir.ForKind.PARALLEL if n == len(loops) - 1 else tir.ForKind.SERIAL
        stmt = tir.For(v, _ZERO, cast("int64", d), kind, stmt)
    return stmt


def _register(name: str) -> tuple[Any, Any]:
    """A local number, and what it holds."""
    slot = tir.decl_buffer((_ONE,), "int64", name, scope="local")
    return slot, tir.BufferLoad(slot, (_ZERO,))


def _set(slot: Any, value: Any) -> Any:
    return tir.BufferStore(slot, value, (_ZERO,))


# --- few of many ------------------------------------------------------------------------------------------------------


def _insertion(x: Any, k: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """Values and positions of the first k of each line, which are kept sorted."""
    out_shape = tuple(k if i == axis else d for i, d in enumerate(x.shape))

    def body(ins: Any, outs: Any) -> Any:
        extent = cast("int64", x.shape[axis])
        return _lines(x.shape, axis, lambda at: _insert_line(ins[0], outs[0], outs[1], extent, k, at, largest))

    values, indices = te.extern([out_shape, out_shape], [x], body, name="topk", dtype=[x.dtype, "int64"])
    return values, indices


def _insert_line(source: Any, values: Any, indices: Any, extent: Any, k: Any, at: Any, largest: bool) -> Any:
    j, element = tir.Var("j", "int64"), tir.Var("element", source.dtype)
    slot, position = _register("slot")

    def kept(i: Any) -> tuple[Any, Any]:
        return tir.BufferLoad(values, at(i)), tir.BufferLoad(indices, at(i))

    def put(value: Any, index: Any) -> Any:
        return tir.seq(tir.BufferStore(values, value, at(position)), tir.BufferStore(indices, index, at(position)))

    previous = kept(position - _ONE)
    earlier = tir.if_then_else(position > _ZERO, _before(element, j, *previous, largest), const(False, "bool"))
    place = tir.seq(tir.While(earlier, tir.seq(put(*previous), _set(slot, position - _ONE))), put(element, j))
    beats_last = tir.if_then_else(k > _ZERO, _before(element, j, *kept(k - _ONE), largest), const(False, "bool"))
    insert = tir.IfThenElse(
        j < k, tir.seq(_set(slot, j), place), tir.IfThenElse(beats_last, tir.seq(_set(slot, k - _ONE), place))
    )
    insert = tir.LetStmt(element, tir.BufferLoad(source, at(j)), insert)
    return tir.AllocBuffer(slot, tir.For(j, _ZERO, extent, tir.ForKind.SERIAL, insert))


# --- all --------------------------------------------------------------------------------------------------------------


def _order(x: Any, axis: int, largest: bool) -> Any:
    """The positions of each line in sorted order (int64)."""

    def body(ins: Any, outs: Any) -> Any:
        extent = cast("int64", x.shape[axis])
        return _lines(x.shape, axis, lambda at: _merge_line(ins[0], outs[0], outs[1], extent, at, largest))

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

    comes_first = tir.logical_not(_before(*run(right), *run(left), largest))
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
    data: Any, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The k greatest (or, ascending, least) of each line, sorted; equal elements by index. A k of -1 means all."""
    a = normalize_axis("topk", axis, data.ndim)
    count = as_int(k)
    k = cast("int64", data.shape[a]) if count == -1 else int64(count) if count is not None else k
    shape = tuple(k if i == a else d for i, d in enumerate(data.shape))
    if count is not None and 0 <= count <= _FEW:
        values, order = _insertion(data, k, a, not is_ascend)
    else:
        order = _order(data, a, not is_ascend)
        values = _along(data, order, a, shape)
    if ret_type == "values":
        return te.compute(shape, lambda *i: values(*i), name="values") if values.op is order.op else values
    indices = te.compute(shape, lambda *i: cast(dtype, order(*i)), name="indices")
    return indices if ret_type == "indices" else (values, indices)


def sort(data: Any, axis: int = -1, is_ascend: bool = True) -> Any:
    """Sort each line; equal elements stay in order."""
    a = normalize_axis("sort", axis, data.ndim)
    return _along(data, _order(data, a, not is_ascend), a, data.shape)


def argsort(data: Any, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Any:
    """The positions that sort each line."""
    a = normalize_axis("argsort", axis, data.ndim)
    order = _order(data, a, not is_ascend)
    return te.compute(data.shape, lambda *i: cast(dtype, order(*i)), name="indices")
