"""Which expressions of a graph become one kernel: groups that grow along post-dominators.

A value may join the group of its immediate post-dominator when all work on the ways there allows it: element-wise work
joins nearly everything, what ends in an anchor (a product, a convolution) takes element-wise work behind it, and what
only moves elements joins what does likewise. Tuples join last, for operators such as ``concatenate`` that read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.relay.op.pattern import OpPattern
from weft.relay.transform.fusion_graph import FusionGraph, FusionNode


@dataclass(eq=False)
class _Dominated:
    """A node of the post-dominator tree: its parent, and the heaviest kind of work on the ways there."""

    parent: int = -1
    depth: int = 1
    pattern: int = OpPattern.OPAQUE


class FusionGroups:
    """The groups of a graph's nodes, as union-find over their places in its order.

    Parameters
    ----------
    graph : FusionGraph
        The graph.
    level : int
        0 leaves each node alone.
    most : int
        The largest number of nodes in a group.
    """

    def __init__(self, graph: FusionGraph, level: int, most: int) -> None:
        self.nodes, self.most = graph.order, most
        n = len(self.nodes)
        self._parent = list(range(n))
        self._kind = [node.pattern for node in self.nodes]  # of a group, kept at its root
        self._anchored = [k == OpPattern.OUT_ELEMWISE_FUSABLE for k in self._kind]
        self._size = [1] * n
        if level > 0:
            tree = _post_dominators(self.nodes)
            for phase in (_grow_by_elements, _grow_by_elements_and_moves, _grow_into_tuples):
                for i in range(n):
                    self._offer(i, tree[i], phase)

    def root(self, i: int) -> int:
        """Return the place of the node that a group ends in."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def kind(self, i: int) -> int:
        """Return the kind of work of the group that a node is in."""
        return self._kind[self.root(i)]

    def _offer(self, i: int, at: _Dominated, phase: Callable[[FusionGroups, int, _Dominated, list[int]], bool]) -> None:
        if self.own(i) == OpPattern.OPAQUE or at.parent < 0:
            return
        between = self._between(i, at.parent)
        size = self._size[self.root(at.parent)] + sum(self._size[j] for j in (i, *between))
        if size <= self.most and phase(self, i, at, between):
            for j in (i, *between):
                self._merge(j, at.parent)

    def _between(self, i: int, sink: int) -> list[int]:
        """List the nodes on the ways from one to its post-dominator, both left out."""
        seen: dict[int, None] = {}
        stack = [user.index for user, _ in self.nodes[i].outputs]
        while stack:
            j = stack.pop()
            if j != sink and j not in seen:
                seen[j] = None
                stack.extend(user.index for user, _ in self.nodes[j].outputs)
        return list(seen)

    def own(self, i: int) -> int:
        """Return the kind of work of a node and of what joined it, but not of what it joined."""
        return self._kind[i]

    def up_to(self, most: int, places: list[int]) -> bool:
        """Whether the groups of nodes are of a kind up to `most`."""
        return all(self.kind(j) <= most for j in places)

    def same(self, i: int, j: int) -> bool:
        """Whether two nodes are in one group."""
        return self.root(i) == self.root(j)

    def _merge(self, i: int, sink: int) -> None:
        child, root = self.root(i), self.root(sink)
        if child == root:
            return
        self._size[root] += self._size[child]
        self._parent[child] = root
        if self._anchored[child]:
            self._anchored[root] = True
            self._kind[root] = max(self._kind[root], self._kind[child])


def _grow_by_elements(groups: FusionGroups, i: int, at: _Dominated, between: list[int], moves: bool = False) -> bool:
    """Decide for element-wise work, and for what an anchor's group ends in; with `moves`, for what moves elements."""
    own, sink = groups.own(i), at.parent
    if groups.same(i, sink) or groups.own(sink) == OpPattern.TUPLE:
        return False
    if own == OpPattern.OUT_ELEMWISE_FUSABLE:
        by_elements = not moves and at.pattern == OpPattern.ELEMWISE
        return by_elements and groups.up_to(OpPattern.BROADCAST, [*between, sink])
    if own <= OpPattern.BROADCAST:
        on_edges = at.pattern <= OpPattern.INJECTIVE or at.pattern == OpPattern.COMM_REDUCE
        takes = groups.kind(sink) <= OpPattern.OUT_ELEMWISE_FUSABLE
        return on_edges and takes and groups.up_to(OpPattern.INJECTIVE, between)
    if own in (OpPattern.INJECTIVE, OpPattern.TUPLE) and moves:
        return groups.up_to(OpPattern.INJECTIVE, [*between, sink])
    return False


def _grow_by_elements_and_moves(groups: FusionGroups, i: int, at: _Dominated, between: list[int]) -> bool:
    return _grow_by_elements(groups, i, at, between, moves=True)


def _grow_into_tuples(groups: FusionGroups, i: int, at: _Dominated, between: list[int]) -> bool:
    """Decide for fields of a tuple that an operator which only moves elements reads."""
    if groups.own(i) > OpPattern.INJECTIVE or groups.own(at.parent) != OpPattern.TUPLE:
        return False
    return groups.up_to(OpPattern.INJECTIVE, [*between, at.parent])


def _post_dominators(nodes: list[FusionNode]) -> list[_Dominated]:
    """Return the post-dominator tree; what is used from outside has no parent."""
    tree = [_Dominated() for _ in nodes]
    for i in reversed(range(len(nodes))):
        users = [user.index for user, _ in nodes[i].outputs]
        if nodes[i].external or not users:
            continue
        worst = max((OpPattern.ELEMWISE, *(kind for _, kind in nodes[i].outputs)))
        parent = users[0]
        for other in users[1:]:
            parent, worst = _common(tree, parent, other, worst)
        if parent >= 0:
            tree[i] = _Dominated(parent, tree[parent].depth + 1, worst)
    return tree


def _common(tree: list[_Dominated], a: int, b: int, worst: int) -> tuple[int, int]:
    """Return the lowest common ancestor of two nodes, and the heaviest kind on the ways there."""
    while a != b:
        if a < 0 or b < 0:
            return -1, worst
        deeper = tree[a].depth - tree[b].depth
        if deeper >= 0:
            worst, a = max(worst, tree[a].pattern), tree[a].parent
        if deeper <= 0:
            worst, b = max(worst, tree[b].pattern), tree[b].parent
    return a, worst
