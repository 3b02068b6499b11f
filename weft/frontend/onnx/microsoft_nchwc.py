"""Operators of ``com.microsoft.nchwc``, as ONNX Runtime saves optimised models: channels in blocks of a vector.

Values are imported as images of whole blocks of channels, in the usual order; only weights are taken apart. Source:
schemas and reordering of ONNX Runtime 1.32.
"""

import platform
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.compose import call, microsoft
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.microsoft import activated
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.value import Value
from weft.target import host_features

_DOMAIN = "com.microsoft.nchwc"
_POOL = "auto_pad dilations kernel_shape pads strides"


def _block() -> int:
    """Return the channels of a block, which ONNX Runtime chooses by the processor and does not write down."""
    return 16 if platform.machine() in ("aarch64", "arm64") or "avx512f" in host_features() else 8


@microsoft("ReorderInput", attributes="channels_last", inputs=(1, 1), domain=_DOMAIN)
def _reorder_input(node: Node) -> Any:
    x = node.permute(node.x(), [0, 3, 1, 2]) if node.attr("channels_last", 0) else node.x()
    channels = node.dims(x)[1]
    if not s.is_known(channels):
        node.unsupported("the number of channels is not known")
    return padded(node, x, [0] * 4, [0, -channels % _block(), 0, 0], "constant", 0) if channels % _block() else x


@microsoft("ReorderOutput", attributes="channels channels_last", inputs=(1, 1), domain=_DOMAIN)
def _reorder_output(node: Node) -> Any:
    channels = node.attr("channels", 0)
    x = node.x() if s.same(node.shape()[1], channels) else node.slice(node.x(), [1], [0], [channels])
    return node.permute(x, [0, 2, 3, 1]) if node.attr("channels_last", 0) else x


@microsoft("Conv", attributes=f"{_POOL} group activation activation_params", inputs=(2, 4), domain=_DOMAIN)
def _conv(node: Node) -> Any:
    given, group = node.const(1), node.attr("group", 1)
    if given is None or given.ndim != 4:
        node.unsupported("its weights (com.microsoft.nchwc) must be constants of four dimensions")
    outputs, inputs, *window = given.shape
    block = _block()
    if outputs % block:
        node.error(
            "the model (com.microsoft.nchwc) was optimised for another kind of processor",
            expected=f"blocks of {block} channels",
            found=f"{outputs} channels",
        )
    inner = block if inputs % block == 0 else 1  # few channels, or one of each group, are no blocks
    weight = given.reshape(outputs // block, inputs // inner, *window, inner, block)
    weight = weight.transpose(0, 5, 1, 4, 2, 3).reshape(given.shape)
    out = call(
        node,
        "Conv",
        node.x(),
        Value.of_array(np.ascontiguousarray(weight)),
        node.x(2) if node.has(2) else None,
        **{k: node.attr(k) for k in _POOL.split()},
        group=group,
    )
    out = node.op("add", out, node.x(3)) if node.has(3) else out
    return activated(node, out, node.attr("activation_params", []))


@microsoft("GlobalMaxPool", "GlobalAveragePool", inputs=(1, 1), domain=_DOMAIN)
@microsoft("MaxPool", "AveragePool", attributes=f"{_POOL} ceil_mode count_include_pad storage_order", domain=_DOMAIN)
def _pool(node: Node) -> Any:
    return call(node, node.op_type, node.x(), **{k: node.attr(k) for k in node.attrs if k != "storage_order"})


@microsoft("Upsample", attributes="scales mode coordinate_transformation_mode", inputs=(1, 1), domain=_DOMAIN)
def _upsample(node: Node) -> Any:
    scales = Value.of_array(np.array(node.attr("scales"), np.float32))
    return call(
        node,
        "Resize",
        node.value(0),
        None,
        scales,
        mode=node.attr("mode", "nearest"),
        nearest_mode="floor",
        coordinate_transformation_mode=node.attr("coordinate_transformation_mode", "asymmetric"),
    )
