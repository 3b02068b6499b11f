"""Products of quantized tensors: convolutions and matrix products of integers, shifted by their zero points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relay.op.registry import REQUIRED, get, op_call
from weft.relay.qnn.define import along, define

__all__: list[str] = []

_SHIFTS = "input_zero_point kernel_zero_point input_scale kernel_scale"


def _operands(a: ir.Expr, a_shift: ir.Expr, b: ir.Expr, b_shift: ir.Expr, axis: int) -> tuple[Any, Any]:
    """Shift both operands, in the narrowest type that holds them; a shift of each channel of `b` stands at `axis`."""
    shifts = [s.data.numpy() if isinstance(s, ir.Constant) else None for s in (a_shift, b_shift)]
    none = [s is not None and not s.any() for s in shifts]
    if all(none) and a.ty.dtype == b.ty.dtype:
        return a, b
    small = all(s is not None and (abs(s) < 2**14).all() for s in shifts)
    dtype = "int16" if small and "32" not in a.ty.dtype + b.ty.dtype else "int32"
    wide = [op_call("cast", x, dtype=dtype) for x in (a, b)]
    if not none[0]:
        wide[0] = op_call("subtract", wide[0], op_call("cast", a_shift, dtype=dtype))
    if not none[1]:
        wide[1] = op_call("subtract", wide[1], op_call("cast", along(b_shift, b.ty.ndim, axis), dtype=dtype))
    return wide[0], wide[1]


def _convolution(name: str) -> Callable[..., Any]:
    """Make the rule of a convolution; what pads is zero once the data is shifted."""

    def decompose(data: Any, kernel: Any, a_shift: Any, b_shift: Any, a_scale: Any, b_scale: Any, **attrs: Any) -> Any:
        layout = attrs["kernel_layout"]
        outputs = layout.index("I" if name.endswith("transpose") and layout.startswith("OI") else "O")
        return op_call(name, *_operands(data, a_shift, kernel, b_shift, outputs), **attrs)

    return decompose


def _ordered(name: str, first: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The attributes of an operator with some before the others."""
    return {**first, **{k: changed.get(k, v) for k, v in get(name).attrs.items() if k not in first}}


define(
    "conv2d",
    f"data kernel {_SHIFTS}",
    _ordered("nn.conv2d", {"kernel_size": REQUIRED, "channels": REQUIRED}, out_dtype="int32"),
    _convolution("nn.conv2d"),
    doc="2-D convolution of quantized data and kernel; the result is not rescaled.",
)
define(
    "conv2d_transpose",
    f"data weight {_SHIFTS}",
    {
        k: {"out_dtype": "int32"}.get(k, get("nn.conv2d_transpose").attrs[k])
        for k in (
            "strides padding dilation groups channels kernel_size data_layout kernel_layout out_layout "
            "output_padding out_dtype"
        ).split()
    },
    _convolution("nn.conv2d_transpose"),
    doc="2-D transposed convolution of quantized data and weight.",
)


def _dense(data: Any, weight: Any, a_shift: Any, b_shift: Any, a_scale: Any, b_scale: Any, **attrs: Any) -> Any:
    return op_call("nn.dense", *_operands(data, a_shift, weight, b_shift, 0), **attrs)


def _batch_matmul(x: Any, y: Any, x_shift: Any, y_shift: Any, x_scale: Any, y_scale: Any, out_dtype: str) -> Any:
    return op_call("nn.batch_matmul", *_operands(x, x_shift, y, y_shift, 0), out_dtype=out_dtype)


define(
    "dense",
    f"data weight {_SHIFTS}",
    {"units": REQUIRED, "out_dtype": "int32"},
    _dense,
    doc="``data @ weight.T`` of quantized tensors; the result is not rescaled.",
)
define(
    "batch_matmul",
    "x y x_zero_point y_zero_point x_scale y_scale",
    {"out_dtype": "int32"},
    _batch_matmul,
    doc="Products of two batches of quantized matrices, the second transposed.",
)
