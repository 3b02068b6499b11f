"""Operators that ONNX tried and took back in opset 10, and copies between devices, as ONNX Runtime has them.

Source: the experimental schemas of ONNX 1.2; behaviour is that of ONNX Runtime's CPU kernels.
"""

from functools import partial
from typing import Any

import numpy as np

from weft import ir
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import calls, microsoft
from weft.frontend.onnx.node import Node

_tried = partial(microsoft, domain="", last=9, inputs=(1, 1))


@_tried("Affine", attributes="alpha beta")
@_tried("Scale", attributes="scale")
def _affine(node: Node) -> Any:
    return node.emit(node.x() * node.attr("alpha", node.attr("scale", 1.0)) + node.attr("beta", 0.0))


@_tried("ParametricSoftplus", "ScaledTanh", attributes="alpha beta")
def _scaled(node: Node) -> Any:
    if len(node.attrs) < 2:
        node.error("an attribute is missing", expected="alpha and beta", found=", ".join(node.attrs))
    fn = "tanh" if node.op_type == "ScaledTanh" else "nn.softplus"
    return node.emit(node.op(fn, node.emit(node.x() * node.attr("beta"))) * node.attr("alpha"))


@_tried("ImageScaler", attributes="bias scale")
def _image_scaler(node: Node) -> Any:
    """Images times a number, beside which each channel has its bias."""
    x = node.emit(node.x() * node.attr("scale", 1.0))
    bias = np.array(node.attr("bias", []), node.dtype())
    node.require_equal("a bias for each channel", len(bias), node.shape()[1])
    return node.op("add", x, ir.constant(bias.reshape(-1, *[1] * (node.ndim() - 2))))


@_tried("Crop", attributes="border scale")
def _crop(node: Node) -> Any:
    """Images without their borders (left, top, right, bottom), or a part of one size behind the first two."""
    border, size, dims = node.attr("border", []), node.attr("scale", []), node.shape()[2:]
    if node.ndim() != 4 or len(border) != 4 or min(border) < 0 or len(size) not in (0, 2):
        node.error(
            "images of four dimensions, four borders and perhaps two sizes, none below 0",
            found=f"{node.ndim()} dimensions, borders {border}, sizes {size}",
        )
    begin = border[1::-1]
    end = [begin[i] + size[i] if size else s.subtract(dims[i], border[3 - i]) for i in (0, 1)]
    for i in (0, 1):
        node.require_between("an end of what is left", end[i], begin[i], dims[i])
    return node.slice(node.x(), [2, 3], begin, end)


@partial(_tried, inputs=(3, 4))("DynamicSlice")
@microsoft("MemcpyFromHost", "MemcpyToHost", inputs=(1, 1), domain="")
def _renamed(node: Node) -> Any:
    return calls(node, "Slice" if node.op_type == "DynamicSlice" else "Identity", node.inputs)
