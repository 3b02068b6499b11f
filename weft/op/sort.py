"""Sorting and the k greatest."""

import math
from typing import Any

import numpy as np

from weft import ir
from weft.error import DTypeMismatch
from weft.op.attributes import axes, axis, dtype, flag, integer, word
from weft.op.infer import normalize_axes, normalize_axis, product, tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_at_least, demand_between
from weft.topi.reduce import reduced_shape
from weft.topi.search import places, searchsorted
from weft.topi.sort import argsort, median, sort, topk


def _count(k: Any, dim: Any) -> Any:
    value = ir.as_shape((k.value if isinstance(k, ir.PrimValue) else k,))[0]
    return dim if getattr(value, "value", None) == -1 else value


def _topk_infer(data: ir.Expr, k: Any, axis: int, ret_type: str, dtype: str, op: str = "topk") -> Any:
    ty = tensor_arg(op, "data", data)
    dims = None
    if ty.shape is not None:
        a = normalize_axis("topk", axis, ty.ndim)
        demand_between("topk: k", _count(k, ty.shape[a]), 0, ty.shape[a], data.span, "InvalidArgument")
        dims = tuple(_count(k, d) if i == a else d for i, d in enumerate(ty.shape))
    values, indices = ir.TensorType(dims, ty.dtype, ty.ndim), ir.TensorType(dims, ir.DataType(dtype), ty.ndim)
    return ir.TupleType((values, indices)) if ret_type == "both" else values if ret_type == "values" else indices


def _topk_lower(data: Any, k: Any, axis: int, ret_type: str, largest: bool, dtype: str) -> Any:
    count = _count(k, data.shape[normalize_axis("topk", axis, data.ndim)])
    return topk(data, count, axis, ret_type, not largest, dtype)


def sortable(x: np.ndarray) -> np.ndarray:
    """The same numbers in a type whose NaN NumPy puts last, which it does for its own types only."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _order(x: Any, axis: int, largest: bool) -> Any:
    x = sortable(x)
    if not largest:
        return np.argsort(x, axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def _topk_ref(data: Any, k: Any, axis: int, ret_type: str, largest: bool, dtype: str) -> Any:
    n = data.shape[axis] if int(k) == -1 else int(k)
    order = np.take(_order(data, axis, largest), range(n), axis)
    values, indices = np.take_along_axis(data, order, axis), order.astype(ir.numpy_dtype(dtype))
    return (values, indices) if ret_type == "both" else values if ret_type == "values" else indices


declare(
    "topk",
    "data",
    {
        "k": integer(1, at_least=-1, symbolic=True),
        "axis": axis(-1),
        "ret_type": word("both", "both", "values", "indices"),
        "largest": flag(True),
        "dtype": dtype("int32"),
    },
    infer=_topk_infer,
    lower=_topk_lower,
    reference=_topk_ref,
    doc="The k greatest (or least) along an axis, sorted; equal elements by index.",
)


def _places_infer(mask: ir.Expr) -> ir.TupleType:
    ty = tensor_arg("places", "mask", mask, ndim=1)
    if ty.dtype and ty.dtype != "bool":
        raise DTypeMismatch("places: 'mask' has the wrong data type", expected="bool", found=ty.dtype, where=mask.span)
    return ir.TupleType((ir.TensorType(ty.shape, "int64", 1), ir.TensorType((ir.int64(1),), "int64", 1)))


def _places_ref(mask: Any) -> Any:
    found = np.flatnonzero(mask)
    return np.concatenate([found, np.zeros(len(mask) - len(found), np.int64)]), np.array([len(found)])


declare(
    "places",
    "mask",
    infer=_places_infer,
    lower=places,
    reference=_places_ref,
    doc="Positions of what is true in a vector, with zeros behind them, and how many there are.",
)

declare(
    "sort",
    "data",
    {"axis": axis(-1), "descending": flag(False)},
    infer=lambda data: tensor_arg("sort", "data", data),
    lower=lambda data, axis, descending: sort(data, axis, not descending),
    reference=lambda data, axis, descending: np.take_along_axis(data, _order(data, axis, descending), axis),
    doc="Sort along an axis.",
)

declare(
    "argsort",
    "data",
    {"axis": axis(-1), "descending": flag(False), "dtype": dtype("int32")},
    infer=lambda data, axis, dtype: _topk_infer(data, -1, axis, "indices", dtype, "argsort"),
    lower=lambda data, axis, descending, dtype: argsort(data, axis, not descending, dtype),
    reference=lambda data, axis, descending, dtype: _order(data, axis, descending).astype(ir.numpy_dtype(dtype)),
    doc="The indices that sort along an axis.",
)


def _median_infer(x: ir.Expr, axis: Any, keepdims: bool) -> Any:
    ty = tensor_arg("median", "x", x)
    dims, over, ndim = None, () if axis is None else axis, -1
    if ty.ndim >= 0:
        over = normalize_axes("median", axis, ty.ndim)
        ndim = ty.ndim if keepdims else ty.ndim - len(over)
    if axis is None and not keepdims:
        dims, ndim = (), 0
    elif axis is None and ty.ndim >= 0:
        dims = (ir.int64(1),) * ty.ndim
    if ty.shape is not None:
        dims = reduced_shape(ty.shape, over, keepdims)
        demand_at_least("median: elements to choose from", product([ty.shape[a] for a in over]), 1, x.span)
    both = [ir.TensorType(dims, t, ndim, ty.vdevice) for t in (ty.dtype, "int64")]
    return ir.TupleType(tuple(both)) if axis is not None and len(over) == 1 else both[0]


def _median_ref(x: Any, axis: Any, keepdims: bool) -> Any:
    over = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in axis)
    rest = [a for a in range(x.ndim) if a not in over]
    sizes = [x.shape[a] for a in rest]
    lines = np.transpose(x, (*rest, *sorted(over))).reshape(*sizes, math.prod(x.shape[a] for a in over))
    places = np.take(np.argsort(sortable(lines), -1, kind="stable"), [(lines.shape[-1] - 1) // 2], -1)
    shape = [1 if a in over else d for a, d in enumerate(x.shape)] if keepdims else sizes
    values = np.take_along_axis(lines, places, -1).reshape(shape)
    return (values, places.reshape(shape)) if axis is not None and len(over) == 1 else values


declare(
    "median",
    "x",
    {"axis": axes(), "keepdims": flag(False)},
    infer=_median_infer,
    lower=median,
    reference=_median_ref,
    doc="The lower of the two elements in the middle, NaN being greatest; over a single axis with its position.",
)


def _bucketize_infer(input_tensor: ir.Expr, boundaries: ir.Expr, out_int32: bool) -> ir.TensorType:
    ty = tensor_arg("bucketize", "input_tensor", input_tensor)
    limits = tensor_arg("bucketize", "boundaries", boundaries, ndim=1)
    if ty.dtype and limits.dtype and ty.dtype != limits.dtype:
        raise DTypeMismatch("bucketize: the boundaries' type", expected=ty.dtype, found=limits.dtype)
    return ir.TensorType(ty.shape, ir.DataType("int32" if out_int32 else "int64"), ty.ndim)


declare(
    "bucketize",
    "input_tensor boundaries",
    {"out_int32": flag(False), "right": flag(False)},
    infer=_bucketize_infer,
    lower=lambda input_tensor, boundaries, out_int32, right: searchsorted(
        boundaries, input_tensor, right, "int32" if out_int32 else "int64"
    ),
    reference=lambda input_tensor, boundaries, out_int32, right: np.searchsorted(
        sortable(boundaries), sortable(input_tensor), "right" if right else "left"
    ).astype(np.int32 if out_int32 else np.int64),
    doc="Where each element would be put into a sorted vector; with `right` behind what equals it.",
)
