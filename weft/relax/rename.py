"""Finding and replacing graph-level variables; untouched parts keep their identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft import ir
from weft.ir import Call, Dispatch, Expr, ExprVar, Function, If, Node, Tuple, TupleGetItem, Type, Var
from weft.relax.expr import Binding, BindingBlock, MatchCast, SeqExpr, VarBinding


def rename_vars(expr: Expr, renamed: dict[Expr, Expr]) -> Any:
    """Replace graph-level variables; scalar expressions and types are left alone."""
    return _RENAME(expr, renamed)


_RENAME = Dispatch("rename variables", (Expr,), default=lambda expr, renamed: expr)


@_RENAME.on(ExprVar)
def _rename_var(expr: ExprVar, renamed: dict[Expr, Expr]) -> Any:
    return renamed.get(expr, expr)


@_RENAME.on(Call)
def _rename_call(expr: Call, renamed: dict[Expr, Expr]) -> Any:
    op = _RENAME(expr.op, renamed)
    args = tuple([_RENAME(a, renamed) for a in expr.args])
    if op is expr.op and all(a is b for a, b in zip(args, expr.args, strict=True)):
        return expr
    return Call(op, args, expr.attrs, expr.ty_args, span=expr.span, ty=expr.ty)


@_RENAME.on(Tuple)
def _rename_tuple(expr: Tuple, renamed: dict[Expr, Expr]) -> Any:
    fields = tuple([_RENAME(f, renamed) for f in expr.fields])
    if all(a is b for a, b in zip(fields, expr.fields, strict=True)):
        return expr
    return Tuple(fields, span=expr.span, ty=expr.ty)


@_RENAME.on(TupleGetItem)
def _rename_get_item(expr: TupleGetItem, renamed: dict[Expr, Expr]) -> Any:
    value = _RENAME(expr.tuple_value, renamed)
    return expr if value is expr.tuple_value else TupleGetItem(value, expr.index, span=expr.span, ty=expr.ty)


@_RENAME.on(If)
def _rename_if(expr: If, renamed: dict[Expr, Expr]) -> Any:
    parts = {f: _RENAME(getattr(expr, f), renamed) for f in ("cond", "true_branch", "false_branch")}
    return ir.with_fields(expr, **parts)


@_RENAME.on(SeqExpr)
def _rename_seq(expr: SeqExpr, renamed: dict[Expr, Expr]) -> Any:
    blocks = tuple([rename_block(b, renamed) for b in expr.blocks])
    return ir.with_fields(expr, blocks=blocks, body=_RENAME(expr.body, renamed))


def rename_block(block: BindingBlock, renamed: dict[Expr, Expr]) -> BindingBlock:
    """Replace graph-level variables in the values of a block; itself where they do not occur."""
    bindings = tuple([replace_value(b, _RENAME(b.value, renamed)) for b in block.bindings])
    return ir.with_fields(block, bindings=bindings)


@_RENAME.on(Function)
def _rename_function(expr: Function, renamed: dict[Expr, Expr]) -> Any:
    return expr.replace(body=_RENAME(expr.body, renamed))


def replace_value(binding: Binding, value: Expr, var: ExprVar | None = None) -> Any:
    """Return a binding with another value, and another variable if one is given; itself when nothing differs."""
    var = binding.var if var is None else var
    if value is binding.value and var is binding.var:
        return binding
    if isinstance(binding, MatchCast):
        return MatchCast(var, value, binding.ty, span=binding.span)
    return VarBinding(var, value, span=binding.span)


def with_sequences(value: Expr, rewrite: Callable[[Any], Any]) -> Any:
    """Return a value with its branches, or the body of an inner function, rewritten; itself where they stay."""
    if isinstance(value, If):
        return ir.with_fields(value, true_branch=rewrite(value.true_branch), false_branch=rewrite(value.false_branch))
    return value.replace(body=rewrite(value.body)) if isinstance(value, Function) else value


def copy_with_new_vars(func: Function) -> Function:
    """Return a function with variables and symbolic sizes of its own, in branches and inner functions, too."""
    renamed: dict[Expr, Expr] = {}
    symbols: dict[Var, Var] = {}

    def renew(ty: Type | None) -> None:
        symbols.update({n: type(n)(n.name, n.dtype) for n in ir.find(ty, Var) if n not in symbols})

    def fresh(var: Any) -> Any:
        renamed[var] = new = type(var)(var.name_hint, var.ty, span=var.span)
        return new

    def value_of(expr: Expr) -> Any:
        if isinstance(expr, SeqExpr):
            blocks = tuple(type(b)(tuple(binding(x) for x in b.bindings), span=b.span) for b in expr.blocks)
            return SeqExpr(blocks, value_of(expr.body), span=expr.span, ty=expr.ty)
        if isinstance(expr, If):
            parts = [value_of(e) for e in (expr.cond, expr.true_branch, expr.false_branch)]
            return If(*parts, span=expr.span, ty=expr.ty)
        return function(expr) if isinstance(expr, Function) else rename_vars(expr, renamed)

    def binding(b: Binding) -> Any:
        if isinstance(b.value, Function):  # it may call itself
            var = fresh(b.var)
            return replace_value(b, value_of(b.value), var)
        renew(b.ty if isinstance(b, MatchCast) else None)
        return replace_value(b, value_of(b.value), fresh(b.var))

    def function(f: Function) -> Function:
        for p in f.params:
            renew(p.ty)
        return f.replace(params=tuple(fresh(p) for p in f.params), body=value_of(f.body))

    return ir.substitute(function(func), symbols)


def variables(expr: Node | None) -> list[ExprVar]:
    """List the uses of graph-level variables in an expression, branches and nested functions included."""
    out: list[ExprVar] = []
    stack: list[Any] = [expr]
    while stack:
        e = stack.pop()
        if isinstance(e, ExprVar):
            out.append(e)
        elif (below := _BELOW.get(type(e))) is not None:
            stack += below(e)
    return out


_BELOW: dict[type, Callable[[Any], Iterable[Any]]] = {
    Call: lambda e: (*e.args, e.op),
    Tuple: lambda e: e.fields,
    TupleGetItem: lambda e: (e.tuple_value,),
    If: lambda e: (e.cond, e.true_branch, e.false_branch),
    SeqExpr: lambda e: (*(b.value for block in e.blocks for b in block.bindings), e.body),
    Function: lambda e: (e.body,),
}
