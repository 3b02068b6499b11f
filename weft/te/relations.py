"""What became of loops of a stage: relations between those that were and those that are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from weft.arith import Analyzer
from weft.ir import IterVar, PrimExpr, as_int, floordiv, floormod
from weft.ir import cast as converted
from weft.tir.schedule.index_map import IndexMap


@dataclass(slots=True, eq=False)
class Split:
    """``parent`` runs as ``outer * factor + inner``; one of `factor` and `nparts` is given."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: PrimExpr | None = None
    nparts: PrimExpr | None = None
    __saved_fields__ = ("parent", "outer", "inner", "factor", "nparts")

    @property
    def amount(self) -> PrimExpr:
        """The one of `factor` and `nparts` that is given."""
        return cast("PrimExpr", self.nparts if self.factor is None else self.factor)


@dataclass(slots=True, eq=False)
class Fuse:
    """``fused`` runs over all pairs of ``outer`` and ``inner``."""

    outer: IterVar
    inner: IterVar
    fused: IterVar
    __saved_fields__ = ("outer", "inner", "fused")


@dataclass(slots=True, eq=False)
class Singleton:
    """``iter`` runs once: the loop of a stage that has no axes."""

    iter: IterVar
    __saved_fields__ = ("iter",)


@dataclass(slots=True, eq=False)
class Relayout:
    """Loops over ``places`` in memory instead of over ``loops``, which ``back`` gives in terms of them."""

    loops: tuple[IterVar, ...]
    places: tuple[IterVar, ...]
    back: IndexMap
    __saved_fields__ = ("loops", "places", "back")


Relation = Split | Fuse | Singleton | Relayout
Values = dict[IterVar, PrimExpr]


def ends(r: Relation) -> tuple[tuple[IterVar, ...], tuple[IterVar, ...]]:
    """Return the loops that were, and those that are."""
    if isinstance(r, Split):
        return (r.parent,), (r.outer, r.inner)
    if isinstance(r, Fuse):
        return (r.outer, r.inner), (r.fused,)
    return (r.loops, r.places) if isinstance(r, Relayout) else ((), (r.iter,))


def find_extents(relations: Sequence[Relation], extents: Values, an: Analyzer) -> None:
    """Add the extents of what was made of loops whose extents are known."""
    for r in relations:
        if isinstance(r, Split) and r.parent in extents:
            whole = extents[r.parent]
            amount = converted(whole.dtype, r.amount)
            rest = an.simplify(floordiv(whole + amount - 1, amount))
            extents[r.outer], extents[r.inner] = (rest, amount) if r.factor is not None else (amount, rest)
        elif isinstance(r, Fuse) and r.outer in extents and r.inner in extents:
            extents[r.fused] = an.simplify(extents[r.outer] * extents[r.inner])


def find_values(relations: Sequence[Relation], values: Values, extents: Values) -> None:
    """Add the values of loops, which count from zero, where those of all that was made of them are known."""
    given = dict(values)
    for r in reversed(relations):
        before, after = ends(r)
        if any(iv not in values for iv in after):
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
        values.update({iv: given.get(iv, converted(iv.var.dtype, x)) for iv, x in zip(before, found, strict=False)})
