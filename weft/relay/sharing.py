"""Which expressions of a graph are shared, and which of them are evaluated before the parts of another.

A Relay program is a graph: a node with several users is one value. It is evaluated once, in the innermost scope that
holds all its users: before the choice, match or function through whose parts it is first reached.
"""

from weft.ir import Expr
from weft.relay.analysis.scopes import Scopes, users_first
from weft.relay.walk import ATOMS


class Sharing:
    """The shared nodes of an expression.

    ``shared`` holds the nodes with several users. ``before`` gives the shared nodes that are evaluated before the parts
    of a choice, match or function.
    """

    __slots__ = ("before", "shared")

    def __init__(self, root: Expr) -> None:
        scopes = Scopes(root)
        uses = [(e, scope) for e, scope in scopes.uses if not isinstance(e, ATOMS)]
        self.shared: set[Expr] = {e for e, _ in uses if e in scopes.shared}
        found: dict[Expr, set[Expr]] = {}
        for e, scope in uses:
            home, entry = scopes.of[e], None
            while scope is not home:
                entry, scope = scope.owner, scope.outer  # type: ignore[assignment]
            if entry is not None:
                found.setdefault(entry, set()).add(e)
        rank = {e: i for i, e in enumerate(users_first(root))} if found else {}
        self.before: dict[Expr, tuple[Expr, ...]] = {
            entry: tuple(sorted(nodes, key=lambda e: rank[e])) for entry, nodes in found.items()
        }
