"""Gathering and scattering by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ir import Expr, TensorType, as_int, cast, int64
from weft.op.infer import normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare

__all__: list[str] = []


def _index_type(op: str, indices: Expr) -> TensorType:
    ty = tensor_arg(op, "indices", indices)
    if ty.dtype and not ty.dtype.startswith(("int", "uint")):
        raise DTypeMismatch(
            f"{op}: indices must be integers", expected="int32 or int64", found=ty.dtype, where=indices.span
        )
    return ty


def _clamped(index: Any, extent: Any) -> Any:
    """An index made safe: memory outside of the tensor is never read, whatever the data."""
    return tir.max(tir.min(cast("int64", index), extent - int64(1)), int64(0))


def _take_infer(x: Expr, indices: Expr, axis: Any = None, mode: str = "fast") -> TensorType:
    ty, it = tensor_arg("take", "x", x), _index_type("take", indices)
    if axis is None and ty.ndim != 1:
        raise InvalidArgument("take: 'axis' must be given for a tensor of several dimensions", where=x.span)
    if ty.shape is None or it.shape is None:
        return TensorType(None, ty.dtype, ty.ndim - 1 + it.ndim if ty.ndim >= 0 and it.ndim >= 0 else -1)
    a = normalize_axis("take", axis or 0, ty.ndim)
    dims = (*ty.shape[:a], *it.shape, *ty.shape[a + 1 :])
    return TensorType(dims, ty.dtype, len(dims))


def _take_lower(x: Any, indices: Any, axis: Any = None, mode: str = "fast") -> Any:
    a = normalize_axis("take", axis or 0, x.ndim)
    n = indices.ndim
    return te.compute(
        (*x.shape[:a], *indices.shape, *x.shape[a + 1 :]),
        lambda *i: x(*i[:a], _clamped(indices(*i[a : a + n]), x.shape[a]), *i[a + n :]),
        name="T_take",
    )


declare(
    "take", "x indices", {"axis": None, "mode": "fast"}, infer=_take_infer, lower=_take_lower,
    reference=lambda x, indices, axis, mode: np.take(x, np.clip(indices, 0, max(x.shape[axis or 0] - 1, 0)), axis), fusion=Fusion.OPAQUE,
    doc="Elements along an axis by index; indices outside are clamped.",
)  # fmt: skip


def _gather_elements_infer(data: Expr, indices: Expr, axis: int = 0) -> TensorType:
    ty, it = tensor_arg("gather_elements", "data", data), _index_type("gather_elements", indices)
    if ty.ndim >= 0 and it.ndim >= 0 and ty.ndim != it.ndim:
        raise ShapeMismatch("gather_elements: ranks differ", expected=str(ty.ndim), found=str(it.ndim), where=data.span)
    return TensorType(it.shape, ty.dtype, it.ndim)


def _gather_elements_lower(data: Any, indices: Any, axis: int = 0) -> Any:
    a = normalize_axis("gather_elements", axis, data.ndim)
    return te.compute(
        indices.shape,
        lambda *i: data(*(_clamped(indices(*i), data.shape[a]) if d == a else v for d, v in enumerate(i))),
        name="T_gather_elements",
    )


def _gather_elements_ref(data: Any, indices: Any, axis: int) -> Any:
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = np.clip(indices, 0, max(data.shape[axis] - 1, 0))
    return data[tuple(grid)]


declare(
    "gather_elements", "data indices", {"axis": 0}, infer=_gather_elements_infer, lower=_gather_elements_lower, reference=_gather_elements_ref,
    fusion=Fusion.OPAQUE, doc="One element for each index along an axis.",
)  # fmt: skip


def _gather_nd_infer(data: Expr, indices: Expr, batch_dims: int = 0) -> TensorType:
    ty, it = tensor_arg("gather_nd", "data", data), _index_type("gather_nd", indices)
    if ty.shape is None or it.shape is None or as_int(it.shape[-1]) is None:
        return TensorType(None, ty.dtype, -1)
    depth = as_int(it.shape[-1])
    dims = (*it.shape[:-1], *ty.shape[batch_dims + depth :])  # type: ignore[operator]
    return TensorType(dims, ty.dtype, len(dims))


def _gather_nd_lower(data: Any, indices: Any, batch_dims: int = 0) -> Any:
    depth, outer = as_int(indices.shape[-1]), indices.ndim - 1
    assert depth is not None

    def element(*i: Any) -> Any:
        at = [_clamped(indices(*i[:outer], int64(k)), data.shape[batch_dims + k]) for k in range(depth)]
        return data(*i[:batch_dims], *at, *i[outer:])

    return te.compute((*indices.shape[:-1], *data.shape[batch_dims + depth :]), element, name="T_gather_nd")


def _gather_nd_ref(data: Any, indices: Any, batch_dims: int) -> Any:
    depth = indices.shape[-1]
    limits = np.array(data.shape[batch_dims : batch_dims + depth])
    safe = np.clip(indices, 0, np.maximum(limits - 1, 0))
    out = np.empty((*indices.shape[:-1], *data.shape[batch_dims + depth :]), data.dtype)
    for i in np.ndindex(*indices.shape[:-1]):
        out[i] = data[(*i[:batch_dims], *safe[i])]
    return out


declare(
    "gather_nd", "data indices", {"batch_dims": 0}, infer=_gather_nd_infer, lower=_gather_nd_lower, reference=_gather_nd_ref, fusion=Fusion.OPAQUE,
    doc="Slices by tuples of indices.",
)  # fmt: skip


# --- scatter -----------------------------------------------------------------------------------------------------------

_REDUCTIONS = {
    "update": lambda old, new: new,
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": tir.max,
    "min": tir.min,
}
_NUMPY = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _combine(reduction: str, old: Any, new: Any) -> Any:
    if reduction not in _REDUCTIONS:
        raise InvalidArgument(f"scatter: unknown reduction '{reduction}'", expected=", ".join(_REDUCTIONS))
    if old.dtype == "bool" and reduction in ("add", "max"):
        return tir.logical_or(old, new)
    if old.dtype == "bool" and reduction in ("mul", "min"):
        return tir.logical_and(old, new)
    return _REDUCTIONS[reduction](old, new)


def _loops(shape: Any, body: Any, name: str) -> Any:
    """Loop nest over a shape around ``body(*indices)``."""
    loop_vars = [tir.Var(f"{name}{d}", "int64") for d in range(len(shape))]
    stmt = body(*loop_vars)
    for v, d in reversed(list(zip(loop_vars, shape, strict=True))):
        stmt = tir.For(v, int64(0), d, tir.ForKind.SERIAL, stmt)
    return stmt


def _copy(src: Any, dst: Any, shape: Any) -> Any:
    return _loops(shape, lambda *i: tir.BufferStore(dst, tir.BufferLoad(src, i), i), "c")


def _scatter_elements_lower(data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update") -> Any:
    a = normalize_axis("scatter_elements", axis, data.ndim)

    def body(ins: Any, outs: Any) -> Any:
        def update(*i: Any) -> Any:
            index = cast("int64", tir.BufferLoad(ins[1], i))
            at = tuple(index if d == a else v for d, v in enumerate(i))
            inside = tir.all(index >= int64(0), index < data.shape[a])
            new = _combine(reduction, tir.BufferLoad(outs[0], at), tir.BufferLoad(ins[2], i))
            return tir.IfThenElse(inside, tir.BufferStore(outs[0], new, at))

        return tir.seq(_copy(ins[0], outs[0], data.shape), _loops(indices.shape, update, "u"))

    return te.extern(data.shape, [data, indices, updates], body, name="scatter_elements", dtype=data.dtype)


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
    "scatter_elements", "data indices updates", {"axis": 0, "reduction": "update"}, infer=_data_type("scatter_elements"), lower=_scatter_elements_lower,
    reference=_scatter_elements_ref, fusion=Fusion.OPAQUE, doc="Write one element for each index along an axis; indices outside are skipped.",
)  # fmt: skip


def _scatter_nd_lower(data: Any, indices: Any, updates: Any, reduction: str = "update") -> Any:
    depth, outer = as_int(indices.shape[-1]), indices.ndim - 1
    assert depth is not None

    def body(ins: Any, outs: Any) -> Any:
        def update(*i: Any) -> Any:
            index = [cast("int64", tir.BufferLoad(ins[1], (*i[:outer], int64(k)))) for k in range(depth)]
            inside = tir.all(*(tir.all(v >= int64(0), v < d) for v, d in zip(index, data.shape, strict=False)))
            at = (*index, *i[outer:])
            new = _combine(reduction, tir.BufferLoad(outs[0], at), tir.BufferLoad(ins[2], i))
            return tir.IfThenElse(inside, tir.BufferStore(outs[0], new, at))

        return tir.seq(_copy(ins[0], outs[0], data.shape), _loops(updates.shape, update, "u"))

    return te.extern(data.shape, [data, indices, updates], body, name="scatter_nd", dtype=data.dtype)


def _scatter_nd_ref(data: Any, indices: Any, updates: Any, reduction: str) -> Any:
    out = data.copy()
    for i in np.ndindex(*indices.shape[:-1]):
        at = tuple(int(v) for v in indices[i])
        if all(0 <= v < d for v, d in zip(at, data.shape, strict=False)):
            out[at] = _NUMPY[reduction](out[at], updates[i]) if reduction in _NUMPY else updates[i]
    return out


declare(
    "scatter_nd", "data indices updates", {"reduction": "update"}, infer=_data_type("scatter_nd"), lower=_scatter_nd_lower, reference=_scatter_nd_ref,
    fusion=Fusion.OPAQUE, doc="Write slices by tuples of indices; indices outside are skipped.",
)  # fmt: skip
