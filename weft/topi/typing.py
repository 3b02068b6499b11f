"""What public functions of topi take, by name."""

from collections.abc import Sequence
from typing import Protocol

from weft import ir, te, tir
from weft.tir.ir_builder import IRBuilder as IRBuilder

Scalar = ir.PrimExpr | int | float
"""A number, which a program may compute."""

Extent = ir.PrimExpr | int
"""A dimension, or a distance along one."""

Whole = ir.IntImm | int
"""An integer that is known."""

Shape = Sequence[Extent]
"""Dimensions, the outermost first."""

Extents = Extent | Sequence[Extent]
"""A number for each spatial dimension, or one for all of them."""

Padding = Extent | Sequence[Extent] | str
"""Numbers for each spatial dimension or each of its ends, one for all of them, ``"VALID"`` or ``"SAME"``."""

Axes = int | Sequence[int] | None
"""Dimensions by number, negative ones from the end; None is all of them."""

Operand = te.Tensor | Scalar
"""What is broadcast against a tensor."""

Tensors = Sequence[te.Tensor]
"""Several tensors."""

Bounds = Sequence[Extent] | te.Tensor
"""A number an axis, which a tensor may hold."""


Buffers = Sequence[tir.Buffer]
"""The memory of several tensors."""


class Compressed(Protocol):
    """A matrix that stores some elements: of each its column, and where each row begins."""

    data: te.Tensor
    indices: te.Tensor
    indptr: te.Tensor
