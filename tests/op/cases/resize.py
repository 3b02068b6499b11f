"""Resizing and sampling of images."""

from typing import Any

import numpy as np

from tests.op.contract import Array, Case, Shape, Sizes, call, case, cases

NEAR = {"rtol": 2e-3, "atol": 2e-4}
FLOOR = {"method": "nearest", "rounding_method": "floor", "coordinate_transformation_mode": "asymmetric"}
MODES = """
    half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn""".split()


def _resize(method: str, mode: str) -> None:
    @cases("image.resize", when=lambda s: s.b > 0 and s.c > 1)
    def make(s: Sizes) -> Case:
        return call(
            s.real(s.a, 2, s.b, s.c), Shape((s.a, 2, 7, 11)), method=method, coordinate_transformation_mode=mode, **NEAR
        )


for _mode in MODES:
    _resize("linear", _mode)
_resize("cubic", "half_pixel")
_resize("cubic", "align_corners")
_resize("nearest", "asymmetric")


def _nearest(rounding: str) -> None:
    @cases("image.resize", when=lambda s: s.b > 0)
    def make(s: Sizes) -> Case:
        attrs = FLOOR | {"rounding_method": rounding}
        return call(s.integer(s.a, s.b, 4), Shape((s.a, s.b, 6)), scales=(1.0, 1.0, 1.5), **attrs)


for _rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
    _nearest(_rounding)


def _still(shape: tuple[int, ...], size: tuple[int, ...], **attrs: Any) -> None:
    case("image.resize", make=lambda s: call(s.real(*shape), Shape(size), symbolic=False, **attrs, **NEAR))


_still((1, 1, 4, 4), (1, 1, 9, 3), method="cubic", cubic_exclude=True, cubic_alpha=-0.5)
for _method in ("linear", "cubic"):
    _still((2, 1, 13, 4), (2, 1, 5, 6), method=_method, antialias=True, cubic_exclude=_method == "cubic")
for _mode in MODES:  # a length that is rounded down: the scale is not the quotient of the lengths
    _still((1, 1, 4, 7), (1, 1, 2, 4), scales=(1.0, 1.0, 0.6, 0.6), coordinate_transformation_mode=_mode)
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
_still((1, 1, 4, 4), (1, 1, 3, 5), roi=(0.0, 0.0, 0.4, -0.2, 1.0, 1.0, 0.8, 0.7), **CROP)
CEIL = FLOOR | {"rounding_method": "ceil_below_1"}
_still((1, 1, 4, 7), (1, 1, 7, 4), scales=(1.0, 1.0, 1.75, 0.6), **CEIL)


def _placed(**attrs: Any) -> None:
    numbers = Array(np.array([1, 1.5, 0.6, 0, 0.25, -0.25, 1, 0.75, 1.25], "float32"), (9,))
    case(
        "image.resize_placed",
        make=lambda s: call(s.real(2, 4, 7), Shape((2, 6, 4)), numbers, scales=(1.0, 0.0, 0.0), **attrs, **NEAR),
    )


_placed(method="cubic", antialias=True)
_placed(**CROP)
_placed(**CEIL)


@cases("image.resize")
def _bytes(s: Sizes) -> Case:
    image = s.integer(s.a, 1, 3, 3, low=0, high=250, dtype="uint8")
    return call(image, Shape((s.a, 1, 6, 6)), coordinate_transformation_mode="asymmetric", steps=1)


@cases("image.resize", when=lambda s: s.b * s.c > 0)
def _beyond_the_scale(s: Sizes) -> Case:
    size = Shape((s.a, 2 * s.b + 3, s.c))
    return call(s.integer(s.a, s.b, s.c), size, scales=(1.0, 2.0, 1.0), symbolic=False, **FLOOR)


LAST = FLOOR | {"method": "nearest_neighbor", **NEAR}
case("image.resize2d", make=lambda s: call(s.real(s.a, 4, 5, 19), Shape((8, 10)), layout="NHWC", **LAST))
case("image.resize2d", make=lambda s: None if s.b == 0 else call(s.real(s.a, 3, s.b, s.c), Shape((8, 5)), **NEAR))
case("image.resize2d", make=lambda s: None if s.b == 0 else call(s.real(1, 2, 4, 5), Shape((s.b, s.c)), **NEAR))


def _sample(method: str, padding: str, align: bool) -> None:
    @cases("image.grid_sample", when=lambda s: s.b > 0)
    def make(s: Sizes) -> Case:
        x, places = s.real(s.a, *((2, s.b, s.c) if align else (s.b, s.c, 2))), s.real(s.a, 2, 3, 4, low=-1.4, high=1.4)
        attrs = {"padding_mode": padding, "align_corners": align, "layout": "NCHW" if align else "NHWC"}
        return call(x, places, method=method, rtol=1e-3, atol=1e-4, **attrs)


for _method in ("bilinear", "nearest", "bicubic"):
    for _padding in ("zeros", "border", "reflection"):
        _sample(_method, _padding, _padding != "border")


@cases("image.resize2d")
def _narrowed(s: Sizes) -> Case:
    return call(s.real(1, 2, 4, s.c), Shape((5, 6)), out_dtype="float16", rtol=1e-2, atol=1e-2)


case("image.resize3d", make=lambda s: call(s.real(s.a, 2, 3, 4, 5), Shape((s.b, 5, s.c)), out_dtype="float64", **NEAR))
case("image.resize3d", make=lambda s: call(s.real(s.a, 3, 4, 5, s.c), Shape((6, 4, 7)), layout="NDHWC", **LAST))


def _grid(rank: int, align: bool) -> None:
    @cases("image.affine_grid", when=lambda s: min(s.b, s.c) > 1)
    def make(s: Sizes) -> Case:
        size = Shape((s.b, 3, s.c)[-rank:])
        return call(s.real(s.a, rank, rank + 1), size, align_corners=align, **NEAR)


for _rank in (2, 3):
    for _align in (True, False):
        _grid(_rank, _align)
