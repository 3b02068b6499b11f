"""Regions, boxes and anchors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.op.contract import Array, Case, Sizes, call, case, cases
from weft.op.vision import get_valid_counts


def _with(make: Callable[[Sizes, dict[str, Any]], Case], attrs: dict[str, Any]) -> Callable[[Sizes], Case]:
    return lambda s: make(s, attrs)


def _regions(s: Sizes) -> Array:
    """Regions of images, some of which reach beyond them, or have their corners in the other order."""
    corners = s.rng.uniform(-2, 9, (int(s.b), 4))
    rois = np.concatenate([s.rng.integers(0, int(s.a), (int(s.b), 1)), corners], 1)
    return Array(rois.astype("float32"), (s.b, 5))


def _boxes(s: Sizes, classes: int = 3) -> Array:
    """Boxes of a class, a score and two corners; some have no class."""
    shape = (int(s.a), int(s.c))
    corner = s.rng.random((*shape, 2)) * 4
    head = [s.rng.integers(-1, classes, (*shape, 1)), s.rng.random((*shape, 1))]
    rows = np.concatenate([*head, corner, corner + s.rng.random((*shape, 2)) * 3], -1)
    return Array(rows.astype("float32"), (s.a, s.c, 6))


ALIGN = [
    {},
    {"sample_ratio": 2},
    {"aligned": True, "mode": "max"},
    {"aligned": True, "sample_ratio": 3},
    {"layout": "NHWC", "spatial_scale": 0.5},
    {"mode": "max_corner"},
]


def _align(s: Sizes, attrs: dict[str, Any]) -> Case:
    image = s.real(s.a, 7, 5, s.c) if "layout" in attrs else s.real(s.a, s.c, 7, 5)
    return call(image, _regions(s), pooled_size=(3, 2), **attrs)


for attrs in ALIGN:
    cases("vision.roi_align")(_with(_align, attrs))


case("vision.roi_pool", make=lambda s: call(s.real(s.a, s.c, 6, 5), _regions(s), pooled_size=(2, 3), spatial_scale=0.8))
case("vision.get_valid_counts", make=lambda s: call(_boxes(s), score_threshold=0.4))
case("vision.get_valid_counts", make=lambda s: call(_boxes(s), score_threshold=0.2, id_index=-1))


SUPPRESSION = [
    {},
    {"force_suppress": True},
    {"top_k": 5},
    {"max_output_size": 2},
    {"id_index": -1},
    {"iou_threshold": 0.1},
    {"return_indices": False},
    {"return_indices": False, "invalid_to_bottom": True},
    {"soft_nms_sigma": 0.2, "score_threshold": 0.3},
    {"soft_nms_sigma": 0.5, "return_indices": False},
    {"soft_nms_sigma": 0.1, "force_suppress": True, "max_output_size": 3},
]


def _suppression(s: Sizes, attrs: dict[str, Any]) -> Case:
    counts, rows, places = get_valid_counts(_boxes(s).value, 0.1)
    return call(Array(rows, (s.a, s.c, 6)), Array(counts, (s.a,)), Array(places, (s.a, s.c)), **attrs)


for attrs in SUPPRESSION:
    cases("vision.non_max_suppression")(_with(_suppression, attrs))


def _classes(s: Sizes, attrs: dict[str, Any]) -> Case:
    corners = Array(_boxes(s).value[..., 2:], (s.a, s.c, 4))
    scores = Array(s.rng.random((int(s.a), int(s.b), int(s.c)), np.float32), (s.a, s.b, s.c))
    limits = [Array(np.array(v, t), ()) for v, t in ((3, "int64"), (0.3, "float32"), (0.2, "float32"))]
    return call(corners, scores, *limits, **attrs)


cases("vision.class_boxes", "vision.all_class_non_max_suppression")(_with(_classes, {}))
cases("vision.class_boxes")(_with(_classes, {"output_format": "tensorflow"}))


def _anchors(s: Sizes, attrs: dict[str, Any]) -> Case:
    corners = np.sort(s.rng.random((1, int(s.c), 2, 2)), 2).reshape(1, int(s.c), 4).astype("float32")
    return call(s.real(s.a, 3, s.c), s.real(s.a, 4 * int(s.c)), Array(corners, (1, s.c, 4)), symbolic=False, **attrs)


for attrs in ({}, {"clip": True, "threshold": 0.3, "variances": (0.1, 0.1, 0.2, 0.2), "keep_background": False}):
    cases("vision.multibox_transform_loc")(_with(_anchors, attrs))
