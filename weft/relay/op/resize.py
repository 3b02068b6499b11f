"""Resizing and sampling of images, and upsampling."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft import error, ir, tir
from weft.op import simplify, tensor_arg
from weft.relay.expr import as_expr, const
from weft.relay.op.construct import call, constructs
from weft.relay.op.layouts import plain, relaid
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dtype_of, is_computed, numbers, shape_argument, shape_of_dims

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_METHODS = {
    "nearest_neighbor": "nearest",
    "linear": "linear",
    "cubic": "cubic",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}

_ATTRS: dict[str, Any] = {
    "roi": None,
    "layout": "",
    "method": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "",
    "cubic_alpha": -0.5,
    "cubic_exclude": 0,
    "extrapolation_value": 0.0,
    "out_dtype": "",
}


def _resized(
    op: str,
    rank: int,
    data: ir.Expr,
    size: Any,
    roi: Any,
    layout: str,
    method: str,
    coordinate_transformation_mode: str,
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Any = "",
    scales: Any = None,
) -> ir.Expr:
    """Resize the spatial axes of a layout with any order of letters."""
    shape, letters = tensor_arg(op, "data", data, ndim=rank + 2).shape or (), _LAYOUTS[rank][2:]
    if sorted(layout) != sorted(_LAYOUTS[rank]):
        raise error.InvalidArgument(f"{op}: unknown layout '{layout}'", expected=f"the letters of {_LAYOUTS[rank]}")
    if method not in _METHODS:
        raise error.InvalidArgument(f"{op}: unknown method '{method}'", expected=", ".join(_METHODS))
    wanted = size if isinstance(size, tuple) else (size,)
    wanted = wanted * rank if len(wanted) == 1 else wanted
    if len(wanted) != rank:
        raise error.ShapeMismatch(f"{op}: a size for each spatial axis", expected=str(rank), found=str(len(wanted)))
    at = [layout.index(c) for c in letters]
    full = tuple(wanted[at.index(i)] if i in at else d for i, d in enumerate(shape))
    if _METHODS[method] == "nearest" and not rounding_method:
        rounding_method = "round" if coordinate_transformation_mode == "align_corners" else "floor"
    out = shared(
        "image.resize",
        data,
        shape_of_dims(full),
        roi=_spread(roi, at, rank),
        method=_METHODS[method],
        scales=None if scales is None else tuple(scales[at.index(i)] if i in at else 1.0 for i in range(rank + 2)),
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method={"round": "round_prefer_ceil"}.get(rounding_method, rounding_method),
        cubic_alpha=float(cubic_alpha),
        cubic_exclude=bool(cubic_exclude),
        extrapolation_value=float(extrapolation_value),
    )
    return shared("astype", out, dtype=out_dtype) if out_dtype and out_dtype != dtype_of(out) else out


def _spread(roi: Any, at: list[int], rank: int) -> Any:
    """Give all axes of a region: the spatial ones as given, starts then ends; the others whole."""
    if not roi or not any(roi):
        return None
    n = len(at)
    starts = [float(roi[at.index(i)]) if i in at else 0.0 for i in range(rank + 2)]
    ends = [float(roi[n + at.index(i)]) if i in at else 1.0 for i in range(rank + 2)]
    return (*starts, *ends)


def _resize(rank: int) -> Any:
    return lambda *args, **attrs: _resized(f"image.resize{rank}d", rank, *args, **attrs)


def _constructor(rank: int) -> Any:
    def construct(
        data: Any,
        size: Any,
        roi: Any = None,
        layout: str = _LAYOUTS[rank],
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.5,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: Any = None,
    ) -> ir.Expr:
        attrs = {
            "roi": numbers_of(roi),
            "layout": layout,
            "method": method,
            "rounding_method": rounding_method,
            "coordinate_transformation_mode": coordinate_transformation_mode,
            "cubic_alpha": cubic_alpha,
            "cubic_exclude": cubic_exclude,
            "extrapolation_value": extrapolation_value,
            "out_dtype": out_dtype or "",
        }
        if is_computed(size):
            return call(f"dyn.image.resize{rank}d", data, shape_argument(size), **attrs)
        return call(f"image.resize{rank}d", data, size=numbers(size), **attrs)

    construct.__name__ = f"resize{rank}d"
    construct.__doc__ = f"Resize the spatial axes of {_LAYOUTS[rank]} data to `size`, which may be an expression."

    by_position: Callable[..., ir.Expr] = construct

    @functools.wraps(construct)
    def in_either_order(data: ir.Expr, size: ir.Expr | int | Sequence[int], *order: object, **named: object) -> ir.Expr:
        if order and isinstance(order[0], str):  # TVM 0.8 has no region
            order = (None, *order)
        return by_position(data, size, *order, **named)

    return in_either_order


def numbers_of(values: ir.Constant | Iterable[float] | None) -> Any:
    """Return a region's numbers, which may be a constant."""
    if isinstance(values, ir.Constant):
        return tuple(float(v) for v in values.data.numpy().reshape(-1))
    return None if values is None else tuple(float(v) for v in values)


for _rank in (1, 2, 3):
    _attrs = {**_ATTRS, "layout": _LAYOUTS[_rank]}
    declare(
        f"image.resize{_rank}d",
        "data",
        {"size": REQUIRED, **_attrs},
        expand=_resize(_rank),
        doc="Resize the spatial axes to a size.",
    )
    declare(
        f"dyn.image.resize{_rank}d",
        "data size:values",
        _attrs,
        expand=_resize(_rank),
        doc="Resize the spatial axes to a size that is computed.",
    )
    constructs(f"image.resize{_rank}d")(_constructor(_rank))

# --- by factors -------------------------------------------------------------------------------------------------------


def _scaled(dim: ir.PrimExpr, scale: float) -> ir.PrimExpr:
    """Multiply a dimension and round."""
    if float(scale).is_integer():
        return simplify(dim * ir.int64(int(scale)))
    known = ir.as_int(dim)
    if known is not None:
        return ir.int64(round(known * scale))
    return ir.cast("int64", tir.round(ir.cast("float64", dim) * ir.const(float(scale), "float64")))


def _upsampled(op: str, rank: int, data: ir.Expr, scales: Any, layout: str, method: str, mode: str) -> ir.Expr:
    given, layout = layout, plain(op, layout, _LAYOUTS[rank])
    data = relaid(data, given, layout)
    shape = tensor_arg(op, "data", data, ndim=rank + 2).shape or ()
    size = tuple(_scaled(shape[layout.index(c)], s) for c, s in zip(_LAYOUTS[rank][2:], scales, strict=True))
    exact = tuple(float(s) for s in scales) if mode == "asymmetric" else None
    return relaid(_resized(op, rank, data, size, None, layout, method, mode, scales=exact), layout, given)


def _corners(align_corners: bool) -> str:
    return "align_corners" if align_corners else "asymmetric"


declare(
    "nn.upsampling",
    "data",
    {"scale_h": 1.0, "scale_w": 1.0, "layout": "NCHW", "method": "nearest_neighbor", "align_corners": False},
    expand=lambda data, scale_h, scale_w, layout, method, align_corners: _upsampled(
        "nn.upsampling", 2, data, (scale_h, scale_w), layout, method, _corners(align_corners)
    ),
    doc="Resize by factors: nearest_neighbor, bilinear or bicubic.",
)
declare(
    "nn.upsampling3d",
    "data",
    {
        "scale_d": 1.0,
        "scale_h": 1.0,
        "scale_w": 1.0,
        "layout": "NCDHW",
        "method": "nearest_neighbor",
        "coordinate_transformation_mode": "half_pixel",
    },
    expand=lambda data, scale_d, scale_h, scale_w, layout, method, coordinate_transformation_mode: _upsampled(
        "nn.upsampling3d", 3, data, (scale_d, scale_h, scale_w), layout, method, coordinate_transformation_mode
    ),
    doc="Resize by factors: nearest_neighbor or trilinear.",
)


def _by_computed(data: Any, scales: tuple[Any, ...], layout: str, **attrs: Any) -> ir.Expr:
    """Resize by factors of which run time tells some: the new extents are computed first."""
    shape, new = call("shape_of", data, dtype="int64"), []
    for letter, scale in zip(_LAYOUTS[len(scales)][2:], scales, strict=True):
        extent = call("take", shape, const(layout.index(letter), "int64"), axis=0)
        wide = call("cast", as_expr(scale, None if isinstance(scale, ir.Expr) else "float32"), dtype="float64")
        new.append(call("round", call("multiply", call("cast", extent, dtype="float64"), wide)))
    return call(f"dyn.image.resize{len(scales)}d", data, shape_argument(new), layout=layout, **attrs)


def _factor(scale: Any) -> float:
    return float(scale.data.numpy()) if isinstance(scale, ir.Constant) else float(scale)


@constructs("nn.upsampling")
def upsampling(
    data: ir.Expr,
    scale_h: ir.Expr | float = 1,
    scale_w: ir.Expr | float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> ir.Expr:
    """Resize images by factors, which may be expressions: nearest_neighbor, bilinear or bicubic."""
    scales = scale_h, scale_w
    if is_computed(scales):
        return _by_computed(data, scales, layout, method=method, coordinate_transformation_mode=_corners(align_corners))
    return call(
        "nn.upsampling",
        data,
        scale_h=_factor(scale_h),
        scale_w=_factor(scale_w),
        layout=layout,
        method=method,
        align_corners=align_corners,
    )


@constructs("nn.upsampling3d")
def upsampling3d(
    data: ir.Expr,
    scale_d: ir.Expr | float = 1,
    scale_h: ir.Expr | float = 1,
    scale_w: ir.Expr | float = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> ir.Expr:
    """Resize volumes by factors, which may be expressions: nearest_neighbor or trilinear."""
    scales, mode = (scale_d, scale_h, scale_w), coordinate_transformation_mode
    if is_computed(scales):
        return _by_computed(data, scales, layout, method=method, coordinate_transformation_mode=mode)
    d, h, w = map(_factor, scales)
    return call(
        "nn.upsampling3d",
        data,
        scale_d=d,
        scale_h=h,
        scale_w=w,
        layout=layout,
        method=method,
        coordinate_transformation_mode=mode,
    )


# --- sampling ---------------------------------------------------------------------------------------------------------

declare("image.grid_sample", "data grid", expand="image.grid_sample", doc="Sample images at the points of a grid.")


def _affine_grid(data: ir.Expr, target_shape: Any) -> ir.Expr:
    return shared("image.affine_grid", data, shape_of_dims([int(v) for v in target_shape]))


declare(
    "image.affine_grid",
    "data",
    {"target_shape": REQUIRED},
    expand=_affine_grid,
    doc="The grids of sampling points that affine transformations give.",
)
