"""The k first of each line: kept in a heap whose root is the last of them, which what comes later has to beat.

Most elements of a long line beat nothing. The best of every few neighbours is found beforehand, in vectors. No k first
come after the k-th of these, so that neighbours whose best does are passed over together, as are those, once k are
kept, whose best does not beat the root.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log2
from typing import Any

from weft import ir, te, tir
from weft.ir import DataType, as_int, cast, const, floordiv, int64, logical_and, logical_or, select
from weft.topi.shape import simplify
from weft.topi.typing import Buffers, Extent, Shape

_TOGETHER = 16
"""Neighbours that are passed over together in lines of unknown length, or where it is unknown how many are wanted."""


FEW_COLUMNS = 16
"""Neighbouring lines from which on they are walked together."""


def before(a: ir.PrimExpr, ia: ir.PrimExpr, b: ir.PrimExpr, ib: ir.PrimExpr, largest: bool) -> Any:
    """Whether (a, ia) comes before (b, ib): by value, NaN counting as greatest, then by index."""
    first = a > b if largest else a < b
    equal = a.equal(b)
    if DataType(a.dtype).is_float:
        nan_a, nan_b = a != a, b != b
        first = logical_or(
            first, logical_and(nan_a, tir.logical_not(nan_b)) if largest else logical_and(nan_b, tir.logical_not(nan_a))
        )
        equal = logical_or(equal, logical_and(nan_a, nan_b))
    return logical_or(first, logical_and(equal, ia < ib))


def lines(shape: Shape, axis: int, body: Callable[[Callable[[Any], tuple[Any, ...]]], Any]) -> Any:
    """Loops over the lines along an axis, in parallel, around ``body(at)``.

    ``at(j)`` are the indices of element j of the line.
    """
    outer = [d for i, d in enumerate(shape) if i != axis]
    loops = [tir.Var(f"i{n}", "int64") for n in range(len(outer))]

    def at(j: Any) -> tuple[Any, ...]:
        rest = iter(loops)
        return tuple(j if i == axis else next(rest) for i in range(len(shape)))

    stmt = body(at)
    for n, (v, d) in enumerate(reversed(list(zip(loops, outer, strict=True)))):
        kind = tir.ForKind.PARALLEL if n == len(loops) - 1 else tir.ForKind.SERIAL
        stmt = tir.For(v, int64(0), cast("int64", d), kind, stmt)
    return stmt


def first_of_lines(x: te.Tensor, k: Extent, axis: int, largest: bool) -> tuple[Any, Any]:
    """Values and positions (int64) of the first k of each line, in order: the greatest, or the least."""
    shape = tuple(k if i == axis else d for i, d in enumerate(x.shape))
    n, count, together = as_int(x.shape[axis]), as_int(k), _TOGETHER
    if n is not None and count is not None:  # as many are looked at in a block as blocks are for each that is wanted
        together = min(1 << round(log2(max(n / max(count, 1), 1)) / 2), 64)
    given = [x] if together < 4 else [x, _best(x, axis, largest, together)]

    def body(ins: Buffers, outs: Buffers) -> Any:
        return lines(x.shape, axis, lambda at: _Line(ins, outs, k, x.shape[axis], at, largest, together).statement())

    values, indices = te.extern([shape, shape], given, body, name="topk", dtype=[x.dtype, "int64"])
    return values, indices


def _best(x: te.Tensor, axis: int, largest: bool, together: int) -> te.Tensor:
    """The best of every few neighbours along an axis; NaN counts as infinite."""
    extent, width = x.shape[axis], int64(together)
    count = simplify(floordiv(extent + width - int64(1), width))
    r = te.reduce_axis((int64(0), width), "neighbour")

    def element(*i: Any) -> Any:
        j = i[axis] * width + r.var
        value = x(*i[:axis], j, *i[axis + 1 :])
        if DataType(x.dtype).is_float:
            value = select(value != value, const(float("inf"), x.dtype), value)
        return (te.max if largest else te.min)(tir.if_then_else(j < extent, value, _last(x.dtype, largest)), axis=r)

    return te.compute((*x.shape[:axis], count, *x.shape[axis + 1 :]), element, name="best")


def _last(dtype: str, largest: bool) -> ir.PrimExpr:
    """What nothing comes after but NaN."""
    return te.lowest(dtype) if largest else te.highest(dtype)


def _beats(value: Any, root: Any, largest: bool) -> Any:
    """Whether a later element comes before the root: one that equals it does not."""
    if not DataType(value.dtype).is_float:
        return value > root if largest else value < root
    if largest:
        return logical_and(root.equal(root), tir.logical_not(value <= root))
    return logical_and(value.equal(value), tir.logical_not(value >= root))


def first_of_columns(x: te.Tensor, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    """Values and positions (int64) of the first k of each line along an axis that is not the last.

    Neighbouring lines are lanes: each element goes between those that were first before it, which stay in registers.
    """
    shape, last = tuple(int64(k) if i == axis else d for i, d in enumerate(x.shape)), cast("int64", x.shape[-1])
    width = FEW_COLUMNS if k > 1 else 4 * FEW_COLUMNS
    strips = (*x.shape[:-1], floordiv(last + int64(width - 1), int64(width)))

    def strip(at: Any, *buffers: Any) -> Any:
        ib = tir.ir_builder.create()
        source, values, places = (ib.buffer_ptr(b) for b in buffers)
        held = [ib.allocate(t, (k * width,), name="first", scope="local") for t in ("int64", x.dtype)]
        begin = at(int64(0))[-1] * int64(width)
        lanes = partial(ib.for_range, int64(0), int64(width), "i", kind="vectorize")

        def element(j: Any, i: Any) -> Any:
            return tir.if_then_else(begin + i < last, source[(*at(j)[:-1], begin + i)], const(0, x.dtype))

        for n in range(k):
            with lanes() as i:
                for buffer, new in zip(held, (int64(0), element(int64(0), i)), strict=True):
                    buffer[i + int64(n * width)] = new
        with ib.for_range(int64(1), cast("int64", x.shape[axis]), "j") as j:
            for n in reversed(range(k)):
                with lanes() as i:
                    value = element(j, i)
                    slots = [i + int64(s * width) for s in range(n + 1)][-2:]
                    comes = [
                        logical_or(j <= int64(n - d), _beats(value, held[1][slot], largest))
                        for d, slot in enumerate(reversed(slots))
                    ]
                    for buffer, new in zip(held, (j, value), strict=True):
                        new = select(comes[1], buffer[slots[0]], new) if n else new
                        buffer[slots[-1]] = select(comes[0], new, buffer[slots[-1]])
        for n in range(k):
            with lanes() as i, ib.if_scope(begin + i < last):
                for buffer, out in zip(held, (places, values), strict=True):
                    out[(*at(int64(n))[:-1], begin + i)] = buffer[i + int64(n * width)]
        return ib.get()

    def body(ins: Buffers, outs: Buffers) -> Any:
        return lines(strips, axis, lambda at: strip(at, ins[0], *outs))

    values, places = te.extern([shape, shape], [x], body, name="topk", dtype=[x.dtype, "int64"])
    return values, places


class _Line:
    """One line on its way through the heap, which lies where its results go."""

    def __init__(self, ins: Buffers, outs: Buffers, k: Any, extent: Any, at: Any, largest: bool, together: int) -> None:
        self.ib = tir.ir_builder.create()
        self.source, *self.best = (self.ib.buffer_ptr(b) for b in ins)
        self.values, self.indices = (self.ib.buffer_ptr(b) for b in outs)
        self.k, self.extent, self.at, self.largest = cast("int64", k), cast("int64", extent), at, largest
        self.together = int64(together)

    def statement(self) -> Any:
        """Let the line through the heap, and sort what it holds."""
        ib, k = self.ib, self.k
        self.hole, self.child = (ib.allocate("int64", (1,), name=n, scope="local") for n in ("hole", "child"))
        self.root = ib.allocate(self.source.dtype, (1,), name="root", scope="local")
        with ib.if_scope(k > int64(0)):
            if self.best:
                self._pass_over(self.best[0])
            else:
                self._first_of(self.source, self.extent)
            with ib.for_range(int64(0), k - int64(1), "j") as j:
                end = k - int64(1) - j
                last = self._let(*self._kept(end))
                self._put(end, *self._kept(int64(0)))
                self._sift(int64(0), end, *last)
        return ib.get()

    def _first_of(self, source: Any, extent: ir.PrimExpr) -> None:
        """Let all elements through the heap."""
        with self.ib.for_range(int64(0), self.k, "j") as j:
            self._fill(j, source[self.at(j)], j)
        with self.ib.for_range(self.k, extent, "j") as j:
            self._offer(source[self.at(j)], j)

    def _pass_over(self, best: Any) -> None:
        """Let neighbours through whose best may be among the first: so far, none but what the k-th best is after."""
        ib, k = self.ib, self.k
        blocks = floordiv(self.extent + self.together - int64(1), self.together)
        self.root[0] = _last(self.source.dtype, self.largest)
        with ib.if_scope(k <= blocks):
            self._first_of(best, blocks)
        kept = ib.allocate("int64", (1,), name="kept", scope="local")
        kept[0] = int64(0)
        with ib.for_range(int64(0), blocks, "block") as block:
            (candidate,) = self._let(best[self.at(block)])
            start = block * self.together
            with ib.if_scope(select(kept[0] < k, self._reaches(candidate), self._may_beat(candidate))):
                with ib.for_range(start, tir.min(start + self.together, self.extent), "j") as j:
                    (value,) = self._let(self.source[self.at(j)])
                    with ib.if_scope(kept[0] >= k):
                        self._offer(value, j)
                    with ib.else_scope(), ib.if_scope(self._reaches(value)):
                        self._fill(kept[0], value, j)
                        kept[0] += int64(1)

    def _reaches(self, value: ir.PrimExpr) -> ir.PrimExpr:
        """Whether what the root holds does not come before a value."""
        return tir.logical_not(value < self.root[0] if self.largest else value > self.root[0])

    def _may_beat(self, candidate: ir.PrimExpr) -> ir.PrimExpr:
        """Whether the best of neighbours comes before the root, or NaN may be below it, which is greatest."""
        beats = _beats(candidate, self.root[0], self.largest)
        nan = self.largest and DataType(candidate.dtype).is_float
        return logical_or(beats, candidate.equal(const(float("inf"), candidate.dtype))) if nan else beats

    def _fill(self, place: ir.PrimExpr, value: ir.PrimExpr, j: ir.PrimExpr) -> None:
        """Keep an element beside `place` others; once there are k of them, they become a heap."""
        half = floordiv(self.k, int64(2))
        self._put(place, value, j)
        with self.ib.if_scope(place.equal(self.k - int64(1))):
            with self.ib.for_range(int64(0), half, "i") as i:
                start = half - int64(1) - i
                self._sift(start, self.k, *self._kept(start))
            self.root[0] = self._kept(int64(0))[0]

    def _offer(self, value: ir.PrimExpr, j: ir.PrimExpr) -> None:
        """Let an element that comes before the root take its place."""
        with self.ib.if_scope(_beats(value, self.root[0], self.largest)):
            self._sift(int64(0), self.k, value, j)
            self.root[0] = self._kept(int64(0))[0]

    def _sift(self, start: Any, size: Any, value: Any, index: Any) -> None:
        """Put an element into the heap, at `start` or as far below as what comes after it moves up."""
        ib, hole, child = self.ib, self.hole, self.child
        value, index = self._let(value, index)
        hole[0], child[0] = start, start * int64(2) + int64(1)
        with ib.while_loop(child[0] < size):
            other = tir.min(child[0] + int64(1), size - int64(1))
            with ib.if_scope(before(*self._kept(child[0]), *self._kept(other), self.largest)):
                child[0] = other
            with ib.if_scope(before(value, index, *self._kept(child[0]), self.largest)):
                self._put(hole[0], *self._kept(child[0]))
                hole[0] = child[0]
                child[0] = child[0] * int64(2) + int64(1)
            with ib.else_scope():
                child[0] = size
        self._put(hole[0], value, index)

    def _kept(self, i: Any) -> tuple[Any, Any]:
        return self.values[self.at(i)], self.indices[self.at(i)]

    def _put(self, i: Any, value: Any, index: Any) -> None:
        self.values[self.at(i)] = value
        self.indices[self.at(i)] = index

    def _let(self, *given: Any) -> list[Any]:
        """Name values, so that they stay what they are while the heap changes."""
        names = [tir.Var("kept", v.dtype) for v in given]
        for name, value in zip(names, given, strict=True):
            self.ib.emit(lambda rest, n=name, v=value: tir.LetStmt(n, v, rest))
        return names
