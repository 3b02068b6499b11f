"""Losses: the functions that their schemas have, after what ONNX demands of classes and weights."""

from __future__ import annotations

from typing import Any

from weft.frontend.onnx.function_body import inline_schema
from weft.frontend.onnx.importer import convert_nodes
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter

__all__: list[str] = []


@converter("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(node: Node) -> Any:
    batch, classes, *space = node.shape()
    node.require_shape(1, [batch, *space])
    if node.has(2):
        node.require_shape(2, [classes])
    target, ignored = node.x(1), node.attr("ignore_index")
    if ignored is not None:
        dtype = node.dtype(1)
        is_ignored = node.op("equal", target, node.scalar(ignored, dtype))
        target = node.op("where", is_ignored, node.scalar(0, dtype), target)
    node.require_indices("classes of input 1", target, 0, classes)
    return inline_schema(node, convert_nodes)
