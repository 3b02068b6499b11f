"""Quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import DTypeMismatch
from weft.ir import DataType, Expr, TensorType, numpy_dtype
from weft.op.infer import normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.quant import dequantize, quantize

__all__: list[str] = []


def _infer(op: str, to_integer: bool) -> Any:
    def infer(data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "") -> TensorType:
        ty = tensor_arg(op, "data", data, kind="float" if to_integer else "integer")
        tensor_arg(op, "scale", scale, kind="float")
        tensor_arg(op, "zero_point", zero_point)
        if ty.ndim > 0:
            normalize_axis(op, axis, ty.ndim)
        dtype = DataType(out_dtype or ("int8" if to_integer else "float32"))
        if dtype.is_integer != to_integer or (to_integer and dtype.bits > 16):
            raise DTypeMismatch(
                f"{op}: the result has a wrong data type",
                expected="int8, uint8, int16 or uint16" if to_integer else "a float type",
                found=dtype,
                where=data.span,
            )
        return TensorType(ty.shape, dtype, ty.ndim)

    return infer


def _spread(p: Any, data: Any, axis: int) -> Any:
    return p if p.ndim == 0 else p.reshape([-1 if i == axis % data.ndim else 1 for i in range(data.ndim)])


def _quantize_ref(data: Any, scale: Any, zero_point: Any, axis: int, out_dtype: str) -> Any:
    info = np.iinfo(out_dtype)
    scaled = np.rint(data / _spread(scale, data, axis)) + _spread(zero_point, data, axis)
    return np.clip(scaled, info.min, info.max).astype(out_dtype)


declare(
    "quantize", "data scale zero_point", {"axis": -1, "out_dtype": "int8"}, infer=_infer("quantize", True),
    lower=quantize, reference=_quantize_ref, fusion=Fusion.BROADCAST,
    doc="``round(data / scale) + zero_point`` as small integers; scale and zero point are scalars, or vectors along "
    "`axis`.",
)  # fmt: skip

declare(
    "dequantize", "data scale zero_point", {"axis": -1, "out_dtype": "float32"}, infer=_infer("dequantize", False),
    lower=dequantize,
    reference=lambda data, scale, zero_point, axis, out_dtype: (
        (data.astype(np.int32) - _spread(zero_point, data, axis).astype(np.int32)) * _spread(scale, data, axis)
    ).astype(numpy_dtype(out_dtype)),
    fusion=Fusion.BROADCAST,
    doc="``(data - zero_point) * scale``; scale and zero point are scalars, or vectors along `axis`.",
)  # fmt: skip
