"""Reductions and scans over axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import DataType, Expr, TensorType, cast, const, int64, numpy_dtype
from weft.op.infer import normalize_axes, normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi import reduce as topi

__all__: list[str] = []


def _infer(op: str, dtype: str | None = None) -> Any:
    def infer(x: Expr, axis: Any = None, keepdims: bool = False, **_: Any) -> TensorType:
        ty = tensor_arg(op, "x", x)
        if ty.ndim < 0:
            return TensorType(None, dtype or ty.dtype, -1)
        axes = normalize_axes(op, axis, ty.ndim)
        ndim = ty.ndim if keepdims else ty.ndim - len(axes)
        if ty.shape is None:
            return TensorType(None, dtype or ty.dtype, ndim)
        return TensorType(topi.reduced_shape(ty.shape, axes, keepdims), dtype or ty.dtype, ndim)

    return infer


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, (tuple, list)) else axis


def _reduction(name: str, kind: str, reference: Any, dtype: str | None = None) -> None:
    declare(
        name,
        "x",
        {"axis": None, "keepdims": False},
        infer=_infer(name, dtype),
        lower=lambda x, axis, keepdims: topi.reduce(kind, x, normalize_axes(name, axis, x.ndim), keepdims),
        reference=lambda x, axis, keepdims: np.asarray(reference(x, axis=_axis(axis), keepdims=keepdims)).astype(
            numpy_dtype(dtype) if dtype else x.dtype
        ),
        fusion=Fusion.REDUCTION,
        rtol=1e-4,
        doc=f"The {name} over axes; all axes when `axis` is None.",
    )


def _wide(fn: Any) -> Any:
    """Accumulate float references in float64."""
    return lambda x, axis, keepdims: fn(
        x.astype(np.float64) if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else x, axis=axis, keepdims=keepdims
    )


def _initial(fn: Any, largest: bool) -> Any:
    """Give min and max of nothing their identity."""

    def reduce(x: Any, axis: Any, keepdims: bool) -> Any:
        if x.dtype.kind in "fV":
            bound: Any = -np.inf if largest else np.inf
        elif x.dtype.kind == "b":
            bound = not largest
        else:
            bound = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
        return fn(x, axis=axis, keepdims=keepdims, initial=bound)

    return reduce


_reduction("sum", "sum", _wide(np.sum))
_reduction("prod", "prod", _wide(np.prod))
_reduction("max", "max", _initial(np.max, True))
_reduction("min", "min", _initial(np.min, False))
_reduction("all", "all", np.all, "bool")
_reduction("any", "any", np.any, "bool")


def _count(x: Any, axes: Any) -> Any:
    n: Any = int64(1)
    for a in axes:
        n = n * x.shape[a]
    return n


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    axes = normalize_axes("mean", axis, x.ndim)
    total = topi.reduce("sum", x, axes, keepdims)
    n = _count(x, axes)
    if DataType(x.dtype).is_float:
        return te.compute(total.shape, lambda *i: total(*i) * (const(1.0, x.dtype) / cast(x.dtype, n)), name="T_mean")
    return te.compute(
        total.shape, lambda *i: tir.truncdiv(total(*i), tir.max(cast(x.dtype, n), const(1, x.dtype))), name="T_mean"
    )


def _mean_ref(x: Any, axis: Any, keepdims: bool) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(np.mean(x, axis=_axis(axis), keepdims=keepdims, dtype=np.float64)).astype(x.dtype)


declare(
    "mean", "x", {"axis": None, "keepdims": False}, infer=_infer("mean"), lower=_mean, reference=_mean_ref, fusion=Fusion.REDUCTION, rtol=1e-4,
    doc="The arithmetic mean over axes.",
)  # fmt: skip


def _variance(x: Any, axis: Any, keepdims: bool) -> Any:
    axes = normalize_axes("variance", axis, x.ndim)
    mean = _mean(x, axis, True)
    centred = te.compute(
        x.shape,
        lambda *i: x(*i) - mean(*[const(0, v.dtype) if d in axes else v for d, v in enumerate(i)]),
        name="centred",
    )
    return _mean(te.compute(x.shape, lambda *i: centred(*i) * centred(*i), name="squared"), axis, keepdims)


declare(
    "variance", "x", {"axis": None, "keepdims": False}, infer=_infer("variance"), lower=_variance,
    reference=lambda x, axis, keepdims: np.asarray(np.var(x.astype(np.float64), axis=_axis(axis), keepdims=keepdims)).astype(x.dtype),
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="The variance over axes, divided by n.",
)  # fmt: skip


def _std(x: Any, axis: Any, keepdims: bool) -> Any:
    v = _variance(x, axis, keepdims)
    return te.compute(v.shape, lambda *i: tir.sqrt(v(*i)), name="T_std")


declare(
    "std", "x", {"axis": None, "keepdims": False}, infer=_infer("std"), lower=_std,
    reference=lambda x, axis, keepdims: np.asarray(np.std(x.astype(np.float64), axis=_axis(axis), keepdims=keepdims)).astype(x.dtype),
    fusion=Fusion.REDUCTION, rtol=1e-4, doc="The standard deviation over axes.",
)  # fmt: skip


def _arg_infer(op: str) -> Any:
    def infer(
        x: Expr, axis: Any = None, keepdims: bool = False, select_last_index: bool = False, dtype: str = "int64"
    ) -> TensorType:
        return _infer(op, dtype)(x, axis, keepdims)

    return infer


def _arg_ref(fn: Any) -> Any:
    def reference(x: Any, axis: Any, keepdims: bool, select_last_index: bool, dtype: str) -> Any:
        if select_last_index:
            flipped = np.flip(x, axis) if axis is not None else x.reshape(-1)[::-1]
            size = x.shape[axis] if axis is not None else x.size
            out = size - 1 - fn(flipped, axis=axis, **({"keepdims": keepdims} if axis is not None else {}))
        else:
            out = fn(x, axis=axis, keepdims=keepdims)
        return np.asarray(out).astype(numpy_dtype(dtype))

    return reference


for _name, _kind, _fn in (("argmax", "max", np.argmax), ("argmin", "min", np.argmin)):
    declare(
        _name,
        "x",
        {"axis": None, "keepdims": False, "select_last_index": False, "dtype": "int64"},
        infer=_arg_infer(_name),
        lower=lambda x, axis, keepdims, select_last_index, dtype, _kind=_kind: topi.arg_reduce(
            _kind,
            x,
            None if axis is None else normalize_axis("argmax", axis, x.ndim),
            keepdims,
            select_last_index,
            dtype,
        ),
        reference=_arg_ref(_fn),
        fusion=Fusion.OPAQUE,
        doc=f"The index of the {_kind}imum along an axis, the first (or last) of equals.",
    )


def _scan_infer(op: str) -> Any:
    def infer(x: Expr, axis: Any = None, dtype: str = "", exclusive: bool = False, reverse: bool = False) -> TensorType:
        ty = tensor_arg(op, "x", x)
        if axis is not None and ty.ndim >= 0:
            normalize_axis(op, axis, ty.ndim)
        return TensorType(ty.shape, dtype or ty.dtype, ty.ndim)

    return infer


def _scan_lower(kind: str) -> Any:
    def lower(x: Any, axis: Any, dtype: str, exclusive: bool, reverse: bool) -> Any:
        dtype = dtype or x.dtype
        axis = normalize_axis("cum" + kind, axis or 0, x.ndim)
        identity = const(0 if kind == "sum" else 1, dtype)
        outer = [d for i, d in enumerate(x.shape) if i != axis]

        def body(ins: Any, outs: Any) -> Any:
            loops = [tir.Var(f"i{n}", "int64") for n in range(len(outer))]
            j = tir.Var("j", "int64")
            extent = x.shape[axis]
            at = extent - int64(1) - j if reverse else j
            before = at + int64(1) if reverse else at - int64(1)

            def index(pos: Any) -> Any:
                rest = iter(loops)
                return tuple(pos if i == axis else next(rest) for i in range(x.ndim))

            source = tir.BufferLoad(ins[0], index(before if exclusive else at))
            value = cast(dtype, source)
            previous = tir.BufferLoad(outs[0], index(before))
            combined = previous + value if kind == "sum" else previous * value
            first = identity if exclusive else value
            store = tir.IfThenElse(
                j == int64(0), tir.BufferStore(outs[0], first, index(at)), tir.BufferStore(outs[0], combined, index(at))
            )
            stmt: Any = tir.For(j, int64(0), extent, tir.ForKind.SERIAL, store)
            for var, d in reversed(list(zip(loops, outer, strict=True))):
                stmt = tir.For(var, int64(0), d, tir.ForKind.SERIAL, stmt)
            return stmt

        return te.extern(x.shape, [x], body, name="cum" + kind, dtype=dtype)

    return lower


def _scan_ref(fn: Any, identity: int) -> Any:
    def reference(x: Any, axis: Any, dtype: str, exclusive: bool, reverse: bool) -> Any:
        out_dtype = numpy_dtype(dtype) if dtype else x.dtype
        y = np.moveaxis(x, axis or 0, 0)
        y = y[::-1] if reverse else y
        z = fn(y, axis=0, dtype=np.float64 if out_dtype.kind == "f" else out_dtype)
        if exclusive:
            z = np.concatenate([np.full_like(z[:1], identity), z[:-1]])
        z = z[::-1] if reverse else z
        return np.ascontiguousarray(np.moveaxis(z, 0, axis or 0)).astype(out_dtype)

    return reference


for _name, _kind, _fn, _identity in (("cumsum", "sum", np.cumsum, 0), ("cumprod", "prod", np.cumprod, 1)):
    declare(
        _name,
        "x",
        {"axis": None, "dtype": "", "exclusive": False, "reverse": False},
        infer=_scan_infer(_name),
        lower=_scan_lower(_kind),
        reference=_scan_ref(_fn, _identity),
        fusion=Fusion.OPAQUE,
        rtol=1e-4,
        doc=f"Running {_kind} along an axis.",
    )
