"""Scopes: each variable that is used is bound around its use, and none is bound twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.ir import Expr, IRModule, with_deep_stack
from weft.relay.adt import Clause, Match
from weft.relay.expr import Function, Let, Var
from weft.relay.typing import Program
from weft.relay.walk import parts, pattern_vars


def well_formed(expr: Program) -> bool:
    """Whether each variable of an expression or module is bound once, and used only where it is bound.

    Free variables of an expression that is no function are fine: they are inputs.
    """
    return not scope_errors(expr)


def scope_errors(expr: Program, *, once: bool = True) -> list[tuple[Var, str]]:
    """List the variables that are used where they are not bound, or bound twice, with what is wrong.

    Parameters
    ----------
    expr : Expr or IRModule
        The program.
    once : bool
        Whether a variable that is bound in two places is wrong; a variable that a shared expression binds is not.
    """
    if isinstance(expr, IRModule):
        return [e for f in expr.functions.values() if isinstance(f, Function) for e in scope_errors(f, once=once)]
    found: list[tuple[Var, str]] = []

    def run() -> None:
        found.clear()
        _Scopes(found, once, not isinstance(expr, Function)).visit(expr)

    with_deep_stack(run)
    return found


class _Scopes:
    """Walks expressions with the variables that are bound around them; a shared expression is looked at once."""

    def __init__(self, found: list[tuple[Var, str]], once: bool, free: bool) -> None:
        self.found, self.once, self.free = found, once, free
        self.inside: set[Var] = set()
        self.bound: set[Var] = set()
        self.seen: set[Expr] = set()

    def visit(self, e: Any) -> None:
        if isinstance(e, Var):
            if e not in self.inside and (not self.free or e in self.bound):
                self.found.append((e, f"variable '%{e.name_hint}' is used where it is not bound"))
            return
        if e in self.seen:
            return
        self.seen.add(e)
        if isinstance(e, Let):
            self._lets(e)
        elif isinstance(e, Function):
            self._under(e.params, [e.body])
        elif isinstance(e, Match):
            self.visit(e.data)
            for c in e.clauses:
                self._clause(c)
        else:
            for p in parts(e):
                self.visit(p)

    def _lets(self, e: Let) -> None:
        chain: list[Var] = []
        inner: Any = e
        while isinstance(inner, Let):
            self.seen.add(inner)
            recursive = isinstance(inner.value, Function)
            if recursive:
                self._bind(inner.var)
            self.visit(inner.value)
            if not recursive:
                self._bind(inner.var)
            chain.append(inner.var)
            inner = inner.body
        self.visit(inner)
        self.inside.difference_update(chain)

    def _clause(self, c: Clause) -> None:
        self._under(pattern_vars(c.lhs), [c.rhs])

    def _under(self, variables: Any, bodies: list[Any]) -> None:
        names: list[Var] = list(variables)
        for v in names:
            self._bind(v)
        for b in bodies:
            self.visit(b)
        self.inside.difference_update(names)

    def _bind(self, v: Var) -> None:
        if self.once and v in self.bound:
            self.found.append((v, f"variable '%{v.name_hint}' is bound twice"))
        self.bound.add(v)
        self.inside.add(v)


def unbound(func: Function) -> Iterator[tuple[Any, str]]:
    """Yield what :func:`scope_errors` finds, as rules of forms do."""
    yield from scope_errors(func, once=False)
