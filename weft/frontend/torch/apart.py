"""Calls that have no converter, taken apart one by one: PyTorch's own way traces the whole program once more."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import Target, map_arg
from torch.utils._pytree import tree_leaves

from weft.frontend.torch.graph import in_place, is_new, pure
from weft.reach import reached

_ATEN = torch.ops.aten
_PARTS = (_ATEN.select.int, _ATEN.slice.Tensor, _ATEN.diagonal.default)
_SCATTERS: dict[object, torch._ops.OpOverload] = {
    part: getattr(_ATEN, f"{part._opname}_scatter").default for part in _PARTS
}
"""Views of a part, and what makes a tensor with another part there."""
_FEW = 3
"""A call costs about as much by itself as so many do together with the whole program."""


def taken_apart(root: torch.fx.GraphModule, is_known: Callable[[torch.fx.Node], bool]) -> torch.fx.Graph | None:
    """A copy of a program's graph with what PyTorch makes of each call that `is_known` refuses.

    None where that takes the whole program: many calls, or one that writes to a tensor, that stands in an inner graph,
    that gives rise to sizes, or that PyTorch leaves whole.
    """
    graph = copy.deepcopy(root.graph)
    graph.owning_module = root
    for node in filter(in_place, list(graph.nodes)):
        _write_new(graph, node)
    missing = [node for node in graph.nodes if node.op == "call_function" and not is_known(node)]
    if _FEW * len(missing) > len(graph.nodes):
        return None
    for node in missing:  # which grows by those of their parts that have no converter, either
        parts = _parts(node) if _is_alone(node) else None
        if parts is None or any(part.op == "get_attr" or part.target is node.target for part in parts.nodes):
            return None
        places = dict(zip(parts.find_nodes(op="placeholder"), node.all_input_nodes, strict=True))
        with graph.inserting_before(node):
            found = graph.graph_copy(parts, places)
        missing += [places[p] for p in parts.nodes if p.op == "call_function" and not is_known(places[p])]
        if not _replaced(graph, node, found):
            return None
    return graph


def _write_new(graph: torch.fx.Graph, write: torch.fx.Node) -> None:
    """Let what reads memory behind a write to it, also through views, read new tensors.

    The call stays where the memory may be another's, or where what may share it was made before and is read later.
    """
    views = write.all_input_nodes[:1]
    while views[-1].target in _SCATTERS:
        views += views[-1].all_input_nodes[:1]
    before = reached(views[-1:], lambda node: [user for user in node.users if user < write and not is_new(user)])
    is_read = any(write < user for other in before if other not in views for user in other.users)
    if is_read or pure(write) is write.target or not is_new(views[-1]):
        return

    def call(target: Target, first: list[torch.fx.Node], old: torch.fx.Node, like: torch.fx.Node) -> torch.fx.Node:
        with graph.inserting_before(write):
            made = graph.create_node("call_function", target, (*first, *old.args[1:]), dict(old.kwargs))
        made.meta = dict(like.meta)
        return made

    made = call(pure(write), views[:1], write, write)
    for view, base in pairwise(views):
        made = call(_SCATTERS[view.target], [base, made], view, base)
    for view in reversed(views):
        made = made if view is views[-1] else call(view.target, [made], view, view)
        view.replace_all_uses_with(made, delete_user_cb=made.__lt__)
    write.replace_all_uses_with(made)
    graph.erase_node(write)


def _is_alone(node: torch.fx.Node) -> bool:
    """Whether a call means what its operator makes of its arguments, whatever is around it."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable or any(n.meta.get("val") is None for n in (node, *node.all_input_nodes)):
        return False
    return not any(free_unbacked_symbols(v) for v in tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor))


def _parts(node: torch.fx.Node) -> torch.fx.Graph | None:
    """The calls that PyTorch makes of one, for its arguments' types; none where they hang on an open size."""
    target: Any = node.target
    table: Any = get_decompositions([target])
    given, values = node.all_input_nodes, [n.meta["val"] for n in node.all_input_nodes]

    def call(*values: Any) -> Any:
        known = dict(zip(given, values, strict=True))
        return target(*map_arg(node.args, known.__getitem__), **map_arg(node.kwargs, known.__getitem__))

    try:
        sizes: Any = getattr(detect_fake_mode([*values, node.meta["val"]]), "shape_env", None)
        with sizes.error_on_new_guards() if sizes is not None else nullcontext():
            return make_fx(call, decomposition_table=table)(*values).graph
    except (RuntimeError, AssertionError):  # PyTorch asserts that values are of one mode; those of constants are not
        return None


def _replaced(graph: torch.fx.Graph, node: torch.fx.Node, found: Any) -> bool:
    """Let what reads a call read its parts' result, or results."""
    results: Any = {node: found}
    if isinstance(found, (tuple, list)):
        fields: Any = dict(enumerate(found))
        results = {user: fields[user.args[1]] if user.target is operator.getitem else None for user in node.users}
    if not all(isinstance(value, torch.fx.Node) for value in results.values()):
        return False
    for old, value in results.items():
        old.replace_all_uses_with(value)
    for old in {**results, node: found}:
        graph.erase_node(old)
    return True
