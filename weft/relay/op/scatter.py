"""Scattering: tensors with some elements replaced or combined."""

from __future__ import annotations

from typing import Any

from weft import error, ir, op
from weft.ir import PrimExpr, as_int, int64
from weft.relay.expr import as_expr
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dims, dtype_of, is_computed, numbers, rank, shape_argument, shape_of_dims
from weft.relay.typing import Dims, Value

_MODES = ("update", "add", "mul", "mean", "min", "max")


def _elements(data: ir.Expr, indices: ir.Expr, updates: ir.Expr, axis: int = 0, reduction: str = "update") -> ir.Expr:
    return shared("scatter_elements", data, indices, updates, axis=axis, reduction=reduction)


declare(
    "scatter_elements",
    "data indices updates",
    {"axis": 0, "reduction": "update"},
    expand=_elements,
    doc=f"Write one element for each index along an axis; reductions: {', '.join(_MODES)}.",
)
declare(
    "scatter",
    "data indices updates",
    {"axis": REQUIRED},
    expand=_elements,
    doc="Write one element for each index along an axis.",
)
declare(
    "scatter_add",
    "data indices updates",
    {"axis": REQUIRED},
    expand=lambda data, indices, updates, axis: _elements(data, indices, updates, axis, "add"),
    doc="Add one element for each index along an axis.",
)


def _scatter_nd(data: ir.Expr, indices: ir.Expr, updates: ir.Expr, mode: str = "update") -> ir.Expr:
    """Scatter with the coordinates in the first axis of the indices."""
    if mode not in _MODES:
        raise error.InvalidArgument(f"scatter_nd: unknown mode '{mode}'", expected=", ".join(_MODES))
    n = len(op.tensor_arg("scatter_nd", "indices", indices, min_ndim=1).shape or ())
    depth = as_int(dims(indices)[0])
    if depth is not None and depth > rank(data):
        raise error.ShapeMismatch(
            "scatter_nd: more coordinates than dimensions",
            expected=f"at most {rank(data)}",
            found=str(depth),
            where=indices.span,
        )
    if depth is not None and rank(updates) != n - 1 + rank(data) - depth:
        raise error.ShapeMismatch(
            "scatter_nd: 'updates' has the wrong rank",
            expected=str(n - 1 + rank(data) - depth),
            found=str(rank(updates)),
            where=updates.span,
        )
    last = shared("permute_dims", indices, axes=(*range(1, n), 0)) if n > 1 else indices
    return shared("scatter_nd", data, last, updates, reduction=mode)


declare(
    "scatter_nd",
    "data indices updates",
    {"mode": "update"},
    expand=_scatter_nd,
    doc="Write slices by tuples of indices, which lie along the first axis of `indices`.",
)


def _invert_permutation(data: ir.Expr) -> ir.Expr:
    op.tensor_arg("invert_permutation", "data", data, ndim=1, kind="integer")
    places = shared("arange", int64(0), dims(data)[0], int64(1), dtype=dtype_of(data))
    return _elements(shared("zeros_like", data), data, places)


declare("invert_permutation", "data", expand=_invert_permutation, doc="The permutation that undoes another.")


def _sparse_to_dense(
    sparse_indices: ir.Expr, sparse_values: ir.Expr, default_value: ir.Expr, output_shape: Any
) -> ir.Expr:
    """Write values at coordinates into a tensor of one value."""
    index = op.tensor_arg("sparse_to_dense", "sparse_indices", sparse_indices, kind="integer")
    value = op.tensor_arg("sparse_to_dense", "sparse_values", sparse_values)
    if index.ndim > 2 or value.ndim > 1:
        raise error.ShapeMismatch(
            "sparse_to_dense: indices are at most a matrix and values a vector",
            found=f"{index.ndim} and {value.ndim} dimensions",
            where=sparse_indices.span,
        )
    if index.ndim == 2 and as_int(index.shape[1]) not in (None, len(output_shape)):  # type: ignore[index]
        raise error.ShapeMismatch(
            "sparse_to_dense: an index has the wrong number of coordinates",
            expected=str(len(output_shape)),
            found=str(index.shape[1]),  # type: ignore[index]
            where=sparse_indices.span,
        )
    if index.ndim < 2 and len(output_shape) != 1:
        raise error.ShapeMismatch(
            "sparse_to_dense: a vector of indices writes into a vector",
            expected="one dimension",
            found=str(len(output_shape)),
        )
    count = index.shape[0] if index.ndim else int64(1)  # type: ignore[index]
    places = shared("reshape", sparse_indices, shape_of_dims((count, int64(len(output_shape)))))
    op.tensor_arg("sparse_to_dense", "default_value", default_value)
    data = shared("full", shape_of_dims(output_shape), default_value, dtype=value.dtype)
    return shared("scatter_nd", data, places, shared("broadcast_to", sparse_values, shape_of_dims((count,))))


declare(
    "sparse_to_dense",
    "sparse_indices sparse_values default_value",
    {"output_shape": REQUIRED},
    expand=_sparse_to_dense,
    doc="A tensor of one value, with others written at coordinates.",
)
declare(
    "dyn.sparse_to_dense",
    "sparse_indices sparse_values default_value output_shape:values",
    expand=_sparse_to_dense,
    doc="The same, of a shape that is computed.",
)


@constructs("sparse_to_dense")
def sparse_to_dense(
    sparse_indices: Value, output_shape: Dims, sparse_values: Value, default_value: Value = 0
) -> ir.Expr:
    """Write values at coordinates into a tensor of one value; its shape may be an expression."""
    dtype = getattr(getattr(sparse_values, "ty", None), "dtype", None)
    args = (sparse_indices, sparse_values, as_expr(default_value, dtype))
    if is_computed(output_shape):
        return call("dyn.sparse_to_dense", *args, shape_argument(output_shape))
    shape = numbers(output_shape)
    return call("sparse_to_dense", *args, output_shape=shape if isinstance(shape, tuple) else (shape,))


def _segment_sum(data: ir.Expr, segment_ids: ir.Expr, num_segments: Any) -> ir.Expr:
    """Add each row to the row of its number."""
    op.tensor_arg("segment_sum", "segment_ids", segment_ids, ndim=1, kind="integer")
    op.tensor_arg("segment_sum", "data", data, min_ndim=1)
    rows, length = dims(data)[0], dims(segment_ids)[0]
    if None not in (as_int(rows), as_int(length)) and as_int(rows) != as_int(length):
        raise error.ShapeMismatch(
            "segment_sum: a number for each row", expected=str(rows), found=str(length), where=segment_ids.span
        )
    count = num_segments[0] if isinstance(num_segments, tuple) else num_segments
    onto = shared("zeros", shape_of_dims((count, *dims(data)[1:])), dtype=dtype_of(data))
    places = shared("expand_dims", segment_ids, axis=(1,))
    return shared("scatter_nd", onto, places, data, reduction="add")


declare(
    "segment_sum",
    "data segment_ids",
    {"num_segments": REQUIRED},
    expand=_segment_sum,
    doc="The sum of the rows of each number.",
)
declare(
    "dyn.segment_sum",
    "data segment_ids num_segments:values",
    expand=_segment_sum,
    doc="The sum of the rows of each number, for as many as are computed.",
)


@constructs("segment_sum")
def segment_sum(data: Value, segment_ids: Value, num_segments: ir.Expr | int | None = None) -> ir.Expr:
    """Sum the rows that have the same number.

    Parameters
    ----------
    data : Expr
        The rows.
    segment_ids : Expr
        The number of each.
    num_segments : int or Expr, optional
        How many numbers there are; by default one more than the greatest.
    """
    if num_segments is None:
        greatest = call("cast", call("max", segment_ids, axis=(0,), keepdims=True), dtype="int64")
        num_segments = call("add", greatest, as_expr(1, "int64"))
    if is_computed(num_segments):
        return call("dyn.segment_sum", data, segment_ids, num_segments)
    count = numbers(num_segments)
    return call("segment_sum", data, segment_ids, num_segments=count[0] if isinstance(count, tuple) else count)


_FAR = 2**31 - 1  # beyond every axis


def _strided_set(
    data: ir.Expr, v: ir.Expr, begin: tuple[PrimExpr, ...], end: tuple[PrimExpr, ...], strides: tuple[PrimExpr, ...]
) -> ir.Expr:
    """Write where the slice's indices say: one vector of indices for each axis, which broadcast together."""
    shape = dims(data)
    longest = max(len(begin), len(end), len(strides))
    if not begin or longest > len(shape):
        raise error.ShapeMismatch(
            "strided_set: a bound for each of the leading axes",
            expected=f"1 to {len(shape)}",
            found=str(longest),
            where=data.span,
        )
    if rank(v) != len(shape):
        raise error.ShapeMismatch(
            "strided_set: 'v' has the wrong rank", expected=str(len(shape)), found=str(rank(v)), where=v.span
        )
    known = [[as_int(b) for b in bounds] for bounds in (begin, end, strides)]
    if any(b is None for bounds in known for b in bounds):
        raise error.InvalidArgument("strided_set: the bounds must be constant")
    indices = []
    for i, d in enumerate(shape):
        places: ir.Expr = shared("arange", int64(0), d, int64(1), dtype="int64")
        if i < longest:  # bounds that are left out are those of the axis
            step = known[2][i] if i < len(strides) else 1
            edges = (0, _FAR) if step > 0 else (_FAR, -_FAR)  # type: ignore[operator]
            first, last = (given[i] if i < len(given) else edge for given, edge in zip(known, edges, strict=False))
            places = shared("strided_slice", places, axes=(0,), begin=(first,), end=(last,), strides=(step,))
        count = dims(places)[0]
        if None not in (as_int(count), as_int(dims(v)[i])) and as_int(count) != as_int(dims(v)[i]):
            raise error.ShapeMismatch(
                f"strided_set: dimension {i} of 'v' is not the slice's",
                expected=str(count),
                found=str(dims(v)[i]),
                where=v.span,
            )
        column: list[PrimExpr] = [int64(1)] * len(shape)
        column[i] = count
        indices.append(shared("reshape", places, shape_of_dims(column)))
    return shared("index_put", data, tuple(indices), v)


declare(
    "strided_set",
    "data v begin:values end:values strides:values",
    expand=_strided_set,
    doc="A tensor with a slice replaced by another tensor.",
)


@constructs("strided_set")
def strided_set(data: Value, v: Value, begin: Dims, end: Dims, strides: Dims | None = None) -> ir.Expr:
    """Return a tensor with a slice replaced by another tensor; the bounds are numbers or constants."""
    bounds = [shape_argument(b) for b in (begin, end)]
    ones = [1] if isinstance(begin, ir.Expr) else [1] * len(begin)
    return call("strided_set", data, v, *bounds, shape_argument(ones if strides is None else strides))
