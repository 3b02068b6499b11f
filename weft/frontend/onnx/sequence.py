"""Sequences and optionals: values of the machine that the host's operators make and take apart."""

from dataclasses import replace
from typing import Any

import numpy as np

from weft.frontend.onnx.function_body import inline_schema
from weft.frontend.onnx.importer import convert_nodes
from weft.frontend.onnx.inputs import kind_of
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.runtime.host import Kind


def merged(node: Node, kinds: list[Kind]) -> Kind:
    """Return the kind that values of several have: their rank where it is one.

    Raises
    ------
    ModelImportError
        When they hold different things.
    """
    first = kinds[0]
    for k in kinds[1:]:
        if (k.form, k.dtype) != (first.form, first.dtype):
            node.error("values of different types", expected=f"{first.form} {first.dtype}", found=f"{k.form} {k.dtype}")
        of = first.of
        if of is not None and k.of is not None:
            of = merged(node, [of, k.of])
        first = replace(first, rank=first.rank if first.rank == k.rank else None, of=of)
    return first


def _element(node: Node) -> Kind:
    kind = node.value(0).full_kind
    assert kind.of is not None
    return kind.of


_LENGTH, _TEST = Kind("tensor", "int64", 0), Kind("tensor", "bool", 0)


@converter("SequenceConstruct")
def _construct(node: Node) -> Any:
    of = merged(node, [v.full_kind for v in node.inputs if v is not None])
    return node.host("SequenceConstruct", node.inputs, [Kind("sequence", of=of)])


@converter("SequenceEmpty")
def _empty(node: Node) -> Any:
    dtype = dtype_name(node.attr("dtype", 1), "SequenceEmpty: attribute 'dtype'")
    return node.host("SequenceConstruct", [], [Kind("sequence", of=Kind("tensor", dtype, NO_RANK))])


NO_RANK = -1
"""The rank of the elements of a sequence that has none yet: any rank goes with it."""


@converter("SequenceLength")
def _length(node: Node) -> Any:
    return node.host("SequenceLength", node.inputs, [_LENGTH])


@converter("SequenceAt")
def _at(node: Node) -> Any:
    return node.host("SequenceAt", node.inputs, [_with_rank(_element(node))])


def _with_rank(kind: Kind) -> Kind:
    """Return the kind of an element that is taken out; a sequence that was made empty gives none."""
    return replace(kind, rank=0) if kind.rank == NO_RANK else kind


@converter("SequenceInsert")
def _insert(node: Node) -> Any:
    old, new = _element(node), node.value(1).full_kind
    of = new if old.rank == NO_RANK and old.dtype == new.dtype else merged(node, [old, new])
    return node.host("SequenceInsert", node.inputs, [Kind("sequence", of=of)])


@converter("SequenceErase")
def _erase(node: Node) -> Any:
    return node.host("SequenceErase", node.inputs, [node.value(0).full_kind])


@converter("SplitToSequence")
def _split(node: Node) -> Any:
    keep = node.has(1) or bool(node.attr("keepdims", 1))
    rank = node.ndim() - (not keep)
    axis = node.axis(node.attr("axis", 0))
    of = Kind("tensor", node.logical(), rank)
    return node.host("SplitToSequence", node.inputs, [Kind("sequence", of=of)], axis=axis, keepdims=int(keep))


@converter("ConcatFromSequence")
def _concat(node: Node) -> Any:
    kind, new_axis = _element(node), bool(node.attr("new_axis", 0))
    if kind.rank is None or kind.rank == NO_RANK:
        node.unsupported("the rank of the sequence's tensors is not known")
    rank = kind.rank + new_axis
    axis = node.axis(node.attr("axis"), rank)
    return node.host("ConcatFromSequence", node.inputs, [replace(kind, rank=rank)], axis=axis, new_axis=int(new_axis))


@converter("SequenceMap")
def _map(node: Node) -> Any:
    return inline_schema(node, convert_nodes)


# --- optionals --------------------------------------------------------------------------------------------------------


@converter("Optional")
def _optional(node: Node) -> Any:
    if node.has(0):
        of = node.value(0).full_kind
    else:
        of = kind_of(node.attr("type"), "Optional: attribute 'type'")
    return node.host("SequenceConstruct", node.inputs, [Kind("optional", of=of)])


@converter("OptionalHasElement")
def _has_element(node: Node) -> Any:
    if not node.has(0) or node.value(0).full_kind.form != "optional":
        return Value.of_array(np.array(node.has(0)))
    return node.host("OptionalHasElement", node.inputs, [_TEST])


@converter("OptionalGetElement")
def _get_element(node: Node) -> Any:
    if node.value(0).full_kind.form != "optional":
        return node.value(0)
    return node.host("OptionalGetElement", node.inputs, [_with_rank(_element(node))])
