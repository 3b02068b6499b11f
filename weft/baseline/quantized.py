"""Quantized values, in NumPy: numbers of 8 bits, and products of them whose sums are exact."""

from typing import Any

import numpy as np

from weft.baseline.onnx_file import ELEMENT_TYPES
from weft.baseline.operators import floats, operator, placed
from weft.baseline.refusal import NotInBaseline


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
def _quantize(
    x: np.ndarray,
    scale: np.ndarray,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    precision: int = 0,
) -> np.ndarray:
    floats(x, scale)
    kind = zero.dtype if zero is not None else np.dtype("uint8")
    alike = not output_dtype or (zero is not None and ELEMENT_TYPES.get(output_dtype) == kind)
    if not alike or kind.name not in ("int8", "uint8") or precision not in (0, 1) or not np.isfinite(x).all():
        raise NotInBaseline("a quantization of another kind")
    rounded = np.rint(x / _along(x, scale, axis, block_size))
    return _narrow(rounded if zero is None else rounded + _along(x, zero, axis, block_size).astype(np.float32), kind)


@operator("DequantizeLinear")
def _dequantize(
    x: np.ndarray, scale: np.ndarray, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> np.ndarray:
    floats(scale)
    if x.dtype.name not in ("int8", "uint8", "int32") or output_dtype not in (0, 1):
        raise NotInBaseline("a quantization of another kind")
    wide = x if x.dtype == np.int32 else x.astype(np.int16)
    if zero is not None:
        wide = wide - _along(x, zero, axis, block_size)
    return wide.astype(np.float32) * _along(x, scale, axis, block_size)


@operator("DynamicQuantizeLinear")
def _dynamic_quantize(x: np.ndarray) -> tuple[np.ndarray, ...]:
    floats(x)
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    if not np.isfinite(scale) or scale == 0:
        raise NotInBaseline("a range without a step")
    zero = _narrow(np.rint(-low / scale), np.dtype("uint8"))
    return _narrow(np.rint(x / scale) + zero.astype(np.float32), zero.dtype), scale, zero


@operator("MatMulInteger")
def _matmul_integer(a: np.ndarray, b: np.ndarray, a_zero: Any = None, b_zero: Any = None) -> np.ndarray:
    if a.dtype.itemsize != 1 or b.dtype.itemsize != 1 or any(z is not None and z.size != 1 for z in (a_zero, b_zero)):
        raise NotInBaseline("a product of another kind")
    left, right = (
        x.astype(np.float64) - (0 if z is None else z.reshape(()).astype(np.float64))
        for x, z in ((a, a_zero), (b, b_zero))
    )
    return (left @ right).astype(np.int32)
