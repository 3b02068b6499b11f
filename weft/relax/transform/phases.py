"""Phases: what a transposed convolution without overlap gives, before it has the form of an image.

Where kernel and stride are equal, each pixel of the input becomes a block of the output, so the convolution is a
product of pixels with the columns of their blocks. Element-wise operations work on the product as it is. Blocks with
many numbers in a row are written where they belong, and take the form of an image by a change of shape alone; those
with few are put in their places once, when somebody needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.ir import Attrs, Call, Constant, Expr, Op, PrimExpr, constant, shape_expr
from weft.op import make_call
from weft.runtime import aligned

__all__ = ["Phased", "product_of_blocks"]


@dataclass(frozen=True)
class Phased:
    """A value of shape (n, h, rows, w, columns * channels), or, where blocks lie together, (n, h, w, block * channels).

    As an image it is (n, h * rows, w * columns, channels).
    """

    value: Any
    base: tuple[PrimExpr, PrimExpr, PrimExpr]
    block: tuple[int, int]
    channels: int
    together: bool

    def image(self, bb: Any) -> Expr:
        """Emit the image, channels last."""
        (n, h, w), (rows, columns), value = self.base, self.block, self.value
        if self.together:
            apart = bb.emit(_reshape(value, (n, h, w, rows, columns * self.channels)))
            value = bb.emit(Call(Op.get("relax.permute_dims"), (apart,), Attrs.of(axes=(0, 1, 3, 2, 4))))
        return bb.emit(_reshape(value, (n, h * rows, w * columns, self.channels)))

    def broadcast(self, arg: Constant) -> Constant | None:
        """Return a channels-first constant as it broadcasts with the value; None if it differs between pixels."""
        data = arg.data.numpy()
        shape = (1,) * (4 - data.ndim) + data.shape
        if len(shape) != 4 or shape[0] != 1 or shape[2:] != (1, 1) or shape[1] not in (1, self.channels):
            return None
        repeats = self.block[1] * (self.block[0] if self.together else 1)
        tiled = np.tile(data.reshape(-1), repeats if shape[1] > 1 else 1)
        return constant(aligned(tiled.reshape((1,) * (3 if self.together else 4) + (-1,))))


def _reshape(x: Expr, shape: tuple[Any, ...]) -> Call:
    return Call(Op.get("relax.reshape"), (x, shape_expr(list(shape))))


def product_of_blocks(pixels: Expr, base: tuple[PrimExpr, PrimExpr, PrimExpr], kernel: np.ndarray, bb: Any) -> Phased:
    """Emit the product of pixels (n, h, w, in) with weights (in, out, rows, columns), the rows of blocks apart."""
    n, h, w = base
    c, channels, rows, columns = kernel.shape
    weight = aligned(kernel.transpose(2, 0, 3, 1).reshape(rows, c, columns * channels))
    apart = bb.emit(_reshape(pixels, (n, h, 1, w, c)))
    value = bb.emit(make_call("matmul")(apart, constant(weight)))
    return Phased(value, base, (rows, columns), channels, together=False)
