"""AffineGrid and GridSample: points that an affine map makes, and images read at points that are data."""

from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim

_METHODS = dict(bilinear="bilinear", linear="bilinear", bicubic="bicubic", cubic="bicubic", nearest="nearest")
_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


@converter("GridSample")
def _grid_sample(node: Node) -> Any:
    method = _METHODS.get(node.attr("mode", "linear"))
    if method is None or node.ndim() not in _LAYOUTS:
        node.unsupported(
            "this mode or rank is not supported",
            expected=f"{', '.join(_METHODS)}; rank 3 to 5",
            found=f"{node.attr('mode')}, rank {node.ndim()}",
        )
    rank = node.ndim()
    return node.op(
        "image.grid_sample",
        node.x(0),
        node.permute(node.astype(node.x(1), node.dtype(0)), [0, rank - 1, *range(1, rank - 1)]),
        method=method,
        layout=_LAYOUTS[rank],
        padding_mode=node.attr("padding_mode", "zeros"),
        align_corners=bool(node.attr("align_corners", 0)),
    )


@converter("AffineGrid")
def _affine_grid(node: Node) -> Any:
    sizes = node.ints(1, sizes=True)
    if len(sizes) not in (4, 5):
        node.error("its input 'size' has a wrong length", expected="4 or 5", found=str(len(sizes)))
    for d in sizes:
        node.require_between("a size", d, 1, None)
    batch, _, *space = sizes
    rank = len(space)
    node.require_shape(0, [batch, rank, rank + 1])
    theta, align = node.reshape(node.x(0), [batch, *([1] * rank), rank, rank + 1]), bool(node.attr("align_corners", 0))

    def column(k: int) -> Any:
        return node.reshape(node.slice(theta, [rank + 2], [k], [k + 1]), [batch, *([1] * rank), rank])

    out = column(rank)
    for k, size in enumerate(reversed(space)):  # the points' first coordinate runs along the last axis
        beside = [size if i == rank - k else 1 for i in range(rank + 2)]
        line = node.reshape(_coordinates(node, size, align), beside)
        out = node.op("add", out, node.op("multiply", column(k), line))
    return out


def _coordinates(node: Node, size: Dim, align: bool) -> Any:
    """Return the coordinates -1 to 1 of the elements of an axis: of the first and last, or of their outer edges."""
    dtype = node.dtype(0)
    place = node.astype(node.arange(size), dtype)
    if not align:
        place = node.op("add", place, node.scalar(0.5, dtype))
    steps = s.maximum(s.subtract(size, 1), 1) if align else size
    scaled = node.op("multiply", place, node.op("divide", node.scalar(2.0, dtype), node.number(steps, dtype)))
    return node.op("subtract", scaled, node.scalar(1.0, dtype))
