"""The names of ``tvm.topi.image``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import PrimExpr, as_int, cast, const, if_then_else
from weft.spelling import named
from weft.te import Tensor
from weft.topi.conv import conv_size, pad_spatial, paddings, pair
from weft.topi.convolutions import resolved_padding
from weft.topi.deformable import bilinear_at
from weft.topi.index import clamped
from weft.topi.manipulate import transpose
from weft.topi.precision import narrowed, precise
from weft.topi.resize import cropped_coordinate
from weft.topi.resize import resize as _resize
from weft.topi.sample import grid_sample
from weft.topi.typing import Extent, Extents, Padding, Shape

__all__ = [
    "affine_grid",
    "crop_and_resize",
    "dilation2d_nchw",
    "dilation2d_nhwc",
    "grid_sample",
    "resize1d",
    "resize2d",
    "resize3d",
]

_METHODS = {
    "nearest_neighbor": "nearest",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
    "tricubic": "cubic",
}


def _resized(data: Any, roi: Any, size: Any, rank: int, layout: str, method: str, attrs: dict[str, Any]) -> Any:
    """Resize the spatial axes that a layout names; `roi` has their beginnings, then their ends."""
    if size is None:  # before 0.9 there was no region, and the size came in its place
        roi, size = None, roi
    sizes = list(size) if len(size) == rank else list(size) * rank
    axes = [layout.index(name) for name in "DHW"[-rank:]]
    whole = list(data.shape)
    for a, s in zip(axes, sizes, strict=True):
        whole[a] = s
    region = None
    if roi is not None and len(roi) == 2 * rank:
        region = [0.0] * data.ndim + [1.0] * data.ndim
        for d, a in enumerate(axes):
            region[a], region[data.ndim + a] = roi[d], roi[rank + d]
    return _resize(data, whole, None, region, _METHODS.get(method.lower(), method.lower()), **attrs)


def _resizer(rank: int, channels_first: str) -> Callable[..., Any]:
    """Make the function that resizes the spatial axes of one rank."""

    def resize(
        data: Tensor,
        roi: Sequence[float] | None,
        size: Extents | None = None,
        layout: str = channels_first,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.75,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        output_shape: Shape | None = None,
    ) -> Any:
        mode = coordinate_transformation_mode
        rounding = rounding_method or ("round" if mode == "align_corners" else "floor")
        attrs = {
            "coordinate_transformation_mode": mode,
            "rounding_method": rounding,
            "cubic_alpha": bicubic_alpha,
            "cubic_exclude": bool(bicubic_exclude),
            "extrapolation_value": extrapolation_value,
        }
        if output_shape:  # of all axes, or of the spatial ones
            size = output_shape if len(output_shape) == rank else [output_shape[layout.index(n)] for n in "DHW"[-rank:]]
        return narrowed(_resized(data, roi, size, rank, layout, method, attrs), out_dtype or data.dtype)

    axes = f"{('one', 'two', 'three')[rank - 1]} spatial {'axis' if rank == 1 else 'axes'}"
    return named(resize, f"resize{rank}d", f"Resize the {axes}.")


resize1d, resize2d, resize3d = (_resizer(rank, layout) for rank, layout in enumerate(("NCW", "NCHW", "NCDHW"), 1))


def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Sequence[Extent],
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float | None = None,
    out_dtype: str | None = None,
) -> Any:
    """Cut boxes out of images and resize each to `crop_size`.

    Parameters
    ----------
    boxes : Tensor
        (boxes, 4): top, left, bottom and right, where 0 and 1 are the first and last pixel.
    box_indices : Tensor
        (boxes,): the image of each box.
    extrapolation_value : float, optional
        What lies outside of the image; by default the nearest pixel inside.
    """
    axes, dtype = [layout.index("H"), layout.index("W")], precise(data, boxes)
    shape: list[Any] = list(data.shape)
    shape[0] = box_indices.shape[0]
    for a, s in zip(axes, crop_size, strict=True):
        shape[a] = s

    def element(*i: Any) -> Any:
        box = [cast(dtype, boxes(i[0], k)) for k in range(4)]
        points = [
            cropped_coordinate(i[a], shape[a], data.shape[a], box[d], box[2 + d], dtype) for d, a in enumerate(axes)
        ]
        image = cast("int32", clamped(box_indices(i[0]), data.shape[0]))

        height, width = (data.shape[a] for a in axes)

        def read(y: PrimExpr, x: Any) -> Any:
            at = list(i)
            nearest = (tir.max(tir.min(p, n - 1), 0) for p, n in ((y, height), (x, width)))
            at[0], at[axes[0]], at[axes[1]] = image, *nearest
            return cast(dtype, data(*at))

        if _METHODS.get(method, method) == "linear":
            value = bilinear_at(read, points[0], points[1])
        else:
            value = read(*(cast("int32", tir.round(p)) for p in points))
        if extrapolation_value is None:
            return value
        inside = tir.all(
            *(
                tir.all(p >= const(0, dtype), p <= cast(dtype, n - 1))
                for p, n in zip(points, (height, width), strict=True)
            )
        )
        return if_then_else(inside, value, const(extrapolation_value, dtype))

    found = te.compute(tuple(shape), element, name="crop_and_resize")
    return narrowed(found, out_dtype or data.dtype)


def affine_grid(data: Tensor, target_shape: Sequence[Extent], align_corners: bool = True) -> Any:
    """The points (batch, rank, ...) at which an image is sampled to be transformed by matrices (batch, rank, rank + 1).

    Coordinates go from -1 to 1 and stand in the order x, y, z; they are computed in float32 at least.
    """
    rank, dtype = len(target_shape), precise(data)
    if rank not in (2, 3):
        raise InvalidArgument("affine_grid: two or three spatial axes", found=str(target_shape))
    sizes = [as_int(s) for s in target_shape]
    if any(n is not None and n < 1 + align_corners for n in sizes):
        raise InvalidArgument(
            "affine_grid: with align_corners, an axis has two points at least", found=str(target_shape)
        )

    def point(d: int, at: PrimExpr) -> Any:
        n: Any = const(float(sizes[d]), dtype) if sizes[d] is not None else cast(dtype, target_shape[d])  # type: ignore[arg-type]
        one, twice = const(1.0, dtype), cast(dtype, at) * const(2.0, dtype)
        return (twice - (n - one)) * (one / (n - one if align_corners else n))  # exactly 0 in the middle

    def element(b: Any, which: Any, *at: Any) -> Any:
        value = cast(dtype, data(b, which, rank))
        for d in range(rank):
            value = value + cast(dtype, data(b, which, rank - 1 - d)) * point(d, at[d])
        return value

    return narrowed(te.compute((data.shape[0], rank, *target_shape), element, name="affine_grid"), data.dtype)


def dilation2d_nchw(
    input: Tensor, filter: Tensor, stride: Extents, padding: Padding, dilations: Extents, out_dtype: str | None = None
) -> Any:
    """The greatest sum of the elements of a window and those of a filter (channels, height, width), channels first."""
    dtype, s, d, kernel = out_dtype or input.dtype, pair(stride, 2), pair(dilations, 2), filter.shape[1:]
    before, after = paddings(resolved_padding(padding, kernel, d, 2), 2)
    padded = pad_spatial(input, before, after, False)
    size = [conv_size(input.shape[2 + a], kernel[a], s[a], d[a], before[a], after[a]) for a in range(2)]
    ky, kx = te.reduce_axis((0, kernel[0]), "ry"), te.reduce_axis((0, kernel[1]), "rx")

    def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        value = padded(n, c, y * s[0] + ky.var * d[0], x * s[1] + kx.var * d[1])
        return te.max(cast(dtype, value) + cast(dtype, filter(c, ky.var, kx.var)), axis=[ky, kx])

    return te.compute((*input.shape[:2], *size), element, name="dilation2d")


def dilation2d_nhwc(
    input: Tensor, filter: Tensor, stride: Extents, padding: Padding, dilations: Extents, out_dtype: str | None = None
) -> Any:
    """The same, channels last, filter (height, width, channels)."""
    found = dilation2d_nchw(
        transpose(input, (0, 3, 1, 2)), transpose(filter, (2, 0, 1)), stride, padding, dilations, out_dtype
    )
    return transpose(found, (0, 2, 3, 1))
