"""FlattenAtrousConv: a convolution between ``space_to_batch_nd`` and ``batch_to_space_nd`` is one with dilation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir
from weft.relay.expr import Call, Constant, Function, Var
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import typed_function_pass
from weft.relay.walk import operator_name, rewrite

_CONVOLUTIONS = ("nn.conv2d", "qnn.conv2d")


@typed_function_pass
def flatten_atrous_conv(func: Function) -> Function:
    """Write convolutions of every n-th pixel, which importers spell by batches, with the attribute ``dilation``.

    Requires
        Any form; types are inferred where there are none.
    Ensures
        The same form and values. What is cut off becomes less padding; a convolution with strides, in another layout
        than NHWC, or from which more is cut off than was padded stays.
    Example
        Before::

            def @main(%x: Tensor[(1, 5, 5, 4), float32], %w: Tensor[(3, 3, 4, 2), float32]) {
              %0 = nn.space_to_batch_nd(%x, block_shape=[2, 2], paddings=[[2, 3], [2, 3]]);
              %1 = nn.conv2d(%0, %w, kernel_size=[3, 3], channels=2, data_layout="NHWC", kernel_layout="HWIO");
              nn.batch_to_space_nd(%1, block_shape=[2, 2], crops=[[0, 1], [0, 1]])
            }

        After::

            def @main(%x: Tensor[(1, 5, 5, 4), float32], %w: Tensor[(3, 3, 4, 2), float32]) {
              nn.conv2d(%x, %w, padding=[2, 2, 2, 2], dilation=[2, 2], kernel_size=[3, 3], channels=2,
                data_layout="NHWC", kernel_layout="HWIO")
            }
    Cost
        Linear.
    Source
        TVM's ``FlattenAtrousConv``.
    """
    values: dict[Var, Any] = {}

    def call_of(e: ir.Expr, *names: str) -> Any:
        e = values.get(e, e) if type(e) is Var else e
        return e if operator_name(e) in names else None

    def rule(e: ir.Expr) -> Any:
        last = call_of(e, "nn.batch_to_space_nd") if type(e) is Call else None
        conv: Any = call_of(last.args[0], *_CONVOLUTIONS) if last is not None else None
        first = call_of(conv.args[0], "nn.space_to_batch_nd") if conv is not None else None
        return e if first is None else _flattened(first, conv, last) or e

    return rewrite(func, rule, on_let=values.__setitem__)


def _flattened(first: Call, conv: Any, last: Any) -> Call | None:
    """Return the one convolution; None where there is none with these values."""
    attrs, block = dict(conv.attrs.items), [int(b) for b in first.attrs["block_shape"]]
    fill = float(first.attrs.get("pad_value", 0.0))
    zero = conv.args[2] if conv.op.name == "qnn.conv2d" else None
    known = zero is None or (isinstance(zero, Constant) and bool(np.all(zero.data.numpy() == fill)))
    if not known or (zero is None and fill) or block != [int(b) for b in last.attrs["block_shape"]] or len(block) != 2:
        return None
    if attrs["data_layout"] != "NHWC" or attrs.get("out_layout") not in ("", None, "NHWC"):
        return None
    if any(int(s) != 1 for s in attrs["strides"]):
        return None
    inner = [int(p) for p in attrs["padding"]]
    inner = inner * (4 // len(inner))
    before = [int(p) - int(c) for p, c in zip(*_column(first, last, 0), strict=True)]
    after = [int(p) - int(c) for p, c in zip(*_column(first, last, 1), strict=True)]
    padding = [n + i * b for n, i, b in zip(before + after, inner, block * 2, strict=True)]
    if min(padding) < 0:
        return None
    attrs.update(padding=padding, dilation=[int(d) * b for d, b in zip(attrs["dilation"], block, strict=True)])
    made = op_call(conv.op.name, first.args[0], *conv.args[1:], **attrs)
    return Call(made.op, made.args, made.attrs, ty=last.ty, span=last.span)


def _column(first: Call, last: Call, side: int) -> tuple[list[Any], list[Any]]:
    """What is padded, and what is cut off, on one side of each dimension."""
    return [p[side] for p in first.attrs["paddings"]], [c[side] for c in last.attrs["crops"]]
