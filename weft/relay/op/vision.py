"""``relay.vision``: operators on boxes and regions, and constructors of all whose names begin with ``vision.``."""

from typing import Any

from weft import error, ir
from weft.relay.expr import as_expr, const
from weft.relay.op.construct import call, constructs, namespace
from weft.relay.op.registry import REQUIRED, declare, shared

Number = ir.Expr | float


def _shared(name: str) -> Any:
    return lambda *inputs, **attrs: shared(name, *inputs, **attrs)


_SUPPRESSION = {
    "max_output_size": -1,
    "iou_threshold": 0.5,
    "force_suppress": False,
    "top_k": -1,
    "coord_start": 2,
    "score_index": 1,
    "id_index": 0,
    "return_indices": True,
    "invalid_to_bottom": False,
}
declare(
    "vision.roi_align",
    "data rois",
    {"pooled_size": REQUIRED, "spatial_scale": REQUIRED, "sample_ratio": -1, "layout": "NCHW", "mode": "avg"},
    expand=_shared("vision.roi_align"),
    doc="The mean or the greatest of samples of parts of regions.",
)
declare(
    "vision.roi_pool",
    "data rois",
    {"pooled_size": REQUIRED, "spatial_scale": REQUIRED, "layout": "NCHW"},
    expand=_shared("vision.roi_pool"),
    doc="The greatest pixel of each part of regions.",
)
declare(
    "vision.get_valid_counts",
    "data",
    {"score_threshold": 0.0, "id_index": 0, "score_index": 1},
    outputs=3,
    expand=_shared("vision.get_valid_counts"),
    doc="How many boxes have a score above a threshold; these, moved to the front; where each was.",
)
declare(
    "vision.non_max_suppression",
    "data valid_count indices",
    _SUPPRESSION,
    outputs=lambda e: 2 if e.attrs["return_indices"] else 0,
    expand=_shared("vision.non_max_suppression"),
    doc="Of boxes that overlap, the one with the greatest score.",
)
declare(
    "vision.all_class_non_max_suppression",
    "boxes scores max_output_boxes_per_class iou_threshold score_threshold",
    {"output_format": "onnx"},
    outputs=lambda e: 2 if e.attrs["output_format"] == "onnx" else 3,
    expand=_shared("vision.class_boxes"),
    doc="Suppression in each class by itself; rows behind the valid ones are 0.",
)


def _number(what: str, value: Any) -> Any:
    """Return a number that may be given as a constant."""
    if isinstance(value, ir.Constant):
        return value.data.numpy().item()
    if isinstance(value, ir.Expr) and not isinstance(value, ir.PrimExpr):
        raise error.InvalidArgument(f"{what} is a number or a constant", found=str(value))
    return value


@constructs("vision.get_valid_counts")
def get_valid_counts(data: ir.Expr, score_threshold: Number, id_index: int = 0, score_index: int = 1) -> Any:
    """Count the boxes ``(batch, n, numbers)`` with a score above a threshold, and move them to the front."""
    least = float(_number("score_threshold", score_threshold))
    return call("vision.get_valid_counts", data, score_threshold=least, id_index=id_index, score_index=score_index)


@constructs("vision.non_max_suppression")
def non_max_suppression(
    data: ir.Expr,
    valid_count: ir.Expr,
    indices: ir.Expr,
    max_output_size: Number = -1,
    iou_threshold: Number = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """Keep of boxes that overlap the one with the greatest score: those kept, or where they were and how many."""
    attrs = {k: _number(k, v) for k, v in locals().items() if k in _SUPPRESSION}
    return call("vision.non_max_suppression", data, valid_count, indices, **attrs)


@constructs("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(
    boxes: ir.Expr,
    scores: ir.Expr,
    max_output_boxes_per_class: Number = -1,
    iou_threshold: Number = -1.0,
    score_threshold: Number = -1.0,
    output_format: str = "onnx",
) -> Any:
    """Suppress boxes ``(batch, n, 4)`` by scores ``(batch, classes, n)``: rows (image, class, box), and how many."""
    limits = ((max_output_boxes_per_class, "int64"), (iou_threshold, "float32"), (score_threshold, "float32"))
    tensors = [as_expr(v) if isinstance(v, ir.Expr) else const(v, dtype) for v, dtype in limits]
    return call("vision.all_class_non_max_suppression", boxes, scores, *tensors, output_format=output_format)


__getattr__, __dir__ = namespace("vision.")
