"""What public functions of tir take, by name."""

from collections.abc import Sequence

from weft import ir

Value = ir.ExprLike
"""What becomes a scalar expression."""

Index = Value | slice | ir.Range
"""An element, or several in a row."""

Dims = Sequence[ir.PrimExpr | int]
"""A number for each dimension."""
