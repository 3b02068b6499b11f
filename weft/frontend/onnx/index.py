"""Gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim, Value
from weft.ir import DataType, constant

__all__: list[str] = []


def _wrapped(node: Node, i: int, size: Dim) -> Any:
    """Return indices with negative ones counted from the end."""
    data = node.const(i)
    if data is not None:
        if data.size and data.min() >= 0:
            return node.x(i)
        if isinstance(size, int):
            return constant(np.where(data < 0, data + size, data).astype(data.dtype))
    x, dtype = node.x(i), node.dtype(i)
    if node.value(i).non_negative:
        return x
    if not DataType(dtype).is_integer:
        node.error(f"{node.op_type}: its indices have a wrong type", expected="int32 or int64", found=dtype)
    extent = node.graph.expr(Value.of_elements(size, dtype))
    negative = node.op("less", x, node.scalar(0, dtype))
    return node.op("where", negative, node.op("add", x, extent), x)


def _check_bounds(node: Node, i: int, size: Dim) -> None:
    data = node.const(i)
    if (
        data is not None
        and data.size
        and isinstance(size, int)
        and not -size <= int(data.min()) <= int(data.max()) < size
    ):
        node.error(
            f"{node.op_type}: an index is out of range",
            expected=f"{-size}..{size - 1}",
            found=f"{data.min()}..{data.max()}",
        )


@converter("Gather")
def _gather(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 0))
    if node.ndim() == 0:
        node.error("Gather: its data has no dimensions", expected="at least 1")
    size = node.shape()[axis]
    _check_bounds(node, 1, size)
    return node.op("take", node.x(0), _wrapped(node, 1, size), axis=axis)


@converter("GatherElements")
def _gather_elements(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 0))
    size = node.shape()[axis]
    _check_bounds(node, 1, size)
    return node.op("gather_elements", node.x(0), _wrapped(node, 1, size), axis=axis)


@converter("GatherND")
def _gather_nd(node: Node) -> Any:
    batch_dims = node.attr("batch_dims", 0)
    return node.op("gather_nd", node.x(0), _wrapped_tuples(node, batch_dims), batch_dims=batch_dims)


def _wrapped_tuples(node: Node, first: int) -> Any:
    """Return index tuples, the last dimension of input 1, with negative indices counted from the end."""
    data, dtype = node.const(1), node.dtype(1)
    if data is not None and (not data.size or data.min() >= 0):
        return node.x(1)
    depth = node.shape(1)[-1]
    if not isinstance(depth, int):
        node.unsupported(
            f"{node.op_type}: the length of its index tuples is not known",
            expected="a constant last dimension",
            found=str(depth),
        )
    sizes = list(node.shape()[first : first + depth])
    if len(sizes) != depth:
        node.error(
            f"{node.op_type}: its index tuples are longer than the rank of the data",
            expected=f"at most {node.ndim() - first}",
            found=str(depth),
        )
    x = node.x(1)
    negative = node.op("less", x, node.scalar(0, dtype))
    return node.op("where", negative, node.op("add", x, node.graph.expr(Value.of_elements(sizes, dtype))), x)


_REDUCTION = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(node: Node) -> str:
    reduction = node.attr("reduction", "none")
    if reduction not in _REDUCTION:
        node.error(
            f"{node.op_type}: attribute 'reduction' has an unknown value",
            expected=", ".join(_REDUCTION),
            found=reduction,
        )
    return _REDUCTION[reduction]


@converter("ScatterElements", "Scatter")
def _scatter_elements(node: Node) -> Any:
    axis = node.axis(node.attr("axis", 0))
    size = node.shape()[axis]
    _check_bounds(node, 1, size)
    return node.op(
        "scatter_elements", node.x(0), _wrapped(node, 1, size), node.x(2), axis=axis, reduction=_reduction(node)
    )


@converter("ScatterND")
def _scatter_nd(node: Node) -> Any:
    return node.op("scatter_nd", node.x(0), _wrapped_tuples(node, 0), node.x(2), reduction=_reduction(node))


@converter("ReverseSequence")
def _reverse_sequence(node: Node) -> Any:
    axes = {"seq_axis": node.attr("time_axis", 0), "batch_axis": node.attr("batch_axis", 1)}
    return node.op("reverse_sequence", node.x(0), node.x(1), **axes)
