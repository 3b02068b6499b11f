"""Operators of torchvision: regions of images, boxes that overlap, convolutions whose taps are displaced."""

from __future__ import annotations

from typing import Any

from weft import topi
from weft.frontend.displaced import displaced_conv
from weft.frontend.torch.index import counted
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import operators


@operators("torchvision.nms")
def _suppressed(node: Node) -> Any:
    """The boxes that overlap no better one too much, best first."""
    boxes, scores = node["dets"], node["scores"]
    count = node.dims(scores)[0]
    order = node.astype(node.op("argsort", scores, axis=0, descending=True), "int64")
    kind = str(boxes.ty.dtype)
    least = node.full([1], float("-inf"), kind)
    overlap, limit = node.full([1], node["iou_threshold"], kind), node.reshape(node.tensor(count, "int64"), [1])
    rows = [node.reshape(v, [1, 1, count]) for v in (scores, order)]
    kept = node.op("vision.suppressed", node.reshape(boxes, [1, count, 4]), *rows, limit, overlap, least)
    kept = node.reshape(kept, [count])
    real = node.op("greater_equal", kept, node.scalar(0, "int64"))
    size = counted(node, node.op("sum", node.astype(real, "int64"), axis=(0,), keepdims=True))
    return node.op("strided_slice", kept, axes=(0,), begin=(0,), end=(size,), assume_inbound=True)


@operators("torchvision.roi_align")
def _region_means(node: Node) -> Any:
    more = {"aligned": node["aligned"], "sample_ratio": node["sampling_ratio"]}
    return node.op("vision.roi_align", node["input"], _moved(node, node["aligned"]), **_pooled(node), **more)


def _moved(node: Node, aligned: bool) -> Any:
    """Regions of pixels that have their middles at whole places."""
    rois, half = node["rois"], 0.5 / node["spatial_scale"]
    return node.op("subtract", rois, node.scalar([0, *[half] * 4], str(rois.ty.dtype))) if aligned else rois


def _pooled(node: Node) -> dict[str, Any]:
    return {"pooled_size": (node["pooled_height"], node["pooled_width"]), "spatial_scale": node["spatial_scale"]}


@operators("torchvision.roi_pool")
def _region_extremes(node: Node) -> list[Any]:
    if 1 in node.used:
        node.error("the places of the greatest elements of regions")
    return [node.op("vision.roi_pool", node["input"], node["rois"], **_pooled(node)), None]


@operators("torchvision.ps_roi_align", "torchvision.ps_roi_pool")
def _sensitive(node: Node) -> list[Any]:
    """Each part of a region is read from channels of its own; which, is the second result."""
    aligned = "align" in node.name
    attrs: dict[str, Any] = {**_pooled(node), "sensitive": True}
    if aligned:
        attrs |= {"aligned": True, "sample_ratio": node["sampling_ratio"]}
    kernel = topi.vision.roi_align if aligned else topi.vision.roi_pool
    found = node.emit(node.bb.call_te(kernel, node["input"], _moved(node, aligned), **attrs))
    own = node.reshape(node.arange(node.dims(node["input"])[1], "int32"), [1, *node.shape[1:]])
    return [found, node.expand(own, node.shape)]


@operators("torchvision.deform_conv2d")
def _displaced(node: Node) -> Any:
    """A factor of each tap counts where `use_mask` says so."""
    strides, pads, dilations = ([node[f"{name}_{axis}"] for axis in "hw"] for name in ("stride", "pad", "dil"))
    mask = node["mask"] if node["use_mask"] else None
    operands = [*(node[name] for name in ("input", "weight", "offset")), mask, node["bias"]]
    groups, parts = node["n_weight_grps"], node["n_offset_grps"]
    return displaced_conv(node, operands, strides, pads, dilations, groups, parts)
