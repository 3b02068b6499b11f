"""Order of the bindings of a dataflow block: what each needs, and a stable order that respects it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from weft import error, ir
from weft.relax.effects import written_arguments
from weft.relax.expr import Binding, MatchCast
from weft.relax.rename import variables


def dependencies(bindings: Sequence[Any]) -> list[set[int]]:
    """For each binding, the numbers of those that define its variables, symbolic ones of ``match_cast`` included.

    A ``match_cast`` defines the symbols that no binding before it has; others it compares, so what mentions them stays
    on its side. What reads memory that a call changes stays on its side of that call, and checks stay in order.
    """
    index = {b.var: i for i, b in enumerate(bindings)}
    checked: dict[ir.Var, int] = {}  # the last match_cast that names a symbol
    check = -1
    touched: dict[ir.ExprVar, list[int]] = {}  # who reads a variable since it was written last, behind who wrote it
    casts = any(isinstance(b, MatchCast) for b in bindings)
    symbols_of = [_symbols(b) for b in bindings] if casts else []
    defined = _definers(bindings, symbols_of) if casts else {}
    needs: list[set[int]] = []
    for i, b in enumerate(bindings):
        uses = set(variables(b.value))
        written = {v for a in written_arguments(b.value) for v in variables(a)}
        needed = {index[v] for v in uses if v in index}
        for v in uses:
            before = touched.setdefault(v, [-1])
            needed |= set(before) if v in written else {before[0]}
            touched[v] = [i] if v in written else [*before, i]
        if casts:
            symbols = symbols_of[i]
            needed |= {defined[n] for n in symbols if n in defined} | {checked[n] for n in symbols if n in checked}
            if isinstance(b, MatchCast):
                needed.add(check)
                checked |= dict.fromkeys(symbols, i)
                check = i
        needs.append(needed - {i, -1})
    return needs


def _definers(bindings: Sequence[Any], symbols_of: Sequence[set[ir.Var]]) -> dict[ir.Var, int]:
    """Map symbols to the ``match_cast`` that defines each, wherever it stands."""
    out: dict[ir.Var, int] = {}
    seen: set[ir.Var] = set()
    for i, b in enumerate(bindings):
        if isinstance(b, MatchCast):
            out |= {n: i for n in ir.find(b.ty, ir.Var) if n not in seen}
        seen |= symbols_of[i]
    return out


def _symbols(binding: Binding) -> set[ir.Var]:
    """The scalar variables in a binding's value and type."""
    return set(ir.find((binding.value, binding.var.ty, getattr(binding, "ty", None)), ir.Var))


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
        raise error.InvalidArgument("bindings need each other in a circle", found=", ".join(stuck[:8]))
    return out
