"""Images of another size, or sampled at points."""

from typing import Any

from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten


def _resized(node: Node, method: str, mode: str, **more: Any) -> Any:
    x = node.get("input", node.get("self"))
    rank = len(x.ty.shape) - 2
    scales = node.get("scale_factors")
    if scales is None:
        own = [node.get(k) for k in ("scales_d", "scales_h", "scales_w", "scales")]
        own = [s for s in own if s is not None]
        scales = own if len(own) == rank else None
    attrs: dict[str, Any] = {"method": method, "coordinate_transformation_mode": mode, **more}
    if scales is not None and mode != "align_corners":
        attrs["scales"] = (1.0, 1.0, *map(float, scales))
    if method == "nearest":
        attrs["rounding_method"] = "floor"
    return node.op("image.resize", x, node.shape_expr(node.shape), **attrs)


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest(node: Node) -> Any:
    return _resized(node, "nearest", "asymmetric")


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def _smooth(node: Node) -> Any:
    method = "cubic" if "cubic" in node.name else "linear"
    return _resized(node, method, "align_corners" if node["align_corners"] else "half_pixel")


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _antialiased(node: Node) -> Any:
    if node["align_corners"]:
        node.error("a resize with antialias between the middles of corners", expected="align_corners=False")
    method = "cubic" if "bicubic" in node.name else "linear"
    return _resized(node, method, "half_pixel", antialias=True, cubic_exclude=True, cubic_alpha=-0.5)


@aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sample(node: Node) -> Any:
    rank = len(node["input"].ty.shape)
    grid = node.permute(node["grid"], [0, rank - 1, *range(1, rank - 1)])
    return node.op(
        "image.grid_sample",
        node["input"],
        grid,
        method=("bilinear", "nearest", "bicubic")[node["interpolation_mode"]],
        layout="NCHW" if rank == 4 else "NCDHW",
        padding_mode=("zeros", "border", "reflection")[node["padding_mode"]],
        align_corners=node["align_corners"],
    )
