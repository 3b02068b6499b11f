"""Sorting and the k greatest."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import (
    DataType,
    Expr,
    PrimValue,
    TensorType,
    TupleType,
    as_shape,
    cast,
    const,
    int64,
    logical_and,
    logical_or,
    numpy_dtype,
)
from weft.op.infer import normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare

__all__: list[str] = []


def _before(a: Any, ia: Any, b: Any, ib: Any, largest: bool) -> Any:
    """Whether (a, ia) comes before (b, ib): by value, NaN counting as greatest, then by index."""
    first = a > b if largest else a < b
    equal = a.equal(b)
    if DataType(a.dtype).is_float:
        nan_a, nan_b = a != a, b != b  # noqa: PLR0124
        first = logical_or(
            first, logical_and(nan_a, tir.logical_not(nan_b)) if largest else logical_and(nan_b, tir.logical_not(nan_a))
        )
        equal = logical_or(equal, logical_and(nan_a, nan_b))
    return logical_or(first, logical_and(equal, ia < ib))


def _topk(x: Any, k: Any, axis: int, largest: bool, dtype: str) -> Any:
    """Values and indices of the first k along an axis, kept sorted by insertion."""
    a = normalize_axis("topk", axis, x.ndim)
    outer = [d for i, d in enumerate(x.shape) if i != a]
    out_shape = tuple(k if i == a else d for i, d in enumerate(x.shape))

    def body(ins: Any, outs: Any) -> Any:
        loops = [tir.Var(f"i{n}", "int64") for n in range(len(outer))]

        def at(j: Any) -> tuple[Any, ...]:
            rest = iter(loops)
            return tuple(j if i == a else next(rest) for i in range(x.ndim))

        values, indices = outs
        j, slot = tir.Var("j", "int64"), tir.decl_buffer((int64(1),), "int64", "slot", scope="local")
        position = tir.BufferLoad(slot, (int64(0),))
        element = tir.Var("element", x.dtype)
        previous = (
            tir.BufferLoad(values, at(position - int64(1))),
            cast("int64", tir.BufferLoad(indices, at(position - int64(1)))),
        )
        move = tir.seq(
            tir.BufferStore(values, previous[0], at(position)),
            tir.BufferStore(indices, cast(dtype, previous[1]), at(position)),
            tir.BufferStore(slot, position - int64(1), (int64(0),)),
        )
        shift = tir.While(
            tir.if_then_else(position > int64(0), _before(element, j, *previous, largest), const(False, "bool")),
            move,
        )
        last = (tir.BufferLoad(values, at(k - int64(1))), cast("int64", tir.BufferLoad(indices, at(k - int64(1)))))
        place = tir.seq(
            shift,
            tir.BufferStore(values, element, at(position)),
            tir.BufferStore(indices, cast(dtype, j), at(position)),
        )
        grow = tir.seq(tir.BufferStore(slot, j, (int64(0),)), place)
        replace = tir.IfThenElse(
            tir.if_then_else(k > int64(0), _before(element, j, *last, largest), const(False, "bool")),
            tir.seq(tir.BufferStore(slot, k - int64(1), (int64(0),)), place),
        )
        insert = tir.LetStmt(element, tir.BufferLoad(ins[0], at(j)), tir.IfThenElse(j < k, grow, replace))
        stmt: Any = tir.AllocBuffer(slot, tir.For(j, int64(0), x.shape[a], tir.ForKind.SERIAL, insert))
        for n, (v, d) in enumerate(reversed(list(zip(loops, outer, strict=True)))):
            stmt = tir.For(v, int64(0), d, tir.ForKind.PARALLEL if n == len(loops) - 1 else tir.ForKind.SERIAL, stmt)
        return stmt

    return te.extern([out_shape, out_shape], [x], body, name="topk", dtype=[x.dtype, dtype])


def _count(k: Any, dim: Any) -> Any:
    value = as_shape((k.value if isinstance(k, PrimValue) else k,))[0]
    return dim if getattr(value, "value", None) == -1 else value


def _topk_infer(
    data: Expr,
    k: Any = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    op: str = "topk",
) -> Any:
    ty = tensor_arg(op, "data", data)
    dims = None
    if ty.shape is not None:
        a = normalize_axis("topk", axis, ty.ndim)
        dims = tuple(_count(k, d) if i == a else d for i, d in enumerate(ty.shape))
    values, indices = TensorType(dims, ty.dtype, ty.ndim), TensorType(dims, DataType(dtype), ty.ndim)
    return TupleType((values, indices)) if ret_type == "both" else values if ret_type == "values" else indices


def _topk_lower(
    data: Any, k: Any = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> Any:
    a = normalize_axis("topk", axis, data.ndim)
    values, indices = _topk(data, _count(k, data.shape[a]), a, largest, dtype)
    if ret_type == "both":
        return values, indices
    chosen = values if ret_type == "values" else indices
    return te.compute(chosen.shape, lambda *i: chosen(*i), name="chosen")


def _order(x: Any, axis: int, largest: bool) -> Any:
    if not largest:
        return np.argsort(x, axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def _topk_ref(data: Any, k: Any, axis: int, ret_type: str, largest: bool, dtype: str) -> Any:
    n = data.shape[axis] if int(k) == -1 else int(k)
    order = np.take(_order(data, axis, largest), range(n), axis)
    values, indices = np.take_along_axis(data, order, axis), order.astype(numpy_dtype(dtype))
    return (values, indices) if ret_type == "both" else values if ret_type == "values" else indices


declare(
    "topk", "data", {"k": 1, "axis": -1, "ret_type": "both", "largest": True, "dtype": "int32"}, infer=_topk_infer, lower=_topk_lower, reference=_topk_ref,
    fusion=Fusion.OPAQUE, doc="The k greatest (or least) along an axis, sorted; equal elements by index.",
)  # fmt: skip

declare(
    "sort", "data", {"axis": -1, "descending": False},
    infer=lambda data, axis=-1, descending=False: tensor_arg("sort", "data", data),
    lower=lambda data, axis=-1, descending=False: _topk_lower(data, -1, axis, "values", descending),
    reference=lambda data, axis, descending: np.take_along_axis(data, _order(data, axis, descending), axis), fusion=Fusion.OPAQUE,
    doc="Sort along an axis.",
)  # fmt: skip

declare(
    "argsort", "data", {"axis": -1, "descending": False, "dtype": "int32"},
    infer=lambda data, axis=-1, descending=False, dtype="int32": _topk_infer(data, -1, axis, "indices", descending, dtype, "argsort"),
    lower=lambda data, axis=-1, descending=False, dtype="int32": _topk_lower(data, -1, axis, "indices", descending, dtype),
    reference=lambda data, axis, descending, dtype: _order(data, axis, descending).astype(numpy_dtype(dtype)), fusion=Fusion.OPAQUE,
    doc="The indices that sort along an axis.",
)  # fmt: skip
