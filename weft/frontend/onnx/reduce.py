"""Reductions over axes, and the index of the largest or smallest."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.frontend.onnx.axes import remaining, split_axes
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim
from weft.ir import DataType

_PLAIN = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}
_FAR = 120


class _Reduction:
    """Reduces over axes, which may be known only at run time; no axes leave a tensor as it is."""

    def __init__(self, node: Node, axes: Sequence[Dim], keepdims: bool) -> None:
        self.node, self.keepdims = node, keepdims
        self.static = node.is_static(axes)
        distinct = node.distinct_axes(axes) if not keepdims and not self.static else [node.axis(a) for a in axes]
        self.axes = tuple(sorted(set(distinct))) if self.static else tuple(node.graph.named(distinct, sizes=False))
        if len(self.axes) > node.ndim():
            node.error("there are more axes than dimensions", expected=f"at most {node.ndim()}", found=str(len(axes)))

    def __call__(self, name: str, x: Any, keepdims: bool = False) -> Any:
        if not self.axes:
            return x
        node, keepdims = self.node, self.keepdims or keepdims
        if x.ty.dtype == "bool":
            return node.astype(self(name, node.astype(x, "uint8"), keepdims), "bool")
        if self.static:
            return node.op(name, x, axis=self.axes, keepdims=keepdims)
        kept, taken = (node.graph.named(part) for part in split_axes(node.shape(), self.axes))
        pairs = [d for pair in zip(kept, taken, strict=True) for d in pair]
        out = node.op(name, node.reshape(x, pairs), axis=tuple(range(1, len(pairs), 2)), keepdims=False)
        return out if keepdims else self.drop(out)

    def drop(self, x: Any) -> Any:
        """Drop the reduced dimensions, which are 1."""
        node = self.node
        if self.static:
            return node.op("squeeze", x, axis=self.axes) if self.axes else x
        return node.reshape(x, node.graph.named(remaining(node.shape(), self.axes)))


@converter(*_PLAIN, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def _reduce(node: Node) -> Any:
    axes, x = node.axes(), node.x()
    if not axes:
        axes = [] if node.attr("noop_with_empty_axes", 0) else list(range(node.ndim()))
    reduction = _Reduction(node, axes, bool(node.attr("keepdims", 1)))
    plain, dtype = _PLAIN.get(node.op_type), x.ty.dtype
    is_float = DataType(dtype).is_float
    if plain == "mean" and not is_float:
        return node.astype(reduction("mean", node.astype(x, "float64")), dtype)
    if plain is not None:
        return reduction(plain, x)
    if node.op_type == "ReduceL1":
        return reduction("sum", node.op("abs", x))
    if node.op_type == "ReduceSumSquare":
        return reduction("sum", node.op("multiply", x, x))
    if node.op_type == "ReduceLogSumExp":
        return _log_sum_exp(node, x, reduction)
    wide = x if is_float else node.astype(x, "float64")
    if node.op_type == "ReduceL2":
        out = node.op("sqrt", reduction("sum", node.op("multiply", wide, wide)))
    else:
        out = node.op("log", reduction("sum", wide))
    return node.astype(out, dtype)


def _log_sum_exp(node: Node, x: Any, reduction: _Reduction) -> Any:
    """Subtract the largest first, so that nothing overflows; a largest of infinity counts as zero.

    How far integers lie below the largest is an integer. Beyond `_FAR` it has no power in float32, whose sums are wide.
    """
    top, dtype = reduction("max", x, keepdims=True), x.ty.dtype
    if DataType(dtype).is_float:
        top = node.op("where", node.op("isfinite", top), top, node.scalar(0.0, dtype))
        powers = node.op("exp", node.op("subtract", x, top))
    else:
        least, far = node.scalar(np.iinfo(dtype).min + _FAR, dtype), node.scalar(_FAR, dtype)
        nearest = node.op("subtract", node.op("maximum", top, least), far)
        below = node.op("subtract", top, node.op("maximum", x, nearest))
        powers = node.op("exp", node.op("negative", node.astype(below, "float32")))
        powers, top = node.astype(powers, "float64"), node.astype(top, "float64")
    total = node.op("log", reduction("sum", powers, keepdims=True))
    out = node.astype(node.op("add", total, node.reshape(top, node.dims(total))), dtype)
    return out if reduction.keepdims else reduction.drop(out)


@converter("ArgMax", "ArgMin")
def _arg_reduce(node: Node) -> Any:
    name, axis = node.op_type.lower(), node.axis(node.attr("axis", 0))
    keep, last = bool(node.attr("keepdims", 1)), bool(node.attr("select_last_index", 0))
    return node.op(name, node.x(), axis=axis, keepdims=keep, select_last_index=last, dtype="int64")
