"""Normal form: what becomes of each kind of expression before it is bound.

Operands become atoms, what is nested is bound before, and everything gets its type.
"""

from typing import Any

from msgspec.structs import replace

from weft import error, ir, tir
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, MatchCast, SeqExpr, Var
from weft.relax.infer import function_type, infer_call, merge_types, type_of
from weft.relax.rename import rename_vars, replace_value

_IMMEDIATES = (ir.ShapeExpr, ir.PrimValue, ir.ExprStringImm, ir.DataTypeImm)
ATOMS = (ir.ExprVar, ir.Constant, ir.GlobalVar, ir.ExternFunc, *_IMMEDIATES)


def is_atom(e: ir.Expr) -> bool:
    """Whether an expression may be an operand: an atom, or a tuple of such."""
    return isinstance(e, ATOMS) or (isinstance(e, ir.Tuple) and all(map(is_atom, e.fields)))


def operands(e: ir.Expr) -> tuple[Any, ...]:
    """Return the operands of what a variable is bound to."""
    if isinstance(e, ir.Call):
        return e.args if isinstance(e.op, ir.Op) else (e.op, *e.args)
    if isinstance(e, ir.TupleGetItem):
        return (e.tuple_value,)
    return (e.cond,) if isinstance(e, ir.If) else e.fields if isinstance(e, ir.Tuple) else ()


# Functions of TIR belong to the module.
NORMAL_FORM = ir.Dispatch("normalize", (ir.Expr,), leaves_out=(tir.PrimFunc,))


@NORMAL_FORM.on(*ATOMS, ir.Op)
def _atom(expr: ir.Expr, bb: Any) -> ir.Expr:
    if isinstance(expr, ir.Op) or expr.ty is not None or isinstance(expr, ir.GlobalVar):  # type: ignore[attr-defined]
        return expr
    return replace(expr, ty=type_of(expr)) if not isinstance(expr, ir.ExprVar) else expr


@NORMAL_FORM.on(ir.PrimExpr, int, float)
def _scalar(expr: ir.PrimExpr | float, bb: Any) -> ir.Expr:
    return ir.prim_value(expr)


@NORMAL_FORM.on(ir.Call)
def _call(expr: ir.Call, bb: Any) -> ir.Expr:
    op = expr.op if isinstance(expr.op, (ir.Op, ir.ExternFunc, ir.GlobalVar)) else bb.atom(expr.op)
    args = tuple([bb.atom(a) for a in expr.args])
    rule = ir.op_attr(op.name, "FNormalize") if isinstance(op, ir.Op) and not bb.as_written else None
    if rule is not None:
        call = ir.Call(op, args, expr.attrs, expr.ty_args, span=expr.span)
        new = rule(bb, call)
        if new is not call:
            return NORMAL_FORM(new, bb)
    if expr.ty is not None and op is expr.op and all(a is b for a, b in zip(args, expr.args, strict=True)):
        return expr
    span = expr.span or bb.span
    call = ir.Call(op, args, expr.attrs, expr.ty_args, span=span)
    try:
        ty = infer_call(call, bb.module)
    except error.WeftError as e:
        if span is not None:  # the call, rather than the operand that does not fit it
            e.where = span
        raise
    return ir.Call(op, args, expr.attrs, expr.ty_args, span=span, ty=ty)


def _operands_in_place(bb: Any, call: ir.Call) -> ir.Call:
    """Write the operands of a kernel's call where they are given, and not a variable that holds their tuple."""
    operands: Any = call.args[1]
    if not isinstance(operands, ir.ExprVar) or not isinstance(operands.ty, ir.TupleType):
        return call
    known = bb.lookup_binding(operands)
    fields = [ir.TupleGetItem(operands, i) for i in range(len(operands.ty.fields))]
    made = known if isinstance(known, ir.Tuple) else ir.Tuple(tuple(fields))
    return ir.Call(call.op, (call.args[0], made, *call.args[2:]), call.attrs, call.ty_args, span=call.span)


for _name in ("call_tir", "call_tir_inplace"):
    ir.register_op_attr(f"relax.{_name}", "FNormalize", _operands_in_place)


@NORMAL_FORM.on(ir.Tuple)
def _tuple(expr: ir.Tuple, bb: Any) -> ir.Expr:
    fields = tuple([bb.atom(f) for f in expr.fields])
    if expr.ty is not None and all(a is b for a, b in zip(fields, expr.fields, strict=True)):
        return expr
    return ir.Tuple(fields, span=expr.span, ty=ir.TupleType(tuple(type_of(f) for f in fields)))


@NORMAL_FORM.on(ir.TupleGetItem)
def _tuple_get_item(expr: ir.TupleGetItem, bb: Any) -> ir.Expr:
    value = bb.atom(expr.tuple_value)
    if isinstance(value, ir.Tuple):
        return value.fields[expr.index]
    if value is expr.tuple_value and expr.ty is not None:
        return expr
    new = ir.TupleGetItem(value, expr.index, span=expr.span)
    return replace(new, ty=type_of(new))


@NORMAL_FORM.on(ir.If)
def _if(expr: ir.If, bb: Any) -> ir.Expr:
    cond = bb.atom(expr.cond)
    true_branch, false_branch = _branch(expr.true_branch, bb), _branch(expr.false_branch, bb)
    if expr.ty is not None and (cond, true_branch, false_branch) == (expr.cond, expr.true_branch, expr.false_branch):
        return expr
    ty = merge_types(type_of(true_branch), type_of(false_branch))
    return ir.If(cond, true_branch, false_branch, span=expr.span, ty=ty)


def _branch(expr: ir.Expr, bb: Any) -> SeqExpr:
    """Normalize a sequence of its own, keeping its blocks; the same object when it is in normal form."""
    with bb.scope() as inner:
        if not isinstance(expr, SeqExpr):
            return bb.finish(inner, bb.atom(expr))
        renamed: dict[ir.Expr, ir.Expr] = {}
        for block in expr.blocks:
            bb.open_block(inner, isinstance(block, DataflowBlock))
            for b in block.bindings:
                _emit_binding(b, bb, renamed)
        bb.open_block(inner, False)
        result = bb.atom(rename_vars(expr.body, renamed))
        new = bb.finish(inner, result)
    same = expr.ty is not None and result is expr.body and len(new.blocks) == len(expr.blocks)
    kept = same and all(
        type(n) is type(o) and n.bindings == o.bindings for n, o in zip(new.blocks, expr.blocks, strict=True)
    )
    return expr if kept else new


def _inline_seq(expr: ir.Expr, bb: Any) -> ir.Expr:
    """Emit the bindings of a sequence into the current block and return its result as an atom.

    Bindings that may have effects end a dataflow block, which goes on behind them.
    """
    if not isinstance(expr, SeqExpr):
        return bb.atom(expr)
    renamed: dict[ir.Expr, ir.Expr] = {}
    for block in expr.blocks:
        interrupts = bb.in_dataflow and not isinstance(block, DataflowBlock) and bb.can_interrupt
        if interrupts:
            bb.next_block(False)
        for b in block.bindings:
            _emit_binding(b, bb, renamed)
        if interrupts:
            bb.next_block(True)
    return bb.atom(rename_vars(expr.body, renamed))


def _emit_binding(binding: Binding, bb: Any, renamed: dict[ir.Expr, ir.Expr]) -> None:
    value = rename_vars(binding.value, renamed)
    new = bb.atom(value) if isinstance(binding, MatchCast) else bb.normalize(value)
    var = binding.var
    local = isinstance(var, DataflowVar)
    if var.ty is None or (local and not bb.in_dataflow):
        kind = DataflowVar if local and bb.in_dataflow else Var
        typed = kind(var.name_hint, var.ty or new.ty, span=var.span)  # type: ignore[attr-defined]
        renamed[var] = typed
        var = typed
    bb.emit_normalized(replace_value(binding, new, var))


@NORMAL_FORM.on(SeqExpr)
def _seq(expr: SeqExpr, bb: Any) -> ir.Expr:
    return _inline_seq(expr, bb) if bb.is_open else _branch(expr, bb)


@NORMAL_FORM.on(ir.Function)
def _function(expr: ir.Function, bb: Any) -> ir.Expr:
    body = _branch(expr.body, bb)
    if body is expr.body and expr.ret_ty is not None and expr.ty is not None:
        return expr
    func = ir.Function(expr.params, body, expr.ret_ty or body.ty, expr.is_pure, expr.attrs, span=expr.span)
    return func.replace(ty=function_type(func))
