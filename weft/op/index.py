"""Gathering and scattering by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ir import Expr, TensorType, as_int
from weft.op.infer import normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.index import gather_elements, gather_nd, scatter_elements, scatter_nd, take

__all__: list[str] = []


def _index_type(op: str, indices: Expr) -> TensorType:
    ty = tensor_arg(op, "indices", indices)
    if ty.dtype and not ty.dtype.startswith(("int", "uint")):
        raise DTypeMismatch(
            f"{op}: indices must be integers", expected="int32 or int64", found=ty.dtype, where=indices.span
        )
    return ty


def _take_infer(x: Expr, indices: Expr, axis: Any = None, mode: str = "fast") -> TensorType:
    ty, it = tensor_arg("take", "x", x), _index_type("take", indices)
    if axis is None and ty.ndim != 1:
        raise InvalidArgument("take: 'axis' must be given for a tensor of several dimensions", where=x.span)
    if ty.shape is None or it.shape is None:
        return TensorType(None, ty.dtype, ty.ndim - 1 + it.ndim if ty.ndim >= 0 and it.ndim >= 0 else -1)
    a = normalize_axis("take", axis or 0, ty.ndim)
    dims = (*ty.shape[:a], *it.shape, *ty.shape[a + 1 :])
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "take", "x indices", {"axis": None, "mode": "fast"}, infer=_take_infer, lower=take,
    reference=lambda x, indices, axis, mode: np.take(x, np.clip(indices, 0, max(x.shape[axis or 0] - 1, 0)), axis), fusion=Fusion.OPAQUE,
    doc="Elements along an axis by index; indices outside are clamped.",
)  # fmt: skip


def _gather_elements_infer(data: Expr, indices: Expr, axis: int = 0) -> TensorType:
    ty, it = tensor_arg("gather_elements", "data", data), _index_type("gather_elements", indices)
    if ty.ndim >= 0 and it.ndim >= 0 and ty.ndim != it.ndim:
        raise ShapeMismatch("gather_elements: ranks differ", expected=str(ty.ndim), found=str(it.ndim), where=data.span)
    return TensorType(it.shape, ty.dtype, it.ndim)


def _gather_elements_ref(data: Any, indices: Any, axis: int) -> Any:
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = np.clip(indices, 0, max(data.shape[axis] - 1, 0))
    return data[tuple(grid)]


declare(
    "gather_elements", "data indices", {"axis": 0}, infer=_gather_elements_infer, lower=gather_elements, reference=_gather_elements_ref,
    fusion=Fusion.OPAQUE, doc="One element for each index along an axis.",
)  # fmt: skip


def _gather_nd_infer(data: Expr, indices: Expr, batch_dims: int = 0) -> TensorType:
    ty, it = tensor_arg("gather_nd", "data", data), _index_type("gather_nd", indices)
    if ty.shape is None or it.shape is None or as_int(it.shape[-1]) is None:
        return TensorType(None, ty.dtype, -1)
    depth = as_int(it.shape[-1])
    dims = (*it.shape[:-1], *ty.shape[batch_dims + depth :])  # type: ignore[operator]
    return TensorType(dims, ty.dtype, len(dims))


def _gather_nd_ref(data: Any, indices: Any, batch_dims: int) -> Any:
    depth = indices.shape[-1]
    limits = np.array(data.shape[batch_dims : batch_dims + depth])
    safe = np.clip(indices, 0, np.maximum(limits - 1, 0))
    out = np.empty((*indices.shape[:-1], *data.shape[batch_dims + depth :]), data.dtype)
    for i in np.ndindex(*indices.shape[:-1]):
        out[i] = data[(*i[:batch_dims], *safe[i])]
    return out


declare(
    "gather_nd", "data indices", {"batch_dims": 0}, infer=_gather_nd_infer, lower=gather_nd, reference=_gather_nd_ref, fusion=Fusion.OPAQUE,
    doc="Slices by tuples of indices.",
)  # fmt: skip


# --- scatter -----------------------------------------------------------------------------------------------------------

_NUMPY = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_elements_ref(data: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    out = data.copy()
    for i in np.ndindex(*indices.shape):
        at = list(i)
        at[axis] = int(indices[i])
        if 0 <= at[axis] < data.shape[axis]:
            out[tuple(at)] = _NUMPY[reduction](out[tuple(at)], updates[i]) if reduction in _NUMPY else updates[i]
    return out


def _data_type(op: str) -> Any:
    def infer(data: Expr, indices: Expr, updates: Expr, **_: Any) -> TensorType:
        ty, ut = tensor_arg(op, "data", data), tensor_arg(op, "updates", updates)
        _index_type(op, indices)
        if ty.dtype and ut.dtype and ty.dtype != ut.dtype:
            raise DTypeMismatch(
                f"{op}: 'updates' has another data type", expected=ty.dtype, found=ut.dtype, where=data.span
            )
        return ty

    return infer


declare(
    "scatter_elements", "data indices updates", {"axis": 0, "reduction": "update"}, infer=_data_type("scatter_elements"), lower=scatter_elements,
    reference=_scatter_elements_ref, fusion=Fusion.OPAQUE, doc="Write one element for each index along an axis; indices outside are skipped.",
)  # fmt: skip


def _scatter_nd_ref(data: Any, indices: Any, updates: Any, reduction: str) -> Any:
    out = data.copy()
    for i in np.ndindex(*indices.shape[:-1]):
        at = tuple(int(v) for v in indices[i])
        if all(0 <= v < d for v, d in zip(at, data.shape, strict=False)):
            out[at] = _NUMPY[reduction](out[at], updates[i]) if reduction in _NUMPY else updates[i]
    return out


declare(
    "scatter_nd", "data indices updates", {"reduction": "update"}, infer=_data_type("scatter_nd"), lower=scatter_nd, reference=_scatter_nd_ref,
    fusion=Fusion.OPAQUE, doc="Write slices by tuples of indices; indices outside are skipped.",
)  # fmt: skip
