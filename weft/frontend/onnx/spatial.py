"""Pictures in parts: p-norm and region pools, unpooling, displaced convolutions, columns put back together."""

from __future__ import annotations

from math import prod
from typing import Any

from weft.frontend.displaced import displaced_conv
from weft.frontend.fold import FoldedAxis, folded
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.pool import output_sizes, pool, pool_window, reach
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.window import read_window


def _raised(node: Node, x: Any, p: float) -> Any:
    """Return powers of magnitudes: high ones, which would lose digits, as float64."""
    if p == 2:
        return node.op("multiply", x, x)
    size = node.op("abs", x)
    return size if p == 1 else node.op("power", node.astype(size, "float64"), node.scalar(p, "float64"))


def _root(node: Node, x: Any, p: float) -> Any:
    out = node.op("sqrt", x) if p == 2 else x if p == 1 else node.op("power", x, node.scalar(1 / p, "float64"))
    return node.astype(out, node.dtype())


@converter("LpPool")
def _lp_pool(node: Node) -> Any:
    window, p = pool_window(node), node.attr("p", 2)
    window = reach(node, window, output_sizes(node, window, bool(node.attr("ceil_mode", 0))))
    mean = pool(node, "avg_pool", _raised(node, node.x(), p), window, 0, count_include_pad=True)
    return _root(node, node.emit(mean * float(prod(window.kernel))), p)


@converter("GlobalLpPool")
def _global_lp_pool(node: Node) -> Any:
    p, axes = node.attr("p", 2), tuple(range(2, node.ndim()))
    return _root(node, node.op("sum", _raised(node, node.x(), p), axis=axes, keepdims=True), p)


@converter("MaxUnpool")
def _max_unpool(node: Node) -> Any:
    node.require_shape(1, node.shape())
    window = read_window(node, node.attr("kernel_shape"))
    sizes = [
        s.add(s.multiply(s.subtract(d, 1), stride), k - before - after)
        for d, stride, k, before, after in zip(
            node.shape()[2:], window.strides, window.kernel, window.before, window.after, strict=True
        )
    ]
    whole = [*node.shape()[:2], *sizes]
    total = s.product(whole)
    node.require_indices("an index", node.x(1), 0, total)
    places, values = (node.reshape(node.x(i), [s.product(node.shape())]) for i in (1, 0))
    flat = node.op("scatter_elements", node.full([total], 0, node.dtype()), places, values, axis=0)
    out = node.reshape(flat, whole)
    if not node.has(2):
        return out
    rest = [s.subtract(a, b) for a, b in zip(node.ints(2, sizes=True), whole, strict=True)]
    for r in rest:
        node.require_between("what 'output_shape' adds", r, 0, None)
    return padded(node, out, [0] * len(whole), rest, "constant", 0)


@converter("Col2Im")
def _col2im(node: Node) -> Any:
    image, block = node.ints(1, sizes=True), node.ints(2, sizes=True)
    rank = len(image)
    strides, dilations = (node.attr(k, [1] * rank) for k in ("strides", "dilations"))
    pads = node.attr("pads", [0] * (2 * rank))
    if {len(block), len(strides), len(dilations), len(pads) // 2} != {rank}:
        node.error("its sizes and attributes have different lengths", expected=f"{rank} dimensions")
    whole = [s.add(n, pads[i] + pads[rank + i]) for i, n in enumerate(image)]
    room = [
        s.subtract(w, s.add(s.multiply(s.subtract(k, 1), d), 1))
        for w, k, d in zip(whole, block, dilations, strict=True)
    ]
    for r in room:
        node.require_between("the room for blocks", r, 0, None)
    starts = node.graph.named([s.add(s.floor_divide(r, t), 1) for r, t in zip(room, strides, strict=True)])
    batch, columns, length = node.shape()
    cells = s.product(block)
    node.require_equal("the number of blocks", length, s.product(starts))
    channels = node.graph.named([s.divide(columns, s.maximum(cells, 1))])[0]
    node.require_equal("the elements of blocks", columns, s.multiply(channels, cells))
    rows = s.multiply(batch, channels)
    if node.is_static(block) and cells:
        axes = [FoldedAxis(*a) for a in zip(block, starts, strides, dilations, pads[:rank], image, strict=True)]
        return node.reshape(folded(node, node.x(), rows, axes), [batch, channels, *image])
    places: Any = node.scalar(0, "int64")
    for i in range(rank):  # axes of the block, then those of the places where blocks start
        inside, start = (
            node.reshape(
                node.op("multiply", node.arange(n), node.scalar(step, "int64")),
                [n if k == at else 1 for k in range(2 * rank)],
            )
            for n, step, at in ((block[i], dilations[i], i), (starts[i], strides[i], rank + i))
        )
        places = node.emit(places * node.number(whole[i], "int64") + inside + start)
    values = node.reshape(node.x(), [rows, s.multiply(cells, length)])
    base = node.full([s.product(whole), rows], 0, node.dtype())
    places = node.reshape(places, [s.multiply(cells, length), 1])
    spread = node.op("scatter_nd", base, places, node.permute(values, [1, 0]), reduction="add")
    out = node.reshape(node.permute(spread, [1, 0]), [batch, channels, *whole])
    begin = pads[:rank]
    end = [s.add(n, b) for b, n in zip(begin, image, strict=True)]
    return node.slice(out, list(range(2, rank + 2)), begin, end)


@converter("DeformConv")
def _deform_conv(node: Node) -> Any:
    rank, groups = node.ndim() - 2, node.attr("group", 1)
    kernel = list(node.shape(1)[2:])
    if not node.is_static(kernel):
        node.unsupported("the size of its kernel must be known before the model runs")
    window, parts, cells = (
        read_window(node, node.attr("kernel_shape", kernel)),
        node.attr("offset_group", 1),
        prod(kernel),
    )
    batch, _, *space = node.shape()
    out = list(node.shape(2)[2:])
    node.require_shape(2, [batch, parts * cells * rank, *out])
    if list(window.kernel) != kernel:
        node.error("'kernel_shape' is not the weight's", expected=str(kernel), found=str(window.kernel))
    for found, size, extent, stride, low, high in zip(
        out, space, window.extents, window.strides, window.before, window.after, strict=True
    ):
        room = s.subtract(s.add(s.add(size, low), high), extent)
        node.require_equal("the offsets' places", found, s.add(s.floor_divide(room, stride), 1))
    if node.has(4):
        node.require_shape(4, [batch, parts * cells, *out])
    operands = [*(node.x(i) for i in range(3)), *(node.x(i) if node.has(i) else None for i in (4, 3))]
    before = [int(n) for n in window.before]
    return displaced_conv(node, operands, window.strides, before, window.dilations, groups, parts)


# --- regions ----------------------------------------------------------------------------------------------------------


@converter("RoiAlign")
def _roi_align(node: Node) -> Any:
    mode, default = node.attr("mode", "avg"), "half_pixel" if node.opset >= 16 else "output_half_pixel"
    if mode not in ("avg", "max"):
        node.error("an unknown mode", expected="avg or max", found=mode)
    regions, wide = node.shape(2)[0], "float64" if node.dtype(1) == "float64" else "float32"
    node.require_shape(1, [regions, 4])
    half = node.attr("coordinate_transformation_mode", default) == "half_pixel"
    ends = node.emit(node.x(1) * node.attr("spatial_scale", 1.0) - (0.5 if half else 0.0))
    node.require_indices("a batch index", node.x(2), 0, node.shape()[0])
    image = node.astype(node.reshape(node.x(2), [regions, 1]), wide)
    rois = node.op("concat", [image, node.astype(ends, wide)], axis=1)
    sizes = [node.attr("output_height", 1), node.attr("output_width", 1)]
    kind = "avg" if mode == "avg" else "max_corner"
    return node.op(
        "vision.roi_align",
        node.x(),
        rois,
        pooled_size=sizes,
        spatial_scale=1.0,
        mode=kind,
        sample_ratio=node.attr("sampling_ratio", 0),
        aligned=half,
    )


@converter("MaxRoiPool")
def _max_roi_pool(node: Node) -> Any:
    """The greatest element of each part of regions whose ends are rounded to pixels."""
    node.require_shape(1, [node.shape(1)[0], 5])
    image = node.astype(node.slice(node.x(1), [1], [0], [1]), "int64")
    node.require_indices("a batch index", image, 0, node.shape()[0])
    return node.op(
        "vision.roi_pool",
        node.x(),
        node.x(1),
        pooled_size=list(node.attr("pooled_shape")),
        spatial_scale=node.attr("spatial_scale", 1.0),
    )


@converter("Hardmax")
def _hardmax(node: Node) -> Any:
    x, shape, rank = node.x(), node.shape(), node.ndim()
    axis = node.axis(node.attr("axis", -1 if node.opset >= 13 else 1)) if rank else 0
    if node.opset < 13:
        x, axis = node.reshape(x, [s.product(shape[:axis]), s.product(shape[axis:])]), 1
    size = node.dims(x)[axis]
    best = node.op("argmax", x, axis=axis, keepdims=True, dtype="int64")
    line = node.arange(size)
    places = node.reshape(line, [size if i == axis else 1 for i in range(len(x.ty.shape))])
    return node.reshape(node.astype(node.op("equal", places, best), node.dtype()), shape)


@converter("TensorScatter")
def _tensor_scatter(node: Node) -> Any:
    """Write new entries into a cache from a place on that each sequence has, round the end where it is a circle."""
    axis, mode = node.axis(node.attr("axis", -2)), node.attr("mode", "linear")
    if mode not in ("linear", "circular") or axis == 0:
        node.error(
            "a wrong mode or axis", expected="linear or circular; an axis behind the first", found=f"{mode}, {axis}"
        )
    shape, new = node.shape(), node.shape(1)[axis]
    node.require_shape(1, [new if i == axis else d for i, d in enumerate(shape)])
    size = shape[axis]
    node.require_between("the number of new entries", new, 0, size)
    if s.same(new, 0):
        return node.x(0)
    if node.has(2):
        node.require_shape(2, shape[:1])
        high = size if mode == "circular" else s.add(s.subtract(size, new), 1)
        node.require_indices("a place to write at", node.x(2), 0, high)

    starts = node.x(2) if node.has(2) else node.full(shape[:1], 0, "int64")
    return node.op("tensor_scatter", node.x(0), node.x(1), starts, axis=axis, circular=mode == "circular")
