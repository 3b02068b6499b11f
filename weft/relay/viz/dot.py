"""Programs as pictures of Graphviz: with the package ``graphviz`` images, without it only their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.error import require
from weft.relay.viz.interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode
from weft.runtime import write_file


class DotVizParser(DefaultVizParser):
    """Says of each expression what it is."""


class DotGraph(VizGraph):
    """A function in Graphviz' language.

    Parameters
    ----------
    name : str
    graph_attr, node_attr, edge_attr : mapping of str to str, optional
        Attributes of the picture, of all nodes, of all edges.
    get_node_attr : callable, optional
        Attributes of a node.
    """

    def __init__(
        self,
        name: str,
        graph_attr: Mapping[str, str] | None = None,
        node_attr: Mapping[str, str] | None = None,
        edge_attr: Mapping[str, str] | None = None,
        get_node_attr: Callable[[VizNode], Mapping[str, str]] | None = None,
    ) -> None:
        self._name, self._get_node_attr = name, get_node_attr
        given = (("graph", graph_attr), ("node", node_attr), ("edge", edge_attr))
        self._lines = [f"    {kind} {_attributes(attrs)}" for kind, attrs in given if attrs]

    def node(self, viz_node: VizNode) -> None:
        """Add a node."""
        attrs = dict(self._get_node_attr(viz_node)) if self._get_node_attr is not None else {}
        label = f"{viz_node.type_name}\n{viz_node.detail}".strip()
        self._lines.append(f"    {_quoted(viz_node.identity)} {_attributes({'label': label, **attrs})}")

    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""
        self._lines.append(f"    {_quoted(viz_edge.start)} -> {_quoted(viz_edge.end)}")

    def source(self) -> str:
        """Return the graph as text."""
        return "\n".join([f"digraph {_quoted(self._name)} {{", *self._lines, "}"]) + "\n"


class DotPlotter(Plotter):
    """Draws a picture of each function.

    Parameters are those of :class:`DotGraph`; `render_kwargs` go to ``graphviz.Source.render``, such as ``format``.
    """

    def __init__(
        self,
        graph_attr: Mapping[str, str] | None = None,
        node_attr: Mapping[str, str] | None = None,
        edge_attr: Mapping[str, str] | None = None,
        get_node_attr: Callable[[VizNode], Mapping[str, str]] | None = None,
        render_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = (graph_attr, node_attr, edge_attr, get_node_attr)
        self._render_kwargs = dict(render_kwargs or {})
        self._name_to_graph: dict[str, DotGraph] = {}

    def create_graph(self, name: str) -> DotGraph:
        """Return an empty graph."""
        self._name_to_graph[name] = DotGraph(name, *self._options)
        return self._name_to_graph[name]

    def render(self, filename: str | None = None) -> None:
        """Write each function's text beside `filename`, and its picture where the package ``graphviz`` is there.

        Raises
        ------
        MissingDependency
            When it is not.
        """
        for name, graph in self._name_to_graph.items():
            path = Path(f"{filename}_{name}.gv" if filename else f"{name}.gv")
            write_file(path, graph.source())
            graphviz = require("graphviz", extra="graphviz")
            graphviz.Source(graph.source()).render(filename=str(path), **{"format": "svg", **self._render_kwargs})


def _quoted(text: str) -> str:
    plain = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("\n", "\\n") + '"'


def _attributes(attrs: Mapping[str, str]) -> str:
    return "[" + " ".join(f"{k}={_quoted(v)}" for k, v in attrs.items()) + "]"
