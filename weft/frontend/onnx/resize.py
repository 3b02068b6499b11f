"""Resize and Upsample in every mode, for constant and symbolic sizes.

One axis after another: positions in the input are computed from positions in the output, at import where sizes are
known and by the compiled program otherwise; taps are gathered and weighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim, Value
from weft.ir import DataType, Expr, constant, shape_expr

_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip


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

    @property
    def is_known(self) -> bool:
        """Whether positions can be computed at import."""
        parts = (self.size_in, self.size_out, self.scale, *(self.region or ()))
        return s.is_known(*parts) and not any(isinstance(p, Expr) for p in parts)


_OF_OPSET_10 = "floor, or ceil where the scale is below 1"


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
        return _resize(node, axes, mode, "asymmetric", _OF_OPSET_10 if mode == "nearest" else "floor")
    over = node.distinct_axes(node.attr("axes")) if node.attr("axes") is not None else list(range(node.ndim()))
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        node.error(
            "Resize: attribute 'coordinate_transformation_mode' has an unknown value",
            expected=", ".join(_COORDINATES),
            found=coordinates,
        )
    regions: list[Any] = [None] * len(over)
    if coordinates == "tf_crop_and_resize":
        roi = _elements(node, 1)
        if len(roi) != 2 * len(over):
            node.error("Resize: its input 'roi' has a wrong length", expected=f"{2 * len(over)}", found=str(len(roi)))
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
        node.error(f"{node.op_type}: neither scales nor sizes are given")
    value = node.value(i)
    if value.known is not None:
        return list(value.known.flat)
    count = value.shape[0] if len(value.shape) == 1 else None
    if not isinstance(count, int):
        node.error(f"{node.op_type}: the number of its scales is not known", found=f"shape {value.shape}")
    x = node.astype(node.x(i), "float32")
    return [node.reshape(node.slice(x, [0], [k], [k + 1]), ()) for k in range(count)]


def _from_scales(node: Node, over: list[int], scales: list[Any], regions: list[Any]) -> list[_Axis]:
    if len(scales) != len(over):
        node.error(f"{node.op_type}: a wrong number of scales", expected=str(len(over)), found=str(len(scales)))
    axes = []
    for axis, scale, region in zip(over, scales, regions, strict=True):
        if isinstance(scale, (int, float)) and not scale > 0:
            node.error(f"{node.op_type}: a scale is not positive", found=str(scale))
        size = node.shape()[axis]
        # The specification's text multiplies by the region's extent, too; its reference, its shape inference and ONNX
        # Runtime do not: models are made for those.
        if isinstance(scale, Expr):
            out = _size_from_data(node, size, scale)
            node.require_between("a size, where there is something to resize", out, s.minimum(size, 1), None)
        else:
            out = _size_from(_float(size), scale)
        axes.append(_Axis(axis, size, out, scale, region))
    return axes


def _float(e: Any) -> Any:
    return float(e) if s.is_known(e) else s.cast_element(e, "float32")


def _size_from(width: Any, scale: Any) -> Dim:
    """Round ``width * scale`` down, in float32 as the scale is."""
    if s.is_known(width, scale):
        return int(np.floor(np.float32(width) * np.float32(scale)))
    return s.cast_element(s.floor(s.multiply(width, scale)), "int64")


def _size_from_data(node: Node, size: Dim, scale: Any) -> Dim:
    lines = _Lines(node, known=False)
    width = lines.do("multiply", lines.number(_float(size)), lines.number(scale))
    total = node.op("astype", lines.do("floor", width), dtype="int64")
    return node.graph.ints(Value.of_expr(total), sizes=True)[0]


def _from_sizes(node: Node, over: list[int], regions: list[Any]) -> list[_Axis]:
    sizes = node.ints(3, sizes=True)
    if len(sizes) != len(over):
        node.error("Resize: a wrong number of sizes", expected=str(len(over)), found=str(len(sizes)))
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


# --- positions --------------------------------------------------------------------------------------------------------


class _Lines:
    """Arithmetic on a line of positions: in NumPy where everything is known, else as float32 tensors of the program."""

    def __init__(self, node: Node, known: bool) -> None:
        self.node, self.known = node, known

    def count(self, n: Dim) -> Any:
        """Return 0, 1, ... n - 1."""
        if self.known:
            return np.arange(n, dtype=np.float64)
        return self.node.op("astype", self.node.op("arange", 0, s.to_expr(n), 1, dtype="int64"), dtype="float32")

    def number(self, e: Any) -> Any:
        """Return a number, scalar expression or tensor as an operand."""
        if self.known:
            return float(e)
        if isinstance(e, Expr):
            return e
        return (
            self.node.scalar(e, "float32")
            if s.is_known(e)
            else self.node.graph.expr(Value.of_elements(s.cast_element(e, "float32"), "float32"))
        )

    def do(self, name: str, a: Any, b: Any = None) -> Any:
        """Apply an operator by its Relax name."""
        if self.known:
            with np.errstate(invalid="ignore"):  # 0 / 0 where all taps lie outside: the extrapolation's place
                return _NUMPY[name](a) if b is None else _NUMPY[name](a, b)
        a, b = (self.number(v) if isinstance(v, (int, float)) else v for v in (a, b))
        return self.node.op(name, a) if b is None else self.node.op(name, a, b)


_NUMPY: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "floor": np.floor,
    "ceil": np.ceil, "abs": np.abs,
    "minimum": np.minimum, "maximum": np.maximum, "less": np.less, "greater": np.greater, "logical_or": np.logical_or,
}  # fmt: skip


def _positions(lines: _Lines, a: _Axis, coordinates: str) -> Any:
    """Return where each output position lies in the input."""
    o, scale = lines.count(a.size_out), lines.number(a.scale)
    if coordinates == "align_corners":
        last = s.subtract(_float(a.size_in), 1.0)
        steps = s.maximum(s.subtract(_float(a.size_out), 1.0), 1.0)
        return lines.do("divide", lines.do("multiply", o, lines.number(last)), lines.number(steps))
    if coordinates == "asymmetric":
        return lines.do("divide", o, scale)
    if coordinates == "tf_crop_and_resize":
        return _cropped(lines, a, o)
    half = lines.do("add", o, 0.5)
    if coordinates == "tf_half_pixel_for_nn":
        return lines.do("divide", half, scale)
    x = lines.do("subtract", lines.do("divide", half, scale), 0.5)
    if coordinates == "pytorch_half_pixel":
        if s.is_known(a.size_out):
            return x if a.size_out > 1 else lines.do("multiply", o, 0.0)
        return lines.do("multiply", x, lines.number(_float(s.minimum(s.subtract(a.size_out, 1), 1))))
    if coordinates == "half_pixel_symmetric":
        size = lines.number(_float(a.size_in))
        adjustment = lines.do("divide", lines.number(_float(a.size_out)), lines.do("multiply", size, scale))
        offset = lines.do("multiply", lines.do("divide", size, 2.0), lines.do("subtract", 1.0, adjustment))
        return lines.do("add", x, offset)
    return x


def _cropped(lines: _Lines, a: _Axis, o: Any) -> Any:
    assert a.region is not None
    begin, end = map(lines.number, a.region)
    last = lines.number(s.subtract(_float(a.size_in), 1.0))
    if s.is_known(a.size_out) and a.size_out <= 1:
        center = lines.do("multiply", last, lines.do("multiply", lines.do("add", begin, end), 0.5))
        return lines.do("add", lines.do("multiply", o, 0.0), center)
    width = lines.do("multiply", last, lines.do("subtract", end, begin))
    step = lines.do("divide", width, lines.number(s.maximum(s.subtract(_float(a.size_out), 1.0), 1.0)))
    first = lines.do("multiply", last, begin)
    if not s.is_known(a.size_out):  # the centre, should it turn out to be one
        alone = s.multiply(s.maximum(s.subtract(2.0, _float(a.size_out)), 0.0), 0.5)
        first = lines.do("add", first, lines.do("multiply", width, lines.number(alone)))
    return lines.do("add", lines.do("multiply", o, step), first)


def _nearest(lines: _Lines, x: Any, mode: str, scale: Any) -> Any:
    if mode == _OF_OPSET_10:
        if not isinstance(scale, (int, float)):
            below = lines.do("less", lines.number(scale), 1.0)
            return lines.node.op("where", below, lines.do("ceil", x), lines.do("floor", x))
        mode = "ceil" if scale < 1 else "floor"
    if mode == "floor":
        return lines.do("floor", x)
    if mode == "ceil":
        return lines.do("ceil", x)
    if mode == "round_prefer_ceil":
        return lines.do("floor", lines.do("add", x, 0.5))
    return lines.do("ceil", lines.do("subtract", x, 0.5))


def _is_identity(a: _Axis) -> bool:
    kept = a.region is None and isinstance(a.scale, (int, float)) and a.scale == 1.0
    return kept and s.provably_equal(a.size_in, a.size_out)


def _resize_at_once(node: Node, moved: list[_Axis], mode: str, coordinates: str, nearest_mode: str) -> Any:
    """Resize by the operator that has every mode but antialias, where no scale or region is data."""
    rank = node.ndim()
    sizes, scales = list(node.shape()), [1.0] * rank
    begins, ends = [0.0] * rank, [1.0] * rank
    for a in moved:
        by_sizes = not s.is_known(a.scale) and s.same(a.scale, _quotient(a.size_out, a.size_in))
        sizes[a.axis], scales[a.axis] = a.size_out, 0.0 if by_sizes else a.scale  # 0: the operator's own quotient
        begins[a.axis], ends[a.axis] = a.region or (0.0, 1.0)
    return node.op(
        "image.resize",
        node.x(),
        shape_expr([s.to_expr(d) for d in sizes]),
        scales=tuple(scales),
        roi=(*begins, *ends) if coordinates == "tf_crop_and_resize" else None,
        method={"nearest": "nearest", "cubic": "cubic"}.get(mode, "linear"),
        coordinate_transformation_mode=coordinates,
        rounding_method=nearest_mode,
        cubic_alpha=node.attr("cubic_coeff_a", -0.75),
        cubic_exclude=bool(node.attr("exclude_outside", 0)),
        extrapolation_value=node.attr("extrapolation_value", 0.0),
    )


# --- the operator -----------------------------------------------------------------------------------------------------


def _resize(node: Node, axes: list[_Axis], mode: str, coordinates: str, nearest_mode: str) -> Any:
    if mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        node.error(
            f"{node.op_type}: attribute 'mode' has an unknown value", expected="nearest, linear or cubic", found=mode
        )
    antialias = bool(node.attr("antialias", 0)) and mode != "nearest"
    moved = [a for a in axes if not _is_identity(a)]
    apart = nearest_mode == _OF_OPSET_10
    if apart and all(isinstance(a.scale, (int, float)) for a in moved) and len({a.scale < 1 for a in moved}) <= 1:
        nearest_mode, apart = "ceil" if moved and moved[0].scale < 1 else "floor", False
    most = {"nearest": 8, "cubic": 2}.get(mode, 3)  # the operator multiplies the taps of all axes
    few = not apart and len(moved) <= most
    if few and not antialias and not any(isinstance(p, Expr) for a in moved for p in (a.scale, *(a.region or ()))):
        return _resize_at_once(node, moved, mode, coordinates, nearest_mode) if moved else node.value(0)
    x, dtype = node.x(), node.dtype()
    if mode != "nearest" and moved and dtype not in ("float32", "float64"):
        x = node.astype(x, "float32")
    outside = []
    for a in moved:
        lines = _Lines(node, a.is_known)
        positions = _positions(lines, a, coordinates)
        if a.region is not None:
            beyond = lines.do("greater", positions, lines.number(s.subtract(_float(a.size_in), 1.0)))
            outside.append((a, lines.do("logical_or", lines.do("less", positions, 0.0), beyond)))
        if mode == "nearest":
            x = _take(lines, x, a, _nearest(lines, positions, nearest_mode, a.scale))
        elif antialias:
            x = _antialiased(lines, x, a, positions, mode)
        else:
            x = _weighted(lines, x, a, positions, mode)
    for a, mask in outside:
        column = node.reshape(
            constant(mask) if isinstance(mask, np.ndarray) else mask,
            [a.size_out if i == a.axis else 1 for i in range(node.ndim())],
        )
        x = node.op("where", column, node.scalar(node.attr("extrapolation_value", 0.0), x.ty.dtype), x)
    if x.ty.dtype != dtype and not DataType(dtype).is_float:
        x = node.op("round", x)
    return node.astype(x, dtype) if moved else node.value(0)


def _take(lines: _Lines, x: Any, a: _Axis, index: Any) -> Any:
    """Gather along the axis at positions limited to it."""
    inside = lines.do("minimum", lines.do("maximum", index, 0.0), lines.number(s.subtract(_float(a.size_in), 1.0)))
    whole = (
        constant(inside.astype(np.int64))
        if isinstance(inside, np.ndarray)
        else lines.node.op("astype", inside, dtype="int64")
    )
    return lines.node.op("take", x, whole, axis=a.axis, mode="clip")


def _column(lines: _Lines, weights: Any, a: _Axis, rank: int, dtype: str) -> Any:
    """Bring a line of weights beside its axis."""
    if isinstance(weights, np.ndarray):
        weights = constant(weights.astype(dtype))
    return lines.node.reshape(
        lines.node.astype(weights, dtype), [a.size_out if i == a.axis else 1 for i in range(rank)]
    )


def _weighted(lines: _Lines, x: Any, a: _Axis, positions: Any, mode: str) -> Any:
    node, rank, dtype = lines.node, len(x.ty.shape), x.ty.dtype
    base = lines.do("floor", positions)
    t = lines.do("subtract", positions, base)
    taps = (0, 1) if mode != "cubic" else (-1, 0, 1, 2)
    weights = (
        [lines.do("subtract", 1.0, t), t] if mode != "cubic" else _cubic(lines, t, node.attr("cubic_coeff_a", -0.75))
    )
    if node.attr("exclude_outside", 0):
        weights = _excluding(lines, a, base, taps, weights)
    total = None
    for tap, w in zip(taps, weights, strict=True):
        part = node.op(
            "multiply", _take(lines, x, a, lines.do("add", base, float(tap))), _column(lines, w, a, rank, dtype)
        )
        total = part if total is None else node.op("add", total, part)
    return total


def _polynomial(lines: _Lines, t: Any, coefficients: tuple[float, ...]) -> Any:
    out = lines.do("multiply", t, coefficients[0])
    for c in coefficients[1:-1]:
        out = lines.do("multiply", lines.do("add", out, c), t)
    return lines.do("add", out, coefficients[-1])


def _cubic(lines: _Lines, t: Any, a: float) -> list[Any]:
    """Return Keys' weights of the four taps around a position."""
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    u = lines.do("subtract", 1.0, t)
    return [
        _polynomial(lines, lines.do("add", t, 1.0), far),
        _polynomial(lines, t, near),
        _polynomial(lines, u, near),
        _polynomial(lines, lines.do("add", u, 1.0), far),
    ]


def _excluding(lines: _Lines, a: _Axis, base: Any, taps: tuple[int, ...], weights: list[Any]) -> list[Any]:
    """Drop taps outside of the input and scale the others up."""
    kept, total = [], None
    last = lines.number(s.subtract(_float(a.size_in), 1.0))
    for tap, w in zip(taps, weights, strict=True):
        at = lines.do("add", base, float(tap))
        out = lines.do("logical_or", lines.do("less", at, 0.0), lines.do("greater", at, last))
        w = np.where(out, 0.0, w) if lines.known else lines.node.op("where", out, lines.number(0.0), w)
        kept.append(w)
        total = w if total is None else lines.do("add", total, w)
    return [lines.do("divide", w, total) for w in kept]


def _antialiased(lines: _Lines, x: Any, a: _Axis, positions: Any, mode: str) -> Any:
    """Widen the taps when shrinking: a matrix of weights over the input, its edges repeated, times the axis."""
    node, rank, dtype = lines.node, len(x.ty.shape), x.ty.dtype
    reach, coefficient = 2 if mode == "cubic" else 1, node.attr("cubic_coeff_a", -0.75)
    shrink = lines.do("minimum", lines.number(a.scale), 1.0)
    border: Dim = 0
    if not node.attr("exclude_outside", 0):
        border = s.add(s.divide(s.multiply(a.size_in, reach), s.maximum(a.size_out, 1)), reach + 1)
        widths = [border if i == a.axis else 0 for i in range(rank)]
        x = padded(node, x, widths, widths, "edge")
    taps = lines.count(s.add(a.size_in, s.multiply(border, 2)))
    row = lines.do("subtract", taps, lines.number(_float(border)))
    if lines.known:
        weights = _kernel((row[None, :] - positions[:, None]) * shrink, mode, coefficient)
        matrix: Any = constant((weights / weights.sum(axis=1, keepdims=True)).astype(dtype))
    else:
        row, column = node.reshape(row, [1, *node.dims(row)]), node.reshape(positions, [a.size_out, 1])
        distance = lines.do("multiply", lines.do("abs", lines.do("subtract", row, column)), shrink)
        weights = _kernel_lines(lines, distance, mode, coefficient)
        matrix = node.astype(node.op("divide", weights, node.op("sum", weights, axis=(1,), keepdims=True)), dtype)
    order = [i for i in range(rank) if i != a.axis] + [a.axis]
    out = node.op("matmul", node.permute(x, order), node.permute(matrix, (1, 0)))
    return node.permute(out, [order.index(i) for i in range(rank)])


def _kernel(offsets: Any, mode: str, a: float) -> Any:
    d = np.abs(offsets)
    if mode != "cubic":
        return np.clip(1 - d, 0, 1)
    return np.where(
        d <= 1, ((a + 2) * d - (a + 3)) * d * d + 1, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, 0.0)
    )


def _kernel_lines(lines: _Lines, d: Any, mode: str, a: float) -> Any:
    if mode != "cubic":
        return lines.do("maximum", lines.do("subtract", 1.0, d), 0.0)
    node, zero = lines.node, lines.number(0.0)
    near, far = _polynomial(lines, d, (a + 2, -(a + 3), 0.0, 1.0)), _polynomial(lines, d, (a, -5 * a, 8 * a, -4 * a))
    return node.op("where", lines.do("greater", d, 1.0), node.op("where", lines.do("less", d, 2.0), far, zero), near)
