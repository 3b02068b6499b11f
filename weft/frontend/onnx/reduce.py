"""Reductions over axes, and the index of the largest or smallest."""

from __future__ import annotations

from typing import Any

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.ir import DataType

__all__: list[str] = []

_PLAIN = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}


@converter(*_PLAIN, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def _reduce(node: Node) -> Any:
    axes, keepdims = node.axes(), bool(node.attr("keepdims", 1))
    x = node.x()
    if axes is not None and not axes:
        if node.attr("noop_with_empty_axes", 0):
            return x if node.op_type in _PLAIN else _with_axes(node, x, (), keepdims)
        axes = None
    if axes is None and node.attr("noop_with_empty_axes", 0):
        return x if node.op_type in _PLAIN else _with_axes(node, x, (), keepdims)
    over = tuple(range(node.ndim())) if axes is None else tuple(sorted({node.axis(a) for a in axes}))
    return _with_axes(node, x, over, keepdims)


def _with_axes(node: Node, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    def reduced(name: str, v: Any) -> Any:
        if not axes:
            return v
        if v.ty.dtype == "bool" and name in ("max", "min"):
            return node.astype(node.op(name, node.astype(v, "uint8"), axis=axes, keepdims=keepdims), "bool")
        return node.op(name, v, axis=axes, keepdims=keepdims)

    plain = _PLAIN.get(node.op_type)
    if plain is not None:
        if plain == "mean" and not DataType(x.ty.dtype).is_float:
            return node.astype(reduced("mean", node.astype(x, "float64")), x.ty.dtype)
        return reduced(plain, x)
    if node.op_type == "ReduceL1":
        return reduced("sum", node.op("abs", x))
    if node.op_type == "ReduceSumSquare":
        return reduced("sum", node.op("multiply", x, x))
    dtype = x.ty.dtype
    wide = x if DataType(dtype).is_float else node.astype(x, "float64")
    if node.op_type == "ReduceL2":
        out = node.op("sqrt", reduced("sum", node.op("multiply", wide, wide)))
    elif node.op_type == "ReduceLogSum":
        out = node.op("log", reduced("sum", wide))
    else:
        out = _log_sum_exp(node, wide, axes, keepdims)
    return node.astype(out, dtype)


def _log_sum_exp(node: Node, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Subtract the largest first, so that nothing overflows; a largest of infinity counts as zero."""
    if not axes:
        return node.op("log", node.op("exp", x))
    top = node.op("max", x, axis=axes, keepdims=True)
    top = node.op("where", node.op("isfinite", top), top, node.scalar(0.0, x.ty.dtype))
    total = node.op("log", node.op("sum", node.op("exp", node.op("subtract", x, top)), axis=axes, keepdims=True))
    out = node.op("add", total, top)
    return out if keepdims else node.op("squeeze", out, axis=axes)


@converter("ArgMax", "ArgMin")
def _arg_reduce(node: Node) -> Any:
    return node.op(
        node.op_type.lower(),
        node.x(),
        axis=node.axis(node.attr("axis", 0)),
        keepdims=bool(node.attr("keepdims", 1)),
        select_last_index=bool(node.attr("select_last_index", 0)),
        dtype="int64",
    )
