"""Slices and padding."""

from typing import Any

import numpy as np

from weft.ir import Expr, TensorType, as_int, as_shape, int64, max_, min_
from weft.op.attributes import axes, each_axis, flag, integers, number, word
from weft.op.infer import demand_held, simplify, tensor_arg
from weft.op.registry import Fusion, Layout, declare
from weft.op.relations import demand_at_least, demand_at_most, demand_between
from weft.topi.slice import FAR, pad, pad_pairs, slice_plan, strided_slice


def _slice_infer(x: Expr, axes: Any, begin: Any, end: Any, strides: Any, assume_inbound: bool) -> TensorType:
    ty = tensor_arg("strided_slice", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, ty.ndim)
    plan = slice_plan(ty.shape, axes, begin, end, strides, assume_inbound)
    for axis, first, stop, (_, _, step) in zip(plan, as_shape(begin), as_shape(end), plan.values(), strict=True):
        _demand_bounds(axis, ty.shape[axis], first, stop, step, assume_inbound, x.span)
    return TensorType(tuple(plan[i][1] if i in plan else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim)


def _demand_bounds(axis: int, size: Any, begin: Any, end: Any, step: int, inside: bool, where: Any) -> None:
    """Demand that symbolic bounds are not negative, and with `inside` that all lie in the dimension."""
    what = f"strided_slice: {{}} of axis {axis}"
    for name, bound in (("begin", begin), ("end", end)):
        if as_int(bound) is None:
            demand_at_least(what.format(name), bound, 0 if step > 0 or name == "begin" else -1, where)
    if inside and step > 0:
        low, high = (size + b if (as_int(b) or 0) < 0 else b for b in (begin, end))
        high = size if (as_int(end) or 0) >= FAR else high
        demand_between(what.format("begin"), low, 0, high, where)
        demand_at_most(what.format("end"), high, size, where)


def _slice_ref(x: Any, axes: Any, begin: Any, end: Any, strides: Any) -> Any:
    plan = slice_plan([int64(d) for d in x.shape], axes, begin, end, strides)
    for a, (first, length, step) in plan.items():
        x = np.take(x, [int(first) + step * i for i in range(int(length))], a)
    return np.asarray(x, order="C")


declare(
    "strided_slice",
    "x",
    {
        "axes": axes((), ordered=True),
        "begin": integers(symbolic=True),
        "end": integers(symbolic=True),
        "strides": integers().or_none(),
        "assume_inbound": flag(False),
    },
    infer=_slice_infer,
    lower=strided_slice,
    reference=_slice_ref,
    fusion=Fusion.INJECTIVE,
    layout=Layout.AXES,
    doc="A part of a tensor, with steps; bounds follow NumPy's rules; symbolic ones are not negative; with "
    "`assume_inbound` all lie inside.",
)


# --- padding ----------------------------------------------------------------------------------------------------------


_PAD_MODES = ("constant", "reflect", "edge", "replicate", "wrap", "circular")


def _pad_infer(data: Expr, pad_width: Any, pad_mode: str, pad_value: object) -> TensorType:
    ty = tensor_arg("nn.pad", "data", data)
    demand_held("nn.pad", "pad_value", pad_value, ty.dtype, data.span)
    if ty.shape is None:
        return ty
    pairs = pad_pairs(ty.ndim, pad_width)
    for i, (d, (b, a)) in enumerate(zip(ty.shape, pairs, strict=True)):
        _demand_padding(f"nn.pad: padding of dimension {i}", d, b, a, pad_mode, data)
    return TensorType(tuple(simplify(d + b + a) for d, (b, a) in zip(ty.shape, pairs, strict=True)), ty.dtype, ty.ndim)


def _demand_padding(what: str, d: Any, before: Any, after: Any, mode: str, data: Expr) -> None:
    """Demand that padding does not take away more than there is, and copies only what is there."""
    demand_at_least(what, d + before + after, 0, data.span)
    if mode != "constant":
        demand_at_most(f"{what} of an empty dimension", min_(max_(before, after), 1), d, data.span)


def _pad_ref(data: Any, pad_width: Any, pad_mode: str, pad_value: float) -> Any:
    pairs = np.array(pad_pairs(data.ndim, pad_width), int).reshape(-1, 2)
    mode: Any = {"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode)
    grown = np.pad(data, np.maximum(pairs, 0), mode, **({"constant_values": pad_value} if mode == "constant" else {}))
    return grown[tuple(slice(max(-b, 0), n + min(a, 0)) for n, (b, a) in zip(grown.shape, pairs, strict=True))]


declare(
    "nn.pad",
    "data",
    {"pad_width": each_axis(), "pad_mode": word("constant", *_PAD_MODES), "pad_value": number(0)},
    infer=_pad_infer,
    lower=pad,
    reference=_pad_ref,
    fusion=Fusion.INJECTIVE,
    layout=Layout.AXES,
    doc="Pad each axis before and after; `pad_width` is (before, after) for each axis in turn.",
)
