"""Post-dominators of what computes in an order: where all ways from a value meet again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Dominated(NamedTuple):
    """A node of the post-dominator tree.

    Attributes
    ----------
    parent : int
        The place of the immediate post-dominator, -1 where there is none.
    depth : int
        How far the tree's root is.
    kind : int
        The greatest kind of use on the ways to the parent.
    """

    parent: int = -1
    depth: int = 1
    kind: int = 0


def post_dominators(users: Sequence[Sequence[tuple[int, int]]]) -> list[Dominated]:
    """Return the post-dominator tree.

    Parameters
    ----------
    users : sequence of sequence of (int, int)
        For each node, in an order of computation, the places of its users and the kind of each use; none for what is
        used from outside.

    Source: Cooper, Harvey and Kennedy, 2001.
    """
    tree = [Dominated()] * len(users)
    for i in reversed(range(len(users))):
        at, kind = users[i][0][0] if users[i] else -1, max((k for _, k in users[i]), default=0)
        for other, _ in users[i][1:]:
            at, kind = _common(tree, at, other, kind)
        if at >= 0:
            tree[i] = Dominated(at, tree[at].depth + 1, kind)
    return tree


def _common(tree: Sequence[Dominated], a: int, b: int, kind: int) -> tuple[int, int]:
    """Return the lowest common ancestor of two nodes, and the greatest kind on the ways there."""
    while a != b:
        if a < 0 or b < 0:
            return -1, kind
        if tree[a].depth < tree[b].depth:
            a, b = b, a
        a, kind = tree[a].parent, max(kind, tree[a].kind)
    return a, kind
