"""Windows that slide along axes, and dilation by them."""

import itertools
from typing import Any

import numpy as np

from weft import ir
from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.op import simplify, tensor_arg
from weft.relay.op.layouts import plain, relaid
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import axis_of, dims, dtype_of, rank, shape_of_dims


def _sliding_window(data: ir.Expr, axis: int, window_shape: Any, strides: Any) -> ir.Expr:
    """Take each axis at (place, element of the window), then bring the windows' axes to the end."""
    at, n = axis_of("sliding_window", data, axis), len(window_shape)
    if len(strides) != n or at + n > rank(data):
        raise ShapeMismatch(
            "sliding_window: windows and strides do not fit the axes",
            where=data.span,
            expected=f"at most {rank(data) - at} of each",
            found=f"{n} and {len(strides)}",
        )
    before = rank(data)
    for i, (size, step) in reversed(list(enumerate(zip(window_shape, strides, strict=True)))):
        length = dims(data)[at + i]
        if ir.as_int(length) is not None and ir.as_int(length) < int(size):  # type: ignore[operator]
            raise ShapeMismatch(
                "sliding_window: a window is longer than its axis",
                expected=f"at most {length}",
                found=str(size),
                where=data.span,
            )
        count = simplify(ir.floordiv(length - ir.int64(int(size)), ir.int64(int(step))) + ir.int64(1))
        first = shared("arange", ir.int64(0), simplify(count * ir.int64(int(step))), ir.int64(int(step)), dtype="int64")
        first = shared("reshape", first, shape_of_dims((count, ir.int64(1))))
        inner = ir.constant(np.arange(int(size), dtype=np.int64))
        data = shared("take", data, shared("add", first, inner), axis=at + i, mode="clip")
    places = [at + 2 * i for i in range(n)]
    windows = [p + 1 for p in places]
    order = (*range(at), *places, *range(at + 2 * n, before + n), *windows)
    return shared("permute_dims", data, axes=order)


declare(
    "sliding_window",
    "data",
    {"axis": REQUIRED, "window_shape": REQUIRED, "strides": REQUIRED},
    expand=_sliding_window,
    doc="What windows that slide along axes see, in axes of their own at the end.",
)


def _dilation2d(
    data: ir.Expr,
    weight: ir.Expr,
    strides: Any,
    padding: Any,
    dilations: Any,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str,
) -> ir.Expr:
    """Add each element of the window to a slice of the padded data, and keep the greatest."""
    op = "image.dilation2d"
    x = relaid(data, plain(op, data_layout, "NCHW"), "NCHW")
    w = relaid(weight, plain(op, kernel_layout, "IHW"), "IHW")
    tensor_arg(op, "data", x, ndim=4)
    tensor_arg(op, "weight", w, ndim=3)
    for name, given, fit in (("padding", padding, "2 or 4"), ("strides", strides, "2"), ("dilations", dilations, "2")):
        if str(len(given)) not in fit.split():
            raise InvalidArgument(f"{op}: {name} has a wrong length", expected=f"{fit} numbers", found=str(len(given)))
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    dtype = dtype_of(x)
    if dtype == "bool":
        raise DTypeMismatch(f"{op}: truth values have no sums", expected="numbers", found=dtype, where=data.span)
    lowest = -float("inf") if ir.DataType(dtype).is_float else float(np.iinfo(ir.numpy_dtype(dtype)).min)
    x = shared("nn.pad", x, pad_width=(0, 0, 0, 0, top, bottom, left, right), pad_value=lowest)
    kernel = [ir.as_int(d) for d in dims(w)[1:]]
    if None in kernel:
        raise ShapeMismatch(f"{op}: the window must have a known size", found=str(weight.ty), where=weight.span)
    span = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]  # type: ignore[operator]
    out: ir.Expr | None = None
    for at in itertools.product(*map(range, kernel)):  # type: ignore[arg-type]
        begin = tuple(a * d for a, d in zip(at, dilations, strict=True))
        end = tuple(simplify(n - ir.int64(s - b)) for n, s, b in zip(dims(x)[2:], span, begin, strict=True))
        seen = shared("strided_slice", x, axes=(2, 3), begin=begin, end=end, strides=tuple(strides))
        stop = tuple(a + 1 for a in at)
        tap = shared("strided_slice", w, axes=(1, 2), begin=at, end=stop)
        term = shared("add", seen, tap)
        out = term if out is None else shared("maximum", out, term)
    assert out is not None
    out = relaid(out, "NCHW", data_layout)
    return shared("astype", out, dtype=out_dtype) if out_dtype else out


declare(
    "image.dilation2d",
    "data weight",
    {
        "strides": (1, 1),
        "padding": (0, 0),
        "dilations": (1, 1),
        "data_layout": "NCHW",
        "kernel_layout": "IHW",
        "out_dtype": "",
    },
    expand=_dilation2d,
    doc="The greatest sum of a window's elements and of what lies under them.",
)
