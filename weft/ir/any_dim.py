"""A dimension that only run time knows."""

from __future__ import annotations

from weft.ir.scalar import Var
from weft.ir.structural import PLAIN


class Any(Var):
    """A dimension that only run time knows: ``?`` in texts.

    It is a scalar variable without a name: operators compute with it, but where it was met says nothing about other
    places; each use of a type stands for dimensions of its own.
    """

    name: str = "?"
    dtype: str = "int64"

    __compared_as__ = PLAIN
    __uncompared__ = ("dtype",)
    __hash__ = object.__hash__
