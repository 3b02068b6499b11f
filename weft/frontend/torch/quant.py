"""Quantised numbers: what PyTorch's quantisation of exported programs writes, and products of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.frontend.torch.node import Node, dtype_name
from weft.frontend.torch.registry import aten, operators

_LIBRARY = "quantized_decomposed"


def _parameters(node: Node, dtype: str, real: str) -> tuple[Any, Any, int]:
    """The scale and the zero point, one or one for each place along an axis, and that axis."""
    each = "axis" in node.args
    scale, zero = (node.get(f"{name}s" if each else name) for name in ("scale", "zero_point"))
    count = node.dims(scale) if each else []
    scale = node.reshape(node.astype(node.tensor(scale, real), real), count)
    zero = node.full(count, 0, dtype) if zero is None else node.astype(node.tensor(zero, dtype), dtype)
    return scale, node.reshape(zero, count), node.axis(node["axis"], len(node["input"].ty.shape)) if each else 0


@operators(*(f"{_LIBRARY}.quantize_per_{kind}" for kind in ("tensor.default", "tensor.tensor", "channel")))
def _quantize(node: Node) -> Any:
    """Round half to even; eager multiplies by the scale's inverse, so values between two steps may differ by one."""
    x, dtype = node["input"], dtype_name(node["dtype"])
    scale, zero, axis = _parameters(node, dtype, x.ty.dtype)
    made = node.op("quantize", x, scale, zero, axis=axis, out_dtype=dtype)
    ends, limits = (node["quant_min"], node["quant_max"]), np.iinfo(dtype)
    if ends == (limits.min, limits.max):
        return made
    return node.op("minimum", node.op("maximum", made, node.scalar(ends[0], dtype)), node.scalar(ends[1], dtype))


@operators(*(f"{_LIBRARY}.dequantize_per_{kind}" for kind in ("tensor.default", "tensor.tensor", "channel")))
def _dequantize(node: Node) -> Any:
    for name in ("quant_min", "quant_max", "dtype"):  # they say what the numbers are, which their type does
        node.get(name)
    x, given = node["input"], node.get("out_dtype")
    real = "float32" if given is None else dtype_name(given)
    scale, zero, axis = _parameters(node, x.ty.dtype, real)
    return node.op("dequantize", x, scale, zero, axis=axis, out_dtype=real)


@aten("_int_mm")
def _product_of_bytes(node: Node) -> Any:
    return node.op("matmul", node["self"], node["mat2"], out_dtype="int32")


@aten("_weight_int8pack_mm")
def _product_with_bytes(node: Node) -> Any:
    """A float matrix by rows of bytes, each with a scale."""
    x, weight = node["self"], node["mat2"]
    scale = node.astype(node["scales"], x.ty.dtype)
    zero = node.full(node.dims(scale), 0, weight.ty.dtype)
    real = node.op("dequantize", weight, scale, zero, axis=0, out_dtype=x.ty.dtype)
    return node.op("matmul", x, node.permute(real, [1, 0]))
