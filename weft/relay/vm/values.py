"""How expressions become instructions: a rule for each kind of expression, and for each operator that is one.

A rule gets the expression, the code of its function, and the value that must hold the result, where there is one.
"""

from __future__ import annotations

from typing import Any

from weft import error, ir, runtime
from weft.relay import expr as exprs
from weft.relay.adt import Constructor, Match
from weft.relay.scalars import scalar_operation
from weft.relay.vm.function_code import FunctionCode, I
from weft.relay.vm.operators import OPERATORS

value_code = ir.Dispatch(
    "code of the Relay machine", (exprs.Operators,), leaves_out=(exprs.Operators, exprs.Let)
)  # lets are bound before


@value_code.on(exprs.Var)
def _var(expr: exprs.Var, code: FunctionCode, dst: int | None) -> int:
    value = code.env.get(expr)
    if value is None:
        raise error.InvalidArgument(f"'{code.name}' does not bind the variable '{expr.name_hint}'", where=expr.span)
    return code.into(value, dst)


@value_code.on(exprs.Constant)
def _constant(expr: exprs.Constant, code: FunctionCode, dst: int | None) -> int:
    data: runtime.Tensor = expr.data
    if not data.shape and data.dtype == "int64":
        number = int(data.numpy())
        return code.load(("number", number), lambda v: I.load_consti(number, v), dst)
    index = code.unit.constants.add(data)
    return code.load(index, lambda v: I.load_const(index, v), dst)


@value_code.on(exprs.GlobalVar)
def _global_var(expr: exprs.GlobalVar, code: FunctionCode, dst: int | None) -> int:
    return _closure(code, code.unit.function(expr)[0], [], dst)


@value_code.on(Constructor)
def _constructor(expr: Constructor, code: FunctionCode, dst: int | None) -> int:
    return _closure(code, code.unit.constructor_function(expr), [], dst)


@value_code.on(exprs.Function)
def _function(expr: exprs.Function, code: FunctionCode, dst: int | None) -> int:
    raise error.LoweringError(
        f"'{code.name}' contains a function, which has no code", where=expr.span, help="run LambdaLift before"
    )


@value_code.on(exprs.Tuple)
def _tuple(expr: exprs.Tuple, code: FunctionCode, dst: int | None) -> int:
    fields = code.values(expr.fields)
    value = _adt(code, 0, fields, dst)
    if dst is None:
        code.tuples[value] = fields
    return value


@value_code.on(exprs.TupleGetItem)
def _tuple_get_item(expr: exprs.TupleGetItem, code: FunctionCode, dst: int | None) -> int:
    whole = code.value(expr.tuple_value)
    fields = code.tuples.get(whole)
    if fields is not None:
        return code.into(fields[expr.index], dst)
    value = code.new(expr) if dst is None else dst
    code.emit(I.get_field(whole, expr.index, value))
    return value


@value_code.on(exprs.If)
def _if(expr: exprs.If, code: FunctionCode, dst: int | None) -> int:
    value, join = code.new(expr) if dst is None else dst, code.asm.label()
    code.branch(expr, lambda e: code.value(e, value), join)
    code.asm.place(join)
    return value


@value_code.on(Match)
def _match(expr: Match, code: FunctionCode, dst: int | None) -> int:
    value, join = code.new(expr) if dst is None else dst, code.asm.label()
    code.match(expr, lambda e: code.value(e, value), join)
    code.asm.place(join)
    return value


@value_code.on(exprs.RefCreate)
def _ref_create(expr: exprs.RefCreate, code: FunctionCode, dst: int | None) -> int:
    held = code.value(expr.value)
    value = code.new() if dst is None else dst
    code.emit(I.alloc_ref(held, value))
    return value


@value_code.on(exprs.RefRead)
def _ref_read(expr: exprs.RefRead, code: FunctionCode, dst: int | None) -> int:
    ref = code.value(expr.ref)
    value = code.new(expr) if dst is None else dst
    code.emit(I.read_ref(ref, value))
    return value


@value_code.on(exprs.RefWrite)
def _ref_write(expr: exprs.RefWrite, code: FunctionCode, dst: int | None) -> int:
    ref, held = code.values((expr.ref, expr.value))
    code.emit(I.write_ref(ref, held))
    return _adt(code, 0, [], dst)


@value_code.on(exprs.Call)
def _call(expr: exprs.Call, code: FunctionCode, dst: int | None) -> int:
    callee = expr.op
    if isinstance(callee, ir.Op):
        return _operator(expr, code, dst)
    args = code.values(expr.args)
    if isinstance(callee, Constructor):
        if len(args) != len(callee.inputs):
            raise error.InvalidArgument(
                f"the constructor {callee.name_hint} takes {len(callee.inputs)} fields",
                found=str(len(args)),
                where=expr.span,
            )
        return _adt(code, callee.tag, args, dst)
    if isinstance(callee, exprs.GlobalVar):
        index, func = code.unit.function(callee)
        if func.attrs.get("Closure"):
            return _closure(code, index, args, dst)
        value = code.new(expr) if dst is None else dst
        code.emit(I.invoke(index, args, value))
        return value
    closure = code.value(callee)
    value = code.new(expr) if dst is None else dst
    known = code.closures.get(closure)
    if known is not None:  # the function is called directly; the closure goes where nobody else reads it
        code.emit(I.invoke(known[0], [*known[1], *args], value))
    else:
        code.emit(I.invoke_closure(closure, args, value))
    return value


def _operator(expr: exprs.Call, code: FunctionCode, dst: int | None) -> int:
    op: Any = expr.op
    rule = OPERATORS.get(op.name)
    if rule is not None:
        value = rule(expr, code, dst)
        return _adt(code, 0, [], dst) if value is None else value
    operation = scalar_operation(expr)
    if operation is None:
        raise error.LoweringError(
            f"'{code.name}': the operator {op.name} has no instruction",
            where=expr.span,
            found=", ".join(str(a.ty) for a in expr.args),
            help="run InferType and LowerRegions before",
        )
    args = code.values(expr.args)
    if operation == "same":
        return code.into(args[0], dst)
    value = code.asm.value(scalar=True) if dst is None else dst
    if operation in _UNARY:
        operation, args = _UNARY[operation](args[0], code)
    code.emit(I.scalar(operation, args[0], args[1], value))
    return value


_UNARY: dict[str, Any] = {
    "not": lambda x, code: ("equal", [x, code.number(0)]),
    "to bool": lambda x, code: ("not_equal", [x, code.number(0)]),
    "to int64": lambda x, code: ("add", [x, code.number(0)]),
    "negative": lambda x, code: ("subtract", [_subtracted(x, code), x]),
}


def _subtracted(x: int, code: FunctionCode) -> int:
    """A zero of the same dtype: x - x."""
    zero = code.asm.value(scalar=True)
    code.emit(I.scalar("subtract", x, x, zero))
    return zero


def _adt(code: FunctionCode, tag: int, fields: list[int], dst: int | None) -> int:
    value = code.new() if dst is None else dst
    code.emit(I.alloc_adt(tag, fields, value))
    return value


def _closure(code: FunctionCode, index: int, captured: list[int], dst: int | None) -> int:
    value = code.new() if dst is None else dst
    code.emit(I.alloc_closure(index, captured, value))
    if dst is None:
        code.closures[value] = (index, captured)
    return value
