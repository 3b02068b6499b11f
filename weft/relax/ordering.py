"""Order of the bindings of a dataflow block: what each needs, and a stable order that respects it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Var as ScalarVar
from weft.ir import walk
from weft.relax.expr import MatchCast
from weft.relax.rename import variables

__all__ = ["dependencies", "sort_bindings"]


def dependencies(bindings: Sequence[Any]) -> list[set[int]]:
    """For each binding, the numbers of those that define its variables, symbolic ones of ``match_cast`` included."""
    index = {id(b.var): i for i, b in enumerate(bindings)}
    symbols: dict[int, int] = {}
    for i, b in enumerate(bindings):
        for n in walk(b.ty) if isinstance(b, MatchCast) else ():
            if isinstance(n, ScalarVar):
                symbols.setdefault(id(n), i)
    needs: list[set[int]] = []
    for i, b in enumerate(bindings):
        needed = {index[id(v)] for v in variables(b.value) if id(v) in index}
        if symbols:
            scalars = [n for root in (b.value, b.var.ty) if root is not None for n in walk(root)]
            needed |= {symbols[id(n)] for n in scalars if id(n) in symbols}
        needs.append(needed - {i})
    return needs


def sort_bindings(bindings: Sequence[Any], key: Callable[[int], Any] | None = None) -> list[Any]:
    """Order bindings so that each stands after what it needs.

    Parameters
    ----------
    key : callable, optional
        Of the bindings that may come next, the one whose number has the least key does; by default the first.
    """
    rank = key or (lambda i: i)
    needs = dependencies(bindings)
    users: list[list[int]] = [[] for _ in bindings]
    for i, needed in enumerate(needs):
        for j in needed:
            users[j].append(i)
    ready = [(rank(i), i) for i, needed in enumerate(needs) if not needed]
    heapq.heapify(ready)
    out: list[Any] = []
    while ready:
        _, i = heapq.heappop(ready)
        out.append(bindings[i])
        for j in users[i]:
            needs[j].discard(i)
            if not needs[j]:
                heapq.heappush(ready, (rank(j), j))
    if len(out) != len(bindings):
        stuck = [b.var.name_hint for i, b in enumerate(bindings) if needs[i]]
        raise InvalidArgument("bindings need each other in a circle", found=", ".join(stuck[:8]))
    return out
