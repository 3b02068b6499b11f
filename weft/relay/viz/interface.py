"""What a picture of a program is made of: nodes and edges, a parser that makes them, a plotter that draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from weft.ir import Expr, Node, Op
from weft.relay.expr import Call, Constant, Function, GlobalVar, Tuple, TupleGetItem, Var


class VizNode:
    """A node: its identity, a word for its kind, and what is said of it."""

    def __init__(self, node_id: str, node_type: str, node_detail: str) -> None:
        self._id, self._type, self._detail = node_id, node_type, node_detail

    @property
    def identity(self) -> str:
        """The identity."""
        return self._id

    @property
    def type_name(self) -> str:
        """The kind."""
        return self._type

    @property
    def detail(self) -> str:
        """What is said of it."""
        return self._detail

    def __repr__(self) -> str:
        return f"VizNode(identity: {self._id}, type_name: {self._type}, detail: {self._detail})"


class VizEdge:
    """An edge from what is read to what reads it."""

    def __init__(self, start_node: str, end_node: str) -> None:
        self._start, self._end = start_node, end_node

    @property
    def start(self) -> str:
        """The identity of what is read."""
        return self._start

    @property
    def end(self) -> str:
        """The identity of what reads it."""
        return self._end


class VizParser(ABC):
    """Makes a node and edges of an expression."""

    @abstractmethod
    def get_node_edges(
        self, node: Expr, relay_param: Mapping[str, Any], node_to_id: Mapping[Expr, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node, None where there is to be none, and the edges that end in it."""


class VizGraph(ABC):
    """Takes nodes and edges."""

    @abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Add a node."""

    @abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""


class Plotter(ABC):
    """Draws a graph for each function."""

    @abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """Return an empty graph for the function of that name."""

    @abstractmethod
    def render(self, filename: str | None) -> None:
        """Draw all graphs, to a file or to the screen."""


class DefaultVizParser(VizParser):
    """Says of each expression what it is; operators and names of functions have no node of their own."""

    def get_node_edges(
        self, node: Expr, relay_param: Mapping[str, Any], node_to_id: Mapping[Expr, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node and edges of an expression."""
        if isinstance(node, (Op, GlobalVar)):
            return None, []
        own = node_to_id[node]
        kind, detail, read = self._describe(node, relay_param)
        return VizNode(own, kind, detail), [VizEdge(node_to_id[r], own) for r in read if r in node_to_id]

    def _describe(self, node: Node, params: Mapping[str, Any]) -> tuple[str, str, list[Any]]:
        if isinstance(node, Var):
            kind = "Var(Param)" if node.name_hint in params else "Var(Input)"
            return kind, "\n".join([f"name_hint: {node.name_hint}", *_typed(node)]), []
        if isinstance(node, Function):
            attrs = [f"{k}: {v}" for k, v in dict(node.attrs).items()]
            return "Function", "\n".join(attrs), [*node.params, node.body]
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, TupleGetItem):
            return "TupleGetItem", f"idx: {node.index}", [node.tuple_value]
        if isinstance(node, Tuple):
            return "Tuple", "", list(node.fields)
        if isinstance(node, Constant):
            data = node.data
            return "Const", f"shape: {tuple(data.shape)}, dtype: {data.dtype}", []
        return type(node).__name__, str(node).partition("\n")[0], []

    def _call(self, node: Call) -> tuple[str, str, list[Any]]:
        attrs = "\n".join(f"{k}: {v}" for k, v in dict(node.attrs).items()) if node.attrs else ""
        if isinstance(node.op, Op):
            return f"Call {node.op.name.removeprefix('relay.')}", attrs, list(node.args)
        if isinstance(node.op, GlobalVar):
            return "Call", f"{node.op.name_hint}\n{attrs}".strip(), list(node.args)
        name = dict(node.op.attrs).get("Composite", "") if isinstance(node.op, Function) else ""
        return f"Call {name}".strip(), attrs, [node.op, *node.args]


def _typed(node: Var) -> list[str]:
    return [f"type: {node.ty}"] if node.ty is not None else []
