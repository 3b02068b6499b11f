"""Choices whose branches give tensors of different ranks: what uses such a result is converted in each branch."""

from collections.abc import Sequence
from typing import Any

from weft.error import ModelImportError
from weft.frontend.onnx.check import used_names
from weft.frontend.onnx.model import onnx

MOST = 24  # what is in the branches of one is converted twice


class RanksDiffer(ModelImportError):
    """The branches of an If give tensors of different ranks."""


def continued(node: Any, after: Sequence[tuple[int, Any]], outputs: Sequence[str]) -> tuple[list[Any], Any] | None:
    """Move those nodes behind an If that use its results into its branches; None where there are none.

    Returns the other nodes, and an If that gives those of its graph's `outputs` which depend on it.
    """
    of_it, rest, moved = {name for name in node.output if name}, [], []
    for index, other in after:
        if of_it.isdisjoint(used_names(other)):
            rest.append((index, other))
        else:
            moved.append(other)
            of_it.update(name for name in other.output if name)
    if not moved:
        return None
    whole = onnx.NodeProto(op_type="If", name=node.name, input=node.input)
    whole.output.extend(name for name in dict.fromkeys(outputs) if name in of_it)
    for attribute in node.attribute:
        branch = whole.attribute.add(name=attribute.name, type=attribute.type).g
        branch.CopyFrom(attribute.g)
        pairs = zip(branch.output, node.output, strict=False)
        branch.node.extend(onnx.helper.make_node("Identity", [own.name], [name])
                           for own, name in pairs if name not in ("", own.name))  # fmt: skip
        branch.node.extend(moved)
        del branch.output[:]
        branch.output.extend(onnx.ValueInfoProto(name=name) for name in whole.output)
    return rest, whole
