"""What expansions ask about their arguments: dimensions, axes, numbers; and shapes that mix numbers and expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.error import ShapeMismatch, TypeInferenceError, reading
from weft.op import normalize_axes, normalize_axis, tensor_arg
from weft.relay.expr import as_expr, const
from weft.relay.op.registry import op_call
from weft.relay.types import TensorType
from weft.topi.typing import Whole


def dims(x: ir.Expr, op: str = "", name: str = "data") -> tuple[ir.PrimExpr, ...]:
    """Return the dimensions of a tensor.

    Raises
    ------
    TypeInferenceError
        When it is no tensor.
    """
    shape = tensor_arg(op or "argument", name, x).shape
    if shape is None:
        raise TypeInferenceError("the rank of a tensor must be known", found=str(x.ty), where=x.span)
    return shape


def rank(x: ir.Expr) -> int:
    """Return the number of dimensions of a tensor."""
    return len(dims(x))


def dtype_of(x: ir.Expr) -> str:
    """Return the data type of a tensor."""
    return tensor_arg("argument", "data", x).dtype


def vector(op: str, name: str, x: ir.Expr, length: ir.PrimExpr) -> ir.Expr:
    """Return an argument that is a vector as long as an axis.

    Raises
    ------
    ShapeMismatch
        When it has another rank or another length.
    """
    found = tensor_arg(op, name, x, ndim=1).shape[0]  # type: ignore[index]
    if None not in (ir.as_int(found), ir.as_int(length)) and ir.as_int(found) != ir.as_int(length):
        raise ShapeMismatch(
            f"{op}: '{name}' does not fit the axis", expected=f"{length} elements", found=str(found), where=x.span
        )
    return x


def axis_of(op: str, data: ir.Expr, axis: Whole) -> int:
    """Return an axis of a tensor counted from the front; the tensor must have one."""
    return normalize_axis(op, axis, len(tensor_arg(op, "data", data, min_ndim=1).shape or ()))


def vectors(count: int) -> Any:
    """Make the rule that the arguments after the data are vectors as long as its axis."""

    def completes(data: TensorType, axis: int = 1, **_: Any) -> tuple[TensorType, ...]:
        return (TensorType(((data.shape or ())[axis],), data.dtype),) * count

    return completes


def shape_of_dims(values: Iterable[ir.PrimExpr | int]) -> ir.ShapeExpr:
    """Make a shape argument of a shared operator."""
    return ir.shape_expr(tuple(values))


def excluded(op: str, axis: int | Sequence[int] | None, exclude: bool, ndim: int) -> Any:
    """Return the axes to reduce: all but those given where they are excluded."""
    if axis == ():
        axis = None
    if not exclude:
        return axis
    named = normalize_axes(op, axis, ndim)
    return tuple(i for i in range(ndim) if i not in named)


def is_computed(value: object) -> bool:
    """Whether a shape argument of a constructor is an expression that only run time knows."""
    if isinstance(value, (list, tuple)):
        return any(is_computed(v) for v in value)
    return isinstance(value, ir.Expr) and not isinstance(value, ir.Constant)


def numbers(value: object) -> Any:
    """Return a constant shape argument as a tuple of ints and scalar expressions, a scalar constant as an int."""
    if isinstance(value, ir.Constant):
        data = value.data.numpy()
        return int(data) if data.ndim == 0 else tuple(int(v) for v in data.reshape(-1))
    if isinstance(value, (list, tuple)):
        return tuple(numbers(v) for v in value)
    if isinstance(value, ir.PrimExpr):
        known = ir.as_int(value)
        return value if known is None else known
    with reading("this is no size and no list of sizes", expected="integers or scalar expressions"):
        return None if value is None else int(value)  # type: ignore[call-overload]


def shape_argument(value: object) -> ir.Expr:
    """Make the vector argument of an operator that takes its shape at run time, from a vector or a mixed list."""
    if isinstance(value, (list, tuple)) and is_computed(value):
        parts = [op_call("reshape", op_call("cast", as_expr(v), dtype="int64"), newshape=(1,)) for v in value]
        return op_call("concatenate", tuple(parts), axis=0)
    return value if isinstance(value, ir.Expr) else const(np.array(numbers(value), "int64"))
