"""Gathering and scattering by index."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import as_int, cast, int64
from weft.topi.shape import normalize_axis

__all__ = ["clamped", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "take"]


def clamped(index: Any, extent: Any) -> Any:
    """An index made safe: memory outside of the tensor is never read, whatever the data."""
    return tir.max(tir.min(cast("int64", index), extent - int64(1)), int64(0))


def take(x: Any, indices: Any, axis: Any = None, mode: str = "fast") -> Any:
    a = normalize_axis("take", axis or 0, x.ndim)
    n = indices.ndim
    return te.compute(
        (*x.shape[:a], *indices.shape, *x.shape[a + 1 :]),
        lambda *i: x(*i[:a], clamped(indices(*i[a : a + n]), x.shape[a]), *i[a + n :]),
        name="T_take",
    )


def gather_elements(data: Any, indices: Any, axis: int = 0) -> Any:
    a = normalize_axis("gather_elements", axis, data.ndim)
    return te.compute(
        indices.shape,
        lambda *i: data(*(clamped(indices(*i), data.shape[a]) if d == a else v for d, v in enumerate(i))),
        name="T_gather_elements",
    )


def gather_nd(data: Any, indices: Any, batch_dims: int = 0) -> Any:
    depth, outer = as_int(indices.shape[-1]), indices.ndim - 1
    assert depth is not None

    def element(*i: Any) -> Any:
        at = [clamped(indices(*i[:outer], int64(k)), data.shape[batch_dims + k]) for k in range(depth)]
        return data(*i[:batch_dims], *at, *i[outer:])

    return te.compute((*indices.shape[:-1], *data.shape[batch_dims + depth :]), element, name="T_gather_nd")


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


def scatter_elements(data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update") -> Any:
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


def scatter_nd(data: Any, indices: Any, updates: Any, reduction: str = "update") -> Any:
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
