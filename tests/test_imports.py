"""Modules depend on each other in one direction: no knots, whether at import, in functions or for type checkers."""

import re
from pathlib import Path

WEFT = Path(__file__).parents[1] / "weft"

ALLOWED = {
    ("weft._absent", "weft._aliases"): "an error about a name that is not here asks whether the name is an alias",
    ("weft.frontend.torch.control", "weft.frontend.torch.graph"): "graphs inside of graphs are converted as graphs are",
    ("weft.target.kind", "weft.target.target"): "a kind's functions take a target, and a target has a kind",
    (
        "weft.runtime",
        *(f"weft.runtime.{name}" for name in "container executable jit loading module profiler".split()),
        *(f"weft.runtime.{name}" for name in "relay_executable relay_vm vm".split()),
    ): "the package's face loads what few programs use when they ask for it",
}


IMPORT = re.compile(r"^ *(?:from (weft[\w.]*) import (\([^)]*\)|.*)|import (weft[\w.]*))", re.MULTILINE)


def modules():
    """The file of each module of weft."""
    for path in WEFT.rglob("*.py"):
        parts = path.relative_to(WEFT.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(text):
    """Each ``import`` of a module, wherever it stands: a dotted name, and what may be an attribute or a module."""
    for base, listed, alone in IMPORT.findall(text):
        yield from ((base, name) for name in re.findall(r"(\w+)(?: as \w+)?", re.sub("#.*", "", listed)))
        yield alone, ""


def knots(edges):
    """The strongly connected components of more than one node (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in edges[node]:
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            at = stack.index(node)
            found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for node in edges:
        if node not in order:
            visit(node)
    return {knot for knot in found if len(knot) > 1}


def test_a_knot_is_found():
    assert knots({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}) == {("b", "c")}


def test_modules_import_in_one_direction():
    known = dict(modules())
    edges = {}
    for name, path in known.items():
        wanted = imports(path.read_text())
        targets = {f"{base}.{part}" if f"{base}.{part}" in known else base for base, part in wanted}
        edges[name] = sorted((targets & known.keys()) - {name})
    found = knots(edges)
    assert found == set(ALLOWED), f"new: {found - set(ALLOWED)}, gone: {set(ALLOWED) - found}"
