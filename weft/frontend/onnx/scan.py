"""Running sums."""

from __future__ import annotations

from typing import Any

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter

__all__: list[str] = []


@converter("CumSum")
def _cumsum(node: Node) -> Any:
    axes = node.const_ints(1, "CumSum: the input 'axis'")
    if len(axes) != 1:
        node.error("CumSum: its axis is not one number", found=f"{len(axes)} elements")
    return node.op(
        "cumsum",
        node.x(),
        axis=node.axis(axes[0]),
        exclusive=bool(node.attr("exclusive", 0)),
        reverse=bool(node.attr("reverse", 0)),
    )
