"""Views as PyTorch has them: other shapes and steps over the memory of one tensor."""

import math
import operator
from collections import Counter
from typing import Any

import torch

IN_PYTORCH = "weft.in_pytorch"
"""The mark of a node that PyTorch runs, among what is known of it."""


def memory_order(value: object) -> list[int] | None:
    """The axes of a tensor as they lie in memory, the outermost first; None for the order of the shape."""
    steps = _known(value.stride()) if isinstance(value, torch.Tensor) else []
    if not all(steps):  # repeated, or not known
        return None
    order = sorted(range(len(steps)), key=lambda axis: -steps[axis])
    return None if order == list(range(len(steps))) else order


def _known(dims: Any) -> list[Any]:  # None for those out of data
    return [d if type(d) is int else d.node.hint for d in dims]


def _is_dense(value: torch.Tensor) -> bool:
    """Whether a tensor's elements fill their memory, in any order, each once; so far as sizes are known."""
    sizes, steps = _known(value.shape), _known(value.stride())
    if not all(sizes) or None in steps:
        return True
    axes = sorted((step, size) for step, size in zip(steps, sizes, strict=True) if size != 1)
    return all(step == math.prod(size for _, size in axes[:i]) for i, (step, _) in enumerate(axes))


def read_bases(graph: torch.fx.GraphModule) -> None:
    """Let ``as_strided`` of views read the tensors that they are views of, whose memory it means.

    A view that has become a tensor of its own has no elements around it. Where a size decides at which element the view
    begins, or a view reads the memory as other numbers, it and its views stay with PyTorch.
    """
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
        view, size, stride, *offset = node.args
        *views, base = _chain(node)
        if base is not view:
            begin = offset[0] if offset and offset[0] is not None else node.meta["val"].storage_offset()
            if isinstance(begin, (int, torch.fx.Node)) and all(map(_moves_only, views)):
                node.args = (base, size, stride, begin)
            else:
                for n in views:
                    n.meta[IN_PYTORCH] = True


def share_memory(graph: torch.fx.GraphModule) -> None:
    """Let PyTorch view results that are views of one tensor, which show each other's writes, or of parts, with gaps."""
    output = graph.graph.output_node()
    chains, made = {node: _chain(node) for node in output.all_input_nodes}, {}
    bases = Counter(chain[-1] for chain in chains.values())
    for node, (*chain, base) in chains.items():
        if bases[base] > 1 or (chain and not _is_dense(node.meta["val"])):
            for view in reversed(chain):  # a view of its own: other readers have theirs in Weft
                with graph.graph.inserting_before(output):
                    made[view] = graph.graph.node_copy(view, lambda n: made.get(n, n))
                made[view].meta[IN_PYTORCH] = True
            output.replace_input_with(node, made.get(node, base))


def _chain(node: Any) -> list[Any]:
    """A tensor, what it is a view of, and so on."""
    chain = [node]
    while _is_view(chain[-1]):
        chain.append(chain[-1].args[0])
    return chain


def _is_view(node: Any) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write


def _moves_only(view: Any) -> bool:
    """Whether a view has the numbers that its memory has; as another type, or for complex numbers, it may not."""
    kinds = {n.meta["val"].dtype for n in (view, view.args[0]) if isinstance(n.meta["val"], torch.Tensor)}
    return len(kinds) == 1 and not kinds.pop().is_complex and view.target is not torch.ops.aten._neg_view.default
