"""Reductions and scans over axes."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from weft.ir import Expr, TensorType, int64, numpy_dtype
from weft.op.attributes import axes, axis, dtype, flag
from weft.op.infer import dims_of, normalize_axes, normalize_axis, product, tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_at_least
from weft.topi import reduce as topi
from weft.topi.scan import cumulative


def _infer(op: str, dtype: str | None = None) -> Any:
    def infer(x: Expr, axis: Any, keepdims: bool) -> TensorType:
        ty = tensor_arg(op, "x", x)
        if ty.shape is None and axis is None and (ty.ndim >= 0 or not keepdims):
            ndim = ty.ndim if keepdims else 0
            return TensorType((int64(1),) * ndim, dtype or ty.dtype, ndim)
        if ty.ndim < 0:
            return TensorType(None, dtype or ty.dtype, -1)
        axes = normalize_axes(op, axis, ty.ndim)
        ndim = ty.ndim if keepdims else ty.ndim - len(axes)
        if ty.shape is None:
            return TensorType(None, dtype or ty.dtype, ndim)
        return TensorType(topi.reduced_shape(ty.shape, axes, keepdims), dtype or ty.dtype, ndim)

    return infer


_OVER = {"axis": axes(), "keepdims": flag(False)}


def _reduction(name: str, kind: str, reference: Any, dtype: str | None = None) -> None:
    declare(
        name,
        "x",
        _OVER,
        infer=_infer(name, dtype),
        lower=lambda x, axis, keepdims: topi.reduce(kind, x, normalize_axes(name, axis, x.ndim), keepdims),
        reference=lambda x, axis, keepdims: np.asarray(reference(x, axis=axis, keepdims=keepdims)).astype(
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


def _exact(fn: Any) -> Any:
    """A statistic in float64, converted to the type of the data; of no integers it is 0."""

    def reference(x: Any, axis: Any, keepdims: bool) -> Any:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mean of nothing
            value = np.asarray(fn(x.astype(np.float64), axis=axis, keepdims=keepdims))
        return (value if x.dtype.kind in "fV" else np.nan_to_num(value)).astype(x.dtype)

    return reference


def _mean(x: np.ndarray, axis: int | tuple[int, ...] | None, keepdims: bool) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return _exact(np.mean)(x, axis, keepdims)
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=np.uint64 if x.dtype.kind == "u" else np.int64)
    count = total.dtype.type(max(x.size // max(total.size, 1), 1))
    return (total // count + ((total < 0) & (total % count != 0)).astype(total.dtype)).astype(x.dtype)


for _name, _fn, _ref, _doc in (
    ("mean", topi.mean, _mean, "The arithmetic mean over axes."),
    ("variance", topi.variance, _exact(np.var), "The variance over axes, divided by n."),
    ("std", topi.std, _exact(np.std), "The standard deviation over axes."),
):
    declare(
        _name, "x", _OVER, infer=_infer(_name), lower=_fn, reference=_ref, fusion=Fusion.REDUCTION, rtol=1e-4, doc=_doc
    )


def _arg_infer(op: str) -> Any:
    def infer(x: Expr, axis: int | None, keepdims: bool, dtype: str) -> TensorType:
        result = _infer(op, dtype)(x, axis, keepdims)
        dims = dims_of(x)
        if dims is not None:
            size = product(dims) if axis is None else dims[normalize_axis(op, axis, len(dims))]
            demand_at_least(f"{op}: elements to choose from", size, 1, x.span)
        return result

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
        {"axis": axis(None), "keepdims": flag(False), "select_last_index": flag(False), "dtype": dtype("int64")},
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
        doc=f"The index of the {_kind}imum along an axis, the first (or last) of equals.",
    )


def _scan_infer(op: str) -> Any:
    def infer(x: Expr, axis: int | None, dtype: str) -> TensorType:
        ty = tensor_arg(op, "x", x)
        if axis is None:
            return TensorType(None if ty.shape is None else (product(ty.shape),), dtype or ty.dtype, 1)
        return TensorType(ty.shape, dtype or ty.dtype, ty.ndim)

    return infer


def _scan_ref(fn: Any, identity: int) -> Any:
    def reference(x: Any, axis: Any, dtype: str, exclusive: bool, reverse: bool) -> Any:
        out_dtype = numpy_dtype(dtype) if dtype else x.dtype
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
        y = np.moveaxis(x, axis, 0)
        y = y[::-1] if reverse else y
        z = fn(y, axis=0, dtype=np.float64 if out_dtype.kind in "fV" else out_dtype)
        if exclusive:
            z = np.concatenate([np.full_like(z[:1], identity), z[:-1]])
        z = z[::-1] if reverse else z
        return np.ascontiguousarray(np.moveaxis(z, 0, axis)).astype(out_dtype)

    return reference


for _name, _kind, _fn, _identity in (("cumsum", "sum", np.cumsum, 0), ("cumprod", "prod", np.cumprod, 1)):
    declare(
        _name,
        "x",
        {"axis": axis(None), "dtype": dtype(), "exclusive": flag(False), "reverse": flag(False)},
        infer=_scan_infer(_name),
        lower=partial(cumulative, _kind),
        reference=_scan_ref(_fn, _identity),
        rtol=1e-4,
        doc=f"Running {_kind} along an axis; of all elements in row-major order where `axis` is None.",
    )
