"""Walking and rewriting Relay expressions: only expressions are visited, chains of lets cost no recursion.

Types, attributes and patterns are left alone. A shared expression is visited once, so graphs stay graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from weft import ir
from weft.relay import expr as nodes
from weft.relay.adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar

ATOMS = (nodes.Var, nodes.GlobalVar, nodes.Constant, Constructor, ir.Op)  # what is a value without computing
_PARTS: dict[type, tuple[str, ...]] = {
    nodes.Call: ("op", "args"),
    nodes.Tuple: ("fields",),
    nodes.TupleGetItem: ("tuple_value",),
    nodes.If: ("cond", "true_branch", "false_branch"),
    nodes.Let: ("value", "body"),
    nodes.Function: ("body",),
    Match: ("data", "clauses"),
    nodes.RefCreate: ("value",),
    nodes.RefRead: ("ref",),
    nodes.RefWrite: ("ref", "value"),
}


def operator_name(expr: ir.Expr) -> str:
    """Return the name of the operator that an expression calls; nothing where it calls none."""
    return expr.op.name if isinstance(expr, nodes.Call) and isinstance(expr.op, ir.Op) else ""


def parts(expr: ir.Node) -> Iterator[Any]:
    """Yield the expressions that an expression is made of, in the order in which they are computed."""
    for name in _PARTS.get(type(expr), ()):
        value = getattr(expr, name)
        if type(value) is tuple:
            for v in value:
                yield v.rhs if type(v) is Clause else v
        else:
            yield value


def map_parts(expr: ir.Node, f: Callable[[Any], Any]) -> Any:
    """Return `expr` with ``f`` applied to each of its :func:`parts`; `expr` itself if none changed."""
    made: dict[str, Any] = {}
    for name in _PARTS.get(type(expr), ()):
        old = getattr(expr, name)
        made[name] = tuple([_map_part(v, f) for v in old]) if type(old) is tuple else f(old)
    return ir.with_fields(expr, **made)


def _map_part(value: ir.Node, f: Callable[[Any], Any]) -> Any:
    return ir.with_fields(value, rhs=f(value.rhs)) if type(value) is Clause else f(value)


def pattern_vars(pattern: Pattern) -> Iterator[nodes.Var]:
    """Yield the variables that a pattern binds."""
    stack = [pattern]
    while stack:
        p = stack.pop()
        if isinstance(p, PatternVar):
            yield p.var
        elif isinstance(p, (PatternConstructor, PatternTuple)):
            stack.extend(reversed(p.patterns))


def bound_by(expr: ir.Node) -> Iterator[nodes.Var]:
    """Yield the variables that this very expression binds in its parts."""
    if type(expr) is nodes.Let:
        yield expr.var
    elif type(expr) is nodes.Function:
        yield from expr.params
    elif type(expr) is Match:
        for c in expr.clauses:
            yield from pattern_vars(c.lhs)


def subexpressions(expr: ir.Node, enter: Callable[[Any], bool] = lambda e: True) -> Iterator[Any]:
    """Yield `expr` and what it is made of, each once, parents first; below those only that `enter` accepts."""
    seen: set[ir.Node] = set()
    stack = [expr]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        yield e
        if enter(e):
            stack.extend(reversed(list(parts(e))))


def rewrite(
    expr: ir.Node,
    rule: Callable[[Any], Any],
    *,
    pre: Callable[[Any], Any] | None = None,
    instead: Mapping[nodes.Var, Any] | None = None,
    on_let: Callable[[nodes.Var, Any], Any] | None = None,
) -> Any:
    """Rewrite bottom-up: ``rule(e)`` gets each expression with rewritten parts and returns its replacement.

    Parameters
    ----------
    rule : callable
        Returns the replacement, or its argument where nothing changes.
    pre : callable, optional
        Asked first on each original expression; what it returns other than None stands for the whole expression.
    instead : mapping, optional
        Original expressions that stand for variables; they are rewritten in their place.
    on_let : callable, optional
        Told the variable and the new value of each let before its body is rewritten.
    """
    return rewrite_with_original(expr, lambda _, new: rule(new), pre=pre, instead=instead, on_let=on_let)


def rewrite_with_original(
    expr: ir.Node,
    rule: Callable[[Any, Any], Any],
    *,
    pre: Callable[[Any], Any] | None = None,
    instead: Mapping[nodes.Var, Any] | None = None,
    on_let: Callable[[nodes.Var, Any], Any] | None = None,
) -> Any:
    """Rewrite as :func:`rewrite` does, by a rule that gets the original beside the expression with rewritten parts."""
    memo: dict[Any, Any] = {}
    instead = instead or {}

    def go(e: ir.Node) -> Any:
        chain: list[tuple[nodes.Let, Any]] = []
        while (result := memo.get(e)) is None:
            if type(e) is nodes.Var and e in instead:
                e = instead[e]
                continue
            result = pre(e) if pre is not None else None
            if result is None and type(e) is nodes.Let:
                value = go(e.value)
                if on_let is not None:
                    on_let(e.var, value)
                chain.append((e, value))
                e = e.body
                continue
            if result is None:
                result = rule(e, map_parts(e, go))
            memo[e] = result
            break
        for let, value in reversed(chain):
            result = rule(let, ir.with_fields(let, value=value, body=result))
            memo[let] = result
        return result

    return ir.with_deep_stack(lambda: go(expr))


def substitute(expr: ir.Node, mapping: Mapping[Any, Any]) -> Any:
    """Replace expressions (usually variables) by identity, everywhere below `expr`; binders stay as they are."""
    if not mapping:
        return expr
    return rewrite(expr, lambda e: e, pre=mapping.get)
