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
    """For each binding, the numbers of those that define its variables, symbolic ones of ``match_cast`` included.

    A ``match_cast`` defines the symbols that no binding before it has; others it compares.
    """
    index = {id(b.var): i for i, b in enumerate(bindings)}
    symbols: dict[int, int] = {}
    if any(isinstance(b, MatchCast) for b in bindings):
        seen: set[int] = set()
        for i, b in enumerate(bindings):
            if isinstance(b, MatchCast):
                symbols |= {id(n): i for n in walk(b.ty) if isinstance(n, ScalarVar) and id(n) not in seen}
            seen |= _symbols(b)
    needs: list[set[int]] = []
    for i, b in enumerate(bindings):
        needed = {index[id(v)] for v in variables(b.value) if id(v) in index}
        if symbols:
            needed |= {symbols[n] for n in _symbols(b) if n in symbols}
        needs.append(needed - {i})
    return needs


def _symbols(binding: Any) -> set[int]:
    """The ids of the scalar variables in a binding's value and type."""
    roots = (binding.value, binding.var.ty, getattr(binding, "ty", None))
    return {id(n) for root in roots if root is not None for n in walk(root) if isinstance(n, ScalarVar)}


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
