"""Running sums and products."""

from typing import Any

from weft.frontend.onnx.axes import around_axis
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter


@converter("CumSum", "CumProd")
def _running(node: Node) -> Any:
    axes = node.ints(1)
    if len(axes) != 1:
        node.error("its axis is not one number", found=f"{len(axes)} elements")
    name = node.op_type.lower()
    flags = {"exclusive": bool(node.attr("exclusive", 0)), "reverse": bool(node.attr("reverse", 0))}
    axis = node.axis(axes[0])
    if node.is_static(axes):
        return node.op(name, node.x(), axis=axis, **flags)
    around = node.reshape(node.x(), node.graph.named(around_axis(node.shape(), axis)))
    return node.reshape(node.op(name, around, axis=1, **flags), node.shape())
