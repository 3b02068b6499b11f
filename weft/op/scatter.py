"""Scattering: tensors with some elements replaced or combined."""

from math import prod
from typing import Any

import numpy as np

from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ir import Expr, TensorType, as_int, int64, shape_expr
from weft.op import relations
from weft.op.attributes import axis, flag, word
from weft.op.index import element_indices
from weft.op.infer import broadcast_dims, dims_of, fields_of, index_arg, normalize_axis, simplify, tensor_arg
from weft.op.registry import Fusion, declare, make_call
from weft.topi.create import prim
from weft.topi.reorder import slice_scatter
from weft.topi.scatter import index_put, scatter_elements, scatter_nd, tensor_scatter
from weft.topi.slice import slice_plan

_REDUCTION = word("update", "update", "none", "add", "mul", "mean", "max", "min")
_LONG_ROW = 16
"""Elements of a row from which on it may be written as it is."""
_NUMPY = {"add": np.add, "mean": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _written(op: str, data: Expr, updates: Expr) -> TensorType:
    ty, ut = tensor_arg(op, "data", data), tensor_arg(op, "updates", updates)
    if ty.dtype and ut.dtype and ty.dtype != ut.dtype:
        raise DTypeMismatch(
            f"{op}: 'updates' has another data type", expected=ty.dtype, found=ut.dtype, where=data.span
        )
    return ty


def _scatter_elements_infer(data: Expr, indices: Expr, updates: Expr, axis: int) -> TensorType:
    ty, it = _written("scatter_elements", data, updates), element_indices("scatter_elements", data, indices, axis)
    relations.demand_same_shape("scatter_elements: 'updates'", dims_of(updates), it.shape, data.span)
    return ty


def _scatter_nd_infer(data: Expr, indices: Expr, updates: Expr) -> TensorType:
    it, ty = index_arg("scatter_nd", indices), _written("scatter_nd", data, updates)
    depth = as_int(it.shape[-1]) if it.shape else None
    if it.ndim == 0 or (depth is not None and 0 <= ty.ndim < depth):
        raise ShapeMismatch(
            "scatter_nd: the index tuples do not fit the data",
            expected=f"(..., at most {ty.ndim})",
            found=str(it),
            where=data.span,
        )
    if depth is not None and it.shape is not None and ty.shape is not None:
        picked = (*it.shape[:-1], *ty.shape[depth:])
        relations.demand_same_shape("scatter_nd: 'updates'", dims_of(updates), picked, data.span)
        relations.demand_index_tuples("scatter_nd: 'indices'", indices, [(-d, d) for d in ty.shape[:depth]], data.span)
    return ty


def _scatter_nd_decompose(data: Expr, indices: Expr, updates: Expr, reduction: str) -> Expr | None:
    """Write slices whose rows are short as if they had one dimension, which is copied in whole vectors."""
    shape, at, written = (dims_of(e) for e in (data, indices, updates))
    depth = as_int(at[-1]) if at else None
    if depth is None or shape is None or written is None or len(shape) < depth + 2:
        return None
    if (as_int(shape[-1]) or _LONG_ROW) >= _LONG_ROW:
        return None
    tail, reshape = (simplify(prod(shape[depth:], start=int64(1))),), make_call("reshape")
    flat = reshape(data, shape_expr((*shape[:depth], *tail)))
    slices = reshape(updates, shape_expr((*written[: len(written) - len(shape) + depth], *tail)))
    return reshape(make_call("scatter_nd")(flat, indices, slices, reduction=reduction), shape_expr(shape))


def _apply(data: Any, writes: Any, reduction: str) -> Any:
    """Write (place, value) pairs one after another; an index outside is an IndexError."""
    out, count = data.copy(), np.ones(data.shape, np.int64)
    for at, value in writes:
        out[at] = _NUMPY[reduction](out[at], value) if reduction in _NUMPY else value
        count[at] += 1
    if reduction != "mean":
        return out
    count = count.astype(np.uint64) if out.dtype == np.uint64 else count  # NumPy divides these two kinds as floats
    return (out / count if out.dtype.kind == "f" else out // count).astype(out.dtype)


def _scatter_elements_ref(data: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    axis %= max(data.ndim, 1)
    return _apply(
        data, (((*i[:axis], indices[i], *i[axis + 1 :]), updates[i]) for i in np.ndindex(*indices.shape)), reduction
    )


declare(
    "scatter_elements",
    "data indices updates",
    {"axis": axis(0), "reduction": _REDUCTION},
    infer=_scatter_elements_infer,
    lower=scatter_elements,
    reference=_scatter_elements_ref,
    doc="Write one element for each index along an axis; negative indices count from the end.",
)

declare(
    "scatter_nd",
    "data indices updates",
    {"reduction": _REDUCTION},
    infer=_scatter_nd_infer,
    lower=scatter_nd,
    decompose=_scatter_nd_decompose,
    reference=lambda data, indices, updates, reduction: _apply(
        data, ((tuple(indices[i]), updates[i]) for i in np.ndindex(*indices.shape[:-1])), reduction
    ),
    doc="Write slices by tuples of indices; negative indices count from the end.",
)


def _index_put_infer(data: Expr, indices: Expr, values: Expr) -> TensorType:
    fields = fields_of("index_put", "indices", indices)
    types = [index_arg("index_put", f) for f in fields]
    ty = _written("index_put", data, values)
    if 0 <= ty.ndim < len(types):
        raise ShapeMismatch(
            "index_put: more indices than dimensions",
            expected=f"at most {ty.ndim}",
            found=str(len(types)),
            where=data.span,
        )
    if ty.shape is None or any(t.shape is None for t in types):
        return ty
    full = (*broadcast_dims("index_put", *(t.shape for t in types)), *ty.shape[len(types) :])  # type: ignore[misc]
    dims = dims_of(values) or ()
    if len(dims) > len(full):
        raise ShapeMismatch(
            "index_put: 'values' has too many dimensions",
            expected=f"at most {len(full)}",
            found=str(len(dims)),
            where=data.span,
        )
    for i, (d, e) in enumerate(zip(reversed(dims), reversed(full), strict=False)):
        relations.demand_broadcast_to(f"index_put: dimension {-1 - i} of 'values'", d, e, data.span)
    for i, f in enumerate(fields):
        relations.demand_indices(f"index_put: index tensor {i}", f, -ty.shape[i], ty.shape[i], data.span)
    return ty


def _index_put_ref(data: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    grid = np.broadcast_arrays(*indices)
    values = np.broadcast_to(values, (*grid[0].shape, *data.shape[len(grid) :]))
    writes = ((tuple(g[i] for g in grid), values[i]) for i in np.ndindex(*grid[0].shape))
    return _apply(data, writes, "add" if accumulate else "update")


declare(
    "index_put",
    "data indices:tensors values",
    {"accumulate": flag(False)},
    infer=_index_put_infer,
    lower=index_put,
    reference=_index_put_ref,
    doc="Write where tensors of indices, which broadcast together, point; with `accumulate` add.",
)


def _tensor_scatter_infer(data: Expr, updates: Expr, starts: Expr, axis: int) -> TensorType:
    ty, st = _written("tensor_scatter", data, updates), index_arg("tensor_scatter", starts)
    if ty.ndim >= 0:
        along = normalize_axis("tensor_scatter", axis, ty.ndim)
        new = dims_of(updates)
        if ty.shape is not None and new is not None:
            expected = tuple(n if i == along else d for i, (d, n) in enumerate(zip(ty.shape, new, strict=False)))
            relations.demand_same_shape("tensor_scatter: 'updates'", new, (*expected, *ty.shape[len(new) :]), data.span)
            relations.demand_same_shape("tensor_scatter: 'starts'", st.shape, ty.shape[:1], data.span)
    return ty


def _tensor_scatter_ref(data: Any, updates: Any, starts: Any, axis: int, circular: bool) -> Any:
    out, size = np.moveaxis(data.copy(), axis, 1), data.shape[axis]
    for b, rows in enumerate(np.moveaxis(updates, axis, 1)):
        for k, row in enumerate(rows):
            place = int(starts[b]) + k
            place = place % size if circular and size else place
            if 0 <= place < size:
                out[b, place] = row
    return np.moveaxis(out, 1, axis)


declare(
    "tensor_scatter",
    "data updates starts",
    {"axis": axis(-2), "circular": flag(False)},
    infer=_tensor_scatter_infer,
    lower=tensor_scatter,
    reference=_tensor_scatter_ref,
    fusion=Fusion.INJECTIVE,
    doc="Write entries along an axis, from a place on that each index of the first dimension has; what lies behind the "
    "end goes round or is dropped.",
)


def _slice_scatter_infer(input_tensor: Expr, src: Expr, start: Any, end: Any, step: Any, axis: int) -> TensorType:
    ty, part = _written("slice_scatter", input_tensor, src), tensor_arg("slice_scatter", "src", src)
    by = as_int(prim(step))
    if by is None or by < 1:
        raise InvalidArgument("slice_scatter: the step", expected="a positive number", found=str(prim(step)))
    if ty.shape is not None:
        along = normalize_axis("slice_scatter", axis, ty.ndim)
        (_, length, _), *_ = slice_plan(ty.shape, (along,), (prim(start),), (prim(end),), (by,)).values()
        expected = tuple(length if i == along else d for i, d in enumerate(ty.shape))
        relations.demand_same_shape("slice_scatter: 'src'", part.shape, expected, input_tensor.span)
    return ty


def _slice_scatter_ref(input_tensor: Any, src: Any, start: Any, end: Any, step: Any, axis: int) -> Any:
    out = input_tensor.copy()
    np.moveaxis(out, axis, 0)[int(start) : int(end) : int(step)] = np.moveaxis(src, axis, 0)
    return out


declare(
    "slice_scatter",
    "input_tensor src start:prim end:prim step:prim",
    {"axis": axis(0)},
    infer=_slice_scatter_infer,
    lower=lambda input_tensor, src, start, end, step, axis: slice_scatter(input_tensor, src, start, end, step, axis)[0],
    reference=_slice_scatter_ref,
    doc="A copy of a tensor in which the slice ``start:end:step`` of an axis is another one.",
)
