"""Scattering by index: copies with some elements replaced or combined."""

from collections.abc import Callable
from typing import Any

from weft import error, ir, te, tir
from weft.te import Tensor
from weft.topi.broadcast import broadcast_index, broadcast_shape
from weft.topi.index import from_end, whole
from weft.topi.shape import normalize_axis
from weft.topi.typing import Buffers, Shape, Tensors

_REDUCTIONS = {
    "update": lambda old, new: new,
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": tir.max,
    "min": tir.min,
}


def _combine(reduction: str, old: Any, new: Any) -> Any:
    if reduction not in _REDUCTIONS:
        raise error.InvalidArgument(f"scatter: unknown reduction '{reduction}'", expected=", ".join(_REDUCTIONS))
    if old.dtype == "bool" and reduction in ("add", "max"):
        return tir.logical_or(old, new)
    if old.dtype == "bool" and reduction in ("mul", "min"):
        return tir.logical_and(old, new)
    return _REDUCTIONS[reduction](old, new)


def _loops(shape: Any, body: Any, name: str) -> Any:
    """Loop nest over a shape around ``body(*indices)``: a statement, and what has to hold for it, or None.

    The test stands as far outside as its variables allow, so that rows need one and are vectors.
    """
    loop_vars = [tir.Var(f"{name}{d}", "int64") for d in range(len(shape))]
    stmt, test = body(*loop_vars)
    tested = set() if test is None else set(ir.walk(test))
    for v, d in reversed(list(zip(loop_vars, shape, strict=True))):
        if test is not None and v in tested:
            stmt, test = tir.IfThenElse(test, stmt), None
        stmt = tir.For(v, ir.int64(0), ir.cast("int64", d), tir.ForKind.SERIAL, stmt)
    return stmt if test is None else tir.IfThenElse(test, stmt)


def _copy(src: Any, dst: Any, shape: Any) -> Any:
    return _loops(shape, lambda *i: (tir.BufferStore(dst, tir.BufferLoad(src, i), i), None), "c")


def scatter_at(
    data: te.Tensor, sources: list[te.Tensor], shape: Shape, place: Callable[..., Any], reduction: str, name: str
) -> Any:
    """Copy `data`, then go over the updates in order.

    ``place(ins, i)`` gives the indices of update `i`, whether they lie inside, and the new value.
    """
    if reduction == "mean":
        return _scatter_mean(data, sources, shape, place, name)

    def body(ins: Buffers, outs: Buffers) -> Any:
        def update(*i: Any) -> Any:
            at, inside, value = place(ins, i)
            new = _combine(reduction, tir.BufferLoad(outs[0], at), value)
            return tir.BufferStore(outs[0], new, at), inside

        return tir.seq(_copy(ins[0], outs[0], data.shape), _loops(shape, update, "u"))

    return te.extern(data.shape, [data, *sources], body, name=name, dtype=data.dtype)


def _scatter_mean(data: Any, sources: list[Any], shape: Any, place: Any, name: str) -> Any:
    """The mean of an element and of all its updates."""

    def body(ins: Buffers, outs: Buffers) -> Any:
        def update(*i: Any) -> Any:
            at, inside, value = place(ins, i)
            total = tir.BufferStore(outs[0], tir.BufferLoad(outs[0], at) + value, at)
            count = tir.BufferStore(outs[1], tir.BufferLoad(outs[1], at) + ir.int64(1), at)
            return tir.seq(total, count), inside

        ones = _loops(data.shape, lambda *i: (tir.BufferStore(outs[1], ir.int64(1), i), None), "n")
        return tir.seq(_copy(ins[0], outs[0], data.shape), ones, _loops(shape, update, "u"))

    total, count = te.extern([data.shape, data.shape], [data, *sources], body, name=name, dtype=[data.dtype, "int64"])
    # a narrow type may hold neither the number of updates nor one that is not negative
    wide = "float64" if (real := ir.DataType(data.dtype).is_float) else "uint64" if data.dtype == "uint64" else "int64"

    def mean(*i: ir.PrimExpr) -> Any:
        sums, updates = (ir.cast(wide, t(*i)) for t in (total, count))
        return ir.cast(data.dtype, sums / updates if real else ir.floordiv(sums, updates))

    return te.compute(data.shape, mean, name="mean")


def scatter_elements(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update") -> Any:
    """Write one element for each index along an axis.

    Indices outside are skipped, those from -size count from the end.
    """
    a = normalize_axis("scatter_elements", axis, data.ndim)

    def place(ins: Any, i: Any) -> Any:
        index = from_end(tir.BufferLoad(ins[1], i), data.shape[a])
        at = tuple(index if d == a else v for d, v in enumerate(i))
        return at, tir.all(index >= ir.int64(0), index < data.shape[a]), tir.BufferLoad(ins[2], i)

    return scatter_at(data, [indices, updates], indices.shape, place, reduction, "scatter_elements")


def scatter(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0) -> Any:
    """Write one element for each index along an axis."""
    return scatter_elements(data, indices, updates, axis)


def scatter_add(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0) -> Any:
    """Add one element for each index along an axis."""
    return scatter_elements(data, indices, updates, axis, "add")


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, reduction: str = "update") -> Any:
    """Write slices by tuples of indices; indices outside are skipped, those from -size count from the end."""
    depth, outer = ir.as_int(indices.shape[-1]), indices.ndim - 1
    if depth is None:
        raise error.InvalidArgument(
            "scatter_nd: the last dimension of the indices must be constant", found=str(indices.shape[-1])
        )

    def place(ins: Any, i: Any) -> Any:
        index = [from_end(tir.BufferLoad(ins[1], (*i[:outer], ir.int64(k))), data.shape[k]) for k in range(depth)]
        inside = tir.all(*(tir.all(v >= ir.int64(0), v < d) for v, d in zip(index, data.shape, strict=False)))
        return (*index, *i[outer:]), inside, tir.BufferLoad(ins[2], i)

    return scatter_at(data, [indices, updates], updates.shape, place, reduction, "scatter_nd")


def index_put(data: te.Tensor, indices: Tensors, values: te.Tensor, accumulate: bool = False) -> Any:
    """Write `values` where tensors of indices, which broadcast together, point."""
    shape = broadcast_shape(*(t.shape for t in indices))
    full = (*shape, *data.shape[len(indices) :])

    def place(ins: Any, i: Any) -> Any:
        outer = i[: len(shape)]
        index = [
            from_end(tir.BufferLoad(ins[1 + n], broadcast_index(t.shape, shape, outer)), data.shape[n])
            for n, t in enumerate(indices)
        ]
        inside = tir.all(*(tir.all(v >= ir.int64(0), v < d) for v, d in zip(index, data.shape, strict=False)))
        return (*index, *i[len(shape) :]), inside, tir.BufferLoad(ins[-1], broadcast_index(values.shape, full, i))

    return scatter_at(data, [*indices, values], full, place, "add" if accumulate else "update", "index_put")


def tensor_scatter(data: Tensor, updates: Tensor, starts: Tensor, axis: int = -2, circular: bool = False) -> Tensor:
    """The data with entries written along an axis from a place on that each index of the first dimension has.

    Parameters
    ----------
    data, updates : Tensor
        Alike but along the axis.
    starts : Tensor
        (data.shape[0],), integers: where the first entry goes.
    axis : int
        Any but the first.
    circular : bool
        Whether entries go on at the beginning behind the end; otherwise these are dropped.
    """
    axis = normalize_axis("tensor_scatter", axis, data.ndim)

    def element(*i: Any) -> Any:
        place, size, count = whole(starts(i[0])), data.shape[axis], updates.shape[axis]
        place = ir.floormod(i[axis] - ir.floormod(place, size), size) if circular else i[axis] - place
        inside = tir.all(place >= ir.int64(0), place < count)
        if circular and ir.as_int(count) != 1:  # of entries that go round to one place the last
            place += ir.floordiv(count - ir.int64(1) - place, size) * size
        return tir.if_then_else(inside, updates(*i[:axis], place, *i[axis + 1 :]), data(*i))

    return te.compute(data.shape, element, name="tensor_scatter")
