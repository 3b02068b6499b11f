"""Resize and Upsample in every mode, for constant and symbolic sizes, and for scales and regions that are data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim, Value
from weft.ir import Expr, shape_expr

_COORDINATES = tuple(
    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_crop_and_resize "
    "tf_half_pixel_for_nn".split()
)


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized.

    ``scale`` and the two ends of ``region``, the part that tf_crop_and_resize takes, are numbers, scalar expressions,
    or 0-dimensional tensors where they are data.
    """

    axis: int
    size_in: Dim
    size_out: Dim
    scale: Any
    region: tuple[Any, Any] | None


@converter("Upsample")
def _upsample(node: Node) -> Any:
    scales = node.attr("scales") if node.opset < 9 else _elements(node, 1)
    mode = node.attr("mode", "nearest")
    axes = _from_scales(node, list(range(node.ndim())), scales, [None] * node.ndim())
    return _resize(node, axes, mode, "asymmetric", "floor")


@converter("Resize")
def _resize_node(node: Node) -> Any:
    if node.opset < 11:
        axes = _from_scales(node, list(range(node.ndim())), _elements(node, 1), [None] * node.ndim())
        mode = node.attr("mode", "nearest")
        return _resize(node, axes, mode, "asymmetric", "ceil_below_1" if mode == "nearest" else "floor")
    over = node.distinct_axes(node.attr("axes")) if node.attr("axes") is not None else list(range(node.ndim()))
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        node.error(
            "attribute 'coordinate_transformation_mode' has an unknown value",
            expected=", ".join(_COORDINATES),
            found=coordinates,
        )
    regions: list[Any] = [None] * len(over)
    if coordinates == "tf_crop_and_resize":
        roi = _elements(node, 1)
        if len(roi) != 2 * len(over):
            node.error("its input 'roi' has a wrong length", expected=f"{2 * len(over)}", found=str(len(roi)))
        regions = list(zip(roi[: len(over)], roi[len(over) :], strict=True))
    if node.has(3) and not (node.const(3) is not None and node.const(3).size == 0):  # type: ignore[union-attr]
        axes = _from_sizes(node, over, regions)
    else:
        axes = _from_scales(node, over, _elements(node, 2), regions)
    return _resize(
        node, axes, node.attr("mode", "nearest"), coordinates, node.attr("nearest_mode", "round_prefer_floor")
    )


def _elements(node: Node, i: int) -> list[Any]:
    """Return the floats of an input: numbers, expressions of dimensions, or tensors where they are data."""
    if not node.has(i):
        node.error("neither scales nor sizes are given")
    value = node.value(i)
    if value.known is not None:
        return list(value.known.flat)
    count = value.shape[0] if len(value.shape) == 1 else None
    if not isinstance(count, int):
        node.error("the number of its scales is not known", found=f"shape {value.shape}")
    x = node.astype(node.x(i), "float32")
    return [node.reshape(node.slice(x, [0], [k], [k + 1]), ()) for k in range(count)]


def _from_scales(node: Node, over: list[int], scales: list[Any], regions: list[Any]) -> list[_Axis]:
    if len(scales) != len(over):
        node.error("a wrong number of scales", expected=str(len(over)), found=str(len(scales)))
    axes = []
    for axis, scale, region in zip(over, scales, regions, strict=True):
        if isinstance(scale, (int, float)) and not scale > 0:
            node.error("a scale is not positive", found=str(scale))
        size = node.shape()[axis]
        # The specification's text multiplies by the region's extent, too; its reference, its shape inference and ONNX
        # Runtime do not: models are made for those.
        if isinstance(scale, Expr):
            total = node.op("floor", node.op("multiply", _tensor(node, _float(size)), scale))
            out = node.graph.ints(Value.of_expr(node.astype(total, "int64")), sizes=True)[0]
            node.require_between("a size, where there is something to resize", out, s.minimum(size, 1), None)
        else:
            out = _size_from(_float(size), scale)
        axes.append(_Axis(axis, size, out, scale, region))
    return axes


def _float(e: Any) -> Any:
    return float(e) if s.is_known(e) else s.cast_element(e, "float32")


def _tensor(node: Node, e: Any) -> Any:
    """Return a number, scalar expression or tensor as a float32 tensor without dimensions."""
    if isinstance(e, Expr):
        return e
    if s.is_known(e):
        return node.scalar(e, "float32")
    return node.graph.expr(Value.of_elements(s.cast_element(e, "float32"), "float32"))


def _size_from(width: Any, scale: Any) -> Dim:
    """Round ``width * scale`` down, in float32 as the scale is."""
    if s.is_known(width, scale):
        return int(np.floor(np.float32(width) * np.float32(scale)))
    return s.cast_element(s.floor(s.multiply(width, scale)), "int64")


def _from_sizes(node: Node, over: list[int], regions: list[Any]) -> list[_Axis]:
    sizes = node.ints(3, sizes=True)
    if len(sizes) != len(over):
        node.error("a wrong number of sizes", expected=str(len(over)), found=str(len(sizes)))
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    own = [node.shape()[a] for a in over]
    for t, d in zip(sizes, own, strict=True):
        node.require_between("a size, where there is something to resize", t, s.minimum(d, 1), None)
    scales = [_quotient(t, d) for t, d in zip(sizes, own, strict=True)]
    if policy != "stretch":
        for d in own:
            node.require_between("a size of the data, which the scale divides by", d, 1, None)
        scale = scales[0]
        for other in scales[1:]:
            scale = (s.minimum if policy == "not_larger" else s.maximum)(scale, other)
        scales = [scale] * len(over)
        half_up = [s.floor(s.add(s.multiply(_float(d), scale), 0.5)) for d in own]
        sizes = [s.cast_element(h, "int64") for h in half_up]
    return [_Axis(*parts) for parts in zip(over, own, sizes, scales, regions, strict=True)]


def _quotient(a: Dim, b: Dim) -> Any:
    if s.is_known(a, b):
        return a / b if b else 1.0
    return s.divide(_float(a), _float(s.maximum(b, 1)))  # of nothing, any scale makes nothing


def _is_identity(a: _Axis) -> bool:
    kept = a.region is None and isinstance(a.scale, (int, float)) and a.scale == 1.0
    return kept and s.provably_equal(a.size_in, a.size_out)


def _resize(node: Node, axes: list[_Axis], mode: str, coordinates: str, nearest_mode: str) -> Any:
    if mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        node.error("attribute 'mode' has an unknown value", expected="nearest, linear or cubic", found=mode)
    moved = [a for a in axes if not _is_identity(a)]
    if not moved:
        return node.value(0)
    rank = node.ndim()
    sizes, scales, begins, ends = list(node.shape()), [1.0] * rank, [0.0] * rank, [1.0] * rank
    exact: list[Any] = list(scales)
    for a in moved:
        by_sizes = not s.is_known(a.scale) and s.same(a.scale, _quotient(a.size_out, a.size_in))
        sizes[a.axis], scales[a.axis] = a.size_out, 0.0 if by_sizes else a.scale  # 0: the operator's own quotient
        exact[a.axis] = a.scale
        begins[a.axis], ends[a.axis] = a.region or (0.0, 1.0)
    dims = shape_expr([s.to_expr(d) for d in sizes])
    attrs = {
        "method": {"nearest": "nearest", "cubic": "cubic"}.get(mode, "linear"),
        "coordinate_transformation_mode": coordinates,
        "rounding_method": nearest_mode,
        "cubic_alpha": node.attr("cubic_coeff_a", -0.75),
        "cubic_exclude": bool(node.attr("exclude_outside", 0)),
        "extrapolation_value": node.attr("extrapolation_value", 0.0),
        "antialias": bool(node.attr("antialias", 0)),
    }
    given = [*exact, *begins, *ends]
    if not any(isinstance(v, Expr) for v in given):
        roi = (*begins, *ends) if coordinates == "tf_crop_and_resize" else None
        return node.op("image.resize", node.x(), dims, scales=tuple(scales), roi=roi, **attrs)
    placement = node.concat([node.reshape(_tensor(node, v), [1]) for v in given], 0)
    fixed = tuple(v if isinstance(v, (int, float)) else 0.0 for v in exact)
    return node.op("image.resize_placed", node.x(), dims, placement, scales=fixed, **attrs)
