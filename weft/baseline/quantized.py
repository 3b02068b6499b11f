"""Quantized values, in NumPy: numbers of 8 bits, and products of them whose sums are exact."""

from typing import Any

import numpy as np

from weft.baseline.onnx_file import ELEMENT_TYPES
from weft.baseline.operators import floats, operator, placed
from weft.baseline.refusal import NotInBaseline
from weft.baseline.windows import convolved


def _along(x: np.ndarray, factor: np.ndarray, axis: int, block_size: int) -> np.ndarray:
    """Return a scale or zero point of a tensor or of an axis so that it spreads over `x`."""
    if block_size or factor.ndim > 1:
        raise NotInBaseline("scales of blocks")
    if factor.size == 1:
        return factor.reshape(())
    if factor.shape != (x.shape[placed(axis, x.ndim)],):
        raise NotInBaseline("not one scale for each element of the axis")
    return factor.reshape([-1 if i == placed(axis, x.ndim) else 1 for i in range(x.ndim)])


def _narrow(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(values, info.min, info.max).astype(dtype)


@operator("QuantizeLinear")
def quantize(
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    precision: int = 0,
) -> np.ndarray:
    """Round multiples of a scale to 8 bits."""
    floats(x, scale)
    kind = zero.dtype if zero is not None else np.dtype("uint8")
    alike = not output_dtype or (zero is not None and ELEMENT_TYPES.get(output_dtype) == kind)
    if not alike or kind.name not in ("int8", "uint8") or precision not in (0, 1) or not np.isfinite(x).all():
        raise NotInBaseline("a quantization of another kind")
    rounded = np.rint(x / _along(x, scale, axis, block_size))
    return _narrow(rounded if zero is None else rounded + _along(x, zero, axis, block_size).astype(np.float32), kind)


@operator("DequantizeLinear")
def dequantize(
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> np.ndarray:
    """Return what narrow numbers stand for."""
    floats(scale)
    if x.dtype.name not in ("int8", "uint8", "int32") or output_dtype not in (0, 1):
        raise NotInBaseline("a quantization of another kind")
    wide = x if x.dtype == np.int32 else x.astype(np.int16)
    if zero is not None:
        wide = wide - _along(x, zero, axis, block_size)
    return wide.astype(np.float32) * _along(x, scale, axis, block_size)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Round to the bytes that span all values; with their scale and zero point."""
    floats(x)
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    if not np.isfinite(scale) or scale == 0:
        raise NotInBaseline("a range without a step")
    zero = _narrow(np.rint(-low / scale), np.dtype("uint8"))
    return _narrow(np.rint(x / scale) + zero.astype(np.float32), zero.dtype), scale, zero


def _centred(x: np.ndarray, zero: np.ndarray | None, axis: int) -> np.ndarray:
    """Return numbers of 8 bits less their zero points, whose sums float64 holds exactly."""
    if x.dtype.itemsize != 1 or x.dtype.kind not in "iu":
        raise NotInBaseline("a product of another kind")
    wide = x.astype(np.float64)
    return wide if zero is None else wide - _along(x, zero, axis, 0)


@operator("MatMulInteger")
def matmul_integer(
    a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None
) -> np.ndarray:
    """Return the product as int32."""
    return (_centred(a, a_zero, -2) @ _centred(b, b_zero, -1)).astype(np.int32)


@operator("ConvInteger")
def _conv_integer(
    x: np.ndarray, w: np.ndarray, x_zero: np.ndarray | None = None, w_zero: np.ndarray | None = None, **form: Any
) -> np.ndarray:
    return convolved(_centred(x, x_zero, 1), _centred(w, w_zero, 0), **form).astype(np.int32)


def requantized(sums: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Return sums of products as numbers of the zero point's type."""
    return _narrow(np.rint(sums.astype(np.float32) * scale.astype(np.float32)) + zero.astype(np.float32), zero.dtype)


@operator("QLinearConv")
def _qlinear_conv(*operands: np.ndarray, **form: Any) -> np.ndarray:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, *bias = operands
    sums = convolved(_centred(x, x_zero, 1), _centred(w, w_zero, 0), **form)
    along = (1, -1, *[1] * (x.ndim - 2))
    factor = (x_scale * w_scale / scale).reshape(along)
    return requantized(sums + bias[0].reshape(along) if bias else sums, factor, zero)


@operator("QLinearMatMul")
def _qlinear_matmul(*operands: np.ndarray) -> np.ndarray:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = operands
    factor = _along(a, a_scale, -2, 0) * _along(b, b_scale, -1, 0) / scale
    return requantized(_centred(a, a_zero, -2) @ _centred(b, b_zero, -1), factor, zero)
