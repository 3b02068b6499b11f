"""Images of another size, or sampled at points."""

from typing import Any

from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten, operators
from weft.frontend.torch.symbols import Dim


def _resized(node: Node, method: str, mode: str) -> Any:
    x = node.get("input", node.args.get("self"))
    rank = len(x.ty.shape) - 2
    scales = node.get("scale_factors")
    if scales is None:
        own = [node.get(k) for k in ("scales_d", "scales_h", "scales_w", "scales")]
        own = [s for s in own if s is not None]
        scales = own if len(own) == rank else None
    attrs: dict[str, Any] = {"method": method, "coordinate_transformation_mode": mode}
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
    """A product with a matrix for each axis: a row of weights, as wide as what a pixel of the result covers."""
    x, factors = node.get("input", node.args.get("self")), node.get("scale_factors", [None, None])
    given = [node.get("scales_h", factors[0]), node.get("scales_w", factors[1])]
    x = node.astype(x, "float32") if node.dtype != "float64" else x
    rows, columns = (_covering(node, i - 2, old, factor)
                     for i, (old, factor) in enumerate(zip(node.dims(x)[-2:], given, strict=True)))  # fmt: skip
    return node.op("matmul", node.op("matmul", rows, x), node.permute(columns, [1, 0]))


def _covering(node: Node, axis: int, old: Dim, factor: float | None) -> Any:
    """(new, old): the share that each old pixel has in each new one."""
    new, dtype = node.shape[axis], "float64" if node.dtype == "float64" else "float32"
    if node["align_corners"]:
        node.error("a resize with antialias between the middles of corners", expected="align_corners=False")
    width = node.op("divide", node.tensor(old, dtype), node.tensor(new, dtype))
    width = width if factor is None else node.scalar(1 / factor, dtype)
    half, one = node.scalar(0.5, dtype), node.scalar(1, dtype)
    middle = node.op("multiply", node.op("add", node.arange(new, dtype), half), width)
    far = node.op("subtract", node.op("add", node.arange(old, dtype), half), node.reshape(middle, [new, 1]))
    far = node.op("abs", node.op("divide", far, node.op("maximum", width, one)))
    share = _cubic_share(node, far) if "bicubic" in node.name else node.op(
        "maximum", node.op("subtract", one, far), node.scalar(0, dtype))  # fmt: skip
    return node.op("divide", share, node.op("sum", share, axis=(1,), keepdims=True))


def _cubic_share(node: Node, far: Any) -> Any:
    """Keys' cubic, whose slope at 1 is -0.5."""

    def polynomial(*factors: float) -> Any:
        found = node.scalar(0, far.ty.dtype)
        for factor in factors:
            found = node.op("add", node.op("multiply", found, far), node.scalar(factor, far.ty.dtype))
        return found

    near, edge = (node.op("less", far, node.scalar(x, far.ty.dtype)) for x in (1, 2))
    outer = node.op("where", edge, polynomial(-0.5, 2.5, -4, 2), node.scalar(0, far.ty.dtype))
    return node.op("where", near, polynomial(1.5, -2.5, 0, 1), outer)


@operators("torchvision.roi_align")
def _region_means(node: Node) -> Any:
    size, scale, rois = (node["pooled_height"], node["pooled_width"]), node["spatial_scale"], node["rois"]
    if node["aligned"]:  # pixels have their middles at whole places
        rois = node.op("subtract", rois, node.scalar([0, *[0.5 / scale] * 4], str(rois.ty.dtype)))
    return node.op("vision.roi_align", node["input"], rois, pooled_size=size, aligned=node["aligned"],
                   spatial_scale=scale, sample_ratio=node["sampling_ratio"])  # fmt: skip


@aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sample(node: Node) -> Any:
    rank = len(node["input"].ty.shape)
    grid = node.permute(node["grid"], [0, rank - 1, *range(1, rank - 1)])
    return node.op(
        "image.grid_sample", node["input"], grid, method=("bilinear", "nearest", "bicubic")[node["interpolation_mode"]],
        layout="NCHW" if rank == 4 else "NCDHW", padding_mode=("zeros", "border", "reflection")[node["padding_mode"]],
        align_corners=node["align_corners"],
    )  # fmt: skip
