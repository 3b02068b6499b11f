"""The chains of lets that stand inside an operation: branches, clauses, bodies of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.relay.adt import Clause, Match
from weft.relay.expr import Function, If

__all__ = ["with_bodies"]


def with_bodies(value: Any, rewrite: Callable[[Any], Any]) -> Any:
    """Return an operation with its inner bodies rewritten; the operation itself if none changed.

    Functions that stand for one kernel are left alone.
    """
    if isinstance(value, Function) and not value.attrs.get("Primitive"):
        body = rewrite(value.body)
        return value if body is value.body else value.replace(body=body)
    if isinstance(value, If):
        yes, no = rewrite(value.true_branch), rewrite(value.false_branch)
        same = yes is value.true_branch and no is value.false_branch
        return value if same else If(value.cond, yes, no, span=value.span, ty=value.ty)
    if isinstance(value, Match):
        clauses = tuple(_clause(c, rewrite) for c in value.clauses)
        same = all(a is b for a, b in zip(clauses, value.clauses, strict=True))
        return value if same else Match(value.data, clauses, value.complete, span=value.span, ty=value.ty)
    return value


def _clause(clause: Clause, rewrite: Callable[[Any], Any]) -> Clause:
    rhs = rewrite(clause.rhs)
    return clause if rhs is clause.rhs else Clause(clause.lhs, rhs, span=clause.span)
