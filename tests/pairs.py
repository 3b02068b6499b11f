"""Which of many rows the suite takes; ``WEFT_SWEEP=1`` takes all.

Combinations in which every two values meet: few faults need a third one (Kuhn, Wallace, Gallo, TSE 30(6), 2004).
"""

import itertools
import os
import zlib
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from weft import environment

Row = TypeVar("Row", bound=tuple[Hashable, ...])


def meeting(rows: Iterable[Row], together: int = 2) -> list[Row]:
    """Return some of the rows: values of so many columns that are together in a row are together in one of them."""
    met = {row: set(itertools.combinations(enumerate(row), together)) for row in rows}
    left, chosen = set().union(*met.values()), list[Row]()
    while left:
        chosen.append(max(met, key=lambda row: len(met[row] & left)))
        left -= met[chosen[-1]]
    return chosen


def part(n: int) -> int:
    """Return of a number of random programs those that the suite draws."""
    return n if environment.SWEEP.read() else (n + 2) // 3


def share(rows: Mapping[str, tuple[Hashable, ...]], of: int, together: int = 1) -> list[str]:
    """Return names of the rows of `meeting`, and of one of so many others, which are chosen by their names."""
    first = {row: name for name, row in reversed(rows.items())}
    met = {first[row] for row in meeting(reversed(first), together)}
    return [n for n in rows if environment.SWEEP.read() or n in met or of and zlib.crc32(n.encode()) % of == 0]


def compiles(of: int) -> bool:
    """Whether this test compiles its program: one test of so many does, and all of a sweep; others evaluate it."""
    return bool(share({os.environ["PYTEST_CURRENT_TEST"]: ()}, of))
