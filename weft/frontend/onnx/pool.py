"""Pooling of any rank, with the indices of maxima where they are asked for."""

from dataclasses import replace
from typing import Any

import numpy as np

from weft import ir
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim
from weft.frontend.onnx.window import Window, read_window


@converter("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: Node) -> Any:
    axes = tuple(range(2, node.ndim()))
    for d in node.shape()[2:]:
        _require_some(node, d)
    return node.op("mean" if node.op_type == "GlobalAveragePool" else "max", node.x(), axis=axes, keepdims=True)


def _require_some(node: Node, size: Dim) -> None:
    """Require that there is something to pool: nothing has no maximum and no mean."""
    node.require_between("size of a spatial dimension", size, 1, None)


def output_sizes(node: Node, window: Window, ceil_mode: bool) -> list[Dim]:
    """Count the windows along each axis; `ceil_mode` adds one cut off at the end, unless it would start in padding."""
    sizes: list[Dim] = []
    for size, extent, stride, low, high in zip(
        node.shape()[2:], window.extents, window.strides, window.before, window.after, strict=True
    ):
        room = s.subtract(s.add(s.add(size, low), high), extent)
        count = s.add(s.ceildiv(room, stride) if ceil_mode else s.floor_divide(room, stride), 1)
        if ceil_mode:
            starts_inside = s.ceildiv(s.add(size, low), stride)
            count = s.minimum(count, starts_inside)
        sizes.append(count)
    return sizes


def reach(node: Node, window: Window, sizes: list[Dim]) -> Window:
    """Return the window with as much padding at the end as the last of `sizes` windows needs."""
    after = []
    for count, size, extent, stride, low in zip(
        sizes, node.shape()[2:], window.extents, window.strides, window.before, strict=True
    ):
        needed = s.add(s.multiply(s.subtract(count, 1), stride), extent)
        after.append(s.maximum(s.subtract(needed, s.add(size, low)), 0))
    return replace(window, after=after)


def _read_ceil(node: Node, window: Window) -> tuple[Window, bool]:
    """Read `ceil_mode`: a window with room for what is cut off, or, of unknown room, that the operator counts."""
    if not node.attr("ceil_mode", 0):
        return window, False
    grown = reach(node, window, output_sizes(node, window, True))
    inside = zip(window.after, window.extents, strict=True)
    known = window.has_constant_pads and all(p >= 0 for p in window.padding) and all(a < e for a, e in inside)
    return (window, True) if known and not grown.has_constant_pads else (grown, False)


def pool(node: Node, name: str, x: ir.Expr, window: Window, fill: bool | int | float, **attrs: Any) -> Any:
    """Pool with floor sizes, padding beforehand what the operator cannot."""
    rank = len(window.kernel)
    if not window.has_constant_pads or any(p < 0 for p in window.padding):
        x = padded(node, x, [0, 0, *window.before], [0, 0, *window.after], "constant", fill)
        window = replace(window, before=[0] * rank, after=[0] * rank)
    steps = {"pool_size": tuple(window.kernel), "strides": tuple(window.strides), "dilation": tuple(window.dilations)}
    return node.op(f"nn.{name}{rank}d", x, **steps, padding=window.padding, **attrs)


def pool_window(node: Node) -> Window:
    """Read the window; it fits into the padded input, where that is known."""
    window = read_window(node, node.attr("kernel_shape"))
    for size, extent, low, high in zip(node.shape()[2:], window.extents, window.before, window.after, strict=True):
        if not (s.is_known(low, high) and low <= 0 and high <= 0):  # else there are no windows of padding alone
            _require_some(node, size)
        if s.is_known(size, low, high) and size > 0 and size + low + high < extent:
            node.error(
                "the window is larger than the padded input", expected=f"at most {size + low + high}", found=str(extent)
            )
    return window


@converter("MaxPool")
def _max_pool(node: Node) -> Any:
    window, ceil_mode = _read_ceil(node, pool_window(node))
    x = node.x()
    if len(node.proto.output) > 1 and node.proto.output[1]:
        return _max_pool_with_indices(node, x, window, ceil_mode)
    least = -np.inf if ir.DataType(node.dtype()).is_float else int(np.iinfo(node.dtype()).min)
    return pool(node, "max_pool", x, window, least, ceil_mode=ceil_mode)


@converter("AveragePool")
def _average_pool(node: Node) -> Any:
    window = pool_window(node)
    include, ceil_mode = bool(node.attr("count_include_pad", 0)), bool(node.attr("ceil_mode", 0))
    x = node.x()
    grown, counted = _read_ceil(node, window)
    if counted or (not ceil_mode and window.has_constant_pads and all(p >= 0 for p in window.padding)):
        return pool(node, "avg_pool", x, window, 0, count_include_pad=include, ceil_mode=counted)
    if not ceil_mode:
        grown = reach(node, window, output_sizes(node, window, False))
    if not ceil_mode if include else grown.has_constant_pads and all(p >= 0 for p in grown.padding):
        return pool(node, "avg_pool", x, grown, 0, count_include_pad=include)
    return _average_of_counted(node, x, window, grown, include)


def _average_of_counted(node: Node, x: Any, window: Window, grown: Window, include: bool) -> Any:
    """Divide the mean over whole windows by the mean of a mask of the cells that count."""
    rank, dtype = len(window.kernel), x.ty.dtype
    sizes = list(node.shape()[2:])
    mask = node.full([1, 1, *sizes], 1, dtype)
    if include:
        counted = [s.minimum(r, a) for r, a in zip(grown.after, window.after, strict=True)]
        beyond = [s.subtract(r, c) for r, c in zip(grown.after, counted, strict=True)]
        mask = padded(node, mask, [0, 0, *window.before], [0, 0, *counted], "constant", 1)
        mask = padded(node, mask, [0] * (rank + 2), [0, 0, *beyond], "constant", 0)
        mask_window = replace(grown, before=[0] * rank, after=[0] * rank)
    else:
        mask_window = grown
    total = pool(node, "avg_pool", x, grown, 0, count_include_pad=True)
    count = pool(node, "avg_pool", mask, mask_window, 0, count_include_pad=True)
    return node.op("divide", total, count)


def _max_pool_with_indices(node: Node, x: Any, window: Window, ceil_mode: bool) -> Any:
    if not window.has_constant_pads:
        node.unsupported(
            "the indices need constant padding", found=f"auto_pad {node.attr('auto_pad')} of a symbolic size"
        )
    out = node.op(
        "nn.max_pool_with_indices",
        x,
        pool_size=tuple(window.kernel),
        strides=tuple(window.strides),
        padding=window.padding,
        dilation=tuple(window.dilations),
        ceil_mode=ceil_mode,
        storage_order=node.attr("storage_order", 0),
    )
    return node.graph.fields(out)
