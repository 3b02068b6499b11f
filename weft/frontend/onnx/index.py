"""Gather and scatter."""

from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim


def _indices(node: Node, size: Dim) -> Any:
    """Return the indices, input 1; constants outside of a dimension that is known are refused here."""
    data = node.const(1)
    if data is not None and data.size and isinstance(size, int):
        for index in (data.min(), data.max()):
            node.require_between("an index is out of range", int(index), -size, size - 1)
    return node.x(1)


@converter("Gather")
def _gather(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 0))
    if node.ndim() == 0:
        node.error("its data has no dimensions", expected="at least 1")
    return node.op("take", node.x(0), _indices(node, node.shape()[axis]), axis=axis)


@converter("GatherElements")
def _gather_elements(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 0))
    return node.op("gather_elements", node.x(0), _indices(node, node.shape()[axis]), axis=axis)


@converter("GatherND")
def _gather_nd(node: Node) -> Any:
    return node.op("gather_nd", node.x(0), _tuples(node), batch_dims=node.attr("batch_dims", 0))


def _tuples(node: Node) -> Any:
    """Return index tuples, the last dimension of input 1; they are of one length."""
    depth = node.shape(1)[-1]
    if not isinstance(depth, int):
        node.unsupported(
            "the length of its index tuples is not known", expected="a constant last dimension", found=str(depth)
        )
    return node.x(1)


_REDUCTION = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(node: Node) -> str:
    reduction = node.attr("reduction", "none")
    if reduction not in _REDUCTION:
        node.error("attribute 'reduction' has an unknown value", expected=", ".join(_REDUCTION), found=reduction)
    return _REDUCTION[reduction]


@converter("ScatterElements", "Scatter")
def _scatter_elements(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 0))
    indices = _indices(node, node.shape()[axis])
    return node.op("scatter_elements", node.x(0), indices, node.x(2), axis=axis, reduction=_reduction(node))


@converter("ScatterND")
def _scatter_nd(node: Node) -> Any:
    return node.op("scatter_nd", node.x(0), _tuples(node), node.x(2), reduction=_reduction(node))


@converter("ReverseSequence")
def _reverse_sequence(node: Node) -> Any:
    axes = {"seq_axis": node.attr("time_axis", 0), "batch_axis": node.attr("batch_axis", 1)}
    if sorted(axes.values()) != [0, 1]:
        node.error("wrong axes", expected="0 and 1, in some order", found=str([*axes.values()]))
    count, batch = node.shape(1), node.shape()[axes["batch_axis"]] if node.ndim() > 1 else 0
    if node.ndim() < 2 or len(count) != 1 or (s.is_known(count[0], batch) and count[0] != batch):
        node.error("there is not one length for each sequence", expected=f"({batch},)", found=f"{count}")
    lengths, time = node.const(1), node.shape()[axes["seq_axis"]]
    if lengths is not None and s.is_known(time) and lengths.size and not 0 <= lengths.min() <= lengths.max() <= time:
        node.error("a length is out of range", expected=f"0..{time}", found=str(lengths.tolist()))
    return node.op("reverse_sequence", node.x(0), node.x(1), **axes)
