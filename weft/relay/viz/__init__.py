"""Pictures of Relay programs.

Read in this order: ``interface``, ``terminal``, ``dot``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.ir import Expr, IRModule
from weft.relay.analysis.variables import post_order_visit
from weft.relay.expr import Function
from weft.relay.viz import dot, interface, terminal
from weft.relay.viz.dot import DotPlotter, DotVizParser
from weft.relay.viz.interface import Plotter, VizGraph, VizParser
from weft.relay.viz.terminal import TermPlotter, TermVizParser

__all__ = [
    "DotPlotter",
    "DotVizParser",
    "Plotter",
    "RelayVisualizer",
    "TermPlotter",
    "TermVizParser",
    "VizGraph",
    "VizParser",
    "dot",
    "interface",
    "terminal",
]


class RelayVisualizer:
    """Draws the functions of a module, ``main`` first.

    Parameters
    ----------
    relay_mod : IRModule
    relay_param : mapping of str to tensor, optional
        Parameters with values, which are told apart from inputs.
    plotter : Plotter, optional
        By default trees are printed.
    parser : VizParser, optional
        By default :class:`TermVizParser`.
    """

    def __init__(
        self,
        relay_mod: IRModule,
        relay_param: Mapping[str, Any] | None = None,
        plotter: Plotter | None = None,
        parser: VizParser | None = None,
    ) -> None:
        self._plotter = plotter if plotter is not None else TermPlotter()
        self._parser = parser if parser is not None else TermVizParser()
        params = relay_param or {}
        functions = {v.name_hint: f for v, f in relay_mod.items() if isinstance(f, Function)}
        taken = 0
        for name in sorted(functions, key=lambda n: n != "main"):
            identities: dict[Expr, str] = {}

            def number(node: Expr, known: dict[Expr, str] = identities, first: int = taken) -> None:
                known.setdefault(node, str(first + len(known)))

            post_order_visit(functions[name], number)
            taken += len(identities)
            graph = self._plotter.create_graph(name)
            for node in identities:
                viz_node, edges = self._parser.get_node_edges(node, params, identities)
                if viz_node is not None:
                    graph.node(viz_node)
                for edge in edges:
                    graph.edge(edge)

    def render(self, filename: str | None = None) -> None:
        """Draw, to a file or to the screen."""
        self._plotter.render(filename)
