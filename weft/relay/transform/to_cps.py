"""ToCPS and UnCPS: continuation-passing style, in which each function is told what to do with its result.

No function returns then: what follows a call is a function, which the callee calls. Choices and references are where
partial evaluation finds what they do.

Source: Appel, *Compiling with Continuations*, 1992; TVM's ``to_cps``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relay import expr
from weft.relay.adt import Clause, Constructor, Match, PatternVar
from weft.relay.infer import infer_type
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.types import FuncType, IncompleteType, TypeVar
from weft.relay.walk import parts

Continuation = Callable[[Any], Any]


@ir.module_pass(name="ToCPS", opt_level=1)
def ToCPS(mod: ir.IRModule) -> ir.IRModule:
    """Bring every function into continuation-passing style.

    Requires: Types, and no shared expressions (A-normal form).
    Ensures: Each function has a continuation as its last parameter, and the type of the answer as a type parameter.
    Before::

        def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] { negative(%x) }

    After::

        def @main[answer](%x: Tensor[(), float32], %k: fn (Tensor[(), float32]) -> answer) -> answer {
          let %y = negative(%x);
          %k(%y)
        }
    Cost: Linear.
    Source: TVM's ``ToCPS``.
    """
    out = mod.copy()
    for gvar, func in mod.items():
        if isinstance(func, expr.Function):
            out[gvar.name_hint] = to_cps(func, out)
    return out


@ir.module_pass(name="UnCPS", opt_level=1)
def UnCPS(mod: ir.IRModule) -> ir.IRModule:
    """Give every function in continuation-passing style the face of one that returns.

    Requires: Functions that :func:`ToCPS` made, with types.
    Ensures: Functions without continuations, which call what they were with the identity.
    Before::

        def @main[answer](%x: Tensor[(), float32], %k: fn (Tensor[(), float32]) -> answer) -> answer {
          let %y = negative(%x);
          %k(%y)
        }

    After::

        def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] {
          %0 = fn [answer](%x: Tensor[(), float32], %k: fn (Tensor[(), float32]) -> answer) -> answer {
            let %y = negative(%x);
            %k(%y)
          };
          %0(%x, fn (%z: Tensor[(), float32]) -> Tensor[(), float32] { %z })
        }
    Cost: Linear.
    Source: TVM's ``UnCPS``.
    """
    return mod.with_functions({v: un_cps(f) if isinstance(f, expr.Function) else f for v, f in mod.items()})


def to_cps(func: expr.Function, mod: ir.IRModule | None = None) -> expr.Function:
    """Bring a function into continuation-passing style.

    Parameters
    ----------
    func : Function
        With types; expressions are not shared.
    mod : IRModule, optional
        Where functions that are called are found; those that the result calls are added to it.

    Returns
    -------
    Function
        Its last parameter is what is done with the result; its last type parameter is the type of the answer.
    """
    return ir.with_deep_stack(lambda: _Converter(mod if mod is not None else ir.IRModule()).whole(func))


def un_cps(func: expr.Function) -> expr.Function:
    """Make a function that returns of one in continuation-passing style.

    Parameters
    ----------
    func : Function
        What :func:`to_cps` made, with types.
    """
    last: Any = func.params[-1].ty if func.params else None
    if not isinstance(last, FuncType) or len(last.arg_types) != 1 or not func.type_params:
        raise InvalidArgument(
            "un_cps: the function has no continuation",
            found=str(last),
            where=func.span,
            help="infer the types of what to_cps made",
        )
    params = [expr.Var(p.name_hint, p.ty) for p in func.params[:-1]]
    result = last.arg_types[0]
    x = expr.Var("x", result)
    call = expr.Call(func, (*params, expr.Function((x,), x, result)), ty_args=(*func.type_params[:-1], result))
    return expr.Function(tuple(params), call, result, func.type_params[:-1], func.attrs)


class _Converter:
    """Converts a function and those that it calls; ``answer`` is what the whole computes."""

    def __init__(self, mod: ir.IRModule) -> None:
        self.mod = mod
        self.globals: dict[str, expr.GlobalVar] = {}
        self.answer = TypeVar("answer")
        self.vars: dict[Any, expr.Var] = {}

    def whole(self, func: expr.Function) -> expr.Function:
        """Convert a function with an answer of its own."""
        outer = self.answer, self.vars
        self.answer, self.vars = TypeVar("answer"), {}
        typed: Any = func if func.body.ty is not None else infer_type(func)
        made = self.function(typed)
        params = (*made.type_params, self.answer)
        self.answer, self.vars = outer
        return expr.Function(made.params, made.body, made.ret_type, params, made.attrs)

    def type_of(self, ty: ir.Type | None) -> Any:
        """Return what a type becomes: functions take what is done with their result."""
        if ty is None or isinstance(ty, IncompleteType):
            return None

        def rule(node: ir.Node) -> Any:
            if not isinstance(node, FuncType):
                return node
            then = FuncType((node.ret_type,), self.answer)
            return FuncType((*node.arg_types, then), self.answer, node.type_params)

        return ir.rewrite(ty, rule)

    def var(self, v: Any) -> expr.Var:
        if v not in self.vars:
            self.vars[v] = expr.Var(v.name_hint, self.type_of(v.ty))
        return self.vars[v]

    def function(self, func: expr.Function) -> expr.Function:
        if is_primitive(func):
            raise InvalidArgument("to_cps: groups of FuseOps are no functions of the program", where=func.span)
        result = self.type_of(func.body.ty or func.ret_type)
        then = expr.Var("k", None if result is None else FuncType((result,), self.answer))
        params = (*map(self.var, func.params), then)
        body = self.convert(func.body, lambda e: expr.Call(then, (e,)))
        return expr.Function(params, body, self.answer, func.type_params, func.attrs)

    def convert(self, e: expr.Expr, k: Continuation) -> Any:
        """Return the expression that computes `e` and goes on with its value."""
        rule = _RULES.get(type(e))
        if rule is not None:
            return rule(self, e, k)
        build = _BUILT[type(e)]
        return self.each(parts(e), lambda values: self.bound(build(e, values), k))

    def each(self, todo: Iterable[Any], k: Callable[[list[Any]], Any]) -> Any:
        """Compute expressions in their order, and go on with their values."""
        left, values = list(todo)[::-1], []

        def following(value: Any = None) -> Any:
            if value is not None:
                values.append(value)
            return self.convert(left.pop(), following) if left else k(values)

        return following()

    def bound(self, e: expr.Expr, k: Continuation) -> Any:
        """Compute an expression once, before what follows."""
        var = expr.Var("x")
        return expr.Let(var, e, k(var))

    def reified(self, k: Continuation) -> expr.Function:
        arg = expr.Var("arg")
        return expr.Function((arg,), k(arg))

    # --- forms --------------------------------------------------------------------------------------------------------

    def global_var(self, e: expr.GlobalVar, k: Continuation) -> Any:
        func = self.mod[e.name_hint]
        if not isinstance(func, expr.Function):
            return k(e)
        if e.name_hint not in self.globals:
            made = self.globals[e.name_hint] = expr.GlobalVar(f"{e.name_hint}_cps")
            self.mod[made] = self.whole(func)
        return k(self.globals[e.name_hint])

    def let(self, e: expr.Let, k: Continuation) -> Any:
        return self.convert(e.value, lambda v: expr.Let(self.var(e.var), v, self.convert(e.body, k)))

    def shared(self, k: Continuation, use: Callable[[Continuation], Any]) -> Any:
        """Bind what follows, for branches of which each goes on with it."""
        then = expr.Var("then")
        return expr.Let(then, self.reified(k), use(lambda v: expr.Call(then, (v,))))

    def choice(self, e: expr.If, k: Continuation) -> Any:
        def use(then: Continuation) -> Any:
            return self.convert(
                e.cond, lambda c: expr.If(c, self.convert(e.true_branch, then), self.convert(e.false_branch, then))
            )

        return self.shared(k, use)

    def match(self, e: Match, k: Continuation) -> Any:
        def pattern(node: ir.Node) -> Any:
            return PatternVar(self.var(node.var)) if isinstance(node, PatternVar) else node

        def clauses(then: Continuation) -> tuple[Clause, ...]:
            return tuple(Clause(ir.rewrite(c.lhs, pattern), self.convert(c.rhs, then)) for c in e.clauses)

        return self.shared(k, lambda then: self.convert(e.data, lambda d: Match(d, clauses(then), e.complete)))

    def call(self, e: expr.Call, k: Continuation) -> Any:
        if isinstance(e.op, (ir.Op, Constructor)):
            return self.each(e.args, lambda args: self.bound(expr.Call(e.op, tuple(args), e.attrs, span=e.span), k))
        return self.each((e.op, *e.args), lambda v: expr.Call(v[0], (*v[1:], self.reified(k)), e.attrs, span=e.span))


_BUILT: dict[type, Callable[[Any, list[Any]], Any]] = {
    expr.Tuple: lambda e, v: expr.Tuple(tuple(v)),
    expr.TupleGetItem: lambda e, v: expr.TupleGetItem(v[0], e.index),
    expr.RefCreate: lambda e, v: expr.RefCreate(v[0]),
    expr.RefRead: lambda e, v: expr.RefRead(v[0]),
    expr.RefWrite: lambda e, v: expr.RefWrite(v[0], v[1]),
}
_RULES: dict[type, Any] = {
    expr.Var: lambda c, e, k: k(c.var(e)),
    expr.Function: lambda c, e, k: k(c.function(e)),
    expr.GlobalVar: _Converter.global_var,
    expr.Let: _Converter.let,
    expr.If: _Converter.choice,
    Match: _Converter.match,
    expr.Call: _Converter.call,
    expr.Constant: lambda c, e, k: k(e),
    Constructor: lambda c, e, k: k(e),
}
