"""Combinations in which every two values meet: few faults need a third one (Kuhn, Wallace, Gallo, TSE 30(6), 2004)."""

import itertools
from collections.abc import Hashable, Iterable
from typing import TypeVar

Row = TypeVar("Row", bound=tuple[Hashable, ...])


def meeting(rows: Iterable[Row]) -> list[Row]:
    """Return some of the rows: values of two columns that are together in a row are together in one of them."""
    met = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    left, chosen = set().union(*met.values()), list[Row]()
    while left:
        chosen.append(max(met, key=lambda row: len(met[row] & left)))
        left -= met[chosen[-1]]
    return chosen
