"""What a model may be at most, looked at before anything is expanded: small files can stand for more than any memory.

Nesting counts what holds what: a function its nodes, a node its branches and body, each of which holds nodes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import ModelImportError
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.schema import normal_domain

MAX_NODES = 1_000_000
"""Nodes; those of functions count at every call, those of loops twice, because they are converted twice at least."""
MAX_DEPTH = 32
MAX_LOOPS = 8
MAX_ATTRIBUTE, MAX_LEARNED = 1 << 20, 1 << 26
"""Numbers or texts of one attribute, and of one of ``ai.onnx.ml``, whose attributes are what a model has learned."""


def check_limits(graph: onnx.GraphProto, functions: Mapping[tuple[str, str], Any]) -> None:
    """Refuse a graph that is too large once its functions are expanded, or nests too deeply.

    Raises
    ------
    ModelImportError
        With the limit, what was found, and the function or node.
    """
    _Counter(functions).count(graph, (), "", 0)


def subgraphs(attribute: onnx.AttributeProto) -> Any:
    """Return the graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


class _Counter:
    def __init__(self, functions: Mapping[tuple[str, str], Any]) -> None:
        self.functions = functions
        self.known: dict[tuple[str, str], tuple[int, int]] = {}
        """Nodes and levels of each function."""

    def count(self, graph: Any, path: tuple[Any, ...], where: str, loops: int) -> tuple[int, int]:
        """Return the nodes and levels of a graph inside of `path`: of functions' keys, and None for each graph."""
        nodes = levels = 0
        for i, node in enumerate(graph.node):
            place = where or f'ONNX node {i} "{node.name or next(iter(node.output), "")}" ({node.op_type})'
            n, deep = self._of_node(node, path, place, loops)
            nodes, levels = nodes + n, max(levels, deep)
            if nodes > MAX_NODES:
                inside = next((k[1] for k in reversed(path) if k is not None), None)
                raise ModelImportError(
                    f"{f'function {inside!r}' if inside else 'the graph'} has too many nodes, with functions expanded",
                    where=place,
                    expected=f"at most {MAX_NODES:,}",
                    found=f"{nodes:,} or more",
                )
            if len(path) + levels > MAX_DEPTH:
                raise self._too_deep(path, place, levels)
        return nodes, levels

    def _of_node(self, node: onnx.NodeProto, path: tuple[Any, ...], where: str, loops: int) -> tuple[int, int]:
        nodes, levels = 1, 0
        key = (normal_domain(node.domain), node.op_type)
        function = self.functions.get(key)
        if function is not None:
            if key in path:
                raise ModelImportError("functions call each other without end", where=where, found=f"'{key[1]}'")
            if key not in self.known:
                if len(path) >= MAX_DEPTH:
                    raise self._too_deep(path, where, 1)
                self.known[key] = self.count(function, (*path, key), where, loops)
            n, deep = self.known[key]
            nodes, levels = nodes + n, deep + 1
        most = MAX_LEARNED if key[0] == "ai.onnx.ml" else MAX_ATTRIBUTE
        for a in node.attribute:
            size = max(len(a.ints), len(a.floats), len(a.strings))
            if size > most:
                raise ModelImportError(
                    f"attribute '{a.name}' is too long",
                    where=where,
                    expected=f"at most {most:,} values",
                    found=f"{size:,}",
                )
            is_loop = key[1] in ("Loop", "Scan")
            inner = loops + is_loop
            for graph in subgraphs(a):
                if len(path) >= MAX_DEPTH:
                    raise self._too_deep(path, where, 1)
                if inner > MAX_LOOPS:
                    raise ModelImportError(
                        "loops nest too deeply", where=where, expected=f"at most {MAX_LOOPS}", found=f"{inner} or more"
                    )
                n, deep = self.count(graph, (*path, None), where, inner)
                nodes, levels = nodes + n * (1 + is_loop), max(levels, deep + 1)
        return nodes, levels

    def _too_deep(self, path: tuple[Any, ...], where: str, levels: int) -> ModelImportError:
        named = next((f" in function {k[1]!r}" for k in reversed(path) if k is not None), "")
        return ModelImportError(
            f"functions and branches nest too deeply{named}",
            where=where,
            expected=f"at most {MAX_DEPTH} levels",
            found=f"{len(path) + levels} or more",
        )
