"""How quantized operators are declared: by what they are in Relay's operators of integers, which is all they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import error, ir
from weft.op import tensor_arg
from weft.relay.expr import const
from weft.relay.op.registry import declare, expand, get, has, op_call
from weft.relay.transform.simplify_inference import expand_to_axis
from weft.relay.types import TensorType


def define(
    name: str,
    inputs: str,
    attrs: dict[str, Any],
    decompose: Callable[..., ir.Expr],
    infer: Callable[[Sequence[Any], ir.Attrs], Any] | None = None,
    doc: str = "",
) -> None:
    """Declare ``qnn.<name>``.

    Parameters
    ----------
    decompose : callable
        ``decompose(*args, **attrs)`` takes expressions with types and returns Relay's expression over them; it gives
        the operator's type, unless `infer` does, its value, and what ``qnn.transform.CanonicalizeOps`` writes.
    infer : callable, optional
        Where `decompose` needs scales that are constants: the type without them.
    """
    full = f"qnn.{name}"

    def expanded(*args: ir.Expr, **values: Any) -> Any:
        for spec, arg in zip(get(full).inputs, args, strict=False):
            if spec.kind == "tensor":
                tensor_arg(full, spec.name, arg)
        return _expanded(decompose(*args, **values), {})

    declare(full, inputs, attrs, expand=expanded, infer=infer, doc=doc)

    def canonicalize(values: ir.Attrs, args: Sequence[Any], _types: Sequence[Any]) -> Any:
        return decompose(*args, **{**get(full).attrs, **dict(values.items)})

    ir.register_op_attr(full, "FTVMQnnCanonicalize", canonicalize)


def _expanded(expr: ir.Expr, memo: dict[Any, Any]) -> Any:
    """Write Relay's operators as shared ones, over arguments that have types already."""
    if expr in memo:
        return memo[expr]
    made = expr
    if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) and expr.ty is None and has(expr.op.name):
        made = expand(ir.Call(expr.op, tuple(_expanded(a, memo) for a in expr.args), expr.attrs))
    elif isinstance(expr, ir.Tuple) and expr.ty is None:
        fields = tuple(_expanded(f, memo) for f in expr.fields)
        made = ir.Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)))
    elif isinstance(expr, ir.TupleGetItem):  # Relay's own node is none of a program in Relax
        made = ir.TupleGetItem(_expanded(expr.tuple_value, memo), expr.index, ty=expr.ty)
    memo[expr] = made
    return made


def constant(op: str, name: str, value: ir.Expr) -> np.ndarray:
    """Return the numbers of a constant.

    Raises
    ------
    InvalidArgument
        When it is none: the multipliers of fixed-point arithmetic are computed at compile time.
    """
    if not isinstance(value, ir.Constant):
        raise error.InvalidArgument(
            f"qnn.{op}: '{name}' must be a constant",
            found=str(value)[:60],
            where=value.span,
            help="bind it as a parameter, or fold constants first",
        )
    return value.data.numpy()


def is_value(expr: ir.Expr, number: float) -> bool:
    """Whether an expression is a constant of rank 0 with that value."""
    return isinstance(expr, ir.Constant) and expr.data.numpy().shape == () and float(expr.data.numpy()) == number


def along(value: ir.Expr, ndim: int, axis: int) -> Any:
    """Bring a scale or zero point of each channel beside its axis; scalars stay."""
    if value.ty.ndim == 0 or ndim == 0:
        return value
    return expand_to_axis(value, ndim, axis)


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a data type."""
    kind = ir.DataType(dtype)
    if kind.is_float or kind.bits > 32:
        raise error.TypeInferenceError("quantized numbers are integers of up to 32 bits", found=dtype)
    unsigned = dtype.startswith("uint")
    return (0, 2**kind.bits - 1) if unsigned else (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)


def clipped(value: ir.Expr, dtype: str) -> Any:
    """Clip integers to a data type and convert them."""
    if dtype != "int32":
        low, high = limits(dtype)
        value = op_call("clip", value, a_min=float(low), a_max=float(high))
    return op_call("cast", value, dtype=dtype)


def zero() -> Any:
    """Return the zero point of a tensor that is not shifted."""
    return const(np.int32(0))


def same_shape(types: Sequence[Any], dtype: str) -> TensorType:
    """Return the type of a result of the first argument's shape."""
    return TensorType(types[0].shape, dtype)
