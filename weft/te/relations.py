"""What became of loops of a stage: relations between those that were and those that are."""

from __future__ import annotations

from typing import cast

from weft.ir import IterVar, PrimExpr
from weft.tir.schedule.index_map import IndexMap


class Split:
    """``parent`` runs as ``outer * factor + inner``; one of `factor` and `nparts` is given."""

    __slots__ = ("factor", "inner", "nparts", "outer", "parent")
    __saved_fields__ = ("parent", "outer", "inner", "factor", "nparts")

    def __init__(
        self,
        parent: IterVar,
        outer: IterVar,
        inner: IterVar,
        factor: PrimExpr | None = None,
        nparts: PrimExpr | None = None,
    ) -> None:
        self.parent, self.outer, self.inner, self.factor, self.nparts = parent, outer, inner, factor, nparts

    @property
    def amount(self) -> PrimExpr:
        """The one of `factor` and `nparts` that is given."""
        return cast("PrimExpr", self.nparts if self.factor is None else self.factor)


class Fuse:
    """``fused`` runs over all pairs of ``outer`` and ``inner``."""

    __slots__ = ("fused", "inner", "outer")
    __saved_fields__ = ("outer", "inner", "fused")

    def __init__(self, outer: IterVar, inner: IterVar, fused: IterVar) -> None:
        self.outer, self.inner, self.fused = outer, inner, fused


class Singleton:
    """``iter`` runs once: the loop of a stage that has no axes."""

    __slots__ = ("iter",)
    __saved_fields__ = ("iter",)

    def __init__(self, iter: IterVar) -> None:
        self.iter = iter


class Relayout:
    """Loops over ``places`` in memory instead of over ``loops``, which ``back`` gives in terms of them."""

    __slots__ = ("back", "loops", "places")
    __saved_fields__ = ("loops", "places", "back")

    def __init__(self, loops: tuple[IterVar, ...], places: tuple[IterVar, ...], back: IndexMap) -> None:
        self.loops, self.places, self.back = loops, places, back
