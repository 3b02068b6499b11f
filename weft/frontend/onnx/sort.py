"""The largest or smallest k."""

from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter


@converter("TopK")
def _topk(node: Node) -> Any:
    axis, largest = node.axis(node.attr("axis", -1)), bool(node.attr("largest", 1))
    k = node.attr("k") if node.opset < 10 else node.one(1, sizes=True)
    size = node.shape()[axis]
    if s.is_known(k, size) and not 0 <= k <= size:
        node.error("k is out of range", expected=f"0..{size}", found=str(k))
    out = node.op("topk", node.x(), k=k, axis=axis, ret_type="both", largest=largest, dtype="int64")
    return node.graph.fields(out)
