"""What became of loops of a stage: relations between those that were and those that are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from weft.arith import Analyzer
from weft.ir import IterVar, PrimExpr, as_int, floordiv, floormod
from weft.ir import cast as converted
from weft.tir.schedule.index_map import IndexMap


class Relation:
    """Loops `before` became those `after`."""

    __slots__ = ("after", "before")

    def __init__(self, before: tuple[IterVar, ...], after: tuple[IterVar, ...]) -> None:
        self.before, self.after = before, after


class Split(Relation):
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
        super().__init__((parent,), (outer, inner))
        self.parent, self.outer, self.inner, self.factor, self.nparts = parent, outer, inner, factor, nparts

    @property
    def amount(self) -> PrimExpr:
        """The one of `factor` and `nparts` that is given."""
        return cast("PrimExpr", self.nparts if self.factor is None else self.factor)


class Fuse(Relation):
    """``fused`` runs over all pairs of ``outer`` and ``inner``."""

    __slots__ = ("fused", "inner", "outer")
    __saved_fields__ = ("outer", "inner", "fused")

    def __init__(self, outer: IterVar, inner: IterVar, fused: IterVar) -> None:
        super().__init__((outer, inner), (fused,))
        self.outer, self.inner, self.fused = outer, inner, fused


class Singleton(Relation):
    """``iter`` runs once: the loop of a stage that has no axes."""

    __slots__ = ("iter",)
    __saved_fields__ = ("iter",)

    def __init__(self, iter: IterVar) -> None:
        super().__init__((), (iter,))
        self.iter = iter


class Relayout(Relation):
    """Loops over ``places`` in memory instead of over ``loops``, which ``back`` gives in terms of them."""

    __slots__ = ("back", "loops", "places")
    __saved_fields__ = ("loops", "places", "back")

    def __init__(self, loops: tuple[IterVar, ...], places: tuple[IterVar, ...], back: IndexMap) -> None:
        super().__init__(loops, places)
        self.loops, self.places, self.back = loops, places, back


def find_extents(relations: Sequence[Relation], extents: dict[IterVar, PrimExpr], an: Analyzer) -> None:
    """Add the extents of what was made of loops whose extents are known."""
    for r in relations:
        if isinstance(r, Split) and r.parent in extents:
            whole = extents[r.parent]
            amount = converted(whole.dtype, r.amount)
            rest = an.simplify(floordiv(whole + amount - 1, amount))
            extents[r.outer], extents[r.inner] = (rest, amount) if r.factor is not None else (amount, rest)
        elif isinstance(r, Fuse) and r.outer in extents and r.inner in extents:
            extents[r.fused] = an.simplify(extents[r.outer] * extents[r.inner])


def find_values(
    relations: Sequence[Relation], values: dict[IterVar, PrimExpr], extents: Mapping[IterVar, PrimExpr]
) -> None:
    """Add the values of loops, which count from zero, where those of all that was made of them are known."""
    given = dict(values)
    for r in reversed(relations):
        if any(iv not in values for iv in r.after):
            continue
        found: Sequence[PrimExpr] = ()
        if isinstance(r, Split) and r.inner in extents:
            found = (values[r.outer] * extents[r.inner] + values[r.inner],)
        elif isinstance(r, Fuse) and r.inner in extents:
            index, inner = values[r.fused], extents[r.inner]
            by = converted(index.dtype, 1 if as_int(inner) == 0 else inner)  # nothing runs where it is zero
            found = floordiv(index, by), floormod(index, by)
        elif isinstance(r, Relayout):
            found = r.back.map_indices([values[iv] for iv in r.places])
        values.update({iv: given.get(iv, converted(iv.var.dtype, x)) for iv, x in zip(r.before, found, strict=False)})
