"""Non-maximum suppression."""

from typing import Any

import numpy as np

from weft.ir import DataType, Expr, TensorType
from weft.op.attributes import flag
from weft.op.infer import tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_equal, demand_indices, demand_same_shape
from weft.topi.nms import suppressed
from weft.topi.precision import in_float32

_NAME = "vision.suppressed"


def _infer(boxes: Expr, scores: Expr, order: Expr, limit: Expr, overlap: Expr, least: Expr) -> TensorType:
    ty = tensor_arg(_NAME, "boxes", boxes, ndim=3, kind="float")
    for name, x in (("limit", limit), ("overlap", overlap), ("least", least)):
        demand_same_shape(f"{_NAME}: '{name}'", tensor_arg(_NAME, name, x, ndim=1).shape, (1,), boxes.span)
    places = tensor_arg(_NAME, "order", order, ndim=3, kind="integer")
    found = tensor_arg(_NAME, "scores", scores, ndim=3, kind="float")
    if ty.shape is not None:
        demand_equal(f"{_NAME}: numbers of a box", ty.shape[2], 4, boxes.span)
        demand_indices(f"{_NAME}: 'order'", order, 0, ty.shape[1], boxes.span)
    if ty.shape is not None and found.shape is not None:
        demand_equal(f"{_NAME}: batch of 'scores'", found.shape[0], ty.shape[0], boxes.span)
        demand_equal(f"{_NAME}: boxes of 'scores'", found.shape[2], ty.shape[1], boxes.span)
    demand_same_shape(f"{_NAME}: 'order'", places.shape, found.shape, boxes.span)
    return TensorType(found.shape, DataType("int64"), 3)


def _ref(boxes: Any, scores: Any, order: Any, limit: Any, overlap: Any, least: Any, center: bool) -> Any:
    low, high = (boxes[..., :2], boxes[..., 2:])
    if center:
        low, high = low - high * 0.5, low + high * 0.5
    low, high = np.minimum(low, high), np.maximum(low, high)
    out = np.full(scores.shape, -1, np.int64)
    for b, c in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for i in order[b, c]:
            if scores[b, c, i] > least[0] and len(kept) < limit[0]:
                sides = np.minimum(high[b, i], high[b, kept]) - np.maximum(low[b, i], low[b, kept])
                shared = np.prod(np.maximum(sides, 0), -1)
                areas = np.prod(high[b] - low[b], -1)
                union = np.where(shared > 0, areas[i] + areas[kept] - shared, 1)
                if not (shared / union > overlap[0]).any():
                    kept.append(int(i))
        out[b, c, : len(kept)] = kept
    return out


declare(
    _NAME,
    "boxes scores order limit overlap least",
    {"center": flag(False)},
    infer=_infer,
    lower=in_float32(suppressed),
    reference=_ref,
    doc="The boxes of each class that overlap none with a greater score too much, in order, then -1.",
)
