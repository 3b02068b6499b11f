"""ToANormalForm: every intermediate result has a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import ir
from weft.relay.adt import Match
from weft.relay.analysis.scopes import Scope, Scopes
from weft.relay.expr import Call, Constant, Function, If, Let, Var, lets
from weft.relay.op.registry import get, has
from weft.relay.transform.free import Captures
from weft.relay.walk import ATOMS, map_parts
from weft.spelling import also_called


@ir.function_pass(kind=Function)
def to_a_normal_form(func: Function, mod: ir.IRModule, *, bind_constants: bool = True) -> Function:
    """Turn graphs into nested lets, one operation each; what several places share is computed once.

    Parameters
    ----------
    bind_constants : bool
        Whether constants get names, too. Those whose elements are dimensions never do: types depend on them.

    Requires: Any form; a shared expression's variables are bound where all its uses can see them.
    Ensures: Values of lets are single operations on atoms; choices, matches and functions hold lets of their own. What
        is shared is bound once, in the innermost scope that holds all its uses, before the first of them.
    Before::

        def @main(%x: Tensor[(2), float32], %c: bool) {
          %0 = add(%x, %x);
          if (%c) { multiply(%0, %0) } else { negative(%0) }
        }

    After::

        def @main(%x: Tensor[(2), float32], %c: bool) {
          let %a = add(%x, %x);
          let %b = if (%c) {
            let %d = multiply(%a, %a);
            %d
          } else {
            let %e = negative(%a);
            %e
          };
          %b
        }
    Cost: Linear.
    Source: TVM's ``ToANormalForm``.
    """
    if is_primitive(func):
        return func
    scopes = Scopes(func)
    return ir.with_deep_stack(lambda: name_values(func, scopes, lambda e: bind_constants or type(e) is not Constant))


@also_called(e="expr")
def to_a_normal_form_expr(expr: ir.Expr) -> Any:
    """Turn one expression into nested lets (TVM's ``ToANormalFormExpr``)."""
    func = expr if type(expr) is Function else Function(tuple(Captures().variables(Function((), expr))), expr)
    made = to_a_normal_form(ir.IRModule({"main": func}))["main"]
    return made if func is expr else made.body


def is_primitive(func: Function) -> bool:
    """Whether a function stands for one kernel or belongs to an external compiler: passes leave its body alone."""
    return bool(func.attrs and (func.attrs.get("Primitive") or func.attrs.get("Compiler")))


def name_values(func: Function, scopes: Scopes, named: Callable[[Any], bool]) -> Function:
    """Bind to a variable each expression that is no atom and that ``named(expr)`` accepts, where it is computed.

    Those that are not accepted stay in the place where they are used.
    """
    return _Namer(scopes, named).with_bodies(func)


class _Namer:
    """Fills scopes with bindings, in the order of evaluation."""

    def __init__(self, scopes: Scopes, named: Callable[[Any], bool]) -> None:
        self.scopes, self.named = scopes, named
        self.bindings: dict[Scope, list[tuple[Var, Any]]] = {}
        self.done: dict[ir.Node, Any] = {}
        self.fixed: set[ir.Expr] = set()  # constants that stay arguments

    def body(self, expr: ir.Expr, scope: Scope) -> Any:
        """Return the lets of a scope whose result is `expr`."""
        bindings = self.bindings[scope] = []
        return _same_or(expr, bindings, self.value(expr, scope))

    def value(self, expr: ir.Node, scope: Scope, var: Var | None = None) -> Any:
        """Return what stands for an expression used in a scope: its name, or itself over names; `var` if given."""
        chain: list[Any] = []
        while type(expr) is Let and expr not in self.done:
            self.value(expr.value, self.scopes.of[expr], expr.var)
            chain.append(expr)
            expr = expr.body
        known = self.done.get(expr)
        result = self.compute(expr, scope, var) if known is None else known
        if var is not None and result is not var:
            self.bindings[scope].append((var, result))
            result = var
        for let in chain:
            self.done[let] = result
        return result

    def compute(self, expr: ir.Node, scope: Scope, var: Var | None) -> Any:
        """Compute what has not been computed yet, where it belongs; `var`, if given, is its name."""
        constant = type(expr) is Constant and expr not in self.fixed
        if isinstance(expr, ATOMS) and not constant:
            return expr
        home = self.scopes.of[expr]
        result = expr if constant else self.operation(expr, home)
        if var is not None or self.named(expr):
            name = var or Var("x", getattr(expr, "ty", None))
            self.bindings[home].append((name, result))
            result = name
        self.done[expr] = result
        return result

    def operation(self, expr: ir.Node, home: Scope) -> Any:
        """Return one operation on the names of its operands."""
        if type(expr) is Function:
            return expr if is_primitive(expr) else self.with_bodies(expr)
        if type(expr) is If:
            cond = self.value(expr.cond, home)
            return ir.with_fields(self.with_bodies(expr), cond=cond)
        if type(expr) is Match:
            data = self.value(expr.data, home)
            return ir.with_fields(self.with_bodies(expr), data=data)
        if type(expr) is Call:
            self.fixed.update(_dimensions(expr))
        return map_parts(expr, lambda e: self.value(e, home))

    def with_bodies(self, expr: ir.Expr) -> Any:
        """Return a function, choice or match with lets in its bodies."""
        scopes = self.scopes.opened.get(expr, [])
        return _with_bodies(expr, [self.body(b, s) for b, s in zip(_bodies(expr), scopes, strict=True)])


def _dimensions(call: Call) -> list[Any]:
    """List the arguments of an operator that are constants whose elements are dimensions."""
    if not isinstance(call.op, ir.Op) or not has(call.op.name):
        return []
    pairs = zip(get(call.op).inputs, call.args, strict=False)
    return [a for spec, a in pairs if spec.kind == "values" and type(a) is Constant]


def _bodies(expr: Any) -> Sequence[Any]:
    if type(expr) is Match:
        return [c.rhs for c in expr.clauses]
    return (expr.body,) if type(expr) is Function else (expr.true_branch, expr.false_branch)


def _with_bodies(expr: Any, new: list[Any]) -> Any:
    if type(expr) is Match:
        clauses = (ir.with_fields(c, rhs=rhs) for c, rhs in zip(expr.clauses, new, strict=True))
        return ir.with_fields(expr, clauses=tuple(clauses))
    if type(expr) is If:
        return ir.with_fields(expr, true_branch=new[0], false_branch=new[1])
    return expr.replace(body=new[0])


def _same_or(old: ir.Expr, bindings: list[tuple[Var, Any]], result: ir.Expr) -> Any:
    """Nest bindings around a result; the lets that stood there where they are the same."""
    e = old
    for var, value in bindings:
        if type(e) is not Let or e.var is not var or e.value is not value:
            return lets(bindings, result)
        e = e.body
    return old if e is result else lets(bindings, result)
