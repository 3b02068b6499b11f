"""The chains of lets that stand inside an operation: branches, clauses, bodies of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.ir import Expr, find
from weft.relay.adt import Match
from weft.relay.expr import Function, If, Var, let_chain
from weft.relay.walk import pattern_vars


class VariablesIn:
    """The variables that an operation mentions or binds, in order; what holds chains of lets is looked at once."""

    def __init__(self) -> None:
        self._known: dict[Expr, dict[Var, None]] = {}

    def __call__(self, value: Expr) -> dict[Var, None]:
        """Return the variables of an operation."""
        if not isinstance(value, (If, Match, Function)):
            return dict.fromkeys(find(value, Var))
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._held(value)
        return known

    def _held(self, value: If | Match | Function) -> dict[Var, None]:
        found: dict[Var, None] = {}
        if isinstance(value, If):
            found.update(self(value.cond))
            bodies = [value.true_branch, value.false_branch]
        elif isinstance(value, Match):
            found.update(self(value.data))
            found.update(dict.fromkeys(v for c in value.clauses for v in pattern_vars(c.lhs)))
            bodies = [c.rhs for c in value.clauses]
        else:
            found.update(dict.fromkeys(value.params))
            bodies = [value.body]
        for body in bodies:
            bindings, tail = let_chain(body)
            for var, inner in bindings:
                found[var] = None
                found.update(self(inner))
            found.update(self(tail))
        return found


def with_bodies(value: ir.Expr, rewrite: Callable[[Any], Any]) -> Any:
    """Return an operation with its inner bodies rewritten; the operation itself if none changed.

    Functions that stand for one kernel are left alone.
    """
    if isinstance(value, Function) and not value.attrs.get("Primitive"):
        return value.replace(body=rewrite(value.body))
    if isinstance(value, If):
        return ir.with_fields(value, true_branch=rewrite(value.true_branch), false_branch=rewrite(value.false_branch))
    if isinstance(value, Match):
        clauses = tuple(ir.with_fields(c, rhs=rewrite(c.rhs)) for c in value.clauses)
        return ir.with_fields(value, clauses=clauses)
    return value
