"""Questions about the variables, bindings and calls of Relax programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Call, Expr, ExprVar, Function, GlobalVar, IRModule, Var, find, post_order, reached
from weft.relax.analysis.types import definable_tir_vars_in_type
from weft.relax.effects import is_mergeable, is_pure_call, mutable_variables
from weft.relax.expr import DataflowBlock, MatchCast, SeqExpr
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings
from weft.spelling import also_called


def _distinct(nodes: Any) -> list[Any]:
    return list(dict.fromkeys(nodes))


def _bindings(expr: Expr) -> list[Any]:
    """List the bindings of an expression, those of branches and inner functions included."""
    return [b for n in find(expr, SeqExpr) for block in n.blocks for b in block.bindings]


def bound_vars(expr: Expr) -> list[ExprVar]:
    """List the variables that an expression introduces: parameters and bindings."""
    params = [p for f in find(expr, Function) for p in f.params]
    return _distinct([*params, *[b.var for b in _bindings(expr)]])


def free_vars(expr: Expr) -> list[ExprVar]:
    """List the variables that an expression uses and does not introduce, each once."""
    bound = set(bound_vars(expr))
    return _distinct(v for v in reversed(variables(expr)) if v not in bound)


def all_vars(expr: Expr) -> list[ExprVar]:
    """List the variables that an expression introduces or uses, each once."""
    return _distinct([*bound_vars(expr), *reversed(variables(expr))])


def all_global_vars(expr: Expr) -> list[GlobalVar]:
    """List the functions of the module that an expression names, each once."""
    return _distinct(find(expr, GlobalVar))


def defined_symbolic_vars(func: Function) -> list[Var]:
    """List the symbolic variables that parameters and ``match_cast`` give a value: dimensions that stand alone."""
    types = [p.ty for p in func.params] + [b.ty for b in all_bindings(func) if isinstance(b, MatchCast)]
    return _distinct(n for ty in types if ty is not None for n in definable_tir_vars_in_type(ty))


def free_symbolic_vars(func: Function) -> list[Var]:
    """List the symbolic variables that a function uses and does not introduce."""
    known = set(defined_symbolic_vars(func))
    return _distinct(n for n in find(func, Var) if n not in known)


@also_called(fvisit="visit")
def post_order_visit(expr: Expr, visit: Callable[[Any], Any]) -> None:
    """Call ``visit`` on each graph-level expression, operands first; a shared one is visited once."""
    post_order(expr, lambda n: visit(n) if isinstance(n, Expr) else None)


def get_var2val(func: Function) -> dict[ExprVar, Expr]:
    """Map each bound variable to its value."""
    return {b.var: b.value for b in all_bindings(func)}


def name_to_binding(func: Function) -> dict[str, list[Any]]:
    """Map each name to the bindings of variables that have it."""
    found: dict[str, list[Any]] = {}
    for b in all_bindings(func):
        found.setdefault(b.var.name_hint, []).append(b)
    return found


@also_called(dfb="block")
def udchain(block: DataflowBlock) -> dict[ExprVar, list[ExprVar]]:
    """Map each variable that a block uses or binds to the variables whose values use it."""
    chain: dict[ExprVar, list[ExprVar]] = {}
    for b in block.bindings:
        chain.setdefault(b.var, [])
        for v in _distinct(reversed(variables(b.value))):
            chain.setdefault(v, []).append(b.var)
    return chain


def contains_impure_call(expr: Expr, own_name: ExprVar | GlobalVar | None = None) -> bool:
    """Whether evaluating an expression makes a call that may have effects.

    Parameters
    ----------
    own_name : ExprVar or GlobalVar, optional
        The name of the function itself, whose recursive calls do not count.
    """
    stack: list[Any] = [expr.body if isinstance(expr, Function) else expr]
    while stack:
        e = stack.pop()
        if isinstance(e, Call) and e.op is not own_name and not is_pure_call(e):
            return True
        if isinstance(e, SeqExpr):
            stack += [e.body, *[b.value for block in e.blocks for b in block.bindings]]
        elif not isinstance(e, Function):  # making a function calls nothing
            stack += [getattr(e, f) for f in ("true_branch", "false_branch") if hasattr(e, f)]
    return False


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """List the groups of functions that call themselves or each other, by name and each group sorted by name."""
    calls = {
        v: [g for g in all_global_vars(f) if g in mod and isinstance(mod[g], Function)]
        for v, f in mod.items()
        if isinstance(f, Function)
    }
    by_name = {v.name_hint: v for v in calls}
    reach = {name: _reachable(name, calls, by_name) for name in by_name}
    groups: dict[tuple[str, ...], None] = {}
    for name in sorted(by_name):
        if name in reach[name]:
            groups[tuple(sorted(n for n in reach[name] if name in reach[n]))] = None
    return [[by_name[n] for n in group] for group in groups]


def _reachable(start: str, calls: dict[Any, list[GlobalVar]], by_name: dict[str, GlobalVar]) -> set[str]:
    """Collect the names that calls lead to, at least one call away."""

    def called(name: str) -> list[str]:
        return [g.name_hint for g in calls[by_name[name]]]

    return set(reached(called(start), called))


def computable_at_compile_time(func: Function) -> list[ExprVar]:
    """List the weights, the parameters that ``num_input`` says are known, and the variables that follow from them.

    A symbolic size follows where the type of such a variable names it alone.
    """
    count = func.attrs.get("num_input")
    out: list[ExprVar] = list(func.params[int(count) :]) if count is not None else []
    known: set[Any] = {*out, *(s for v in out for s in _sizes(v))}
    mutable = mutable_variables(func)
    for b in all_bindings(func):
        uses = {*variables(b.value), *find(b.value, Var)}
        safe = isinstance(b, MatchCast) or is_mergeable(b.value, b.var, mutable)
        if safe and uses <= known and type(b.value) is not Function:
            known |= {b.var, *_sizes(b.var)}
            out.append(b.var)
    return out


def _sizes(var: ExprVar) -> list[Var]:
    return [] if var.ty is None else definable_tir_vars_in_type(var.ty)
