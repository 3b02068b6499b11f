"""Sparse tensors as lists of coordinates and values."""

from typing import Any

from weft import error, te, tir
from weft.ir import PrimExpr, as_expr, as_int, cast, const, floordiv, floormod
from weft.topi.index import whole
from weft.topi.scatter import scatter_at
from weft.topi.typing import Buffers, IRBuilder, Scalar, Shape
from weft.topi.written import written


def sparse_to_dense(
    sparse_indices: te.Tensor, output_shape: Shape, sparse_values: te.Tensor, default_value: Scalar = 0
) -> Any:
    """Put values at their places into a tensor of `default_value`.

    Parameters
    ----------
    sparse_indices : Tensor
        (): one place of a vector; (n,): n places of a vector; (n, rank): n places.
    sparse_values : Tensor
        (n,), or () for one value at all places.
    """
    dtype, rank, many = sparse_values.dtype, len(output_shape), sparse_indices.ndim
    if rank != (as_int(sparse_indices.shape[-1]) if many == 2 else 1):
        raise error.ShapeMismatch("sparse_to_dense: the places have another rank than the output", expected=str(rank))

    def fill(*_: Any) -> Any:
        if isinstance(default_value, te.Tensor):
            return cast(dtype, default_value(*[0] * default_value.ndim))
        return (
            cast(dtype, as_expr(default_value))
            if not isinstance(default_value, (int, float))
            else const(default_value, dtype)
        )

    def place(ins: Any, i: Any) -> Any:
        at = [(*i[:1], d) if many == 2 else i if many else () for d in range(rank)]
        index = tuple(whole(tir.BufferLoad(ins[1], tuple(as_expr(v) for v in a))) for a in at)
        inside = tir.all(*(tir.all(v >= 0, v < d) for v, d in zip(index, dense.shape, strict=True)))
        return index, inside, tir.BufferLoad(ins[2], i if sparse_values.ndim else ())

    dense = te.compute(tuple(output_shape), fill, name="default")
    return scatter_at(
        dense, [sparse_indices, sparse_values], sparse_indices.shape[:1], place, "update", "sparse_to_dense"
    )


def sparse_reshape(
    sparse_indices: te.Tensor,
    prev_shape: te.Tensor,
    new_shape: te.Tensor,
    new_sparse_indices_shape: Shape,
    new_shape_shape: Shape,
) -> Any:
    """The coordinates of the same elements, in row-major order, under another shape, of which one extent may be -1.

    Returns
    -------
    list of Tensor
        The coordinates (n, new rank), and the shape with the extent that -1 stood for.
    """
    count, old_rank = sparse_indices.shape
    rank = new_shape.shape[0]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, before, wanted, found, shape = (ib.buffer_ptr(b) for b in (*ins, *outs))
        _resolve_shape(ib, before, wanted, shape, old_rank, rank)
        with ib.for_range(0, count, kind="parallel") as i:
            flat = ib.allocate("int64", (1,), name="flat", scope="local")
            flat[0] = const(0, "int64")
            with ib.for_range(0, old_rank) as j:
                flat[0] = flat[0] * cast("int64", before[j]) + cast("int64", given[i, j])
            with ib.for_range(0, rank) as j:
                extent = cast("int64", shape[rank - 1 - j])
                found[i, rank - 1 - j] = cast(found.dtype, floormod(flat[0], extent))
                flat[0] = floordiv(flat[0], extent)

    shapes = [tuple(new_sparse_indices_shape), tuple(new_shape_shape)]
    dtypes = [sparse_indices.dtype, prev_shape.dtype]
    return written(shapes, [sparse_indices, prev_shape, new_shape], body, name="sparse_reshape", dtype=dtypes)


def _resolve_shape(ib: IRBuilder, before: Any, wanted: Any, shape: Any, old_rank: Any, rank: Any) -> None:
    """Write the new shape, in which -1 becomes what is left of the elements."""
    total, known = (ib.allocate("int64", (1,), name=name, scope="local") for name in ("total", "known"))
    total[0], known[0] = const(1, "int64"), const(1, "int64")
    with ib.for_range(0, old_rank) as i:
        total[0] = total[0] * cast("int64", before[i])
    with ib.for_range(0, rank) as i, ib.if_scope(wanted[i] != const(-1, wanted.dtype)):
        known[0] = known[0] * cast("int64", wanted[i])
    with ib.for_range(0, rank) as i:
        with ib.if_scope(wanted[i].equal(const(-1, wanted.dtype))):
            shape[i] = cast(shape.dtype, floordiv(total[0], tir.max(known[0], const(1, "int64"))))
        with ib.else_scope():
            shape[i] = cast(shape.dtype, wanted[i])


def sparse_fill_empty_rows(
    sparse_indices: te.Tensor,
    sparse_values: te.Tensor,
    dense_shape: te.Tensor,
    default_value: te.Tensor,
    new_sparse_indices_shape: Shape,
    new_sparse_values_shape: Shape,
    empty_row_indicator_shape: Shape,
) -> Any:
    """Give each row that has no element one: `default_value` in its first column.

    Parameters
    ----------
    sparse_indices : Tensor
        (n, rank), sorted by row.
    default_value : Tensor
        (1,).

    Returns
    -------
    list of Tensor
        The coordinates and values of all elements, and 1 for each row that had none, all int64.
    """
    count, rank = sparse_indices.shape
    rows = as_expr(empty_row_indicator_shape[0])

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        places, values, _, default, found, numbers, empty = (ib.buffer_ptr(b) for b in (*ins, *outs))
        read, written = (ib.allocate("int64", (1,), name=name, scope="local") for name in ("read", "written"))
        more, zero = ib.allocate("bool", (1,), name="more", scope="local"), const(0, "int64")
        read[0], written[0] = zero, zero

        def look(row: PrimExpr) -> None:
            here = tir.if_then_else(read[0] < count, places[read[0], 0].equal(row), const(False, "bool"))
            more[0] = here

        with ib.for_range(0, rows, dtype="int64") as row:
            look(row)
            empty[row] = tir.if_then_else(more[0], zero, const(1, "int64"))
            with ib.if_scope(tir.logical_not(more[0])):
                found[written[0], 0] = row
                with ib.for_range(1, rank) as k:
                    found[written[0], k] = zero
                numbers[written[0]] = cast("int64", default[0])
                written[0] = written[0] + 1
            with ib.while_loop(more[0]):
                with ib.for_range(0, rank) as k:
                    found[written[0], k] = cast("int64", places[read[0], k])
                numbers[written[0]] = cast("int64", values[read[0]])
                read[0], written[0] = read[0] + 1, written[0] + 1
                look(row)

    shapes = [tuple(new_sparse_indices_shape), tuple(new_sparse_values_shape), tuple(empty_row_indicator_shape)]
    inputs = [sparse_indices, sparse_values, dense_shape, default_value]
    return written(shapes, inputs, body, name="sparse_fill_empty_rows", dtype=["int64"] * 3)
