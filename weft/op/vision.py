"""Detection: pooling of regions, decoding of boxes, suppression of those that overlap others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.op.attributes import flag, integer, number, numbers, sizes, word
from weft.op.infer import tensor_arg
from weft.op.registry import declare, make_call
from weft.op.relations import demand_at_least, demand_at_most, demand_equal, demand_indices, demand_same_shape
from weft.op.sort import sortable
from weft.spelling import also_called
from weft.topi import vision
from weft.topi.precision import in_float32

# --- regions ----------------------------------------------------------------------------------------------------------


def _regions_infer(op: str, data: ir.Expr, rois: ir.Expr, pooled_size: Any, layout: str) -> ir.TensorType:
    ty, regions = tensor_arg(op, "data", data, ndim=4, kind="float"), tensor_arg(op, "rois", rois, ndim=2, kind="float")
    if regions.shape is None or ty.shape is None:
        return ir.TensorType(None, ty.dtype, 4)
    demand_equal(f"{op}: numbers of a region", regions.shape[1], 5, rois.span)
    batch, *sizes = ty.shape[:1] + (ty.shape[2:] if layout == "NCHW" else ty.shape[1:3])
    for size in sizes:
        demand_at_least(f"{op}: height and width of an image", size, 1, data.span)
    images = make_call("strided_slice")(rois, axes=(1,), begin=(0,), end=(1,), strides=(1,))
    nowhere = ir.constant(np.array(-1).astype(ir.numpy_dtype(str(regions.dtype))))
    known = make_call("where")(make_call("equal")(images, images), images, nowhere)  # what is no number is no image
    demand_indices(f"{op}: a region's image", make_call("astype")(known, dtype="int64"), 0, batch, rois.span)
    pooled = ir.as_shape(pooled_size)
    dims = (ty.shape[1], *pooled) if layout == "NCHW" else (*pooled, ty.shape[3])
    return ir.TensorType((regions.shape[0], *dims), ty.dtype, 4)


def roi_align(
    data: np.ndarray,
    rois: np.ndarray,
    pooled_size: int | Sequence[int],
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Any:
    """Pool samples between the pixels of regions, as :func:`weft.topi.vision.roi_align` says, in NumPy."""
    image = data if layout == "NCHW" else data.transpose(0, 3, 1, 2)
    _, channels, height, width = image.shape
    pooled = np.broadcast_to(pooled_size, 2)
    out = np.zeros((len(rois), channels, *pooled), data.dtype)
    for r, (batch, *corners) in enumerate(rois):
        x0, y0, x1, y1 = (np.asarray(corners) * spatial_scale).astype(rois.dtype)
        if not all(abs(e) < vision.WIDEST for e in (x0, y0, x1 - x0, y1 - y0)):
            out[r] = np.nan
            continue
        extents = [y1 - y0, x1 - x0] if aligned else [max(y1 - y0, 1), max(x1 - x0, 1)]
        steps = [e / p for e, p in zip(extents, pooled, strict=True)]
        counts = [max(sample_ratio if sample_ratio > 0 else math.ceil(s), 0) for s in steps]
        for at in np.ndindex(*pooled):
            places = [
                low + (a + (np.arange(c) + 0.5) / c) * step
                for low, a, c, step in zip((y0, x0), at, counts, steps, strict=True)
            ]
            inside = [p[(p >= -1) & (p <= size)] for p, size in zip(places, (height, width), strict=True)]
            join = np.maximum if mode == "max_corner" else np.add
            found = [_bilinear(image[int(batch)], y, x, height, width, join) for y in inside[0] for x in inside[1]]
            if len(found) < math.prod(counts):
                found.append(np.zeros(channels, image.dtype))
            if found and mode == "avg":
                out[(r, slice(None), *at)] = np.sum(found, 0) / math.prod(counts)
            elif found:
                out[(r, slice(None), *at)] = np.max(found, 0)
    return out if layout == "NCHW" else out.transpose(0, 2, 3, 1)


def _bilinear(image: Any, y: float, x: float, height: int, width: int, join: np.ufunc) -> Any:
    ends = itertools.product(_line(y, height), _line(x, width))
    return join.reduce([image[:, place, column] * down * right for (place, down), (column, right) in ends])


def _line(place: float, size: int) -> list[tuple[int, float]]:
    at = min(max(place, 0), size - 1)
    below = math.floor(at)
    return [(below, 1 - at + below), (min(below + 1, size - 1), at - below)]


@also_called(a_np="data", rois_np="rois")
def roi_pool(data: np.ndarray, rois: np.ndarray, pooled_size: int | Sequence[int], spatial_scale: float) -> Any:
    """Take the greatest pixels of parts of regions, as :func:`weft.topi.vision.roi_pool` says, in NumPy."""
    pooled = np.broadcast_to(pooled_size, 2)
    out = np.zeros((len(rois), data.shape[1], *pooled), data.dtype)
    for r, (batch, *corners) in enumerate(rois):
        ends = (np.asarray(corners) * spatial_scale).astype(rois.dtype)
        ends = np.trunc(ends + np.copysign(rois.dtype.type(0.5), ends))
        if not (np.abs(ends) < vision.WIDEST).all():
            out[r] = np.nan
            continue
        x0, y0, x1, y1 = ends.astype(int)
        for at in np.ndindex(*pooled):
            spans = []
            for low, high, size, count, a in zip((y0, x0), (y1, x1), data.shape[2:], pooled, at, strict=True):
                step = np.asarray(max(high - low + 1, 1) / count, rois.dtype)
                ends = (math.floor(a * step) + low, math.ceil((a + 1) * step) + low)
                spans.append(slice(*(min(max(e, 0), size) for e in ends)))
            part = data[(int(batch), slice(None), *spans)]
            if part.size:
                out[(r, slice(None), *at)] = part.max((1, 2))
    return out


declare(
    "vision.roi_align",
    "data rois",
    {
        "pooled_size": sizes(1, 2),
        "spatial_scale": number(1.0),
        "sample_ratio": integer(-1),
        "aligned": flag(False),
        "layout": word("NCHW", "NCHW", "NHWC"),
        "mode": word("avg", "avg", "max", "max_corner"),
    },
    infer=lambda data, rois, pooled_size, layout: _regions_infer("vision.roi_align", data, rois, pooled_size, layout),
    lower=in_float32(vision.roi_align),
    reference=roi_align,
    rtol=1e-4,
    doc="The mean or the greatest of samples of each part of regions, read between pixels.",
)

declare(
    "vision.roi_pool",
    "data rois",
    {"pooled_size": sizes(1, 2), "spatial_scale": number(1.0), "layout": word("NCHW", "NCHW")},
    infer=lambda data, rois, pooled_size, layout: _regions_infer("vision.roi_pool", data, rois, pooled_size, layout),
    lower=lambda data, rois, pooled_size, spatial_scale: vision.roi_pool(data, rois, pooled_size, spatial_scale),
    reference=roi_pool,
    doc="The greatest pixel of each part of regions whose corners are rounded to pixels.",
)


# --- suppression ------------------------------------------------------------------------------------------------------


def _demand_number(op: str, what: str, at: int, ty: ir.TensorType, where: Any, count: int = 1) -> None:
    """Demand that a box has numbers at an index that may be -1 for nowhere."""
    if ty.shape is not None:
        demand_at_most(f"{op}: {what}", at + count, ty.shape[2], where, "InvalidArgument")


def _counts_infer(data: ir.Expr, id_index: int, score_index: int) -> ir.TupleType:
    op = "vision.get_valid_counts"
    ty = tensor_arg(op, "data", data, ndim=3, kind="float")
    for what, at in (("id_index", id_index), ("score_index", score_index)):
        _demand_number(op, what, at, ty, data.span)
    dims = ty.shape
    counts = ir.TensorType(None if dims is None else dims[:1], "int32", 1)
    return ir.TupleType((counts, ty, ir.TensorType(None if dims is None else dims[:2], "int32", 2)))


def get_valid_counts(data: np.ndarray, score_threshold: float = 0, id_index: int = 0, score_index: int = 1) -> Any:
    """Move boxes with a score to the front, as :func:`weft.topi.vision.get_valid_counts` says, in NumPy."""
    good = data[..., score_index] > score_threshold
    if id_index >= 0:
        good &= data[..., id_index] >= 0
    moved, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    for b, row in enumerate(good):
        (kept,) = row.nonzero()
        moved[b, : len(kept)], places[b, : len(kept)] = data[b, kept], kept
    return good.sum(1).astype(np.int32), moved, places


declare(
    "vision.get_valid_counts",
    "data",
    {"score_threshold": number(0.0), "id_index": integer(0, at_least=-1), "score_index": integer(1, at_least=0)},
    infer=_counts_infer,
    lower=vision.get_valid_counts,
    reference=get_valid_counts,
    doc="How many boxes have a score above a threshold; these, moved to the front; where each was.",
)


def _suppression_infer(
    data: ir.Expr,
    valid_count: ir.Expr,
    indices: ir.Expr,
    coord_start: int,
    score_index: int,
    id_index: int,
    return_indices: bool,
    soft_nms_sigma: float,
) -> Any:
    op = "vision.non_max_suppression"
    ty = tensor_arg(op, "data", data, ndim=3, kind="float")
    counts = tensor_arg(op, "valid_count", valid_count, ndim=1, dtype="int32")
    places = tensor_arg(op, "indices", indices, ndim=2, dtype="int32")
    for what, at, count in (
        ("id_index", id_index, 1),
        ("score_index", score_index, 1),
        ("coord_start", coord_start, 4),
    ):
        _demand_number(op, what, at, ty, data.span, count)
    listed, many = ir.TensorType(None, "int32", 2), ir.TensorType(None, "int32", 2)
    if ty.shape is not None:
        demand_same_shape(f"{op}: 'valid_count'", counts.shape, ty.shape[:1], valid_count.span)
        demand_same_shape(f"{op}: 'indices'", places.shape, ty.shape[:2], indices.span)
        listed = ir.TensorType(ty.shape[:2], "int32", 2)
        many = ir.TensorType((ty.shape[0], ir.int64(1)), "int32", 2)
    if not return_indices:
        return ty
    return ir.TupleType((ty, listed, many) if soft_nms_sigma > 0 else (listed, many))


def non_max_suppression(
    data: np.ndarray,
    valid_count: np.ndarray,
    indices: np.ndarray,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> Any:
    """Choose boxes, as :func:`weft.topi.vision.non_max_suppression` says, in NumPy."""
    soft, least = soft_nms_sigma > 0, score_threshold if soft_nms_sigma > 0 else 0.0
    boxes, listed = np.full_like(data, -1), np.full(indices.shape, -1, np.int32)
    many = np.zeros((len(data), 1), np.int32)
    for b in range(len(data)):
        valid = max(int(valid_count[b]), 0)
        looked = min(valid, data.shape[1], *([top_k] if top_k > 0 else []))
        order = np.argsort(-sortable(data[b, :valid, score_index]), kind="stable")[:looked]
        rest, kept = [(i, data[b, i].copy()) for i in order], []
        while rest:
            turn = int(np.argmax([box[score_index] for _, box in rest])) if soft else 0
            i, box = rest.pop(turn)
            if not box[score_index] > least or 0 < max_output_size <= len(kept):
                continue
            kept.append((len(kept) if soft or invalid_to_bottom else list(order).index(i), i, box))
            left = []
            for j, other in rest:
                share = _share(box[coord_start:][:4], other[coord_start:][:4])
                together = force_suppress or id_index < 0 or box[id_index] == other[id_index]
                if soft and together and share < iou_threshold:
                    other[score_index] *= np.exp(-0.5 / soft_nms_sigma * share * share)
                if not (together and share >= iou_threshold):
                    left.append((j, other))
            rest = left
        for n, (row, i, box) in enumerate(kept):
            boxes[b, n if return_indices else row], listed[b, n] = box, indices[b, i]
        many[b] = len(kept)
    if not return_indices:
        return boxes
    return (boxes, listed, many) if soft else (listed, many)


def _share(a: Any, b: Any) -> Any:
    """Return the intersection's share of the union of two boxes."""
    (a, b) = (np.array([np.minimum(x[:2], x[2:]), np.maximum(x[:2], x[2:])]) for x in (a, b))
    shared = np.prod(np.maximum(np.minimum(a[1], b[1]) - np.maximum(a[0], b[0]), 0))
    union = np.prod(a[1] - a[0]) + np.prod(b[1] - b[0]) - shared
    return shared / union if union > 0 else union * 0


declare(
    "vision.non_max_suppression",
    "data valid_count indices",
    {
        "max_output_size": integer(-1),
        "iou_threshold": number(0.5),
        "force_suppress": flag(False),
        "top_k": integer(-1),
        "coord_start": integer(2, at_least=0),
        "score_index": integer(1, at_least=0),
        "id_index": integer(0, at_least=-1),
        "return_indices": flag(True),
        "invalid_to_bottom": flag(False),
        "soft_nms_sigma": number(0.0),
        "score_threshold": number(0.0),
    },
    infer=_suppression_infer,
    lower=in_float32(vision.non_max_suppression),
    reference=non_max_suppression,
    rtol=1e-4,
    doc="Of boxes that overlap, the one with the greatest score; lower scores of the others where a sigma is given.",
)

_LIMITS = "boxes scores max_output_boxes_per_class iou_threshold score_threshold"
_FORMAT = {"output_format": word("onnx", "onnx", "tensorflow")}


def _classes_infer(op: str, boxes: ir.Expr, scores: ir.Expr, *limits: ir.Expr, output_format: str) -> ir.TupleType:
    ty, found = (tensor_arg(op, n, x, ndim=3, kind="float") for n, x in (("boxes", boxes), ("scores", scores)))
    for name, x in zip(_LIMITS.split()[2:], limits, strict=True):
        tensor_arg(op, name, x)
    kinds = [("int64", 2), ("int64", 1)] if output_format == "onnx" else [("int64", 3), (found.dtype, 2), ("int64", 1)]
    if ty.shape is None or found.shape is None:
        return ir.TupleType(tuple(ir.TensorType(None, d, n) for d, n in kinds))
    batch, classes, n = found.shape
    demand_equal(f"{op}: numbers of a box", ty.shape[2], 4, boxes.span)
    demand_same_shape(f"{op}: 'boxes'", ty.shape[:2], (batch, n), boxes.span)
    shapes: list[Any] = [(batch * classes * n, 3), (1,)]
    if output_format == "tensorflow":
        shapes = [(batch, classes * n, 2), (batch, classes * n), (batch,)]
    return ir.TupleType(tuple(ir.tensor_type(s, d, ndim=k) for s, (d, k) in zip(shapes, kinds, strict=True)))


def _trimmed(*args: ir.Expr, output_format: str) -> ir.Expr | None:
    """Make the rows that are valid, whose number only the data say."""
    whole = make_call("vision.class_boxes")(*args, output_format=output_format)
    if output_format == "tensorflow":
        return whole
    count = ir.TupleGetItem(whole, 1)
    ends = make_call("concat")(ir.Tuple((count, _integers(3))), axis=0)
    bounds = (_integers(0, 0), ends, _integers(1, 1))
    rows = ir.Call(ir.Op.get("relax.dynamic_strided_slice"), (ir.TupleGetItem(whole, 0), *bounds))
    return ir.Tuple((rows, count))


def _integers(*values: int) -> ir.Constant:
    return ir.constant(np.array(values, np.int64))


def _classes_ref(
    boxes: Any, scores: Any, most: Any, share: Any, least: Any, output_format: str, trimmed: bool = False
) -> Any:
    batch, classes, n = scores.shape
    places = np.zeros((batch, classes * n, 2), np.int64)
    values, counts, rows = np.zeros((batch, classes * n), scores.dtype), np.zeros(batch, np.int64), []
    for b, c in np.ndindex(batch, classes):
        kept: list[int] = []
        for i in np.argsort(-sortable(scores[b, c]), kind="stable"):
            clash = any(_share(boxes[b, i], boxes[b, k]) > np.ravel(share)[0] for k in kept)
            if scores[b, c, i] > np.ravel(least)[0] and len(kept) < np.ravel(most)[0] and not clash:
                kept.append(i)
        for i in kept:
            places[b, counts[b]], values[b, counts[b]] = (c, i), scores[b, c, i]
            counts[b] += 1
            rows.append((b, c, i))
    if output_format == "tensorflow":
        return places, values, counts
    if trimmed:
        return np.reshape(rows, (-1, 3)).astype(np.int64), np.array([len(rows)], np.int64)
    padded = np.zeros((batch * classes * n, 3), np.int64)
    padded[: len(rows)] = np.reshape(rows, (-1, 3))
    return padded, np.array([len(rows)], np.int64)


declare(
    "vision.class_boxes",
    _LIMITS,
    _FORMAT,
    infer=lambda *args, output_format: _classes_infer("vision.class_boxes", *args, output_format=output_format),
    lower=in_float32(vision.all_class_non_max_suppression),
    reference=_classes_ref,
    doc="Suppression in each class by itself; rows behind the valid ones are 0.",
)

declare(
    "vision.all_class_non_max_suppression",
    _LIMITS,
    _FORMAT,
    infer=lambda *args, output_format: _classes_infer(
        "vision.all_class_non_max_suppression", *args, output_format=output_format
    ),
    lower=None,
    decompose=_trimmed,
    reference=lambda a, b, c, d, e, output_format: _classes_ref(a, b, c, d, e, output_format, trimmed=True),
    doc="Suppression in each class by itself: the rows (image, class, box) that are chosen, and how many.",
)


# --- anchors ----------------------------------------------------------------------------------------------------------


def _multibox_infer(cls_pred: ir.Expr, loc_pred: ir.Expr, anchor: ir.Expr) -> ir.TupleType:
    op = "vision.multibox_transform_loc"
    ty = tensor_arg(op, "cls_pred", cls_pred, ndim=3, kind="float")
    loc = tensor_arg(op, "loc_pred", loc_pred, ndim=2, dtype=ty.dtype)
    anchors = tensor_arg(op, "anchor", anchor, ndim=3, dtype=ty.dtype)
    if ty.shape is None:
        return ir.TupleType((ir.TensorType(None, ty.dtype, 3), ty))
    batch, classes, n = ty.shape
    demand_at_least(f"{op}: classes", classes, 1, cls_pred.span)
    demand_same_shape(f"{op}: 'loc_pred'", loc.shape, (batch, n * 4), loc_pred.span)
    demand_same_shape(f"{op}: 'anchor'", anchors.shape, ir.as_shape((1, n, 4)), anchor.span)
    return ir.TupleType((ir.TensorType((batch, n, ir.int64(4)), ty.dtype, 3), ty))


def _multibox_ref(
    cls_pred: Any, loc_pred: Any, anchor: Any, clip: bool, threshold: float, variances: Any, keep_background: bool
) -> Any:
    e = np.exp(cls_pred - cls_pred.max(1, keepdims=True))
    scores = e / e.sum(1, keepdims=True)
    scores = np.where(scores >= threshold, scores, 0).astype(cls_pred.dtype)
    scores[:, :1] *= keep_background
    shift, grow = np.split(
        loc_pred.reshape(len(loc_pred), loc_pred.shape[1] // 4, 4) * np.asarray(variances, loc_pred.dtype), 2, -1
    )
    low, high = np.split(anchor, 2, -1)
    middle, reach = shift * (high - low) + (low + high) / 2, np.exp(grow) * (high - low) / 2
    boxes = np.concatenate([(middle - reach)[..., ::-1], (middle + reach)[..., ::-1]], -1)
    return (np.clip(boxes, 0, 1) if clip else boxes).astype(cls_pred.dtype), scores


declare(
    "vision.multibox_transform_loc",
    "cls_pred loc_pred anchor",
    {"clip": flag(False), "threshold": number(0.0), "variances": numbers((1.0,) * 4, 4), "keep_background": flag(True)},
    infer=_multibox_infer,
    lower=in_float32(vision.multibox_transform_loc),
    reference=_multibox_ref,
    rtol=1e-4,
    doc="Boxes from anchors and what was predicted for them, and the probabilities of classes.",
)
