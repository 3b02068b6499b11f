"""Comparisons and the choice by a mask."""

from typing import Any

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter

_COMPARE = dict(Equal="equal", Greater="greater", GreaterOrEqual="greater_equal", Less="less", LessOrEqual="less_equal")


@converter(*_COMPARE)
def _compare(node: Node) -> Any:
    return node.op(_COMPARE[node.op_type], *node.broadcasting(node.x(0), node.x(1)))


@converter("Where")
def _where(node: Node) -> Any:
    return node.op("where", *node.broadcasting(node.x(0), node.x(1), node.x(2)))
