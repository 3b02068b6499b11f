"""Which expressions of a graph are shared, and which of them are evaluated before the parts of another.

A Relay program is a graph: a node with several users is one value. It is evaluated once, in the innermost scope that
holds all its users: before the choice, match or function through whose parts it is first reached.
"""

from __future__ import annotations

from weft.ir import Expr
from weft.relay.transform.scopes import Scopes, users_first
from weft.relay.walk import ATOMS

__all__ = ["Sharing"]


class Sharing:
    """The shared nodes of an expression.

    ``shared`` holds the ids of nodes with several users. ``before`` gives the shared nodes that are evaluated before
    the parts of a choice, match or function, by its id.

    Parameters
    ----------
    root : Expr
        The expression, which stays alive with this object.
    """

    __slots__ = ("before", "root", "shared")

    def __init__(self, root: Expr) -> None:
        self.root = root
        scopes = Scopes(root)
        uses = [(e, scope) for e, scope in scopes.uses if not isinstance(e, ATOMS)]
        self.shared: set[int] = {id(e) for e, _ in uses if id(e) in scopes.shared}
        found: dict[int, dict[int, Expr]] = {}
        for e, scope in uses:
            home, entry = scopes.of[id(e)], None
            while scope is not home:
                entry, scope = scope.owner, scope.outer  # type: ignore[assignment]
            if entry is not None:
                found.setdefault(id(entry), {})[id(e)] = e
        rank = {id(e): i for i, e in enumerate(users_first(root))} if found else {}
        self.before: dict[int, tuple[Expr, ...]] = {
            entry: tuple(sorted(nodes.values(), key=lambda e: rank[id(e)])) for entry, nodes in found.items()
        }
