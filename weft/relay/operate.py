"""Operators on values: what a Relay operator expands to, computed by the NumPy references of the shared registry."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import ir
from weft.error import EvaluationError, WeftError
from weft.ir import Attrs, Dispatch, Op, PrimExpr, numpy_dtype
from weft.op import get_op_def
from weft.relay.expr import Call, Var
from weft.relay.op.registry import expand, get
from weft.relay.types import TensorType, TupleType

__all__ = ["operate"]


def operate(op: Op, attrs: Attrs, args: list[Any]) -> Any:
    """Apply an operator to arrays and tuples of arrays.

    Raises
    ------
    WeftError
        When the operator cannot take such values.
    """
    definition = get(op)
    known = tuple(
        tuple(args[i].reshape(-1).tolist())
        for i, spec in enumerate(definition.inputs[: len(args)])
        if spec.kind == "values"
    )
    params, body = _expansion(op, attrs, tuple(map(_form, args)), known)
    values: dict[int, Any] = {id(p): a for p, a in zip(params, args, strict=True)}
    try:
        return compute(body, values)
    except WeftError:
        raise
    except Exception as e:
        raise EvaluationError(f"'{op.name}' failed", found=str(e)) from e


@functools.lru_cache(maxsize=4096)
def _expansion(op: Op, attrs: Attrs, forms: tuple[Any, ...], known: tuple[Any, ...]) -> tuple[tuple[Var, ...], Any]:
    """Expand an operator for arguments of known form, and values where its result's shape depends on them."""
    params = tuple(Var(f"a{i}", _type(f)) for i, f in enumerate(forms))
    numbers = iter(known)
    body = expand(Call(op, params, attrs), lambda _: tuple(ir.const(v, "float64" if isinstance(v, float) else "int64")
                                                           for v in next(numbers)))  # fmt: skip
    return params, body


def _form(value: Any) -> Any:
    """Describe a value: an array's dtype and shape, or a tuple's fields."""
    return tuple(map(_form, value)) if isinstance(value, tuple) else (value.dtype, value.shape)


def _type(form: Any) -> Any:
    if form and isinstance(form[0], np.dtype):
        return TensorType(form[1], form[0].name)
    return TupleType(tuple(map(_type, form)))


compute = Dispatch(
    "value of an expansion",
    covers=(ir.ExprVar, ir.Constant, ir.Tuple, ir.TupleGetItem, ir.ShapeExpr, ir.PrimValue, ir.Call),
)


@compute.on(ir.ExprVar)
def _var(node: ir.ExprVar, values: dict[int, Any]) -> Any:
    return values[id(node)]


@compute.on(ir.Constant)
def _constant(node: ir.Constant, _values: dict[int, Any]) -> Any:
    return node.data.numpy()


@compute.on(ir.Tuple)
def _tuple(node: ir.Tuple, values: dict[int, Any]) -> Any:
    return tuple(compute(f, values) for f in node.fields)


@compute.on(ir.TupleGetItem)
def _item(node: ir.TupleGetItem, values: dict[int, Any]) -> Any:
    return compute(node.tuple_value, values)[node.index]


@compute.on(ir.ShapeExpr)
def _shape(node: ir.ShapeExpr, values: dict[int, Any]) -> Any:
    return tuple(_number(v) for v in node.values)


@compute.on(ir.PrimValue)
def _prim(node: ir.PrimValue, _values: dict[int, Any]) -> Any:
    return _number(node.value)


def _number(value: PrimExpr) -> Any:
    number = getattr(value, "value", None)
    if number is None:
        raise EvaluationError("a dimension is not known", found=str(value))
    return number


@compute.on(ir.Call)
def _call(node: ir.Call, values: dict[int, Any]) -> Any:
    if id(node) not in values:
        reference: Any = get_op_def(node.op).reference  # type: ignore[arg-type]
        if reference is None:
            raise EvaluationError(f"'{node.op.name}' has no reference")  # type: ignore[union-attr]
        values[id(node)] = _typed(
            reference(*[compute(a, values) for a in node.args], **dict(node.attrs.items)), node.ty
        )
    return values[id(node)]


def _typed(result: Any, ty: Any) -> Any:
    if isinstance(ty, ir.TupleType):
        return tuple(_typed(r, t) for r, t in zip(result, ty.fields, strict=True))
    return np.asarray(result, numpy_dtype(ty.dtype))
