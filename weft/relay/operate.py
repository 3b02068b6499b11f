"""Operators on values: expanded once for arguments of the same data types and shapes, then computed each time.

What an operator means is what the shared operators of its expansion mean: their NumPy references.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import error, ir
from weft.op import get_op_def
from weft.relay.expr import Call, Tuple, Var, const
from weft.relay.op.registry import expand, get
from weft.relay.types import TensorType, TupleType


def operate(op: ir.Op, attrs: ir.Attrs, args: list[Any]) -> Any:
    """Apply an operator to arrays and tuples of arrays.

    Raises
    ------
    WeftError
        When the operator cannot take such values.
    """
    specs = list(zip(get(op).inputs, args, strict=False))
    elements = tuple(tuple(arg.reshape(-1).tolist()) for spec, arg in specs if spec.kind == "values")
    known = tuple((i, _contents(arg)) for i, (spec, arg) in enumerate(specs) if spec.kind == "constant")
    try:
        params, body = _expansion(op, attrs, tuple(map(_form, args)), elements, known)
        return compute(body, dict(zip(params, args, strict=True)))
    except error.WeftError:
        raise
    except Exception as e:
        raise error.EvaluationError(f"'{op.name}' failed: {e}") from e


@functools.lru_cache(maxsize=4096)
def _expansion(
    op: ir.Op, attrs: ir.Attrs, forms: tuple[Any, ...], elements: Any, known: Any
) -> tuple[tuple[ir.Expr, ...], ir.Expr]:
    """Expand a call with arguments of known form, and known elements where those decide what it expands to."""
    constants = {i: _constant(contents) for i, contents in known}
    params = tuple(constants.get(i) or Var(f"x{i}", _type(f)) for i, f in enumerate(forms))
    numbers = iter(elements)
    body = expand(Call(op, params, attrs), lambda _: tuple(map(_number, next(numbers))))
    return params, body


def _contents(value: Any) -> Any:
    """Describe arrays by all that they are, so that they can be looked up."""
    if isinstance(value, tuple):
        return tuple(map(_contents, value))
    return (value.dtype, value.shape, value.tobytes())


def _constant(contents: Any) -> ir.Expr:
    if contents and isinstance(contents[0], np.dtype):
        dtype, shape, data = contents
        return const(np.frombuffer(data, dtype).reshape(shape).copy())
    fields = tuple(map(_constant, contents))
    return Tuple(fields, ty=TupleType(tuple(f.ty for f in fields)))  # type: ignore[attr-defined]


def _number(value: Any) -> ir.PrimExpr:
    return ir.const(value, "float64" if isinstance(value, float) else "int64")


def _form(value: Any) -> Any:
    """Describe a value: an array's data type and shape, or a tuple's fields. Other values only pass through."""
    if isinstance(value, tuple):
        return tuple(map(_form, value))
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else ()


def _type(form: Any) -> Any:
    if form and isinstance(form[0], np.dtype):
        return TensorType(form[1], form[0].name)
    return TupleType(tuple(map(_type, form)))


def compute(expr: ir.Expr, known: dict[ir.Expr, Any]) -> Any:
    """Compute an expression of shared operators; `known` has the values of variables, and gets the others."""
    if expr in known:
        return known[expr]
    value = known[expr] = _value(expr, known)
    return value


def _value(expr: ir.Expr, known: dict[ir.Expr, Any]) -> Any:
    if isinstance(expr, ir.Call):
        definition = get_op_def(expr.op)  # type: ignore[arg-type]
        if definition.reference is None:
            raise error.EvaluationError(f"'{definition.name}' has no reference")
        args = [compute(a, known) for a in expr.args]
        with np.errstate(all="ignore"):
            return _typed(definition.reference(*args, **dict(expr.attrs.items)), expr.ty)
    if isinstance(expr, ir.Constant):
        return expr.data.numpy()
    if isinstance(expr, ir.Tuple):
        return tuple(compute(f, known) for f in expr.fields)
    if isinstance(expr, ir.TupleGetItem):
        return compute(expr.tuple_value, known)[expr.index]
    if isinstance(expr, ir.ShapeExpr):
        return tuple(map(_literal, expr.values))
    if isinstance(expr, ir.PrimValue):
        return _literal(expr.value)
    raise error.InternalError(f"an expansion has a {type(expr).__name__} that is not an argument")


def _literal(value: ir.PrimExpr) -> Any:
    """Return the number that a scalar expression is."""
    number = getattr(value, "value", None)
    if number is None:
        raise error.InternalError(f"a dimension of an evaluated operator is not a number: {value}")
    return number


def _typed(out: Any, ty: Any) -> Any:
    """Give results the data types that inference promises."""
    if isinstance(ty, ir.TupleType):
        return tuple(_typed(o, t) for o, t in zip(out, ty.fields, strict=True))
    array = np.asarray(out).astype(ir.numpy_dtype(ty.dtype), copy=False)
    return np.ascontiguousarray(array).reshape(array.shape)
