"""Expressions that only tensor-expression bodies hold: reads of tensors not yet buffers, and reductions."""

from __future__ import annotations

from typing import Any

from weft.ir import TRUE, DataType, IterVar, Node, PrimExpr, Var

__all__ = ["CommReducer", "ProducerLoad", "Reduce"]


class ProducerLoad(PrimExpr):
    """Element `indices` of a te tensor (anything with ``shape`` and ``dtype``)."""

    producer: Any
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        lanes = DataType(self.indices[-1].dtype).lanes if self.indices else 1
        return self.producer.dtype if lanes == 1 else f"{self.producer.dtype}x{lanes}"


class CommReducer(Node):
    """A commutative, associative combiner of one or more values.

    ``result[i]`` combines ``lhs`` and ``rhs``; ``identity_element[i]`` leaves the other side as it is.
    """

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]


class Reduce(PrimExpr):
    """Component `value_index` of combining `source` over `axis`, where `condition` holds.

    `init` replaces the identity.
    """

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr = TRUE
    value_index: int = 0
    init: tuple[PrimExpr, ...] = ()

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return self.source[self.value_index].dtype
