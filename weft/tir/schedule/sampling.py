"""Primitives that draw: a decision is checked like what would have been drawn."""

from __future__ import annotations

import random
from collections.abc import Sequence

from weft.ir import IntImm
from weft.tir.schedule.state import refuse
from weft.tir.stmt import For

__all__ = ["categorical", "perfect_tile"]


def categorical(
    source: random.Random, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
) -> int:
    """Draw the index of a candidate, or check the one decided."""
    what = "sample_categorical"
    if len(candidates) != len(probs) or not candidates:
        raise refuse(what, f"{len(candidates)} candidates and {len(probs)} probabilities", help="give as many of each")
    if any(p < 0 for p in probs) or not sum(probs) > 0:
        raise refuse(what, f"the probabilities {list(probs)}", help="give numbers from 0 that are not all 0")
    if decision is None:
        return source.choices(range(len(candidates)), probs)[0]
    if not 0 <= decision < len(candidates):
        raise refuse(what, f"the decision {decision} is no candidate", help=f"an index below {len(candidates)}")
    return decision


def perfect_tile(
    source: random.Random, loop: For, n: int, max_innermost_factor: int, decision: Sequence[int] | None = None
) -> list[int]:
    """Draw `n` factors whose product is the extent of a loop, or check those decided."""
    what = "sample_perfect_tile"
    if n < 1:
        raise refuse(what, f"{n} factors", loops=loop, help="ask for one factor or more")
    if not isinstance(loop.extent, IntImm):
        raise refuse(what, f"the extent {loop.extent} is not a constant", loops=loop, help="give factors to split")
    extent = loop.extent.value
    if decision is not None:
        factors = [int(f) for f in decision]
        product = 1
        for f in factors:
            product *= f
        if len(factors) != n or product != extent or any(f < 0 for f in factors):
            raise refuse(
                what, f"the decision {factors}", loops=loop, help=f"give {n} factors whose product is {extent}"
            )
        return factors
    if extent == 0:
        return [0] + [1] * (n - 1)
    choices = list(_factorizations(extent, n))
    return list(source.choice([f for f in choices if f[-1] <= max_innermost_factor] or choices))


def _factorizations(value: int, n: int) -> list[tuple[int, ...]]:
    if n == 1:
        return [(value,)]
    return [(d, *rest) for d in range(1, value + 1) if value % d == 0 for rest in _factorizations(value // d, n - 1)]
