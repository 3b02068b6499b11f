"""Quantisation: QuantizeLinear and its kin, and products of quantised tensors.

``QLinearConv`` and ``QLinearMatMul`` become what models in QDQ form have, dequantise, compute, quantise, which the
compiler folds into integers. Products that give integers are computed on unsigned first and signed second operands, as
machines multiply bytes; zero points are taken off the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir, runtime
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.conv import convolution
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.narrow import LIMITS, to_narrow
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.runtime.host import STORED

_FLOAT8 = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0}
_QUANTISED = {*_FLOAT8, *"uint8 int8 uint16 int16 uint4 int4 uint2 int2 float4_e2m1fn".split()}
"""What something may be quantised to."""


@converter("QuantizeLinear")
def _quantize_linear(node: Node) -> Any:
    dtype = _attribute_dtype(node, "output_dtype", node.logical(2) if node.has(2) else "uint8")
    if dtype not in _QUANTISED:
        node.unsupported("cannot quantise to this type", found=dtype)
    if node.has(2) and dtype != node.logical(2):
        node.error("its output and its zero point differ", expected=node.logical(2), found=dtype)
    x = node.x(0) if node.is_float(0) else node.astype(node.x(0), node.dtype(1))
    scale, zero = _scale_and_zero_point(node, STORED.get(dtype, dtype))
    x, scale = (node.astype(v, _attribute_dtype(node, "precision", v.ty.dtype)) for v in (x, scale))
    return Value.of_expr(_quantize(node, x, scale, zero, dtype)).as_kind(dtype)


def _attribute_dtype(node: Node, name: str, default: str) -> str:
    to = node.attr(name, 0)
    return dtype_name(to, f"{node.op_type}: attribute '{name}'") if to else default


@converter("DequantizeLinear")
def _dequantize_linear(node: Node) -> Any:
    dtype = node.dtype(1)
    return node.astype(_dequantized_by(node, dtype), _attribute_dtype(node, "output_dtype", dtype))


def _dequantized_by(node: Node, dtype: str) -> ir.Expr:
    scale, zero = _scale_and_zero_point(node, node.dtype(0))
    if node.dtype(0) not in _FLOAT8 and _is_simple(node, scale):
        return node.op("dequantize", node.x(0), scale, zero, axis=_axis(node), out_dtype=dtype)
    if node.attr("block_size", 0) and len(scale.ty.shape) == node.ndim() and ir.DataType(node.dtype(0)).bits <= 16:
        return _dequantize_groups(node, scale, zero)
    wide = "float32" if node.dtype(0) in _FLOAT8 else "int32"
    x = node.op("subtract", node.astype(node.x(0), wide), node.astype(_spread(node, zero), wide))
    return node.op("multiply", node.astype(x, dtype), _spread(node, scale))


def _dequantize_groups(node: Node, scale: Any, zero: Any) -> Any:
    axis, block = _axis(node), node.attr("block_size", 0)
    _require_blocks(node, scale, axis, block)
    if not node.has(2):
        zero = _filled(node, node.dims(scale), 0, node.dtype(0))
    return node.op("dequantize_groups", node.x(0), scale, zero, axis=axis, group=block, out_dtype=node.dtype(1))


@converter("DynamicQuantizeLinear")
def _dynamic_quantize_linear(node: Node) -> Any:
    x = node.x(0)

    def limit(reduction: str, clamp: str) -> Any:
        return node.op(clamp, node.op(reduction, x, axis=None), node.scalar(0.0, "float32"))

    low, high = limit("min", "minimum"), limit("max", "maximum")
    scale = node.op("divide", node.op("subtract", high, low), node.scalar(255.0, "float32"))
    is_flat = node.op("equal", scale, node.scalar(0.0, "float32"))
    scale = node.op("where", is_flat, node.scalar(1.0, "float32"), scale)
    zero = node.op("round", node.op("divide", node.op("negative", low), scale))
    zero = node.astype(node.op("clip", zero, min=0.0, max=255.0), "uint8")
    return node.op("quantize", x, scale, zero, axis=0, out_dtype="uint8"), scale, zero


@converter("QLinearConv")
def _qlinear_conv(node: Node) -> Any:
    x = _dequantized(node, 0, 1, 2, 1)
    w = _dequantized(node, 3, 4, 5, 0)
    out = convolution(node, x, w, 3)
    if node.has(8):
        unit = node.op("multiply", _wide_scale(node, 1), _wide_scale(node, 4))
        zero = node.scalar(0, "int32")
        bias = node.op("dequantize", node.x(8), unit, zero, axis=0, out_dtype="float32")
        out = node.op("add", out, node.reshape(bias, [1, node.dims(out)[1], *([1] * (node.ndim() - 2))]))
    return _quantize(node, out, _wide_scale(node, 6), _zero_point(node, 7, node.dtype(7)), node.dtype(7))


@converter("QLinearMatMul")
def _qlinear_matmul(node: Node) -> Any:
    a, b = _dequantized(node, 0, 1, 2, -2), _dequantized(node, 3, 4, 5, -1)
    out = node.op("matmul", a, b)
    return _quantize(node, out, _wide_scale(node, 6), _zero_point(node, 7, node.dtype(7)), node.dtype(7), axis=-2)


@converter("MatMulInteger")
def _matmul_integer(node: Node) -> Any:
    for i in (0, 1):
        node.require_rank(i, 1, math.inf)
    if node.has(2):
        node.require_broadcast_to(2, [*node.shape(0)[:-1], 1] if node.ndim(2) > 1 else node.shape(0)[-2:-1] or [1])
    if node.has(3):
        columns = node.shape(1)[-1:] if node.ndim(1) > 1 else [1]
        node.require_broadcast_to(3, [*node.shape(1)[:-2], 1, *columns] if node.ndim(3) > 1 else columns)
    a, a_zero = _as_unsigned(node, node.x(0), _offset(node, 2))
    b, b_zero = _as_signed(node, node.x(1), _offset(node, 3))

    def product(x: Any, y: Any) -> Any:
        return node.op("matmul", x, y, out_dtype="int32")

    if a_zero is not None and len(a_zero.ty.shape) == 1:  # one for each row
        a_zero = node.reshape(a_zero, [*node.dims(a_zero), 1])

    def row_sums(x: Any) -> Any:
        return node.op("sum", node.astype(x, "int32"), axis=[-1], keepdims=node.ndim(1) > 1)

    rows, columns = (None if node.ndim(i) < 2 else axis for i, axis in ((0, -2), (1, -1)))
    return _without_zero_points(node, product, row_sums, (a, a_zero, rows), (b, b_zero, columns))


@converter("ConvInteger")
def _conv_integer(node: Node) -> Any:
    for i, count in ((2, 1), (3, node.shape(1)[0])):
        if node.has(i):
            node.require_broadcast_to(i, [count])
    x, x_zero = _as_unsigned(node, node.x(0), _offset(node, 2))
    w, w_zero = _as_signed(node, node.x(1), _offset(node, 3))
    if w_zero is not None and len(w_zero.ty.shape):  # one for each output channel
        w_zero = node.reshape(w_zero, [1, node.dims(w)[0], *([1] * (node.ndim() - 2))])

    def product(a: Any, b: Any) -> Any:
        return convolution(node, a, b, 1, out_dtype="int32")

    def window_sums(a: Any) -> Any:
        one = _ones(node, w, 0 if whole else None)
        if not whole:
            return product(a, one)
        channels = node.op("sum", node.astype(a, "int32"), axis=[1], keepdims=True)
        return product(channels, node.full([1, 1, *node.dims(one)[2:]], 1, "int32"))

    whole = node.attr("group", 1) == 1
    return _without_zero_points(node, product, window_sums, (x, x_zero, 0), (w, w_zero, 0 if whole else None))


# --- parameters -------------------------------------------------------------------------------------------------------


def _parameter(node: Node, i: int) -> Any:
    """Return a scale or zero point; one of a single element has no dimensions."""
    return node.reshape(node.x(i), []) if node.shape(i) == (1,) else node.x(i)


def _zero_point(node: Node, i: int, dtype: str) -> Any:
    return _parameter(node, i) if node.has(i) else node.scalar(0, dtype)


def _scale_and_zero_point(node: Node, dtype: str) -> tuple[Any, Any]:
    """Return both parameters, which are of one shape."""
    scale, zero = _parameter(node, 1), _zero_point(node, 2, dtype)
    found, expected = node.dims(zero), node.dims(scale)
    if node.has(2) and len(found) != len(expected):
        found, expected = [s.product(found), s.product(expected)], [1, 1]
    for f, e in zip(found, expected, strict=False):
        node.require_equal("the shape of the zero point", f, e)
    return scale, zero


def _axis(node: Node) -> int:
    return node.axis(node.attr("axis", 1)) if node.ndim() > 1 or node.shape(1) not in ((), (1,)) else 0


def _is_simple(node: Node, scale: Any) -> bool:
    """Whether there is one scale, or one for each index along the axis."""
    return len(scale.ty.shape) == 0 or (len(scale.ty.shape) == 1 and not node.attr("block_size", 0))


def _spread(node: Node, parameter: Any) -> Any:
    """Bring a scale or zero point to the input's dimensions: along its axis, or in blocks."""
    rank, axis = len(parameter.ty.shape), _axis(node)
    if rank == 1 and not node.attr("block_size", 0):
        return node.reshape(parameter, [-1 if i == axis else 1 for i in range(node.ndim())] if node.ndim() else [])
    if rank == 0:
        return parameter
    if rank != node.ndim():
        node.error("its blocked scale has a wrong rank", expected=str(node.ndim()), found=str(rank))
    size, block = node.shape()[axis], node.attr("block_size", 0)
    _require_blocks(node, parameter, axis, block)
    repeated = node.op("repeat", parameter, repeats=block, axis=axis)
    return node.slice(repeated, [axis], [0], [size])


def _require_blocks(node: Node, parameter: Any, axis: int, block: int) -> None:
    for i, (d, e) in enumerate(zip(node.dims(parameter), node.shape(), strict=True)):
        node.require_equal(f"dimension {i} of blocked parameters", d, s.ceildiv(e, block) if i == axis else e)


def _quantize(node: Node, x: Any, scale: Any, zero: Any, dtype: str, axis: int | None = None) -> Any:
    if dtype not in _FLOAT8 and dtype not in STORED and _is_simple(node, scale):
        chosen = (_axis(node) if axis is None else axis) if len(scale.ty.shape) else 0
        return node.op("quantize", x, scale, zero, axis=chosen, out_dtype=dtype)
    scaled = node.astype(node.op("divide", x, node.astype(_spread(node, scale), x.ty.dtype)), "float32")
    if dtype == "float4_e2m1fn":
        return to_narrow(node, scaled, dtype)
    if dtype in _FLOAT8:
        limit = _FLOAT8[dtype] if node.attr("saturate", 1) else np.inf
        return node.astype(node.op("clip", scaled, min=-limit, max=limit), dtype)
    low, high = LIMITS.get(dtype) or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    shifted = node.op("add", node.op("round", scaled), node.astype(_spread(node, zero), "float32"))
    return node.astype(node.op("clip", shifted, min=float(low), max=float(high)), STORED.get(dtype, dtype))


def _dequantized(node: Node, data: int, scale: int, zero: int, axis: int) -> Any:
    """Return a quantised input as real numbers."""
    by = _wide_scale(node, scale)
    offset, axis = _zero_point(node, zero, node.dtype(data)), axis if len(by.ty.shape) else 0
    return node.op("dequantize", node.x(data), by, offset, axis=axis, out_dtype="float32")


def _wide_scale(node: Node, i: int) -> Any:
    """Return a scale in the precision of sums of products: halves would round what is quantised next."""
    return node.astype(_parameter(node, i), "float32")


# --- products of integers ---------------------------------------------------------------------------------------------


def _offset(node: Node, i: int) -> Any:
    """Return a zero point, or None where it is left out or known to be zero."""
    if not node.has(i):
        return None
    known = node.const(i)
    return None if known is not None and not known.any() else _parameter(node, i)


def _as_unsigned(node: Node, x: Any, zero: Any) -> tuple[Any, Any]:
    """Return the same numbers as uint8 with another zero point."""
    return (x, zero) if x.ty.dtype == "uint8" else (_moved(node, x, 128, "uint8"), _moved_zero(node, zero, 128))


def _as_signed(node: Node, x: Any, zero: Any) -> tuple[Any, Any]:
    """Return the same numbers as int8 with another zero point."""
    return (x, zero) if x.ty.dtype == "int8" else (_moved(node, x, -128, "int8"), _moved_zero(node, zero, -128))


def _moved(node: Node, x: Any, by: int, dtype: str) -> Any:
    if isinstance(x, ir.Constant):
        return ir.constant(runtime.aligned((x.data.numpy().astype(np.int16) + by).astype(dtype)))
    return node.astype(node.op("add", node.astype(x, "int16"), node.scalar(by, "int16")), dtype)


def _moved_zero(node: Node, zero: Any, by: int) -> Any:
    if zero is None:
        return node.scalar(by, "int32")
    return node.op("add", node.astype(zero, "int32"), node.scalar(by, "int32"))


def _without_zero_points(
    node: Node,
    product: Callable[[Any, Any], Any],
    sums_of: Callable[[Any], Any],
    a: tuple[Any, Any, int | None],
    b: tuple[Any, Any, int | None],
) -> Any:
    """Multiply ``a - p`` by ``b - q`` as ``ab - p (1 b) - q (a 1 - p (1 1))``, where 1 is a tensor of ones.

    With each operand comes the axis along which the sums of ones are alike: it has one element there. `sums_of` gives
    ``a 1``.
    """
    (x, x_zero, x_axis), (y, y_zero, y_axis) = a, b
    out = product(x, y)
    if x_zero is not None:
        sums = product(_ones(node, x, x_axis), y)
        out = node.op("subtract", out, node.op("multiply", node.astype(x_zero, "int32"), sums))
    if y_zero is not None:
        one = _ones(node, y, y_axis)
        rest = sums_of(x)
        if x_zero is not None:
            both = node.op("multiply", node.astype(x_zero, "int32"), product(_ones(node, x, x_axis), one))
            rest = node.op("subtract", rest, both)
        out = node.op("subtract", out, node.op("multiply", node.astype(y_zero, "int32"), rest))
    return out


def _ones(node: Node, x: Any, axis: int | None) -> Any:
    dims, dtype = list(node.dims(x)), str(x.ty.dtype)
    assert ir.DataType(dtype).bits == 8
    if axis is not None:
        dims[axis] = 1
    return _filled(node, dims, 1, dtype)


def _filled(node: Node, dims: list[Any], value: int, dtype: str) -> Any:
    if all(isinstance(d, int) for d in dims):
        return ir.constant(runtime.aligned(np.full(dims, value, ir.numpy_dtype(dtype))))
    return node.full(dims, value, dtype)
