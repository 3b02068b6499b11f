"""Convolutions of any rank and transposed convolutions."""

from __future__ import annotations

import re
from typing import Any

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import as_int, floordiv
from weft.op import simplify, tensor_arg
from weft.relay.op.registry import declare, shared
from weft.relay.types import TensorType

__all__: list[str] = []

_DATA = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}


def _letters(layout: str, op: str, allowed: str) -> str:
    if sorted(layout) != sorted(allowed):
        raise InvalidArgument(f"{op}: unknown layout '{layout}'", expected=f"the letters {allowed} in some order")
    return layout


def _permuted(x: ir.Expr, have: str, want: str) -> ir.Expr:
    return x if have == want else shared("permute_dims", x, axes=tuple(have.index(c) for c in want))


def _checked(op: str, weight: ir.Expr, layout: str, rank: int, channels: Any, kernel_size: Any, out: Any) -> None:
    """Refuse `channels` and `kernel_size` that are not the weight's."""
    shape = tensor_arg(op, "weight", weight, ndim=rank + 2).shape
    spatial = [shape[layout.index(c)] for c in _DATA[rank][2:]]  # type: ignore[index]
    given = (kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * rank) if kernel_size else ()
    for k, d in zip(given, spatial, strict=False):
        if None not in (as_int(k), as_int(d)) and as_int(k) != as_int(d):
            raise ShapeMismatch(f"{op}: 'kernel_size' is not the weight's", expected=str(d), found=str(k),
                                where=weight.span)  # fmt: skip
    if None not in (as_int(channels), as_int(out)) and as_int(channels) != as_int(out):
        raise ShapeMismatch(f"{op}: 'channels' is not the weight's number of outputs", expected=str(out),
                            found=str(channels), where=weight.span)  # fmt: skip


def _conv(rank: int) -> Any:
    op = f"nn.conv{rank}d"

    def expand(
        data: ir.Expr, weight: ir.Expr, strides: Any, padding: Any, dilation: Any, groups: int, channels: Any,
        kernel_size: Any, data_layout: str, kernel_layout: str, out_layout: str, out_dtype: str,
    ) -> ir.Expr:  # fmt: skip
        spatial = _DATA[rank][2:]
        layout = _letters(data_layout, op, "NC" + spatial)
        kernel = _letters(kernel_layout, op, "OI" + spatial)
        shape = tensor_arg(op, "weight", weight, ndim=rank + 2).shape
        outputs = shape[kernel.index("O")]  # type: ignore[index]
        depthwise = groups > 1 and kernel.index("I") > kernel.index("O") - 1 and re.search("O.*I$|I$", kernel)
        _checked(op, weight, kernel, rank, channels if not depthwise or kernel.startswith("OI") else None, kernel_size,
                 outputs)  # fmt: skip
        last = layout == "N" + spatial + "C"
        x = data if last else _permuted(data, layout, "NC" + spatial)
        if kernel == spatial + "OI":  # depthwise: (channels, multiplier) are its last axes
            multiplier = shape[-1]  # type: ignore[index]
            w = shared("permute_dims", weight, axes=(rank, rank + 1, *range(rank)))
            w = shared("reshape", w, ir.shape_expr((outputs * multiplier, 1, *shape[:rank])))  # type: ignore[index]
            kernel = "OI" + spatial
        else:
            wanted = kernel if kernel in ("OI" + spatial, spatial + "IO") else "OI" + spatial
            w, kernel = _permuted(weight, kernel, wanted), wanted
        out = shared(op, x, w, strides=strides, padding=padding, dilation=dilation, groups=groups,
                     data_layout=layout if last else "NC" + spatial, kernel_layout=kernel, out_dtype=out_dtype,
                     )  # fmt: skip
        return _permuted(out, layout if last else "NC" + spatial, out_layout or layout)

    return expand


def _conv_transpose(rank: int) -> Any:
    op = f"nn.conv{rank}d_transpose"

    def expand(
        data: ir.Expr, weight: ir.Expr, strides: Any, padding: Any, output_padding: Any, dilation: Any, groups: int,
        channels: Any, kernel_size: Any, data_layout: str, kernel_layout: str, out_layout: str, out_dtype: str,
    ) -> ir.Expr:  # fmt: skip
        spatial = _DATA[rank][2:]
        layout, kernel = _letters(data_layout, op, "NC" + spatial), _letters(kernel_layout, op, "OI" + spatial)
        if kernel.startswith("OI"):  # in TVM's older texts: the first axis is the data's channels, whatever its name
            kernel = "IO" + spatial
        shape = tensor_arg(op, "weight", weight, ndim=rank + 2).shape
        per_group = as_int(shape[kernel.index("O")])  # type: ignore[index]
        _checked(op, weight, kernel, rank, channels, kernel_size, None if per_group is None else per_group * groups)
        last = layout == "N" + spatial + "C"
        first = layout if last else "NC" + spatial
        out = shared(
            op, data if last else _permuted(data, layout, first), _permuted(weight, kernel, "IO" + spatial),
            strides=strides, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups,
            data_layout=first, kernel_layout="IO", out_dtype=out_dtype,
        )  # fmt: skip
        return _permuted(out, first, out_layout or layout)

    return expand


def _weight(rank: int, transposed: bool) -> Any:
    """The rule of a weight's type where `channels` and `kernel_size` are given."""

    def completes(
        data: TensorType, channels: Any, kernel_size: Any, groups: int, data_layout: str, kernel_layout: str, **_: Any
    ) -> tuple[TensorType | None]:
        if channels is None or kernel_size is None:
            return (None,)
        inputs = ir.as_shape(((data.shape or ())[data_layout.index("C")],))[0]
        sizes = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * rank
        by_letter: dict[str, Any] = dict(zip(_DATA[rank][2:], sizes, strict=True))
        if transposed:
            first, second = ("O", "I") if kernel_layout.startswith("OI") else ("I", "O")
            by_letter |= {first: inputs, second: channels // groups}
        elif kernel_layout == _DATA[rank][2:] + "OI":
            by_letter |= {"O": inputs, "I": simplify(floordiv(ir.int64(channels), inputs))}
        else:
            by_letter |= {"O": channels, "I": simplify(floordiv(inputs, ir.int64(groups)))}
        return (TensorType(tuple(by_letter[c] for c in kernel_layout), data.dtype),)

    return completes


for _rank in (1, 2, 3):
    declare(
        f"nn.conv{_rank}d", "data weight",
        {"strides": (1,) * _rank, "padding": (0,) * _rank, "dilation": (1,) * _rank, "groups": 1, "channels": None,
         "kernel_size": None, "data_layout": _DATA[_rank], "kernel_layout": _KERNEL[_rank], "out_layout": "",
         "out_dtype": ""},
        expand=_conv(_rank), completes=_weight(_rank, False),
        doc=f"{_rank}-D convolution (cross-correlation). `padding` is all beginnings, then all ends.",
    )  # fmt: skip
    declare(
        f"nn.conv{_rank}d_transpose", "data weight",
        {"strides": (1,) * _rank, "padding": (0,) * _rank, "output_padding": (0,) * _rank, "dilation": (1,) * _rank,
         "groups": 1, "channels": None, "kernel_size": None, "data_layout": _DATA[_rank],
         "kernel_layout": _TRANSPOSED[_rank], "out_layout": "", "out_dtype": ""},
        expand=_conv_transpose(_rank), completes=_weight(_rank, True),
        doc=f"{_rank}-D transposed convolution, weights (in, out / groups, ...).",
    )  # fmt: skip
