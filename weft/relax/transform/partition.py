"""Which kernels of a program become one: its bindings as a graph, its post-dominators, and groups of its nodes.

A node joins the group of its immediate post-dominator when every node on the way allows that. Work on elements goes
first, then what moves elements.

Source: TVM's ``FuseOps``; post-dominators as in Cooper, Harvey and Kennedy, 2001.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from weft import ir, tir
from weft.op import Fusion
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding, MatchCast, SeqExpr
from weft.relax.rename import variables

_LEAVES = (ir.ShapeExpr, ir.ExprVar, ir.Constant, ir.PrimValue, ir.ExprStringImm, ir.DataTypeImm)


@dataclass(eq=False)
class Group:
    """Nodes that become one function, as a tree of nodes whose root stands for all."""

    pattern: int
    anchored: bool = False
    parent: Group | None = None
    num_nodes: int = 1
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Group:
        """The group that this one was merged into."""
        group = self
        while group.parent is not None:
            group = group.parent
        return group

    def merge_into(self, other: Group) -> None:
        """Become a part of another group."""
        child, parent = self.root, other.root
        if child is parent:
            return
        parent.num_nodes += child.num_nodes
        child.parent = parent
        if child.anchored:
            parent.anchored = True
            parent.pattern = max(child.pattern, parent.pattern)


@dataclass(eq=False)
class _Node:
    """A variable, or a constant that something reads."""

    index: int
    pattern: int = int(Fusion.OPAQUE)
    outside: bool = False
    users: list[tuple[_Node, int]] = field(default_factory=list)
    # the tree of post-dominators
    parent: _Node | None = None
    depth: int = 1
    edge: int = int(Fusion.OPAQUE)


class Graph:
    """The bindings of functions as a graph, in order."""

    def __init__(self, mod: ir.IRModule) -> None:
        self.mod = mod
        self.nodes: list[_Node] = []
        self.of: dict[Any, _Node] = {}

    def add_function(self, func: ir.Function) -> None:
        """Add parameters and bindings."""
        for p in func.params:
            self._add(p).outside = True
        packed: set[Any] = set(func.params[func.attrs["num_input"] :]) if "num_input" in func.attrs else set()
        for b in _bindings(func.body):
            self._binding(b, packed)

    def _add(self, key: Any) -> _Node:
        node = _Node(len(self.nodes))
        self.nodes.append(node)
        self.of[key] = node
        return node

    def _binding(self, b: Binding, packed: set[Any]) -> None:
        value = b.value
        pattern, leaves = int(Fusion.OPAQUE), ()
        if isinstance(b, MatchCast):
            pass
        elif isinstance(value, ir.Call):
            pattern, leaves = self._call(value)
        elif isinstance(value, ir.TupleGetItem):
            pattern = int(Fusion.OPAQUE if value.tuple_value in packed else Fusion.INJECTIVE)
            leaves = (value.tuple_value,)
        else:
            leaves = (value,) if isinstance(value, (ir.Constant, ir.Tuple)) else tuple(variables(value))
        known = [n for leaf in leaves for n in self._leaf(leaf)]
        node = self._add(b.var)
        node.pattern = pattern
        node.outside = not isinstance(b, MatchCast) and type(b.var) is ir.ExprVar
        for k in known:
            k.users.append((node, pattern))

    def _call(self, call: ir.Call) -> tuple[int, tuple[Any, ...]]:
        if is_op(call, "call_tir") or is_op(call, "call_tir_inplace"):
            callee: Any = call.args[0]
            kernel = self.mod[callee] if callee in self.mod else None
            known = kernel.attrs.get("op_pattern") if isinstance(kernel, tir.PrimFunc) else None
            leaves = call.args[1].fields if isinstance(call.args[1], ir.Tuple) else (call.args[1],)
            return int(Fusion.OPAQUE if known is None else known), tuple(leaves)
        return int(Fusion.OPAQUE), call.args

    def _leaf(self, expr: ir.Expr) -> Iterator[_Node]:
        if isinstance(expr, ir.Tuple):
            for f in expr.fields:
                yield from self._leaf(f)
        elif isinstance(expr, _LEAVES):
            yield self.of.get(expr) or self._add(expr)

    def post_dominators(self) -> None:
        """Find the immediate post-dominator of each node, and the worst pattern on the way to it."""
        for node in reversed(self.nodes):
            if node.outside or not node.users:
                continue
            parent: _Node | None = node.users[0][0]
            worst = max(int(Fusion.ELEMENTWISE), node.users[0][1])
            for user, pattern in node.users[1:]:
                parent, worst = _common(parent, user, worst)
                worst = max(worst, pattern)
            node.parent, node.edge = parent, worst
            node.depth = parent.depth + 1 if parent is not None else 1


def _bindings(body: Any) -> Iterator[Any]:
    """The bindings of a function, those of branches and inner functions before what holds them."""
    if isinstance(body, SeqExpr):
        for block in body.blocks:
            for b in block.bindings:
                if isinstance(b.value, ir.If):
                    yield from _bindings(b.value.true_branch)
                    yield from _bindings(b.value.false_branch)
                elif isinstance(b.value, ir.Function):
                    yield from _bindings(b.value.body)
                yield b


def _common(a: _Node | None, b: _Node | None, worst: int) -> tuple[_Node | None, int]:
    """Return the least common ancestor of two nodes, and the worst pattern on the way to it."""
    while a is not b:
        if a is None or b is None:
            return None, worst
        if a.depth >= b.depth:
            a, b, deeper = (a.parent, b, a) if a.depth > b.depth else (a.parent, b.parent, a)
            worst = max(worst, deeper.edge)
        else:
            worst, b = max(worst, b.edge), b.parent
    return a, worst


def partition(graph: Graph, opt_level: int, max_depth: int) -> dict[Any, Group]:
    """Put the nodes of a graph into groups of at most `max_depth`; at level 0, each into one of its own."""
    state = _Partitioner(graph, max_depth)
    if opt_level > 0:
        graph.post_dominators()
        for phase in range(2):
            for node in graph.nodes:
                state.fuse(node, phase)
    return {key: state.groups[node.index] for key, node in graph.of.items()}


class _Partitioner:
    def __init__(self, graph: Graph, max_depth: int) -> None:
        self.max_depth = max_depth
        self.groups = [Group(n.pattern, n.pattern == Fusion.ANCHOR) for n in graph.nodes]

    def fuse(self, node: _Node, phase: int) -> None:
        """Merge a node into its post-dominator, if that is for this phase."""
        sink, group = node.parent, self.groups[node.index]
        if sink is None or group.pattern == Fusion.OPAQUE or self._size(node, sink) > self.max_depth:
            return
        target = self.groups[sink.index]
        if group.root is target.root:
            return
        if self._wanted(group.pattern, node.edge, phase):
            between = Fusion.BROADCAST if group.pattern == Fusion.ANCHOR else Fusion.INJECTIVE
            at_sink = Fusion.ANCHOR if group.pattern <= Fusion.BROADCAST else between
            patterns = [(self.groups[n.index].root.pattern, n is sink) for n in self._between(node, sink)]
            if all(p <= (at_sink if last else between) for p, last in patterns):
                self._commit(node, sink)

    @staticmethod
    def _wanted(pattern: int, edge: int, phase: int) -> bool:
        if pattern == Fusion.ANCHOR:
            return phase == 0 and edge == Fusion.ELEMENTWISE
        if pattern <= Fusion.BROADCAST:
            return edge <= Fusion.INJECTIVE or edge == Fusion.REDUCTION
        return phase == 1 and pattern == Fusion.INJECTIVE

    def _between(self, node: _Node, sink: _Node) -> Iterator[_Node]:
        """Walk the nodes on the ways from a node to its post-dominator, that one included."""
        found = ir.reached((node,), lambda n: [u for u, _ in n.users] if n is not sink else ())
        return iter(list(found)[1:])

    def _commit(self, node: _Node, sink: _Node) -> None:
        target = self.groups[sink.index]
        for n in [node, *self._between(node, sink)]:
            if n is not sink:
                self.groups[n.index].merge_into(target)

    def _size(self, node: _Node, sink: _Node) -> int:
        inner = [n for n in self._between(node, sink) if n is not sink]
        return self.groups[sink.index].root.num_nodes + sum(self.groups[n.index].num_nodes for n in [node, *inner])
