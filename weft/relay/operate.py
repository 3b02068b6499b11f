"""Operators on values: expanded once for arguments of the same data types and shapes, then computed each time."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import ir
from weft.error import EvaluationError, WeftError
from weft.ir import Attrs, Op
from weft.relay.expr import Call, Var
from weft.relay.op.evaluate import evaluate_expansion
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
    specs = zip(get(op).inputs, args, strict=False)
    elements = tuple(tuple(arg.reshape(-1).tolist()) for spec, arg in specs if spec.kind == "values")
    try:
        params, body = _expansion(op, attrs, tuple(map(_form, args)), elements)
        return evaluate_expansion(body, {id(p): a for p, a in zip(params, args, strict=True)})
    except WeftError:
        raise
    except Exception as e:
        raise EvaluationError(f"'{op.name}' failed: {e}") from e


@functools.lru_cache(maxsize=4096)
def _expansion(op: Op, attrs: Attrs, forms: tuple[Any, ...], elements: Any) -> tuple[tuple[Var, ...], ir.Expr]:
    """Expand a call with arguments of known form, and known elements where those are dimensions of the result."""
    params = tuple(Var(f"x{i}", _type(f)) for i, f in enumerate(forms))
    numbers = iter(elements)
    body = expand(Call(op, params, attrs), lambda _: tuple(map(_number, next(numbers))))
    return params, body


def _number(value: Any) -> ir.PrimExpr:
    return ir.const(value, "float64" if isinstance(value, float) else "int64")


def _form(value: Any) -> Any:
    """Describe a value: an array's data type and shape, or a tuple's fields."""
    return tuple(map(_form, value)) if isinstance(value, tuple) else (value.dtype, value.shape)


def _type(form: Any) -> Any:
    if form and isinstance(form[0], np.dtype):
        return TensorType(form[1], form[0].name)
    return TupleType(tuple(map(_type, form)))
