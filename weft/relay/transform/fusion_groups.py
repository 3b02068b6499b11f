"""Which expressions of a graph become one kernel: groups that grow along post-dominators.

A value may join the group of its immediate post-dominator when all work on the ways there allows it: element-wise work
joins nearly everything, what ends in an anchor (a product, a convolution) takes element-wise work behind it, and what
only moves elements joins what does likewise. Tuples join last, for operators such as ``concatenate`` that read them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft import ir
from weft.relax.transform.dominators import Dominated, post_dominators
from weft.relay.op.pattern import OpPattern
from weft.relay.transform.fusion_graph import FusionGraph


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
            uses = [[] if n.external else [(user.index, kind) for user, kind in n.outputs] for n in self.nodes]
            tree = post_dominators(uses)
            for phase in (_grow_by_elements, partial(_grow_by_elements, moves=True), _grow_into_tuples):
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

    def _offer(self, i: int, at: Dominated, phase: Callable[[FusionGroups, int, Dominated, list[int]], bool]) -> None:
        if self.own(i) == OpPattern.OPAQUE or at.parent < 0:
            return
        between = self._between(i, at.parent)
        size = self._size[self.root(at.parent)] + sum(self._size[j] for j in (i, *between))
        if size <= self.most and phase(self, i, at, between):
            for j in (i, *between):
                self._merge(j, at.parent)

    def _between(self, i: int, sink: int) -> list[int]:
        """List the nodes on the ways from one to its post-dominator, both left out."""

        def users(j: int) -> list[int]:
            return [user.index for user, _ in self.nodes[j].outputs if user.index != sink]

        return list(ir.reached(users(i), users))

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


def _grow_by_elements(groups: FusionGroups, i: int, at: Dominated, between: list[int], moves: bool = False) -> bool:
    """Decide for element-wise work, and for what an anchor's group ends in; with `moves`, for what moves elements."""
    own, sink = groups.own(i), at.parent
    if groups.same(i, sink) or groups.own(sink) == OpPattern.TUPLE:
        return False
    if own == OpPattern.OUT_ELEMWISE_FUSABLE:
        by_elements = not moves and at.kind == OpPattern.ELEMWISE
        return by_elements and groups.up_to(OpPattern.BROADCAST, [*between, sink])
    if own <= OpPattern.BROADCAST:
        on_edges = at.kind <= OpPattern.INJECTIVE or at.kind == OpPattern.COMM_REDUCE
        takes = groups.kind(sink) <= OpPattern.OUT_ELEMWISE_FUSABLE
        return on_edges and takes and groups.up_to(OpPattern.INJECTIVE, between)
    if own in (OpPattern.INJECTIVE, OpPattern.TUPLE) and moves:
        return groups.up_to(OpPattern.INJECTIVE, [*between, sink])
    return False


def _grow_into_tuples(groups: FusionGroups, i: int, at: Dominated, between: list[int]) -> bool:
    """Decide for fields of a tuple that an operator which only moves elements reads."""
    if groups.own(i) > OpPattern.INJECTIVE or groups.own(at.parent) != OpPattern.TUPLE:
        return False
    return groups.up_to(OpPattern.INJECTIVE, [*between, at.parent])
