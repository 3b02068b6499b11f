"""Copies of expressions with variables of their own, as when a function's body takes the place of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from weft import ir
from weft.relay.adt import Clause, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from weft.relay.expr import Function, Let, Var, lets
from weft.relay.types import TypeVar
from weft.relay.walk import bound_by, rewrite, subexpressions


def fresh_copy(
    expr: ir.Expr, values: Mapping[Var, Any] | None = None, types: Mapping[TypeVar, ir.Type] | None = None
) -> Any:
    """Copy an expression with new variables for those that it binds.

    Parameters
    ----------
    values : mapping, optional
        What takes the place of free variables.
    types : mapping, optional
        What takes the place of type variables, in the types of all expressions.
    """
    types = types or {}
    new: dict[Var, Any] = dict(values or {})
    for e in subexpressions(expr):
        for v in bound_by(e):
            new[v] = Var(v.name_hint, typed(v.ty, types), span=v.span)

    def rule(e: ir.Node) -> Any:
        if type(e) is Let:
            e = Let(new[e.var], e.value, e.body, ty=e.ty, span=e.span)
        elif type(e) is Function:
            e = e.replace(params=tuple(new[p] for p in e.params), ret_type=typed(e.ret_type, types))
        elif type(e) is Match:
            clauses = tuple(Clause(renamed_pattern(c.lhs, new), c.rhs, span=c.span) for c in e.clauses)
            e = Match(e.data, clauses, e.complete, ty=e.ty, span=e.span)
        return _retyped(e, types) if types else e

    return rewrite(expr, rule, pre=lambda e: new.get(e) if type(e) is Var else None)


def body_for_call(func: Function, args: tuple[Any, ...], ty_args: tuple[ir.Type, ...], named: list[bool]) -> Any:
    """Return a function's body over the arguments of a call.

    Parameters
    ----------
    named : list of bool
        For each argument, whether it is computed once, before the body, under a name; others take the place of
        their parameter.
    """
    types = dict(zip(func.type_params, ty_args, strict=True)) if len(ty_args) == len(func.type_params) else {}
    values: dict[Var, Any] = {}
    bindings: list[tuple[Var, Any]] = []
    for param, arg, name in zip(func.params, args, named, strict=True):
        values[param] = arg
        if name:
            values[param] = Var(param.name_hint, typed(param.ty, types), span=param.span)
            bindings.append((values[param], arg))
    return lets(bindings, fresh_copy(func.body, values, types))


def typed(ty: ir.Type | None, types: Mapping[TypeVar, ir.Type]) -> Any:
    """Replace type variables in a type; None stays None."""
    if ty is None or not types:
        return ty
    return ir.rewrite(ty, lambda t: t, pre=lambda t: types.get(t) if type(t) is TypeVar else None)


def _retyped(e: ir.Node, types: Mapping[TypeVar, ir.Type]) -> Any:
    ty = typed(getattr(e, "ty", None), types)
    ty_args = tuple(typed(t, types) for t in getattr(e, "ty_args", ()))
    if ty is getattr(e, "ty", None) and all(a is b for a, b in zip(ty_args, getattr(e, "ty_args", ()), strict=True)):
        return e
    return replace(e, ty=ty, ty_args=ty_args) if ty_args else replace(e, ty=ty)


def renamed_pattern(p: Pattern, new: Mapping[Var, Any]) -> Pattern:
    """Replace the variables that a pattern binds."""
    if isinstance(p, PatternVar):
        return PatternVar(new[p.var], span=p.span)
    if isinstance(p, PatternConstructor):
        return PatternConstructor(p.constructor, tuple(renamed_pattern(q, new) for q in p.patterns), span=p.span)
    if isinstance(p, PatternTuple):
        return PatternTuple(tuple(renamed_pattern(q, new) for q in p.patterns), span=p.span)
    return p
