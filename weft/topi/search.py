"""Finding: where values would stand in sorted ones, which are distinct, and which elements hold."""

from typing import Any

from weft import te, tir
from weft.ir import cast, const, floordiv, select
from weft.topi.manipulate import view
from weft.topi.shape import product, unravel
from weft.topi.sort import argsort
from weft.topi.typing import Buffers, Extent, IRBuilder, Scalar, Shape
from weft.topi.written import written


def binary_search(
    ib: tir.ir_builder.IRBuilder,
    sequence_offset: Extent,
    search_range: Extent,
    sorted_sequence: tir.ir_builder.BufferVar,
    value: Scalar,
    right: bool,
    out_dtype: str,
) -> Any:
    """Write a binary search with an IRBuilder; the result is where `value` would be put in.

    Parameters
    ----------
    sequence_offset, search_range : PrimExpr
        The part of `sorted_sequence` to search: where it begins, and its length.
    right : bool
        Whether to stand behind equal elements.
    """
    low, high = (ib.allocate(out_dtype, (1,), name=name, scope="local") for name in ("lo", "hi"))
    low[0], high[0] = const(0, out_dtype), cast(out_dtype, search_range)
    with ib.while_loop(low[0] < high[0]):
        middle = low[0] + floordiv(high[0] - low[0], 2)
        found = sorted_sequence[sequence_offset + middle]
        with ib.if_scope(found > value if right else found >= value):  # which nothing is of what is no number
            high[0] = middle
        with ib.else_scope():
            low[0] = middle + 1
    return low[0]


def searchsorted(sorted_sequence: te.Tensor, values: te.Tensor, right: bool = False, out_dtype: str = "int64") -> Any:
    """Where values would be put into sorted sequences: one sequence, or one for each row of the values."""
    extent = sorted_sequence.shape[-1]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        sequence, given, found = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, product(values.shape), kind="parallel") as i:
            offset = floordiv(i, values.shape[-1]) * extent if sorted_sequence.ndim > 1 else 0
            found[i] = binary_search(ib, offset, extent, sequence, given[i], right, out_dtype)

    return written(values.shape, [sorted_sequence, values], body, name="searchsorted", dtype=out_dtype)


def argwhere(output_shape: Shape, condition: te.Tensor) -> Any:
    """The indices (int32) of the elements that are not zero, in row-major order.

    Parameters
    ----------
    output_shape : Tensor
        A tensor (elements that hold, rank) whose shape is the result's; rows beyond the number of elements that hold
        keep -1.
    """
    shape = output_shape.shape if isinstance(output_shape, te.Tensor) else tuple(output_shape)
    held = te.compute(condition.shape, lambda *i: cast("int32", condition(*i) != const(0, condition.dtype)), "held")
    flat = view(held, (product(held.shape),)) if held.ndim else te.compute((1,), lambda _: held(), name="held")

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, found = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        count = ib.allocate("int32", (1,), name="count", scope="local")
        count[0] = 0
        with ib.for_range(0, shape[0]) as row, ib.for_range(0, shape[1]) as d:
            found[row, d] = -1
        with ib.for_range(0, flat.shape[0]) as i, ib.if_scope(tir.all(given[i] != 0, count[0] < shape[0])):
            for d, v in enumerate(unravel(i, condition.shape)):
                found[count[0], d] = cast("int32", v)
            count[0] = count[0] + 1

    return written(shape, [flat], body, name="argwhere", dtype="int32")


def places(mask: te.Tensor) -> Any:
    """Where a vector of truth values holds: positions (n,) int64 with zeros behind them, and their number (1,)."""

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, found, number = (ib.buffer_ptr(b) for b in (*ins, *outs))
        count, size = ib.allocate("int64", (1,), name="count", scope="local"), cast("int64", mask.shape[0])
        count[0] = const(0, "int64")
        with ib.for_range(const(0, "int64"), size) as i:
            found[count[0]] = i  # without a branch: the next one takes its place where it is not wanted
            count[0] = count[0] + cast("int64", given[i])
        number[0] = count[0]
        with ib.for_range(number[0], size) as i:
            found[i] = const(0, "int64")

    return written([mask.shape, (1,)], [mask], body, name="places", dtype=["int64", "int64"])


def unique(data: te.Tensor, is_sorted: bool = True, return_counts: bool = False) -> Any:
    """The distinct elements of a vector.

    Parameters
    ----------
    is_sorted : bool
        Whether the elements are sorted; otherwise they stand in the order in which they first occur.

    Returns
    -------
    list of Tensor
        The distinct elements, where each first occurs (int32), for each element of `data` its place among them (int32),
        their number (1, int32) and, where asked, how often each occurs (int32). All but the number are as long as
        `data`; what lies behind the distinct elements is 0, in the places of first occurrence the length of `data`.
    """
    values, first, places, number, counts = _distinct(data, argsort(data, dtype="int32"))
    if not is_sorted:
        order = argsort(first, dtype="int32")
        rank = argsort(order, dtype="int32")
        inverse = places
        values, first, counts = (
            te.compute(data.shape, lambda i, t=t: t(order(i)), name="in_order") for t in (values, first, counts)
        )
        places = te.compute(data.shape, lambda i: rank(inverse(i)), name="places")
    found = [values, first, places, number]
    return [*found, counts] if return_counts else found


def _distinct(data: Any, order: Any) -> Any:
    """Go over the elements in sorted order; each that differs from the one before opens a run."""
    extent = data.shape[0]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, sequence, values, first, places, number, counts = (ib.buffer_ptr(b) for b in (*ins, *outs))
        number[0] = 0
        with ib.for_range(0, extent) as i:
            values[i], counts[i] = const(0, data.dtype), 0
            first[i] = cast("int32", extent)
        with ib.for_range(0, extent) as i:
            at, before = sequence[i], sequence[select(i > 0, i - 1, i)]
            with ib.if_scope(tir.any(i.equal(0), given[at] != given[before])):
                values[number[0]] = given[at]
                first[number[0]] = at
                number[0] = number[0] + 1
            places[at] = number[0] - 1
            counts[number[0] - 1] = counts[number[0] - 1] + 1

    shapes = [data.shape, data.shape, data.shape, (1,), data.shape]
    dtypes = [data.dtype, "int32", "int32", "int32", "int32"]
    return written(shapes, [data, order], body, name="unique", dtype=dtypes)
