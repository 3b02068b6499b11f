"""Which elements the threads of a block touch, and whether different threads touch the same ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import ir
from weft.tir.analysis.apart import values_at
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.stmt import BufferStore, For

_POINTS = 1 << 17  # so many pairs of a thread and an element are looked at one by one
_LINEAR = (ir.Add, ir.Sub, ir.Mul, ir.Var, ir.IntImm, ir.Cast)

Access: TypeAlias = BufferLoad | BufferStore
_Points: TypeAlias = tuple[np.ndarray, np.ndarray]  # elements, and the numbers of the threads that touch them


class ThreadPlaces:
    """The threads and the loops of a body, and what each thread touches there."""

    def __init__(self, body: Any) -> None:
        self.tags: dict[ir.Var, str] = {}
        self.extents: dict[str, int | None] = {}  # of threads, by the tag of their axis
        self.ranges: dict[ir.Var, tuple[int | None, int | None]] = {}  # where loops begin, and their extents
        self.known: dict[tuple[Access, tuple[ir.Var, ...]], _Points | None] = {}
        for loop in ir.find(body, For):
            self.ranges[loop.loop_var] = _, extent = ir.as_int(loop.min), ir.as_int(loop.extent)
            tag = loop.thread_binding.thread_tag if loop.thread_binding is not None else ""
            if tag.startswith("threadIdx"):
                self.tags[loop.loop_var] = tag
                before = self.extents.get(tag, 0)
                self.extents[tag] = None if None in (extent, before) else max(extent or 0, before or 0)
        used = [n for n in ir.find(body, BufferLoad, BufferStore) if n.buffer.scope.startswith("shared")]
        periods = _periods(i for n in used for i in n.indices)
        self.ranges |= {v: (0, n) for v, n in periods.items() if v not in self.tags}

    def meet(self, first: Sequence[Access], then: Sequence[Access], within: Any, writes: bool = True) -> bool:
        """Whether a thread may touch by `then` what another touched by `first`, and one of the two writes.

        Loops outside of `within` are in one iteration for both, those inside in any. Without `writes`, two writes of
        one element do not count.
        """
        common = {n.buffer.data for n in then} & {n.buffer.data for n in first}
        if not any(isinstance(n, BufferStore) and n.buffer.data in common for n in (*first, *then)):
            return False
        inner = {n.loop_var for n in ir.find(within, For)}
        fixed = tuple(used_vars(*(i for n in (*first, *then) for i in n.indices)) - inner - self.tags.keys())
        for data in common:
            a, b = ([n for n in side if n.buffer.data is data] for side in (first, then))
            stores = [[n for n in side if isinstance(n, BufferStore)] for side in (a, b)]
            loads = [[n for n in side if isinstance(n, BufferLoad)] for side in (a, b)]
            pairs = [(stores[0], loads[1]), (loads[0], stores[1]), *([(stores[0], stores[1])] if writes else [])]
            if any(x and y and self._share(x, y, fixed) for x, y in pairs):
                return True
        return False

    def _share(self, first: Sequence[Access], then: Sequence[Access], fixed: tuple[ir.Var, ...]) -> bool:
        found = [(self._points(n, fixed), side) for side, part in enumerate((first, then)) for n in part]
        known = [(points, np.full(len(points[0]), side)) for points, side in found if points is not None]
        if len(known) < len(found) or len({str(n.buffer.dtype) for n in (*first, *then)}) > 1:
            return True
        places, threads = (np.concatenate([points[i] for points, _ in known]) for i in (0, 1))
        order = np.argsort(places, kind="stable")
        begins = np.flatnonzero(np.diff(places[order], prepend=places[order[0]] - 1))
        apart = [
            np.minimum.reduceat(x[order], begins) != np.maximum.reduceat(x[order], begins)
            for x in (threads, np.concatenate([side for _, side in known]))
        ]
        return bool((apart[0] & apart[1]).any())

    def _points(self, access: Access, fixed: tuple[ir.Var, ...]) -> _Points | None:
        if (key := (access, fixed)) not in self.known:
            self.known[key] = self._evaluated(access, fixed)
        return self.known[key]

    def _evaluated(self, access: Access, fixed: tuple[ir.Var, ...]) -> _Points | None:
        """What each thread touches, numbered with the values of `fixed`; None where that is not known."""
        free = [v for v in used_vars(*access.indices) if v not in self.tags and v not in fixed]
        ranges = [self.ranges.get(v, (None, None)) for v in (*free, *fixed)]
        sizes = [*self.extents.values(), *(n for _, n in ranges)]
        starts = [low for low, _ in (*ranges, *(self.ranges[v] for v in self.tags))]
        shape = [ir.as_int(d) for d in access.buffer.shape]
        if not self.extents or None in (*sizes, *starts, *shape[1:]):
            return None
        known = [n or 0 for n in sizes]
        if not 0 < math.prod(known) <= _POINTS:
            return None
        points = dict(zip((*self.extents, *free, *fixed), np.indices(known).reshape(len(known), -1), strict=True))
        at = {v: points[v] + (low or 0) for v, (low, _) in zip((*free, *fixed), ranges, strict=True)}
        at |= {v: points[tag] + (self.ranges[v][0] or 0) for v, tag in self.tags.items()}
        places: Any = 0
        for index, extent in zip(access.indices, shape, strict=True):
            value = values_at(index, at)
            if value is None:
                return None
            places = places * (extent or 1) + value
        for v in fixed:
            places = places * (self.ranges[v][1] or 1) + points[v]
        threads: Any = 0
        for tag, extent in self.extents.items():
            threads = threads * (extent or 1) + points[tag]
        return tuple(np.broadcast_to(x, math.prod(known)) for x in (places, threads))  # type: ignore[return-value]


def _periods(indices: Iterable[ir.PrimExpr]) -> dict[ir.Var, int]:
    """The variables of which indices take a remainder alone, and after how many values that begins anew."""
    found: dict[ir.Var, int] = {}
    plain = set(_outside(indices, found))
    return {v: n for v, n in found.items() if v not in plain}


def _outside(exprs: Iterable[Any], found: dict[ir.Var, int]) -> Iterator[ir.Var]:
    """The variables that stand outside of remainders by constants; those inside are `found`, with the constants."""
    for e in exprs:
        by = ir.as_int(e.b) or 0 if isinstance(e, ir.FloorMod) else 0
        if by > 0 and all(isinstance(n, _LINEAR) for n in ir.walk(e.a)):
            found |= {v: math.lcm(found.get(v, 1), by) for v in used_vars(e.a)}
        elif isinstance(e, ir.Var):
            yield e
        else:
            yield from _outside(ir.children(e), found)
