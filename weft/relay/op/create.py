"""Operators that make tensors from a shape, and shapes from tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import ir, op
from weft.relay.expr import as_expr
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dims, dtype_of, is_computed, numbers, shape_argument, shape_of_dims
from weft.relay.typing import Dims, Value


def scalars(values: Sequence[ir.PrimExpr | int], dtype: str) -> ir.Expr:
    """Make a vector of scalar expressions; a constant where all are known."""
    known = [ir.as_int(v) for v in values]
    if all(v is not None for v in known):
        return ir.constant(np.array(known, ir.numpy_dtype(dtype)))
    return shared("stack", tuple(_scalar(v, dtype) for v in values), axis=0)


def _scalar(value: ir.PrimExpr | int, dtype: str) -> ir.Expr:
    if isinstance(value, ir.IntImm):
        return ir.constant(np.array(value.value, ir.numpy_dtype(dtype)))
    return shared("full", shape_of_dims(()), ir.prim_value(value), dtype=dtype)


def _shape_tuple(shape: Any) -> tuple[Any, ...]:
    shape = numbers(shape)
    return shape if isinstance(shape, tuple) else (shape,)


# --- of one value -----------------------------------------------------------------------------------------------------


def _full(fill_value: ir.Expr, shape: Any, dtype: str) -> ir.Expr:
    return shared("full", shape_of_dims(shape), fill_value, dtype=dtype or dtype_of(fill_value))


declare("full", "fill_value", {"shape": (), "dtype": ""}, expand=_full, doc="A tensor of one value.")
declare(
    "dyn.full",
    "fill_value shape:values",
    {"dtype": ""},
    expand=_full,
    doc="A tensor of one value, of a shape that is computed.",
)
for _name in ("zeros", "ones"):
    declare(
        _name,
        "",
        {"shape": REQUIRED, "dtype": "float32"},
        expand=lambda shape, dtype, _name=_name: shared(_name, shape_of_dims(shape), dtype=dtype),
        doc=f"A tensor of {_name}.",
    )
    declare(
        f"dyn.{_name}",
        "shape:values",
        {"dtype": "float32"},
        expand=lambda shape, dtype, _name=_name: shared(_name, shape_of_dims(shape), dtype=dtype),
        doc=f"A tensor of {_name}, of a shape that is computed.",
    )
    declare(f"{_name}_like", "data", expand=f"{_name}_like", doc=f"A tensor of {_name}, shaped as another.")
declare(
    "full_like",
    "data fill_value",
    expand=lambda data, fill_value: shared("full_like", data, shared("astype", fill_value, dtype=dtype_of(data))),
    doc="A tensor of one value, shaped as another.",
)


@constructs("full")
def full(fill_value: Value, shape: Dims = (), dtype: str = "") -> ir.Expr:
    """Make a tensor of one value; the shape may be an expression."""
    fill_value = as_expr(fill_value, dtype or None)
    if is_computed(shape):
        return call("dyn.full", fill_value, shape_argument(shape), dtype=dtype)
    return call("full", fill_value, shape=_shape_tuple(shape), dtype=dtype)


def _of(name: str, shape: Any, dtype: str) -> ir.Expr:
    if is_computed(shape):
        return call(f"dyn.{name}", shape_argument(shape), dtype=dtype)
    return call(name, shape=_shape_tuple(shape), dtype=dtype)


@constructs("zeros")
def zeros(shape: Dims, dtype: str = "float32") -> ir.Expr:
    """Make a tensor of zeros; the shape may be an expression."""
    return _of("zeros", shape, dtype)


@constructs("ones")
def ones(shape: Dims, dtype: str = "float32") -> ir.Expr:
    """Make a tensor of ones; the shape may be an expression."""
    return _of("ones", shape, dtype)


# --- ranges -----------------------------------------------------------------------------------------------------------

declare(
    "arange",
    "start:values stop:values step:values",
    {"dtype": "float32"},
    expand=lambda start, stop, step, dtype: shared("arange", *start, *stop, *step, dtype=dtype),
    doc="Evenly spaced numbers from `start`, before `stop`.",
)


@constructs("arange")
def arange(start: Value, stop: Value | None = None, step: Value | None = None, dtype: str = "float32") -> ir.Expr:
    """Make evenly spaced numbers from `start`, before `stop`; with one argument from 0, before it.

    Parameters
    ----------
    start, stop, step : number or Expr
        Scalars, of data type `dtype` where they are numbers.
    """
    if stop is None:
        start, stop = 0, start
    first, last, by = (as_expr(v, dtype) for v in (start, stop, 1 if step is None else step))
    if is_computed((first, last, by)) and ir.DataType(dtype).is_float:
        return _computed_range(first, last, by, dtype)
    return call("arange", first, last, by, dtype=dtype)


def _computed_range(start: ir.Expr, stop: ir.Expr, step: ir.Expr, dtype: str) -> ir.Expr:
    """Count the numbers, in float64, and compute each from its place: only whole numbers decide the shape."""
    b, e, s = (call("cast", v, dtype="float64") for v in (start, stop, step))
    count = call("cast", call("ceil", call("divide", call("subtract", e, b), s)), dtype="int64")
    zero, one = (as_expr(v, "int64") for v in (0, 1))
    places = call("arange", zero, call("maximum", count, zero), one, dtype="int64")
    each = call("add", b, call("multiply", call("cast", places, dtype="float64"), s))
    return call("cast", each, dtype=dtype)


# --- what a tensor's shape is -----------------------------------------------------------------------------------------

declare(
    "shape_of",
    "data",
    {"dtype": "int32"},
    expand=lambda data, dtype: scalars(dims(data), dtype),
    doc="The shape of a tensor, as a vector.",
)
declare(
    "ndarray_size",
    "data",
    {"dtype": "int32"},
    expand=lambda data, dtype: _scalar(op.product(dims(data)), dtype),
    doc="The number of elements of a tensor.",
)


def _one_hot(
    indices: ir.Expr, on_value: ir.Expr, off_value: ir.Expr, depth: Any, axis: int = -1, dtype: str = "float32"
) -> ir.Expr:
    """Choose between the two values by a mask, which keeps values that are computed."""
    count = depth if not isinstance(depth, tuple) else depth[0]
    hot = shared("one_hot", indices, True, False, depth=count, axis=axis, dtype="bool")
    return shared("where", hot, shared("astype", on_value, dtype=dtype), shared("astype", off_value, dtype=dtype))


declare(
    "one_hot",
    "indices on_value off_value",
    {"depth": REQUIRED, "axis": -1, "dtype": "float32"},
    expand=_one_hot,
    doc="A new axis of `depth` with `on_value` at each index and `off_value` elsewhere.",
)
declare(
    "dyn.one_hot",
    "indices on_value off_value depth:values",
    {"axis": -1, "dtype": "float32"},
    expand=_one_hot,
    doc="One-hot vectors of a length that is computed.",
)


@constructs("one_hot")
def one_hot(
    indices: Value, on_value: Value, off_value: Value, depth: ir.Expr | int, axis: int = -1, dtype: str = "float32"
) -> ir.Expr:
    """Make a new axis of `depth` with one value at each index and another elsewhere; depth may be an expression."""
    values = as_expr(on_value, dtype), as_expr(off_value, dtype)
    if is_computed(depth):
        return call("dyn.one_hot", indices, *values, depth, axis=axis, dtype=dtype)
    return call("one_hot", indices, *values, depth=numbers(depth), axis=axis, dtype=dtype)
