"""Gathering and scattering by index."""

from typing import Any

import numpy as np

from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ir import DataType, Expr, PrimType, TensorType, as_int, as_shape, int64, min_, numpy_dtype
from weft.op import relations
from weft.op.attributes import axis, dtype, integer, word
from weft.op.infer import broadcast_dims, fields_of, index_arg, normalize_axis, product, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.create import prim
from weft.topi.index import gather_elements, gather_nd, index_tensor, one_hot, reverse_sequence, take


def _take_infer(x: Expr, indices: Expr, axis: int | None, mode: str) -> TensorType:
    single = getattr(indices, "value", getattr(indices.ty, "value", None)) if isinstance(indices.ty, PrimType) else None
    ty = tensor_arg("take", "x", x)
    it = index_arg("take", indices) if single is None else TensorType((), single.dtype, 0)
    if ty.ndim == 0:
        raise ShapeMismatch("take: 'x' has no dimensions", expected="at least 1", found="0", where=x.span)
    if axis is None and ty.ndim not in (-1, 1):
        raise InvalidArgument("take: 'axis' must be given for a tensor of several dimensions", where=x.span)
    if mode == "nan" and not DataType(ty.dtype or "float32").is_float:
        raise DTypeMismatch("take: mode 'nan' is of floats", expected="a float type", found=ty.dtype, where=x.span)
    if ty.shape is None or it.shape is None:
        return TensorType(None, ty.dtype, ty.ndim - 1 + it.ndim if ty.ndim >= 0 and it.ndim >= 0 else -1)
    a = normalize_axis("take", axis or 0, ty.ndim)
    if mode == "nan":
        pass  # there is a value for each index
    elif single is not None:
        _demand_some("take", ty.shape[a], (), x)
        if mode == "fast":
            limits = (-ty.shape[a], ty.shape[a] - int64(1))
            relations.demand_between("take: 'indices'", single, *limits, x.span, "IndexOutOfRange")
    elif mode == "fast":
        relations.demand_indices("take: 'indices'", indices, -ty.shape[a], ty.shape[a], x.span)
    else:
        _demand_some("take", ty.shape[a], it.shape, x)
    dims = (*ty.shape[:a], *it.shape, *ty.shape[a + 1 :])
    return TensorType(dims, ty.dtype, len(dims))


def _demand_some(op: str, extent: Any, picked: Any, where: Expr) -> None:
    """Demand that there is something to take where something is taken."""
    relations.demand_at_least(f"{op}: elements to take from", extent, min_(product(picked), int64(1)), where.span)


def _take_ref(x: Any, indices: Any, axis: Any, mode: str) -> Any:
    size = np.size(x) if axis is None else np.shape(x)[axis]
    if mode == "wrap":  # NumPy's own counts one length of the axis at a time, for ever where that is 0
        mode, indices = "clip", indices % max(size, 1)
    if mode == "nan":  # which lies behind the last element
        x, indices = np.insert(x, size, np.nan, axis or 0), np.where((indices >= 0) & (indices < size), indices, size)
        mode = "clip"
    modes: Any = {"fast": "raise"}
    return np.take(x, indices, axis, mode=modes.get(mode, mode))


declare(
    "take",
    "x indices",
    {"axis": axis(None), "mode": word("fast", "fast", "clip", "wrap", "nan")},
    infer=_take_infer,
    lower=take,
    reference=_take_ref,
    fusion=Fusion.INJECTIVE,
    doc="Elements along an axis by index; negative indices count from the end. Indices outside are refused; with mode "
    "``clip`` all are clamped, with ``wrap`` counted round the axis; with ``nan`` they are NaN, negative ones, too.",
)


def element_indices(op: str, data: Expr, indices: Expr, axis: int) -> TensorType:
    """Return the type of indices of single elements along an axis, which have the data's rank and lie inside of it."""
    ty, it = tensor_arg(op, "data", data), index_arg(op, indices)
    if ty.ndim >= 0 and it.ndim >= 0 and ty.ndim != it.ndim:
        raise ShapeMismatch(f"{op}: ranks differ", expected=str(ty.ndim), found=str(it.ndim), where=data.span)
    if ty.shape is not None and it.shape is not None:
        a = normalize_axis(op, axis, ty.ndim)
        for i, (d, e) in enumerate(zip(it.shape, ty.shape, strict=True)):
            if i != a:
                relations.demand_at_most(f"{op}: dimension {i} of 'indices'", d, e, data.span)
        relations.demand_indices(f"{op}: 'indices'", indices, -ty.shape[a], ty.shape[a], data.span)
    return it


def _gather_elements_infer(data: Expr, indices: Expr, axis: int) -> TensorType:
    it = element_indices("gather_elements", data, indices, axis)
    return TensorType(it.shape, tensor_arg("gather_elements", "data", data).dtype, it.ndim)


def _gather_elements_ref(data: Any, indices: Any, axis: int) -> Any:
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    return data[tuple(grid)]


declare(
    "gather_elements",
    "data indices",
    {"axis": axis(0)},
    infer=_gather_elements_infer,
    lower=gather_elements,
    reference=_gather_elements_ref,
    fusion=Fusion.INJECTIVE,
    doc="One element for each index along an axis; negative indices count from the end.",
)


def _gather_nd_infer(data: Expr, indices: Expr, batch_dims: int) -> TensorType:
    ty, it = tensor_arg("gather_nd", "data", data), index_arg("gather_nd", indices)
    if ty.shape is None or it.shape is None or as_int(it.shape[-1]) is None:
        return TensorType(None, ty.dtype, -1)
    depth = as_int(it.shape[-1])
    assert depth is not None
    if batch_dims + depth > ty.ndim or batch_dims >= it.ndim:
        raise ShapeMismatch(
            "gather_nd: the index tuples are longer than the data has dimensions",
            expected=f"at most {ty.ndim - batch_dims}",
            found=str(depth),
            where=data.span,
        )
    relations.demand_same_shape(
        "gather_nd: batch of 'indices'", it.shape[:batch_dims], ty.shape[:batch_dims], data.span
    )
    ranges = [(-d, d) for d in ty.shape[batch_dims : batch_dims + depth]]
    relations.demand_index_tuples("gather_nd: 'indices'", indices, ranges, data.span)
    dims = (*it.shape[:-1], *ty.shape[batch_dims + depth :])
    return TensorType(dims, ty.dtype, len(dims))


def _gather_nd_ref(data: Any, indices: Any, batch_dims: int) -> Any:
    depth = indices.shape[-1]
    out = np.empty((*indices.shape[:-1], *data.shape[batch_dims + depth :]), data.dtype)
    for i in np.ndindex(*indices.shape[:-1]):
        out[i] = data[(*i[:batch_dims], *indices[i])]
    return out


declare(
    "gather_nd",
    "data indices",
    {"batch_dims": integer(0, at_least=0)},
    infer=_gather_nd_infer,
    lower=gather_nd,
    reference=_gather_nd_ref,
    fusion=Fusion.INJECTIVE,
    doc="Slices by tuples of indices; negative indices count from the end.",
)


def _index_tensor_infer(data: Expr, indices: Expr) -> TensorType:
    ty = tensor_arg("index_tensor", "data", data)
    types = [index_arg("index_tensor", f) for f in fields_of("index_tensor", "indices", indices)]
    if ty.ndim >= 0 and len(types) > ty.ndim:
        raise ShapeMismatch(
            "index_tensor: more indices than dimensions",
            expected=f"at most {ty.ndim}",
            found=str(len(types)),
            where=data.span,
        )
    if ty.shape is None or any(t.shape is None for t in types):
        return TensorType(None, ty.dtype, -1)
    dims = (*broadcast_dims("index_tensor", *(t.shape for t in types)), *ty.shape[len(types) :])  # type: ignore[misc]
    for i, f in enumerate(fields_of("index_tensor", "indices", indices)):
        relations.demand_indices(f"index_tensor: index tensor {i}", f, -ty.shape[i], ty.shape[i], data.span)
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "index_tensor",
    "data indices:tensors",
    infer=_index_tensor_infer,
    lower=index_tensor,
    reference=lambda data, indices: data[tuple(indices)],
    fusion=Fusion.INJECTIVE,
    doc="Elements by tensors of indices that broadcast together, as NumPy's advanced indexing.",
)


def _one_hot_infer(indices: Expr, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str) -> TensorType:
    ty = index_arg("one_hot", indices)
    if ty.ndim < 0 or ty.shape is None:
        return TensorType(None, DataType(dtype), ty.ndim + 1 if ty.ndim >= 0 else -1)
    a = normalize_axis("one_hot", axis, ty.ndim + 1)
    relations.demand_at_least("one_hot: depth", as_shape((depth,))[0], 0, indices.span)
    return TensorType((*ty.shape[:a], as_shape((depth,))[0], *ty.shape[a:]), DataType(dtype), ty.ndim + 1)


def _one_hot_ref(indices: Any, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str) -> Any:
    hot = np.expand_dims(indices, axis) == np.arange(int(depth)).reshape(
        [-1 if i == axis % (indices.ndim + 1) else 1 for i in range(indices.ndim + 1)]
    )
    return np.where(hot, on_value, off_value).astype(numpy_dtype(dtype))


declare(
    "one_hot",
    "indices on_value:prim off_value:prim",
    {"depth": integer(1, symbolic=True), "axis": integer(-1), "dtype": dtype("float32")},
    infer=_one_hot_infer,
    lower=lambda indices, on_value, off_value, depth, axis, dtype: one_hot(
        indices, prim(on_value), prim(off_value), depth, axis, dtype
    ),
    reference=_one_hot_ref,
    fusion=Fusion.INJECTIVE,
    doc="A new axis of `depth` with `on_value` at each index and `off_value` elsewhere.",
)


def _reverse_sequence_infer(data: Expr, seq_lengths: Expr, seq_axis: int, batch_axis: int) -> TensorType:
    ty = tensor_arg("reverse_sequence", "data", data)
    lengths = tensor_arg("reverse_sequence", "seq_lengths", seq_lengths, ndim=1)
    if lengths.dtype and not DataType(lengths.dtype).is_integer:
        raise DTypeMismatch(
            "reverse_sequence: 'seq_lengths' must be integers", found=lengths.dtype, where=seq_lengths.span
        )
    if ty.shape is not None and lengths.shape is not None:
        s, b = (normalize_axis("reverse_sequence", a, ty.ndim) for a in (seq_axis, batch_axis))
        relations.demand_equal("reverse_sequence: length of 'seq_lengths'", lengths.shape[0], ty.shape[b], data.span)
        relations.demand_indices("reverse_sequence: 'seq_lengths'", seq_lengths, 0, ty.shape[s] + 1, data.span)
    return ty


def _reverse_sequence_ref(data: Any, seq_lengths: Any, seq_axis: int, batch_axis: int) -> Any:
    y = np.moveaxis(data.copy(), (batch_axis, seq_axis), (0, 1))
    for b, n in enumerate(seq_lengths):
        y[b, : int(n)] = y[b, : int(n)][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(y, (0, 1), (batch_axis, seq_axis)))


declare(
    "reverse_sequence",
    "data seq_lengths",
    {"seq_axis": axis(1), "batch_axis": axis(0)},
    infer=_reverse_sequence_infer,
    lower=reverse_sequence,
    reference=_reverse_sequence_ref,
    doc="Reverse the beginning of each sequence, up to its length.",
)
