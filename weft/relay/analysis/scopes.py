"""Where the expressions of a graph are computed: in the innermost scope that holds all their uses.

A function's body, each branch of a choice and each clause of a match is a scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relay.adt import Constructor, Match
from weft.relay.expr import Function, GlobalVar, If, Var
from weft.relay.walk import parts

_UNSCOPED = (Var, GlobalVar, Constructor, ir.Op)
_FIRST_BODY = {Function: 0, If: 1, Match: 1}  # the parts from there on are scopes


class Scope:
    """A scope; ``outer`` is the one around it, ``owner`` the function, choice or match that it is a part of."""

    __slots__ = ("depth", "outer", "owner")

    def __init__(self, outer: Scope | None, owner: Any = None) -> None:
        self.outer, self.owner = outer, owner
        self.depth: int = 0 if outer is None else outer.depth + 1


class Scopes:
    """The scope of each expression below a root, and the scopes that expressions open.

    ``of[e]`` is where an expression is computed, ``opened[e]`` are the scopes that its bodies are, and ``crossing``
    holds the expressions that some use reads from a scope further in, ``shared`` those that are used twice or more.
    ``uses`` lists each use of an expression with the scope in which it stands.
    """

    def __init__(self, root: Any) -> None:
        self.top = Scope(None)
        self.of: dict[ir.Node, Scope] = {root: self.top}
        self.opened: dict[ir.Node, list[Scope]] = {}
        self.uses: list[tuple[Any, Scope]] = []
        for e in users_first(root):
            home, first = self.of[e], _FIRST_BODY.get(type(e))
            for i, part in enumerate(parts(e)):
                scope = home
                if first is not None and i >= first:
                    scope = Scope(home, e)
                    self.opened.setdefault(e, []).append(scope)
                if isinstance(part, _UNSCOPED):
                    continue
                known = self.of.get(part)
                self.of[part] = scope if known is None else _common(known, scope)
                self.uses.append((part, scope))
        counts = Counter(e for e, _ in self.uses)
        self.shared = {e for e, n in counts.items() if n > 1}
        self.crossing = {e for e, scope in self.uses if self.of[e] is not scope}


def users_first(root: ir.Expr, enter: Callable[[Any], bool] = lambda e: True) -> list[Any]:
    """List `root` and the expressions below it, without names, so that each comes behind all that it is a part of.

    What is below those that `enter` does not accept is left out.
    """

    def below(e: ir.Expr) -> list[Any]:
        return [p for p in list(parts(e))[::-1] if not isinstance(p, _UNSCOPED)] if enter(e) else []

    return ir.operands_first((root,), below)[::-1]


def _common(a: Scope, b: Scope) -> Scope:
    """Return the innermost scope that holds two."""
    while a is not b:
        if a.depth >= b.depth:
            a = a.outer  # type: ignore[assignment]
        else:
            b = b.outer  # type: ignore[assignment]
    return a
