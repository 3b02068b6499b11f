"""Where an expression that several others share is evaluated.

A Relay program is a graph: a node with several users is one value. A function's body, each branch of a choice and each
clause of a match is a scope, whose nodes are evaluated only when it is entered. A shared node is evaluated once, in the
innermost scope that holds all its users: before the choice, match or function through whose parts it is first reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft import ir
from weft.ir import Expr, Op
from weft.relay.adt import Constructor, Match
from weft.relay.expr import Function, If

__all__ = ["Sharing", "parts"]

_ATOMS = (ir.ExprVar, ir.GlobalVar, ir.Constant, Op, Constructor)


class _Scope:
    """A scope: the scope around it, and the expression that it is a part of."""

    __slots__ = ("depth", "outer", "owner")

    def __init__(self, outer: _Scope | None, owner: Expr | None) -> None:
        self.outer, self.owner = outer, owner
        self.depth: int = 0 if outer is None else outer.depth + 1


class Sharing:
    """The shared nodes of an expression or function.

    ``shared`` holds the ids of nodes with several users. ``before`` gives the shared nodes that are evaluated before
    the parts of a choice, match or function, by its id.

    Parameters
    ----------
    root : Expr
        The expression; if it is a function, its body is the outermost scope.
    """

    __slots__ = ("before", "root", "shared")

    def __init__(self, root: Expr) -> None:
        self.root = root
        self.shared: set[int] = set()
        self.before: dict[int, tuple[Expr, ...]] = {}
        order = _users_first(root, self.shared)
        if self.shared:
            self._place(order)

    def _place(self, order: list[Expr]) -> None:
        """Find the scope of each node, users before what they use, then where shared nodes are evaluated."""
        top = _Scope(None, None)
        homes: dict[int, _Scope] = {id(self.root): top}
        uses: list[tuple[Expr, _Scope]] = []
        for node in order:
            home = homes[id(node)]
            for child, entered in parts(node):
                if isinstance(child, _ATOMS):
                    continue
                scope = _Scope(home, node) if entered and node is not self.root else home
                known = homes.get(id(child))
                homes[id(child)] = scope if known is None else _common(known, scope)
                if id(child) in self.shared:
                    uses.append((child, scope))
        found: dict[int, dict[int, Expr]] = {}
        for node, scope in uses:
            home, entry = homes[id(node)], None
            while scope is not home:
                entry, scope = scope.owner, scope.outer  # type: ignore[assignment]
            if entry is not None:
                found.setdefault(id(entry), {})[id(node)] = node
        rank = {id(node): i for i, node in enumerate(order)}
        for entry, nodes in found.items():
            self.before[entry] = tuple(sorted(nodes.values(), key=lambda n: rank[id(n)]))


def parts(node: Expr) -> Iterator[tuple[Expr, bool]]:
    """Yield the expressions in an expression, in the order of evaluation, and whether each is a scope of its own."""
    if isinstance(node, Function):
        yield node.body, True
    elif isinstance(node, If):
        yield node.cond, False
        yield node.true_branch, True
        yield node.false_branch, True
    elif isinstance(node, Match):
        yield node.data, False
        for clause in node.clauses:
            yield clause.rhs, True
    else:
        for child in ir.children(node):
            if isinstance(child, (Expr, Op)) and not isinstance(child, ir.Type):
                yield child, False  # type: ignore[misc]


def _users_first(root: Expr, shared: set[int]) -> list[Expr]:
    """List the nodes so that each comes behind all its users; collect those with several users."""
    seen: set[int] = {id(root)}
    done: list[Expr] = []
    stack: list[tuple[Expr, Iterator[Expr]]] = [(root, _below(root))]
    while stack:
        node, children = stack[-1]
        for child in children:
            if id(child) in seen:
                shared.add(id(child))
                continue
            seen.add(id(child))
            stack.append((child, _below(child)))
            break
        else:
            stack.pop()
            done.append(node)
    done.reverse()
    return done


def _below(node: Expr) -> Iterator[Expr]:
    """Yield what is evaluated below a node, last first, so that reversed post-order follows evaluation."""
    return (c for c, _ in reversed(list(parts(node))) if not isinstance(c, _ATOMS))


def _common(a: _Scope, b: _Scope) -> _Scope:
    """Return the innermost scope that holds two."""
    while a is not b:
        if a.depth >= b.depth:
            a = a.outer  # type: ignore[assignment]
        else:
            b = b.outer  # type: ignore[assignment]
    return a
