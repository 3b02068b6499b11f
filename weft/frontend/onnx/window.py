"""Windows of convolutions and pools: kernel, strides, dilations, and padding by every rule that ONNX has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.value import Dim


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes; ``before`` and ``after`` are the padding, symbolic where a size is."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[Dim]
    after: list[Dim]

    @property
    def extents(self) -> list[int]:
        """How far the window reaches along each axis."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def has_constant_pads(self) -> bool:
        """Whether all padding is known."""
        return all(isinstance(p, int) for p in (*self.before, *self.after))

    @property
    def padding(self) -> tuple[int, ...]:
        """Padding as operators take it: all beginnings, then all ends."""
        return tuple(int(p) for p in (*self.before, *self.after))  # type: ignore[arg-type]


def read_window(node: Node, kernel: list[Any]) -> Window:
    """Read strides, dilations and padding of a node.

    Parameters
    ----------
    kernel : list of int
        The kernel's size along each spatial axis.

    Raises
    ------
    ModelImportError
        When an attribute has a wrong length or value.
    """
    node.require_rank(0, 3, math.inf)
    rank = node.ndim() - 2
    sizes = node.shape()[2:]
    kernel = _of_length(node, "kernel_shape", kernel, rank)
    strides = _of_length(node, "strides", node.attr("strides", [1] * rank), rank)
    dilations = _of_length(node, "dilations", node.attr("dilations", [1] * rank), rank)
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if any(not isinstance(v, int) or v < 1 for v in values):
            node.error(f"attribute '{name}' must be positive", found=str(values))
    auto = node.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = _of_length(node, "pads", node.attr("pads", [0] * (2 * rank)), 2 * rank)
        return Window(kernel, strides, dilations, pads[:rank], pads[rank:])
    if auto == "VALID":
        return Window(kernel, strides, dilations, [0] * rank, [0] * rank)
    before, after = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        low, high = _same_padding(size, (k - 1) * dilation + 1, stride)
        before.append(high if auto == "SAME_LOWER" else low)
        after.append(low if auto == "SAME_LOWER" else high)
    return Window(kernel, strides, dilations, before, after)


def _same_padding(size: Dim, extent: int, stride: int) -> tuple[Dim, Dim]:
    """Split the padding that keeps ``ceil(size / stride)`` windows into a smaller and a larger half."""
    if stride == 1:
        total: Dim = extent - 1
    else:
        last = s.multiply(s.subtract(s.ceildiv(size, stride), 1), stride)
        total = s.maximum(s.subtract(s.add(last, extent), size), 0)
    low = s.divide(total, 2)
    return low, s.subtract(total, low)


def _of_length(node: Node, name: str, values: list[Any], length: int) -> list[Any]:
    if len(values) != length:
        node.error(
            f"attribute '{name}' has a wrong length",
            expected=f"{length} for {node.ndim()} dimensions",
            found=str(list(values)),
        )
    return list(values)
