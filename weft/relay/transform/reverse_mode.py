"""Reverse mode over the whole language: tensors become pairs of a value and a cell for its adjoint.

A cell holds what is still to be done backwards, a function; each operator puts one before it that adds to the adjoints
of its arguments. Functions take that cell as their last parameter, so that those of the module can be differentiated.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.error import InvalidArgument, UnsupportedOperator
from weft.relay import expr
from weft.relay.adt import Clause, Constructor, Match, PatternVar
from weft.relay.op.registry import op_call
from weft.relay.primal_gradient import is_float, ones_of, primal_gradient
from weft.relay.scope_builder import ScopeBuilder
from weft.relay.types import FuncType, IncompleteType, RefType, TupleType, unit_type
from weft.relay.walk import map_parts

_BACK = RefType(FuncType((), unit_type()))


def reverse_mode(func: expr.Function, mod: ir.IRModule | None) -> expr.Function:
    """Make the function that returns adjoints, too; its parameters and its result are tensors or tuples of them."""
    for p in func.params:
        if not isinstance(p.ty, ir.TensorType):
            raise InvalidArgument(
                "gradient: a parameter of higher order is a tensor",
                found=str(p.ty),
                where=p.span,
                help='tuples are differentiated by mode="first_order"',
            )
    scope = ScopeBuilder()
    back = scope.let("backpropagator", expr.RefCreate(expr.Function((), expr.Tuple(()))))
    params = [expr.Var(p.name_hint, p.ty) for p in func.params]
    cells = [scope.let("cell", expr.RefCreate(op_call("zeros_like", p))) for p in params]
    whole = expr.Function(func.params, func.body, None, func.type_params, func.attrs)
    made = ir.with_deep_stack(lambda: _Reverse(mod, back).convert(whole))
    pairs = [expr.Tuple((p, c)) for p, c in zip(params, cells, strict=True)]
    result = scope.let("result", expr.Call(made, (*pairs, back)))
    _seed(scope, result, func.body.ty)
    scope.let("done", expr.Call(expr.RefRead(back), ()))
    grads = expr.Tuple(tuple(expr.RefRead(c) for c in cells))
    scope.ret(expr.Tuple((_values(result, func.body.ty), grads)))
    return expr.Function(tuple(params), scope.get(), None, func.type_params)


def _seed(scope: ScopeBuilder, result: Any, ty: ir.Type) -> None:
    """Set the adjoint of the result, of several that of the first, to 1."""
    if isinstance(ty, ir.TupleType) and ty.fields:
        _seed(scope, expr.TupleGetItem(result, 0), ty.fields[0])
    elif isinstance(ty, ir.TensorType):
        one = ones_of(expr.TupleGetItem(result, 0), ty)
        scope.let("seed", expr.RefWrite(expr.TupleGetItem(result, 1), one))
    else:
        raise InvalidArgument("gradient: the result is made of tensors", found=str(ty))


def _values(pair: Any, ty: ir.Type) -> Any:
    """Return the values of a tensor, or of the tensors of a tuple, without their cells."""
    if isinstance(ty, ir.TupleType):
        return expr.Tuple(tuple(_values(expr.TupleGetItem(pair, i), t) for i, t in enumerate(ty.fields)))
    return expr.TupleGetItem(pair, 0)


def _paired(ty: ir.Type | None) -> Any:
    """Return what a type becomes."""
    if ty is None or isinstance(ty, IncompleteType):
        return None
    return ir.rewrite(ty, _pair_type)


def _pair_type(ty: ir.Type) -> Any:
    if isinstance(ty, ir.TensorType):
        return TupleType((ty, RefType(ty)))
    return FuncType((*ty.arg_types, _BACK), ty.ret_type, ty.type_params) if isinstance(ty, FuncType) else ty


class _Reverse:
    """Converts expressions, once each; `back` is the cell with what is to be done backwards."""

    def __init__(self, mod: ir.IRModule | None, back: Any) -> None:
        self.mod, self.back = mod, back
        self.scopes: list[ScopeBuilder] = []
        self.memo: dict[Any, Any] = {}

    def convert(self, e: expr.Expr) -> Any:
        """Return what stands for an expression."""
        if e not in self.memo:
            kind = _RULES.get(type(e))
            self.memo[e] = map_parts(e, self.convert) if kind is None else kind(self, e)
        return self.memo[e]

    def body(self, e: expr.Expr) -> Any:
        """Convert what is computed in a place of its own: a branch, the body of a function, or lets."""
        made, outer = ScopeBuilder(), dict(self.memo)
        self.scopes.append(made)
        while isinstance(e, expr.Let):
            var = self.convert(e.var)
            made.let(var, self.convert(e.value))
            e = e.body
        made.ret(self.convert(e))
        self.scopes.pop()
        self.memo = outer
        return made.get()

    def let(self, name: str, value: Any) -> expr.Var:
        return self.scopes[-1].let(name, value)

    # --- forms --------------------------------------------------------------------------------------------------------

    def var(self, e: expr.Var) -> Any:
        return expr.Var(e.name_hint, _paired(e.ty))

    def constant(self, e: expr.Constant) -> Any:
        return self.let("constant", self.with_cell(e))

    def with_cell(self, value: Any) -> Any:
        return expr.Tuple((value, expr.RefCreate(op_call("zeros_like", value))))

    def function(self, e: expr.Function) -> Any:
        outer_back, outer_memo = self.back, dict(self.memo)
        self.back = expr.Var("backpropagator", _BACK)
        params = tuple(self.convert(p) for p in e.params)
        made = expr.Function((*params, self.back), self.body(e.body), _paired(e.ret_type), e.type_params, e.attrs)
        self.back, self.memo = outer_back, outer_memo
        return made

    def global_var(self, e: expr.GlobalVar) -> Any:
        if self.mod is None:
            raise InvalidArgument(
                "gradient needs the module of a function that is called", found=f"@{e.name_hint}", help="pass mod="
            )
        name = f"{e.name_hint}_grad"
        made = self.mod.get_global_var(name) if name in self.mod else expr.GlobalVar(name)
        if name not in self.mod:
            func: Any = self.mod[e.name_hint]
            self.mod[made] = func  # what calls it meanwhile, as a recursion does, finds the name
            self.mod[made] = ir.with_deep_stack(lambda: _Reverse(self.mod, None).convert(func))
        return made

    def choice(self, e: expr.If) -> Any:
        return self.let(
            "choice",
            expr.If(expr.TupleGetItem(self.convert(e.cond), 0), self.body(e.true_branch), self.body(e.false_branch)),
        )

    def match(self, e: Match) -> Any:
        def bound(node: ir.Node) -> Any:
            return PatternVar(self.convert(node.var)) if isinstance(node, PatternVar) else node

        clauses = tuple(Clause(ir.rewrite(c.lhs, bound), self.body(c.rhs)) for c in e.clauses)
        return self.let("match", Match(self.convert(e.data), clauses, e.complete))

    def stored(self, e: expr.Expr) -> Any:
        return self.let("stored", map_parts(e, self.convert))

    def call(self, e: expr.Call) -> Any:
        if isinstance(e.op, Constructor):
            return expr.Call(e.op, tuple(map(self.convert, e.args)), e.attrs)
        if not isinstance(e.op, ir.Op):
            return self.let("called", expr.Call(self.convert(e.op), (*map(self.convert, e.args), self.back)))
        pairs = [self.convert(a) for a in e.args]
        values = [self.atom(_values(p, a.ty)) for p, a in zip(pairs, e.args, strict=True)]
        result = self.let("value", expr.Call(e.op, tuple(values), e.attrs, span=e.span))
        made = self.let("pair", _with_cells(result, e.ty))
        if any(map(_has_floats, (a.ty for a in e.args))) and _has_floats(e.ty):
            self.put_before(e, pairs, values, made)
        return made

    def atom(self, e: expr.Expr) -> Any:
        return e if isinstance(e, (expr.Var, expr.Constant)) else self.let("operand", e)

    def put_before(self, e: expr.Call, pairs: list[Any], values: list[Any], made: Any) -> None:
        """Let what is done backwards begin with this call."""
        later = self.let("later", expr.RefRead(self.back))
        scope = ScopeBuilder()
        adjoint = scope.let("adjoint", _adjoint(made, e.ty))
        for pair, arg, partial in zip(pairs, e.args, primal_gradient(e, values, adjoint), strict=True):
            _accumulate(scope, pair, partial, arg.ty)
        scope.ret(expr.Call(later, ()))
        self.let("updated", expr.RefWrite(self.back, expr.Function((), scope.get())))


def _with_cells(value: Any, ty: ir.Type | None) -> Any:
    if isinstance(ty, ir.TupleType):
        return expr.Tuple(tuple(_with_cells(expr.TupleGetItem(value, i), t) for i, t in enumerate(ty.fields)))
    if not isinstance(ty, ir.TensorType):
        raise UnsupportedOperator("gradient: an operator's result is made of tensors", found=str(ty))
    return expr.Tuple((value, expr.RefCreate(op_call("zeros_like", value))))


def _has_floats(ty: ir.Type | None) -> bool:
    return any(map(_has_floats, ty.fields)) if isinstance(ty, ir.TupleType) else is_float(ty)


def _adjoint(pair: Any, ty: ir.Type | None) -> Any:
    """Read the adjoint of a result."""
    if isinstance(ty, ir.TupleType):
        return expr.Tuple(tuple(_adjoint(expr.TupleGetItem(pair, i), t) for i, t in enumerate(ty.fields)))
    return expr.RefRead(expr.TupleGetItem(pair, 1))


def _accumulate(scope: ScopeBuilder, pair: Any, partial: Any, ty: ir.Type) -> None:
    """Add to the adjoint of an argument."""
    if isinstance(ty, ir.TupleType):
        whole = partial if isinstance(partial, expr.Tuple) else scope.let("partial", partial)
        for i, t in enumerate(ty.fields):
            field = whole.fields[i] if isinstance(whole, expr.Tuple) else expr.TupleGetItem(whole, i)
            _accumulate(scope, expr.TupleGetItem(pair, i), field, t)
    elif is_float(ty):
        cell = expr.TupleGetItem(pair, 1)
        scope.let("added", expr.RefWrite(cell, op_call("add", expr.RefRead(cell), partial)))


_RULES: dict[type, Any] = {
    expr.Var: _Reverse.var,
    expr.Constant: _Reverse.constant,
    expr.Function: _Reverse.function,
    expr.GlobalVar: _Reverse.global_var,
    expr.Let: _Reverse.body,
    expr.If: _Reverse.choice,
    Match: _Reverse.match,
    expr.Call: _Reverse.call,
    expr.RefCreate: _Reverse.stored,
    expr.RefRead: _Reverse.stored,
    expr.RefWrite: _Reverse.stored,
    Constructor: lambda _, e: e,
    ir.Op: lambda _, e: e,
}
