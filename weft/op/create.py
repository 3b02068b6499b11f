"""Operators that make tensors from a shape, and triangles."""

from typing import Any

import numpy as np

from weft import tir
from weft.error import DTypeMismatch, ShapeMismatch
from weft.ir import DataType, Expr, TensorType, as_expr, as_shape, cast, equal, numpy_dtype, select
from weft.op.attributes import dtype, integer
from weft.op.infer import product, tensor_arg, values_of
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_at_least, demand_between, demand_equal
from weft.topi.create import arange, arange_ends, arange_size, eye, full, full_like, prim, trilu
from weft.topi.signal import hamming_window
from weft.topi.typing import Scalar


def _shaped(shape: Expr, dtype: str) -> TensorType:
    values = values_of(shape)
    for i, d in enumerate(values or ()):
        demand_at_least(f"dimension {i} of a new tensor", d, 0, shape.span)
    return TensorType(
        values, DataType(dtype) if dtype else "", len(values) if values is not None else getattr(shape.ty, "ndim", -1)
    )  # type: ignore[attr-defined]


def _full_infer(shape: Expr, fill_value: Expr, dtype: str) -> TensorType:
    value = fill_value.ty  # type: ignore[attr-defined]
    if isinstance(value, TensorType):
        _demand_one("full", value, fill_value.span)
    return _shaped(shape, dtype or tensor_arg("full", "fill_value", fill_value).dtype)


def _demand_one(op: str, value: TensorType, where: Any) -> None:
    """Demand that a value to fill with is one."""
    if value.shape is None and value.ndim != 0:
        raise ShapeMismatch(
            f"{op}: how many elements 'fill_value' has is not known",
            expected="a scalar",
            found=str(value),
            where=where,
            help="match_cast gives it a shape",
        )
    demand_equal(f"{op}: elements of 'fill_value'", product(value.shape or ()), 1, where)


def _like(op: str, ndim: int | None = None) -> Any:
    def infer(x: Expr, *rest: Any, dtype: str) -> TensorType:
        ty = tensor_arg(op, "x", x, ndim=ndim)
        for value in rest:
            _demand_one(op, tensor_arg(op, "fill_value", value), x.span)
        return TensorType(ty.shape, DataType(dtype) if dtype else ty.dtype, ty.ndim)

    return infer


declare(
    "full",
    "shape:shape fill_value",
    {"dtype": dtype()},
    infer=_full_infer,
    lower=full,
    reference=lambda shape, fill_value, dtype: np.full(
        [int(d) for d in shape], np.asarray(fill_value).reshape(()), numpy_dtype(dtype) if dtype else None
    ),
    doc="A tensor of one value.",
)

declare(
    "full_like",
    "x fill_value",
    {"dtype": dtype()},
    infer=_like("full_like"),
    lower=full_like,
    reference=lambda x, fill_value, dtype: np.full(
        x.shape, np.asarray(fill_value).reshape(()), numpy_dtype(dtype) if dtype else x.dtype
    ),
    doc="A tensor of one value, shaped as another.",
)

for _name, _value in (("zeros", 0), ("ones", 1)):
    declare(
        _name,
        "shape:shape",
        {"dtype": dtype("float32")},
        infer=_shaped,
        lower=lambda shape, dtype, _v=_value: full(shape, _v, dtype),
        reference=lambda shape, dtype, _v=_value: np.full([int(d) for d in shape], _v, numpy_dtype(dtype)),
        doc=f"A tensor of {_name}.",
    )
    declare(
        _name + "_like",
        "x",
        {"dtype": dtype()},
        infer=_like(_name + "_like"),
        lower=lambda x, dtype, _v=_value: full_like(x, _v, dtype),
        reference=lambda x, dtype, _v=_value: np.full(x.shape, _v, numpy_dtype(dtype) if dtype else x.dtype),
        doc=f"A tensor of {_name}, shaped as another.",
    )


def _number(value: Any) -> Any:
    value = prim(value)
    return float(value) if isinstance(value, float) or "float" in str(getattr(value, "dtype", "")) else int(value)


def _arange_infer(start: Scalar, end: Scalar, step: Scalar, dtype: str) -> TensorType:
    by = as_expr(prim(step))
    if not DataType(by.dtype).is_float:
        found = cast("int64", by)
        other = select(equal(found, 0), 1, found)
        demand_equal("arange: the step, which is not 0", found, other, kind="InvalidArgument")
    of = DataType(dtype)
    for element in arange_ends(start, end, step, of) if of != "int64" else ():
        most = tir.max_value(of) if of.bits < 64 else None
        demand_between(f"arange: an element, of {of}", element, tir.min_value(of), most, kind="InvalidArgument")
    return TensorType((arange_size(start, end, step),), DataType(dtype), 1)


declare(
    "arange",
    "start:prim end:prim step:prim",
    {"dtype": dtype("int64")},
    infer=_arange_infer,
    lower=arange,
    reference=lambda start, end, step, dtype: np.arange(*map(_number, (start, end, step))).astype(numpy_dtype(dtype)),
    doc="Evenly spaced numbers from `start`, before `end`.",
)


def _matrices(op: str) -> Any:
    def infer(x: Expr) -> TensorType:
        return tensor_arg(op, "x", x, min_ndim=2)

    return infer


for _name, _fn in (("tril", np.tril), ("triu", np.triu)):
    declare(
        _name,
        "x",
        {"k": integer(0, symbolic=True)},
        infer=_matrices(_name),
        lower=lambda x, k, _upper=_name == "triu": trilu(x, k, _upper),
        reference=lambda x, k, _fn=_fn: _fn(x, int(k)),
        fusion=Fusion.INJECTIVE,
        doc="The triangle of each matrix, shifted by k.",
    )


def _eye_ref(n: Any, m: Any, k: Any, dtype: str) -> Any:
    return np.eye(int(n), int(m), int(k), numpy_dtype(dtype))


declare(
    "eye",
    "n:prim m:prim k:prim",
    {"dtype": dtype("float32")},
    infer=lambda n, m, k, dtype: TensorType(as_shape((prim(n), prim(m))), DataType(dtype), 2),
    lower=eye,
    reference=_eye_ref,
    doc="Ones on the k-th diagonal of an n by m matrix.",
)

declare(
    "eye_like",
    "x",
    {"k": integer(0, symbolic=True), "dtype": dtype()},
    infer=_like("eye_like", ndim=2),
    lower=lambda x, k, dtype: eye(x.shape[0], x.shape[1], k, dtype or x.dtype),
    reference=lambda x, k, dtype: _eye_ref(x.shape[0], x.shape[1], k, dtype or x.dtype.name),
    doc="Ones on the k-th diagonal of a matrix shaped as another.",
)


declare(
    "size",
    "x",
    infer=lambda x: TensorType((), DataType("int64"), 0, tensor_arg("size", "x", x).vdevice),
    lower=lambda x: full((), cast("int64", product(x.shape)), "int64"),
    reference=lambda x: np.int64(x.size),
    doc="The number of elements of a tensor.",
)


def _hamming_infer(window_size: Scalar, periodic: Scalar, alpha: Scalar, beta: Scalar, dtype: str) -> TensorType:
    if not DataType(dtype).is_float:
        raise DTypeMismatch("hamming_window: the window's type", expected="a float type", found=dtype)
    shape = as_shape((prim(window_size),))
    demand_at_least("hamming_window: the window's size", shape[0], 0)
    return TensorType(shape, DataType(dtype), 1)


def _hamming_ref(window_size: Any, periodic: Any, alpha: Any, beta: Any, dtype: str) -> Any:
    size = int(prim(window_size))
    period, (a, b) = max(size if int(prim(periodic)) else size - 1, 1), (float(_number(v)) for v in (alpha, beta))
    found = a - b * np.cos(2 * np.pi * np.arange(size) / period)
    return (np.ones(1) if size == 1 else found).astype(numpy_dtype(dtype))


declare(
    "hamming_window",
    "window_size:prim periodic:prim alpha:prim beta:prim",
    {"dtype": dtype("float32")},
    infer=_hamming_infer,
    lower=lambda window_size, periodic, alpha, beta, dtype: hamming_window(window_size, periodic, alpha, beta, dtype),
    reference=_hamming_ref,
    doc="``alpha - beta * cos(2 pi i / n)``; `n` is the window's size, one less where it is not periodic.",
)
