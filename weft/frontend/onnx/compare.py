"""Comparisons and the choice by a mask."""

from typing import Any

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.runtime.host import Kind

_COMPARE = dict(Equal="equal", Greater="greater", GreaterOrEqual="greater_equal", Less="less", LessOrEqual="less_equal")


@converter(*_COMPARE)
def _compare(node: Node) -> Any:
    if node.logical() == "string" and node.const(0) is None and node.const(1) is None:  # only a model's have one number
        kind = Kind("tensor", "bool", max(node.ndim(0), node.ndim(1)))
        return node.host("EqualTexts", node.inputs, [kind])
    return node.op(_COMPARE[node.op_type], *node.broadcasting(node.x(0), node.x(1)))


@converter("Where")
def _where(node: Node) -> Any:
    return node.op("where", *node.broadcasting(node.x(0), node.x(1), node.x(2)))
