"""GridSample: images read at points that are data."""

from __future__ import annotations

from typing import Any

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter

__all__: list[str] = []

_METHODS = {"bilinear": "bilinear", "linear": "bilinear", "bicubic": "bicubic", "cubic": "bicubic",
            "nearest": "nearest"}  # fmt: skip
_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


@converter("GridSample")
def _grid_sample(node: Node) -> Any:
    method = _METHODS.get(node.attr("mode", "linear"))
    if method is None or node.ndim() not in _LAYOUTS:
        node.unsupported(
            "GridSample: this mode or rank is not supported",
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
