"""Scattering: tensors with some elements replaced or combined."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ir import Expr, TensorType
from weft.op.infer import fields_of, index_arg, normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.scatter import index_put, scatter_elements, scatter_nd

__all__: list[str] = []

_KINDS = ("update", "none", "add", "mul", "mean", "max", "min")
_NUMPY = {"add": np.add, "mean": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _written(op: str, data: Expr, updates: Expr, reduction: str = "update") -> TensorType:
    ty, ut = tensor_arg(op, "data", data), tensor_arg(op, "updates", updates)
    if ty.dtype and ut.dtype and ty.dtype != ut.dtype:
        raise DTypeMismatch(
            f"{op}: 'updates' has another data type", expected=ty.dtype, found=ut.dtype, where=data.span
        )
    if reduction not in _KINDS:
        raise InvalidArgument(f"{op}: unknown reduction '{reduction}'", expected=", ".join(_KINDS), where=data.span)
    return ty


def _scatter_elements_infer(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> TensorType:
    ty, it = _written("scatter_elements", data, updates, reduction), index_arg("scatter_elements", indices)
    if ty.ndim >= 0:
        normalize_axis("scatter_elements", axis, ty.ndim)
        if it.ndim not in (-1, ty.ndim):
            raise ShapeMismatch(
                "scatter_elements: ranks differ", expected=str(ty.ndim), found=str(it.ndim), where=data.span
            )
    return ty


def _scatter_nd_infer(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> TensorType:
    index_arg("scatter_nd", indices)
    return _written("scatter_nd", data, updates, reduction)


def _apply(data: Any, writes: Any, reduction: str) -> Any:
    """Write (place, value) pairs one after another; places outside are skipped."""
    out, count = data.copy(), np.ones(data.shape, np.int64)
    for at, value in writes:
        at = tuple(int(v) + d if v < 0 else int(v) for v, d in zip(at, data.shape, strict=False))
        if all(0 <= v < d for v, d in zip(at, data.shape, strict=False)):
            out[at] = _NUMPY[reduction](out[at], value) if reduction in _NUMPY else value
            count[at] += 1
    return out if reduction != "mean" else (out / count if out.dtype.kind == "f" else out // count).astype(out.dtype)


def _scatter_elements_ref(data: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    axis %= max(data.ndim, 1)
    return _apply(
        data, (((*i[:axis], indices[i], *i[axis + 1 :]), updates[i]) for i in np.ndindex(*indices.shape)), reduction
    )


declare(
    "scatter_elements", "data indices updates", {"axis": 0, "reduction": "update"}, infer=_scatter_elements_infer,
    lower=scatter_elements, reference=_scatter_elements_ref, fusion=Fusion.OPAQUE,
    doc="Write one element for each index along an axis; indices outside are skipped.",
)  # fmt: skip

declare(
    "scatter_nd", "data indices updates", {"reduction": "update"}, infer=_scatter_nd_infer, lower=scatter_nd,
    reference=lambda data, indices, updates, reduction: _apply(
        data, ((indices[i], updates[i]) for i in np.ndindex(*indices.shape[:-1])), reduction
    ),
    fusion=Fusion.OPAQUE,
    doc="Write slices by tuples of indices; indices outside are skipped.",
)  # fmt: skip


def _index_put_infer(data: Expr, indices: Expr, values: Expr, accumulate: bool = False) -> TensorType:
    for f in fields_of("index_put", "indices", indices):
        index_arg("index_put", f)
    return _written("index_put", data, values)


def _index_put_ref(data: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    grid = np.broadcast_arrays(*indices)
    values = np.broadcast_to(values, (*grid[0].shape, *data.shape[len(grid) :]))
    writes = ((tuple(g[i] for g in grid), values[i]) for i in np.ndindex(*grid[0].shape))
    return _apply(data, writes, "add" if accumulate else "update")


declare(
    "index_put", "data indices:tensors values", {"accumulate": False}, infer=_index_put_infer, lower=index_put,
    reference=_index_put_ref, fusion=Fusion.OPAQUE,
    doc="Write where tensors of indices, which broadcast together, point; with `accumulate` add.",
)  # fmt: skip
