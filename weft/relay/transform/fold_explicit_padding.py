"""FoldExplicitPadding: a ``nn.pad`` before a convolution or a pool becomes part of its attribute ``padding``."""

from typing import Any

import numpy as np

from weft import ir
from weft.relay.expr import Call, Constant, Function, Var
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import typed_function_pass
from weft.relay.walk import operator_name, rewrite

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "qnn.conv2d")
_POOLS = {f"nn.{kind}_pool{n}d": kind for kind in ("max", "avg") for n in (1, 2, 3)}


@typed_function_pass
def fold_explicit_padding(func: Function) -> Function:
    """Let convolutions and pools pad their data themselves, where what a ``nn.pad`` adds is what they would add.

    Requires: Any form; types are inferred where there are none.
    Ensures: The same form and values. That is the case for zeros before convolutions (the zero point before
        quantized ones) and average pools that count padding, and the least number of the type before maximum pools.
    Before::

        def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
          %0 = nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
          nn.conv2d(%0, %w)
        }

    After::

        def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
          nn.conv2d(%x, %w, padding=[1, 1])
        }
    Cost: Linear.
    Source: TVM's ``FoldExplicitPadding``.
    """
    values: dict[Var, Any] = {}

    def rule(e: Call) -> Any:
        name = operator_name(e)
        if name not in _CONVOLUTIONS and name not in _POOLS:
            return e
        data: Any = e.args[0]
        pad: Any = values.get(data, data) if type(data) is Var else data
        if operator_name(pad) != "nn.pad":
            return e
        return _folded(e, name, pad) or e

    return rewrite(func, rule, on_let=values.__setitem__)


def _folded(e: Call, name: str, pad: Any) -> Call | None:
    attrs = dict(e.attrs.items)
    layout = str(attrs.get("data_layout", attrs.get("layout")))
    widths = [tuple(int(w) for w in pair) for pair in pad.attrs["pad_width"]]
    fill = pad.args[1] if len(pad.args) > 1 else None
    outside = [pair for axis, pair in zip(layout, widths, strict=False) if axis in "NC"]
    plain = layout.isalpha() and layout.isupper() and len(layout) == len(widths)
    if not plain or any(map(any, outside)) or min(map(min, widths)) < 0 or pad.attrs["pad_mode"] != "constant":
        return None
    given = [int(p) for p in attrs["padding"]]
    space = [pair for axis, pair in zip(layout, widths, strict=True) if axis not in "NC"]
    given *= 2 * len(space) // len(given)
    kind = _POOLS.get(name, "conv")
    if kind == "avg" and not attrs["count_include_pad"]:
        if any(given) or attrs["ceil_mode"]:
            return None
        attrs["count_include_pad"] = True
    attrs["padding"] = [g + w for g, w in zip(given, [p[i] for i in (0, 1) for p in space], strict=True)]
    half = len(space)
    if len(attrs["padding"]) > len(e.attrs["padding"]) == half and attrs["padding"][:half] == attrs["padding"][half:]:
        del attrs["padding"][half:]  # as short as it was
    if not _adds_nothing(kind, name, fill, e, max(attrs["padding"]) < min(_sizes(attrs.get("pool_size", 0)))):
        return None
    made = op_call(name, pad.args[0], *e.args[1:], **attrs)
    return Call(made.op, made.args, made.attrs, ty=e.ty, span=e.span)


def _sizes(value: Any) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]


def _adds_nothing(kind: str, name: str, fill: Any, e: Any, inside: bool) -> bool:
    """Whether a value is the one that the operator itself pads with; `inside`: no window sees padding alone."""
    if not isinstance(fill, Constant):
        return False
    value: Any = fill.data.numpy()
    if name == "qnn.conv2d":
        return isinstance(e.args[2], Constant) and bool(np.all(e.args[2].data.numpy() == value))
    if kind != "max":
        return bool(np.all(value == 0))
    dtype = ir.numpy_dtype(e.ty.dtype)
    if dtype.kind in "iu":
        return bool(np.all(value == np.iinfo(dtype).min))
    least = np.finfo(dtype).min if dtype.kind == "f" and inside else -np.inf
    return bool(np.all((value == -np.inf) | (value == least)))
