"""Boxes cut out of images and resized."""

from typing import Any

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.op import tensor_arg
from weft.relay.op.elementwise import scalar
from weft.relay.op.reduce import number
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dims


def _crop_and_resize(
    data: ir.Expr,
    boxes: ir.Expr,
    box_indices: ir.Expr,
    crop_size: Any,
    layout: str = "NHWC",
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    out_dtype: Any = "",
) -> ir.Expr:
    op = "image.crop_and_resize"
    tensor_arg(op, "data", data, ndim=4)
    tensor_arg(op, "boxes", boxes, ndim=2, kind="float")
    tensor_arg(op, "box_indices", box_indices, ndim=1, kind="integer")
    if ir.as_int(dims(boxes)[1]) not in (4, None):
        raise ShapeMismatch(f"{op}: a box has four corners", expected="(boxes, 4)", found=str(boxes.ty))
    if layout not in ("NHWC", "NCHW") or method not in ("bilinear", "nearest_neighbor"):
        raise InvalidArgument(
            f"{op}: unknown layout or method",
            expected="NHWC or NCHW; bilinear or nearest_neighbor",
            found=f"{layout}; {method}",
        )
    images = data if layout == "NHWC" else shared("permute_dims", data, axes=(0, 2, 3, 1))
    images = shared("astype", images, dtype="float32")
    y, y_inside = _coordinates(boxes, 0, int(crop_size[0]), dims(images)[1])
    x, x_inside = _coordinates(boxes, 1, int(crop_size[1]), dims(images)[2])
    which = shared("expand_dims", shared("astype", box_indices, dtype="int64"), axis=(1, 2))

    def pixels(rows: ir.Expr, columns: ir.Expr) -> ir.Expr:
        at = (which, shared("expand_dims", rows, axis=(2,)), shared("expand_dims", columns, axis=(1,)))
        return shared("index_tensor", images, at)

    if method == "nearest_neighbor":
        out = pixels(_index(shared("round", y), dims(images)[1]), _index(shared("round", x), dims(images)[2]))
    else:
        out = _blended(pixels, (y, dims(images)[1]), (x, dims(images)[2]))
    inside = shared(
        "logical_and", shared("expand_dims", y_inside, axis=(2, 3)), shared("expand_dims", x_inside, axis=(1, 3))
    )
    out = shared("where", inside, out, scalar(extrapolation_value, "float32"))
    out = out if layout == "NHWC" else shared("permute_dims", out, axes=(0, 3, 1, 2))
    return shared("astype", out, dtype=out_dtype) if out_dtype else out


def _coordinates(boxes: ir.Expr, axis: int, size: int, extent: ir.PrimExpr) -> tuple[ir.Expr, ir.Expr]:
    """Return (boxes, size) places along an axis of the image, and which of them lie inside."""
    boxes = shared("astype", boxes, dtype="float32")
    low, high = (shared("strided_slice", boxes, axes=(1,), begin=(c,), end=(c + 1,)) for c in (axis, axis + 2))
    last = number(extent - ir.int64(1), "float32")
    if size > 1:
        steps = shared("arange", ir.int64(0), ir.int64(size), ir.int64(1), dtype="float32")
        step = shared("divide", shared("subtract", high, low), scalar(size - 1, "float32"))
        place = shared("multiply", shared("add", low, shared("multiply", step, steps)), last)
    else:
        middle = shared("multiply", shared("add", low, high), scalar(0.5, "float32"))
        place = shared("multiply", middle, last)
    at_least = shared("greater_equal", place, scalar(0, "float32"))
    return place, shared("logical_and", at_least, shared("less_equal", place, last))


def _index(place: ir.Expr, extent: ir.PrimExpr) -> ir.Expr:
    """Return the nearest index inside of the image."""
    last = number(extent - ir.int64(1), "int64")
    whole = shared("astype", place, dtype="int64")
    return shared("maximum", shared("minimum", whole, last), scalar(0, "int64"))


def _blended(pixels: Any, rows: tuple[ir.Expr, Any], columns: tuple[ir.Expr, Any]) -> ir.Expr:
    """Interpolate between the four pixels around each place."""
    (y, height), (x, width) = rows, columns
    top, left = shared("floor", y), shared("floor", x)
    down = shared("expand_dims", shared("subtract", y, top), axis=(2, 3))
    right = shared("expand_dims", shared("subtract", x, left), axis=(1, 3))

    def mixed(a: ir.Expr, b: ir.Expr, t: ir.Expr) -> ir.Expr:
        return shared("add", a, shared("multiply", shared("subtract", b, a), t))

    upper, lower = _index(top, height), _index(shared("ceil", y), height)
    before, after = _index(left, width), _index(shared("ceil", x), width)
    return mixed(
        mixed(pixels(upper, before), pixels(upper, after), right),
        mixed(pixels(lower, before), pixels(lower, after), right),
        down,
    )


declare(
    "image.crop_and_resize",
    "data boxes box_indices",
    {"crop_size": REQUIRED, "layout": "NHWC", "method": "bilinear", "extrapolation_value": 0.0, "out_dtype": ""},
    expand=_crop_and_resize,
    doc="Cut boxes (y1, x1, y2, x2 of 0..1) out of images and resize them.",
)
