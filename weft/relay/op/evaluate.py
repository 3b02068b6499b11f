"""Evaluate a call of an operator on NumPy arrays, by the references of the shared operators that it expands to.

This is the meaning of Relay's operators: the interpreter, constant folding and the contract tests stand on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir
from weft.error import InternalError, InvalidArgument
from weft.ir import Attrs, PrimExpr, const, numpy_dtype
from weft.op import get_op_def
from weft.relay.expr import Call, Tuple, Var
from weft.relay.op.registry import expand, get
from weft.relay.types import TensorType, TupleType

__all__ = ["evaluate", "evaluate_expansion"]


def evaluate(call: ir.Call, arrays: Any) -> Any:
    """Evaluate a call of an operator.

    Parameters
    ----------
    call : Call
        The call; only its operator and attributes are used.
    arrays : sequence
        The values of its arguments: NumPy arrays, and tuples of them (of any depth) for tuples.

    Returns
    -------
    numpy.ndarray or tuple
        The result.
    """
    op = get(call.op)  # type: ignore[arg-type]
    known: dict[int, Any] = {}
    args = tuple(_variable(v, known) for v in arrays)
    if not op.variadic and len(args) > len(op.inputs):
        raise InvalidArgument(f"'{op.name}': too many arguments", expected=str(len(op.inputs)), found=str(len(args)))
    by_id = {id(a): v for a, v in zip(args, arrays, strict=True)}
    concrete = Call(call.op, args, call.attrs, span=call.span)
    return evaluate_expansion(expand(concrete, lambda arg: _elements(by_id[id(arg)])), known)


def _variable(value: Any, known: dict[int, Any]) -> ir.Expr:
    """Make a typed variable that stands for a value; a tuple of them for a tuple."""
    if isinstance(value, tuple):
        fields = tuple(_variable(v, known) for v in value)
        return Tuple(fields, ty=TupleType(tuple(f.ty for f in fields)))
    array = np.asarray(value)
    made = Var("x", TensorType(tuple(ir.int64(d) for d in array.shape), str(array.dtype)))
    known[id(made)] = array
    return made


def _elements(value: Any) -> tuple[PrimExpr, ...]:
    """Return the elements of an argument as numbers."""
    array = np.asarray(value)
    number, dtype = (int, "int64") if array.dtype.kind in "iub" else (float, "float64")
    return tuple(const(number(v), dtype) for v in array.reshape(-1))


def evaluate_expansion(expr: ir.Expr, known: dict[int, Any]) -> Any:
    """Evaluate an expression of shared operators, given the values of variables by their ``id``; those are extended."""
    if id(expr) in known:
        return known[id(expr)]
    value = known[id(expr)] = _value(expr, known)
    return value


def _value(expr: Any, known: dict[int, Any]) -> Any:
    if isinstance(expr, ir.Call):
        return _call(expr, known)
    if isinstance(expr, ir.Constant):
        return expr.data.numpy()
    if isinstance(expr, ir.Tuple):
        return tuple(evaluate_expansion(f, known) for f in expr.fields)
    if isinstance(expr, ir.TupleGetItem):
        return evaluate_expansion(expr.tuple_value, known)[expr.index]
    if isinstance(expr, ir.ShapeExpr):
        return tuple(_number(v) for v in expr.values)
    if isinstance(expr, ir.PrimValue):
        return _number(expr.value)
    raise InternalError(f"an expansion has a {type(expr).__name__} that is not an argument")


def _number(value: Any) -> Any:
    number = getattr(value, "value", None)
    if number is None:
        raise InternalError(f"a dimension of an evaluated operator is not a number: {value}")
    return number


def _call(call: ir.Call, known: dict[int, Any]) -> Any:
    definition = get_op_def(call.op)  # type: ignore[arg-type]
    args = [evaluate_expansion(a, known) for a in call.args]
    with np.errstate(all="ignore"):
        out = definition.reference(*args, **{**definition.attrs, **_attributes(call.attrs)})  # type: ignore[misc]
    return _typed(out, call.ty)


def _attributes(attrs: Attrs) -> dict[str, Any]:
    return dict(attrs.items)


def _typed(out: Any, ty: Any) -> Any:
    """Give results the data types that inference promises."""
    if isinstance(ty, ir.TupleType):
        return tuple(_typed(o, t) for o, t in zip(out, ty.fields, strict=True))
    array = np.asarray(out)
    wanted = numpy_dtype(ty.dtype)
    return np.ascontiguousarray(array.astype(wanted, copy=False)).reshape(array.shape)
