"""Detection: pooling of regions, decoding of boxes, and which boxes stay, in the conventions of TVM's operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, as_expr, cast, const, int64, logical_and, select
from weft.spelling import named
from weft.te import Tensor
from weft.topi.conv import pair
from weft.topi.index import clamped
from weft.topi.manipulate import transpose
from weft.topi.nms import suppressed
from weft.topi.norm import softmax
from weft.topi.shape import simplify
from weft.topi.sort import argsort
from weft.topi.typing import Buffers, Extents, IRBuilder, Operand, Shape
from weft.topi.written import written

__all__ = [
    "all_class_non_max_suppression",
    "get_valid_counts",
    "multibox_transform_loc",
    "non_max_suppression",
    "roi_align",
    "roi_align_nchw",
    "roi_align_nhwc",
    "roi_pool",
    "roi_pool_nchw",
]

WIDEST = float(1 << 20)
"""Pixels that a corner of a region may be away from the origin, and another corner."""


def roi_align(
    data: Tensor,
    rois: Tensor,
    pooled_size: Extents,
    spatial_scale: float,
    mode: str = "avg",
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    sensitive: bool = False,
) -> Any:
    """The mean or the greatest of samples of each part of regions, read between pixels.

    Parameters
    ----------
    data : Tensor
        (batch, channels, height, width), or with channels last, as `layout` says.
    rois : Tensor
        (regions, 5): the image's number, then x and y of two corners, which are multiplied by `spatial_scale`.
    pooled_size : int or pair of int
    mode : str
        ``avg``, ``max``, or ``max_corner``: the greatest of the weighted pixels around samples, as ONNX has it.
    sample_ratio : int
        Samples of a part along each axis; as many as it has pixels, rounded up, if this is not positive.
    aligned : bool
        Whether regions may be less than a pixel wide.
    sensitive : bool
        Whether each part of a region has channels of its own: one in rows * columns of them, beginning with its number.

    Returns
    -------
    Tensor
        (regions, channels of a part, rows, columns) in `layout`; NaN for regions that are a million pixels away or
        wide, or are no numbers.
    """
    if layout == "NCHW":
        more = (rois, pooled_size, spatial_scale, mode, sample_ratio, aligned, "NHWC", sensitive)
        return transpose(roi_align(transpose(data, (0, 2, 3, 1)), *more), (0, 3, 1, 2))
    rows, columns = pair(pooled_size, 2)
    _, height, width, channels = data.shape
    regions, dtype, apart = rois.shape[0], rois.dtype, rows * columns if sensitive else 1
    channels = simplify(tir.floordiv(channels, apart))

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        image, roi, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, regions * rows * columns, kind="parallel") as part:
            r, at = tir.floordiv(part, rows * columns), tir.floormod(part, rows * columns)
            row, column = tir.floordiv(at, columns), tir.floormod(at, columns)
            batch = clamped(cast("int64", roi[r, 0]), data.shape[0])
            lows, steps, counts, spans, sound = [], [], [], [], const(True, "bool")
            for k, pooled, size, place in ((2, rows, height, row), (1, columns, width, column)):
                low = roi[r, k] * const(spatial_scale, dtype)
                extent = roi[r, k + 2] * const(spatial_scale, dtype) - low
                step = (extent if aligned else tir.max(extent, const(1, dtype))) / const(pooled, dtype)
                sound = tir.all(sound, *(tir.abs(number) < const(WIDEST, dtype) for number in (low, extent)))
                count = int64(sample_ratio) if sample_ratio > 0 else cast("int64", tir.ceil(step))
                count = select(sound, count, int64(0))
                lows, steps, counts = [*lows, low], [*steps, step], [*counts, count]
                spans.append(_samples_inside(low + cast(dtype, place) * step, step, count, size, dtype))
            least = const(0, data.dtype)
            if mode != "avg":  # samples outside of the image are zero
                left_out = [tir.any(begin > 0, end < n, n < 1) for (begin, end), n in zip(spans, counts, strict=True)]
                least = select(tir.any(*left_out), least, const(-math.inf, data.dtype))
            least = ib.let("least", select(sound, least, const(math.nan, data.dtype)))  # an unsound one has no samples
            with ib.for_range(0, channels) as c:
                out[r, row, column, c] = least
            with ib.for_range(*spans[0]) as i, ib.for_range(*spans[1]) as j:
                ends = []
                for axis, (sample, size, place) in enumerate(((i, height, row), (j, width, column))):
                    share = (cast(dtype, sample) + const(0.5, dtype)) / cast(dtype, counts[axis])
                    ends.append(_ends(lows[axis] + (cast(dtype, place) + share) * steps[axis], size, dtype))
                inside = logical_and(ends[0][0][2], ends[1][0][2])
                corners = [(y, x, down * right) for y, down, _ in ends[0] for x, right, _ in ends[1]]
                with ib.if_scope(inside), ib.for_range(0, channels) as c:
                    own = c * apart + at if sensitive else c
                    terms = [image[batch, y, x, own].astype(dtype) * weight for y, x, weight in corners]
                    value = functools.reduce(tir.max, terms) if mode == "max_corner" else sum(terms, const(0, dtype))
                    value, total = value.astype(data.dtype), out[r, row, column, c]
                    out[r, row, column, c] = total + value if mode == "avg" else tir.max(total, value)
                if mode != "avg":
                    with ib.else_scope(), ib.for_range(0, channels) as c:
                        out[r, row, column, c] = tir.max(out[r, row, column, c], const(0, data.dtype))
            if mode == "avg":
                samples = ib.let("samples", cast(data.dtype, tir.max(counts[0] * counts[1], int64(1))))
                with ib.for_range(0, channels) as c:
                    out[r, row, column, c] = out[r, row, column, c] / samples

    shape = (regions, rows, columns, channels)
    return written(shape, [data, rois], body, name="roi_align", dtype=data.dtype)


def _samples_inside(start: Any, step: Any, count: Any, size: Any, dtype: str) -> tuple[Any, Any]:
    """Return the first sample of a part that may be in the image, and the one behind the last.

    Regions may be huge, and their corners in either order.
    """
    wide = cast(dtype, count)
    apart = step / tir.max(wide, const(1, dtype))
    edges = (const(-1, dtype) - start) / apart, (cast(dtype, size) - start) / apart
    begin = tir.floor(tir.min(*edges) - const(1, dtype))
    end = tir.ceil(tir.max(*edges) + const(1, dtype))
    inside = [tir.min(tir.max(e, const(0, dtype)), wide) for e in (begin, end)]
    return tuple(tir.min(tir.max(cast("int64", e), int64(0)), count) for e in inside)  # type: ignore[return-value]


def _ends(place: Any, size: Any, dtype: str) -> list[tuple[Any, Any, Any]]:
    """Return the two pixels around a place of an axis, the weight of each, and whether the place is in the image."""
    last = cast(dtype, size - 1)
    at = tir.min(tir.max(place, const(0, dtype)), last)
    below, inside = tir.floor(at), logical_and(place >= const(-1, dtype), place <= cast(dtype, size))
    far = at - below
    above = tir.min(below + const(1, dtype), last)
    return [(cast("int64", below), const(1, dtype) - far, inside), (cast("int64", above), far, inside)]


def _align_in(layout: str) -> Callable[..., Any]:
    def align(
        data: Tensor,
        rois: Tensor,
        pooled_size: Extents,
        spatial_scale: float,
        mode: str,
        sample_ratio: int = -1,
        aligned: bool = False,
    ) -> Any:
        spelled = str({0: "avg", 1: "max", b"avg": "avg", b"max": "max"}.get(mode, mode))  # type: ignore[call-overload]
        return roi_align(data, rois, pooled_size, spatial_scale, spelled, sample_ratio, aligned, layout)

    return named(align, f"roi_align_{layout.lower()}", f":func:`roi_align` of images in {layout}.")


def roi_pool(
    data: Tensor,
    rois: Tensor,
    pooled_size: Extents,
    spatial_scale: float,
    layout: str = "NCHW",
    sensitive: bool = False,
) -> Any:
    """The greatest pixel of each part of regions whose corners are rounded to pixels; 0 where a part has none.

    Parameters and result are those of :func:`roi_align`, channels first. Of a `sensitive` one it is the mean, regions
    end before their second corner, and the last row and column of an image belong to none.
    """
    rows, columns = pair(pooled_size, 2)
    _, channels, height, width = data.shape
    regions, dtype, apart = rois.shape[0], rois.dtype, rows * columns if sensitive else 1
    channels, last = simplify(tir.floordiv(channels, apart)), int(not sensitive)

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        image, roi, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, regions * rows * columns, kind="parallel") as part:
            r, at = tir.floordiv(part, rows * columns), tir.floormod(part, rows * columns)
            row, column = tir.floordiv(at, columns), tir.floormod(at, columns)
            spans, sound = [], const(True, "bool")
            for place, k, size, pooled in ((row, 2, height, rows), (column, 1, width, columns)):
                ends = (roi[r, e] * const(spatial_scale, dtype) for e in (k, k + 2))
                low, high = (tir.trunc(e + tir.copysign(const(0.5, dtype), e)) for e in ends)
                sound = tir.all(sound, *(tir.abs(number) < const(WIDEST, dtype) for number in (low, high)))
                step = tir.max(high - low + const(last, dtype), const(1, dtype)) / const(pooled, dtype)
                ends = tir.floor(cast(dtype, place) * step), tir.ceil(cast(dtype, place + 1) * step)
                end = size if last else size - 1
                spans.append([select(sound, _within(cast("int64", e + low), end), int64(0)) for e in ends])
            extents = [tir.max(end - begin, int64(0)) for begin, end in spans]
            area = ib.let("area", extents[0] * extents[1])
            least = select(area.equal(0), const(0, data.dtype), const(0 if sensitive else -math.inf, data.dtype))
            least = ib.let("least", select(sound, least, const(math.nan, data.dtype)))
            batch = clamped(cast("int64", roi[r, 0]), data.shape[0])
            with ib.for_range(0, channels) as c:
                out[r, row, column, c] = least
            with ib.for_range(*spans[0]) as y, ib.for_range(*spans[1]) as x, ib.for_range(0, channels) as c:
                found, pixel = out[r, row, column, c], image[batch, y, x, c * apart + at if sensitive else c]
                out[r, row, column, c] = found + pixel if sensitive else tir.max(found, pixel)
            if sensitive:
                with ib.for_range(0, channels) as c:
                    out[r, row, column, c] = out[r, row, column, c] / cast(data.dtype, tir.max(area, int64(1)))

    given = [transpose(data, (0, 2, 3, 1)), rois]
    found = written((regions, rows, columns, channels), given, body, name="roi_pool", dtype=data.dtype)
    return transpose(found, (0, 3, 1, 2))


def _within(place: Any, size: Any) -> Any:
    return tir.min(tir.max(place, int64(0)), cast("int64", size))


roi_pool_nchw = roi_pool
roi_align_nchw, roi_align_nhwc = map(_align_in, ("NCHW", "NHWC"))


def get_valid_counts(data: Tensor, score_threshold: Operand = 0, id_index: int = 0, score_index: int = 1) -> list[Any]:
    """The boxes with a greater score than a threshold and a class that is not negative, moved to the front.

    Parameters
    ----------
    data : Tensor
        (batch, boxes, numbers).
    score_threshold : float or Tensor
        Of one element.
    id_index : int
        Where the class stands among the numbers; -1 for nowhere.

    Returns
    -------
    list of Tensor
        How many (batch,) int32; the boxes, then rows of -1; where each was (batch, boxes) int32, then -1.
    """
    batch, boxes, numbers = data.shape
    given = [data, *([score_threshold] if isinstance(score_threshold, te.Tensor) else [])]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        source, *least = (ib.buffer_ptr(b) for b in ins)
        counts, moved, places = (ib.buffer_ptr(b) for b in outs)
        bound = least[0][0] if least else const(as_float(score_threshold), data.dtype)
        with ib.for_range(0, batch, kind="parallel") as b:
            count = ib.allocate("int32", (1,), name="count", scope="local")
            count[0] = const(0, "int32")
            with ib.for_range(0, boxes) as j:
                good = source[b, j, score_index] > bound
                if id_index >= 0:
                    good = logical_and(good, source[b, j, id_index] >= const(0, data.dtype))
                with ib.if_scope(good):
                    with ib.for_range(0, numbers) as k:
                        moved[b, count[0], k] = source[b, j, k]
                    places[b, count[0]] = cast("int32", j)
                    count[0] = count[0] + 1
            counts[b] = count[0]
            with ib.for_range(count[0], cast("int32", boxes)) as j:
                _fill(ib, moved, b, j, numbers, data.dtype)
                places[b, j] = const(-1, "int32")

    shapes = [(batch,), (batch, boxes, numbers), (batch, boxes)]
    return list(written(shapes, given, body, name="get_valid_counts", dtype=["int32", data.dtype, "int32"]))


def as_float(value: Any) -> float:
    """Return a number that may be a constant expression."""
    return float(getattr(value, "value", value))


def _fill(ib: IRBuilder, rows: Any, b: Any, j: Any, numbers: Any, dtype: str) -> None:
    with ib.for_range(0, numbers) as k:
        rows[b, j, k] = const(-1, dtype)


def non_max_suppression(
    data: Tensor,
    valid_count: Tensor,
    indices: Tensor,
    max_output_size: Operand = -1,
    iou_threshold: Operand = 0.5,
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
    """Of boxes that overlap by a share of their union or more, the one with the greatest score.

    Parameters
    ----------
    data : Tensor
        (batch, boxes, numbers): class, score, and two opposite corners, at `id_index`, `score_index`, `coord_start`.
    valid_count : Tensor
        (batch,) int32: only so many are looked at.
    indices : Tensor
        (batch, boxes) int32: where each box was before (:func:`get_valid_counts`).
    max_output_size, top_k : int
        So many boxes stay at most, and are looked at; not positive for all.
    force_suppress : bool
        Whether classes do not matter.
    soft_nms_sigma : float
        If positive, overlapping boxes lose score by ``exp(-iou**2 / (2 * sigma))`` instead of going, until it is not
        above `score_threshold`.

    Returns
    -------
    Tensor or list of Tensor
        With `return_indices`, where the boxes that stay were (batch, boxes) int32, then -1, and how many (batch, 1)
        int32; before them the boxes if scores were lowered. Else the boxes, -1 in the rows of those that went, which
        are moved to the end with `invalid_to_bottom`.
    """
    batch, boxes, numbers = data.shape
    soft = soft_nms_sigma > 0
    score = te.compute(
        (batch, boxes),
        lambda b, j: select(j < valid_count[b], data[b, j, score_index], tir.min_value(data.dtype)),
        name="scores",
    )
    given = [data, argsort(score, -1, False, "int32"), valid_count, indices]
    scalars = [x for x in (max_output_size, iou_threshold) if isinstance(x, te.Tensor)]
    same_class = None if force_suppress or id_index < 0 else id_index

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        source, order, valid, before, *rest = (ib.buffer_ptr(b) for b in ins)
        rows, places, kept, *_ = (ib.buffer_ptr(b) for b in outs)
        read = lambda x: rest[scalars.index(x)][0] if isinstance(x, te.Tensor) else x  # noqa: E731
        most = cast("int32", as_expr(read(max_output_size)))
        share = cast(data.dtype, as_expr(read(iou_threshold)))
        with ib.for_range(0, batch, kind="parallel") as b:
            looked = tir.min(valid[b], cast("int32", boxes))
            looked = tir.min(looked, const(top_k, "int32")) if top_k > 0 else looked
            with ib.for_range(0, cast("int32", boxes)) as j:
                with ib.if_scope(j < looked):
                    with ib.for_range(0, numbers) as k:
                        rows[b, j, k] = source[b, order[b, j], k]
                    places[b, j] = order[b, j]
                with ib.else_scope():
                    _fill(ib, rows, b, j, numbers, data.dtype)
                    places[b, j] = const(-1, "int32")
            line = _Line(ib, rows, places, b, numbers, (score_index, coord_start, same_class), looked)
            line.choose(most, share, soft_nms_sigma, score_threshold if soft else 0.0)
            with ib.for_range(0, cast("int32", boxes)) as j, ib.if_scope(places[b, j] < 0):
                _fill(ib, rows, b, j, numbers, data.dtype)
            if return_indices or invalid_to_bottom:
                line.compact(cast("int32", boxes), before if return_indices else None)
            kept[b, 0] = line.count[0]

    shapes = [data.shape, (batch, boxes), (batch, 1)]
    dtypes = [data.dtype, "int32", "int32"]
    out = list(written(shapes, [*given, *scalars], body, name="non_max_suppression", dtype=dtypes))
    if not return_indices:
        return out[0]
    return out if soft else out[1:]


class _Line:
    """The boxes of one image by falling scores, and which of them are still in (`places` that are not negative)."""

    def __init__(self, ib: IRBuilder, rows: Any, places: Any, b: Any, numbers: Any, at: Any, looked: Any) -> None:
        self.ib, self.rows, self.places, self.b, self.numbers, self.looked = ib, rows, places, b, numbers, looked
        self.score_at, self.corner_at, self.class_at = at
        self.count = ib.allocate("int32", (1,), name="count", scope="local")
        self.dtype = rows.asobject().dtype

    def score(self, j: PrimExpr) -> Any:
        return self.rows[self.b, j, self.score_at]

    def choose(self, most: Any, share: Any, sigma: float, least: float) -> None:
        """Keep boxes one after the other, and put out those that each overlaps."""
        ib, bound = self.ib, const(least, self.dtype)
        self.count[0] = const(0, "int32")
        with ib.for_range(0, self.looked) as turn:
            room = tir.any(most <= 0, self.count[0] < most)
            best = ib.allocate("int32", (1,), name="best", scope="local") if sigma > 0 else None
            if best is not None:  # lowered scores change the order, so the best of the rest is looked for
                best[0] = const(-1, "int32")
                with ib.for_range(turn, self.looked) as j:
                    better = tir.any(best[0] < 0, self.score(j) > self.score(tir.max(best[0], const(0, "int32"))))
                    with ib.if_scope(tir.all(self.places[self.b, j] >= 0, self.score(j) > bound, better)):
                        best[0] = j
                found = tir.all(room, best[0] >= 0)
            else:
                found = tir.all(room, self.places[self.b, turn] >= 0, self.score(turn) > bound)
            with ib.if_scope(found):
                if best is not None:
                    self.swap(turn, best[0])
                self.count[0] = self.count[0] + 1
                with ib.for_range(turn + 1, self.looked) as j:
                    self.put_out(turn, j, share, sigma, bound)
            with ib.else_scope():
                self.places[self.b, turn] = const(-1, "int32")

    def swap(self, i: PrimExpr, j: PrimExpr) -> None:
        held = self.ib.allocate(self.dtype, (1,), name="held", scope="local")
        with self.ib.for_range(0, self.numbers) as k:
            held[0] = self.rows[self.b, i, k]
            self.rows[self.b, i, k] = self.rows[self.b, j, k]
            self.rows[self.b, j, k] = held[0]
        place = self.ib.allocate("int32", (1,), name="place", scope="local")
        place[0] = self.places[self.b, i]
        self.places[self.b, i] = self.places[self.b, j]
        self.places[self.b, j] = place[0]

    def put_out(self, i: PrimExpr, j: PrimExpr, share: Any, sigma: float, bound: Any) -> None:
        """Put out a later box that overlaps the kept one, or lower its score."""
        ib, b, c = self.ib, self.b, self.class_at
        together = True if c is None else self.rows[b, i, c].equal(self.rows[b, j, c])
        with ib.if_scope(tir.all(self.places[b, j] >= 0, together)):
            overlap = ib.allocate(self.dtype, (1,), name="overlap", scope="local")
            overlap[0] = self.overlap(i, j)
            with ib.if_scope(overlap[0] >= share):
                self.places[b, j] = const(-1, "int32")
            if sigma > 0:
                with ib.else_scope():
                    scale = const(-0.5 / sigma, self.dtype)
                    self.rows[b, j, self.score_at] = self.score(j) * tir.exp(scale * overlap[0] * overlap[0])
                    with ib.if_scope(self.score(j) <= bound):
                        self.places[b, j] = const(-1, "int32")

    def overlap(self, i: PrimExpr, j: PrimExpr) -> Any:
        """Return the intersection's share of the union; 0 where there is no union."""
        zero = const(0, self.dtype)
        shared, areas = None, [const(1, self.dtype)] * 2
        for axis in (0, 1):
            ends = []
            for box, r in enumerate((i, j)):
                p, q = (self.rows[self.b, r, self.corner_at + axis + d] for d in (0, 2))
                ends.append((tir.min(p, q), tir.max(p, q)))
                areas[box] = areas[box] * (ends[box][1] - ends[box][0])
            side = tir.max(tir.min(ends[0][1], ends[1][1]) - tir.max(ends[0][0], ends[1][0]), zero)
            shared = side if shared is None else shared * side
        union = areas[0] + areas[1] - shared
        return tir.Select(union <= zero, zero, shared / union)

    def compact(self, boxes: Any, before: Any) -> None:
        """Move what is left to the front, as places before the boxes were filtered if `before` says them."""
        ib, b = self.ib, self.b
        self.count[0] = const(0, "int32")
        with ib.for_range(0, boxes) as j, ib.if_scope(self.places[b, j] >= 0):
            with ib.for_range(0, self.numbers) as k:
                self.rows[b, self.count[0], k] = self.rows[b, j, k]
            self.places[b, self.count[0]] = self.places[b, j] if before is None else before[b, self.places[b, j]]
            self.count[0] = self.count[0] + 1
        with ib.for_range(self.count[0], boxes) as j:
            _fill(ib, self.rows, b, j, self.numbers, self.dtype)
            self.places[b, j] = const(-1, "int32")


def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Operand,
    iou_threshold: Operand,
    score_threshold: Operand,
    output_format: str = "onnx",
    output_shape: Shape | None = None,
) -> list[Any]:
    """Suppression in each class by itself, of the boxes that all classes share.

    Parameters
    ----------
    boxes : Tensor
        (batch, n, 4): two opposite corners.
    scores : Tensor
        (batch, classes, n).
    max_output_boxes_per_class, iou_threshold, score_threshold : number or Tensor
        Of one element.

    Returns
    -------
    list of Tensor
        ``"onnx"``: (batch * classes * n, 3) int64, of which the rows (image, class, box) of chosen boxes come first,
        and how many (1,). ``"tensorflow"``: (batch, classes * n, 2) int64 of (class, box), their scores, and how many
        of them are valid (batch,).
    """
    batch, classes, n = scores.shape
    dtypes = ("int64", boxes.dtype, scores.dtype)
    limits = [
        _single(x, d) for x, d in zip((max_output_boxes_per_class, iou_threshold, score_threshold), dtypes, strict=True)
    ]
    kept = suppressed(boxes, scores, argsort(scores, -1, False, "int64"), *limits)
    onnx = output_format == "onnx"

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        chosen, found = (ib.buffer_ptr(b) for b in ins)
        places, *values, counts = (ib.buffer_ptr(b) for b in outs)
        count = ib.allocate("int64", (1,), name="count", scope="local")
        count[0] = int64(0)
        rows, width = (listed[0], 3) if onnx else (listed[1], 2)
        with ib.for_range(0, 1 if onnx else batch) as b, ib.for_range(0, rows) as i:
            for q in range(width):
                places[(i, q) if onnx else (b, i, q)] = int64(0)
            for value in values:
                value[b, i] = const(0, scores.dtype)
        with ib.for_range(0, batch) as b:
            if not onnx:
                count[0] = int64(0)
            with ib.for_range(0, classes) as c, ib.for_range(0, n) as k, ib.if_scope(chosen[b, c, k] >= 0):
                row = [b, c, chosen[b, c, k]] if onnx else [c, chosen[b, c, k]]
                for q, value in enumerate(row):
                    places[(count[0], q) if onnx else (b, count[0], q)] = cast("int64", value)
                for value in values:
                    value[b, count[0]] = found[b, c, chosen[b, c, k]]
                count[0] = count[0] + int64(1)
            if not onnx:
                counts[b] = count[0]
        if onnx:
            counts[0] = count[0]

    listed = (batch * classes * n, 3) if onnx else (batch, classes * n, 2)
    shapes = [listed, (1,)] if onnx else [listed, (batch, classes * n), (batch,)]
    kinds = ["int64", "int64"] if onnx else ["int64", scores.dtype, "int64"]
    return list(written(shapes, [kept, scores], body, name="all_class_nms", dtype=kinds))


def _single(value: Any, dtype: str) -> Any:
    """Return a tensor of one element, (1,)."""
    if isinstance(value, te.Tensor):
        return te.compute((1,), lambda i: cast(dtype, value(*[int64(0)] * value.ndim)), name="limit")
    return te.compute((1,), lambda i: cast(dtype, as_expr(value)), name="limit")


def multibox_transform_loc(
    cls_pred: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    variances: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    clip: bool = False,
    threshold: float = 0.0,
    keep_background: bool = True,
) -> list[Any]:
    """Boxes from anchors and what was predicted for them, and the probabilities of classes.

    Parameters
    ----------
    cls_pred : Tensor
        (batch, classes, n): logits.
    loc_pred : Tensor
        (batch, 4 * n): x, y, width and height for each anchor, multiplied by `variances`.
    anchor : Tensor
        (1, n, 4): left, top, right, bottom.

    Returns
    -------
    list of Tensor
        (batch, n, 4): top, left, bottom, right; and (batch, classes, n), 0 where it is below `threshold`, and for the
        first class unless `keep_background`.
    """
    dtype = cls_pred.dtype
    batch, _, n = cls_pred.shape
    half, zero, one = (const(x, dtype) for x in (0.5, 0, 1))

    def corner(b: PrimExpr, a: PrimExpr, k: PrimExpr) -> Any:
        def edge(axis: int, sign: int) -> Any:
            low, high = anchor[0, a, axis], anchor[0, a, axis + 2]
            shift, grow = (loc_pred[b, a * 4 + axis + d] * const(float(variances[axis + d]), dtype) for d in (0, 2))
            reach = half * te.exp(grow) * (high - low)
            value = shift * (high - low) + (low + high) * half + reach * const(sign, dtype)
            return tir.max(zero, tir.min(one, value)) if clip else value

        top, left, bottom, right = edge(1, -1), edge(0, -1), edge(1, 1), edge(0, 1)
        return select(k.equal(0), top, select(k.equal(1), left, select(k.equal(2), bottom, right)))

    shares = softmax(cls_pred, 1)

    def score(b: PrimExpr, c: PrimExpr, a: PrimExpr) -> Any:
        seen = shares[b, c, a] >= const(float(threshold), dtype)
        return select(seen if keep_background else logical_and(seen, c > 0), shares[b, c, a], zero)

    return [
        te.compute((batch, n, 4), corner, name="multibox_boxes"),
        te.compute(cls_pred.shape, score, name="multibox_scores"),
    ]
