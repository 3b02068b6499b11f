"""Expressions, or patterns, as a graph: the order in which they are computed, their users, their post-dominators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relax.transform.dominators import post_dominators
from weft.relay.expr import Function, Let
from weft.relay.walk import parts


class GraphNode:
    """An expression, what it is made of, what uses it, and where it stands in the post-dominator tree."""

    __slots__ = ("expr", "external", "index", "inputs", "outputs", "parent", "under")

    def __init__(self, expr: Any, index: int) -> None:
        self.expr, self.index = expr, index
        self.inputs: list[GraphNode] = []
        self.outputs: list[GraphNode] = []
        self.external = False
        self.parent: GraphNode | None = None
        self.under: list[GraphNode] = []

    def dominates(self, other: GraphNode) -> bool:
        """Whether every way from another expression to the end leads through this one."""
        at = other.parent
        while at is not None and at is not self:
            at = at.parent
        return at is self


def inputs_of(expr: ir.Expr) -> list[Any]:
    """List what an expression is made of, with what it binds."""
    if type(expr) is Function:
        return [*expr.params, expr.body]
    if type(expr) is Let:
        return [expr.value, expr.var, expr.body]
    return list(parts(expr))


class Graph:
    """What lies below an expression or pattern.

    Parameters
    ----------
    root : Expr or DFPattern
        The last one.
    inputs : callable
        Lists what one is made of.
    """

    def __init__(self, root: Any, inputs: Callable[[Any], list[Any]] = inputs_of) -> None:
        self.order: list[GraphNode] = []
        self.nodes: dict[Any, GraphNode] = {}
        stack: list[tuple[Any, list[Any] | None]] = [(root, None)]
        while stack:
            e, below = stack.pop()
            if e in self.nodes:
                continue
            if below is None:
                below = inputs(e)
                stack.append((e, below))
                stack.extend((b, None) for b in reversed(below) if b not in self.nodes)
                continue
            node = self.nodes[e] = GraphNode(e, len(self.order))
            self.order.append(node)
            for b in below:
                if b in self.nodes:
                    node.inputs.append(self.nodes[b])
                    self.nodes[b].outputs.append(node)
        self.nodes[root].external = True
        self._post_dominators()

    def _post_dominators(self) -> None:
        uses = [[] if node.external else [(user.index, 0) for user in node.outputs] for node in self.order]
        for node, found in reversed([*zip(self.order, post_dominators(uses), strict=True)]):
            if found.parent >= 0:
                node.parent = self.order[found.parent]
                node.parent.under.append(node)
