"""One block of a recurrent layer's step: its sums in registers, then the new states of its units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from weft import tir
from weft.ir import PrimExpr, as_int, const, int64, select
from weft.topi.rnn_activations import activation

UNITS = {"lstm": 16, "gru": 16, "rnn": 64}
"""Hidden units of a block."""
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
"""Gates of a unit."""
_LANES = 16
_SUMS = 4  # vectors of sums at the same time, which hide how long an addition takes
_ZERO = int64(0)


def panel_shape(kind: str, directions: int, hidden: int) -> tuple[int, int, int, int]:
    """Return the shape of packed recurrent weights: (directions, blocks, hidden, gates of a block).

    Element ``[d, i, k, g * U + u]`` is the weight from unit ``k`` to gate ``g`` of unit ``i * U + u``, where a block
    has ``U = UNITS[kind]`` units; past the last unit it is 0. One sample reads them as they come, several at a time
    read each line of memory once, whatever the gate.
    """
    units = UNITS[kind]
    return directions, -(-hidden // units), hidden, GATES[kind] * units


@dataclass
class Step:
    """A sample at a step: where its input stands, how the state of the step before is read.

    `place` is its number among those that go through a block together.
    """

    at: Any
    b: Any
    state: Callable[[Any], Any]
    place: Any = _ZERO


@dataclass
class Samples:
    """So many samples that go through a block together: each of them at the same step, by its number."""

    size: int
    bind: Callable[[Any, Callable[[Step], Any]], Any]
    """``bind(number, body)``: ``body(step)`` of a sample, behind what finds its place unless the number is known."""

    def at(self, number: int) -> Step:
        """The sample of a known number."""
        return self.bind(int64(number), lambda step: step)


Start = Callable[[Step, int, Any], Any]
State = Callable[[Step, Any], Any]
Cell = Callable[[Any, Any, Any, Step], Any]
"""From the sums of a block, a lane, its unit and the step to the statement that stores the unit's new state."""


def old_state(step: Step, k: PrimExpr) -> Any:
    """Read the state of the step before."""
    return step.state(k)


def clipped(v: PrimExpr, limit: float) -> Any:
    """A value between a limit above 0 and its negative."""
    return v if limit <= 0 else tir.max(tir.min(v, const(limit, v.dtype)), const(-limit, v.dtype))


class Layer:
    """What the loops of one direction share: buffers, sizes, activations."""

    def __init__(self, kind: str, d: int, xw: Any, r: Any, outputs: Any, hidden: int, attrs: dict[str, Any]) -> None:
        per_direction = {"lstm": 3, "gru": 2, "rnn": 1}[kind]
        names = attrs["activations"]
        self.activations = list(map(activation, names[per_direction * d :][:per_direction] or names[:per_direction]))
        self.d: Any = int64(d)
        self.xw, self.r, self.outputs, self.hidden = xw, r, outputs, hidden
        self.units, self.gates = UNITS[kind], GATES[kind]
        self.dtype, self.limit, self.zero = xw.dtype, attrs["clip"], const(0, xw.dtype)
        self.reverse = d == 1 or attrs["direction"] == "reverse"

    def position(self, t: Any, length: Any) -> Any:
        """Where the input of step `t` stands."""
        behind = length - int64(1) - t
        if as_int(self.d) is None:  # either direction
            return select(self.d < int64(1), t, behind)
        return behind if self.reverse else t

    def input(self, step: Step, gate: int, unit: Any) -> Any:
        """The projected input of a unit's gate."""
        first = (self.d * int64(self.gates) + int64(gate)) * int64(self.hidden)
        return tir.BufferLoad(self.xw, (step.at, step.b, first + unit))

    def total(self, sums: Any, gate: int, lane: Any, place: Any = _ZERO) -> Any:
        """The sum of a gate of a block's unit, for one of the samples; or, of a single one, a further sum of it."""
        return tir.BufferLoad(sums, (self.row(place, gate) + lane,))

    def gate(self, sums: Any, gate: int, lane: Any, place: Any) -> Any:
        """The first activation of a gate's sum."""
        return self.activations[0](clipped(self.total(sums, gate, lane, place), self.limit))

    def row(self, place: Any, gate: int) -> Any:
        """Where the sums of a sample's gate begin."""
        return (place * int64(self.gates) + int64(gate)) * int64(self.units)

    def each(self, body: Callable[[Any], Any]) -> Any:
        """``body(j)`` for each hidden unit."""
        wide = self.hidden // _LANES
        v, u = tir.Var("v", "int64"), tir.Var("u", "int64")
        lanes = tir.For(v, int64(0), int64(_LANES), tir.ForKind.VECTORIZED, body(u * int64(_LANES) + v))
        parts = [tir.For(u, int64(0), int64(wide), tir.ForKind.SERIAL, lanes)] if wide else []
        if self.hidden % _LANES:
            j = tir.Var("j", "int64")
            rest = int64(self.hidden - wide * _LANES)
            parts.append(tir.For(j, int64(wide * _LANES), rest, tir.ForKind.SERIAL, body(j)))
        return tir.seq(*parts)

    def block(self, i: Any, steps: Samples, gates: range, start: Start, state: State, cell: Cell) -> Any:
        """Sums ``start(step, gate, unit) + sum_k state(step, k) * weight`` of gates of block `i`, then its cells.

        The last block, where it has fewer units, takes samples one by one: code for it is made once.
        """
        whole, rest = divmod(self.hidden, self.units)

        def one(step: Step, count: int) -> Any:
            return self._of_one(i, replace(step, place=_ZERO), gates, start, state, cell, count)

        tail = _each_of(steps, lambda step: one(step, rest))
        if not whole:
            return tail
        full = (
            one(steps.at(0), self.units) if steps.size == 1 else self._of_several(i, steps, gates, start, state, cell)
        )
        return tir.IfThenElse(i < int64(whole), full, tail) if rest else full

    def _weight(self, i: Any, gate: int, k: Any, lane: Any) -> Any:
        return tir.BufferLoad(self.r, (self.d, i, k, int64(gate * self.units) + lane))

    def _of_one(self, i: Any, step: Step, gates: range, start: Start, state: State, cell: Cell, count: int) -> Any:
        """One sample: all gates at once, whose sums stay in registers, in several sums where there are few gates."""
        units, first = self.units, i * int64(self.units)
        chains = max(1, _SUMS * _LANES // (len(gates) * units))
        sums = tir.decl_buffer((int64(chains * self.gates * units),), self.dtype, "sums", scope="local")

        def store(c: int, gate: int, value: Callable[[Any], Any], count: int = units) -> Any:
            return _vectors(count, lambda e: tir.BufferStore(sums, value(e), (self.row(int64(c), gate) + e,)))

        def begin(gate: int) -> Any:
            known = store(0, gate, lambda e: start(step, gate, first + e), count)
            return known if count == units else tir.seq(store(0, gate, lambda e: self.zero), known)

        def add(c: int, gate: int, k: Any) -> Any:
            return store(
                c, gate, lambda e: self.total(sums, gate, e, int64(c)) + state(step, k) * self._weight(i, gate, k, e)
            )

        def products(low: int, high: int, chains: int) -> Any:
            k = tir.Var("k", "int64")
            each = (add(c, g, int64(low) + k * int64(chains) + int64(c)) for c in range(chains) for g in gates)
            return tir.For(k, int64(0), int64((high - low) // chains), tir.ForKind.SERIAL, tir.seq(*each))

        whole = self.hidden // chains * chains
        others = [(int64(c), g) for c in range(1, chains) for g in gates]
        return tir.AllocBuffer(
            sums,
            tir.seq(
                *(begin(g) for g in gates),
                *(store(c, g, lambda e: self.zero) for c in range(1, chains) for g in gates),
                *([products(0, whole, chains)] if whole else []),
                *([products(whole, self.hidden, 1)] if whole < self.hidden else []),
                *(
                    store(0, g, lambda e, c=c, g=g: self.total(sums, g, e) + self.total(sums, g, e, c))
                    for c, g in others
                ),
                _vectors(count, lambda e: cell(sums, e, first + e, step)),
            ),
        )

    def _of_several(self, i: Any, steps: Samples, gates: range, start: Start, state: State, cell: Cell) -> Any:
        """Several samples: as many vectors of gates at a time as registers hold the sums of, for all samples.

        Finished sums wait in memory, so that the loops need no registers but for their own.
        """
        units, first, together = self.units, i * int64(self.units), max(1, _SUMS // steps.size)
        sums = tir.decl_buffer((int64(steps.size * self.gates * units),), self.dtype, "sums", scope="local")

        def begin(s: Step) -> Any:
            store = lambda g, e: tir.BufferStore(sums, start(s, g, first + e), (self.row(s.place, g) + e,))  # noqa: E731
            return tir.seq(*(_vectors(units, lambda e, g=g: store(g, e)) for g in gates))

        vectors = [(g, u) for g in gates for u in range(0, units, _LANES)]
        return tir.AllocBuffer(
            sums,
            tir.seq(
                _each_of(steps, begin),
                *(
                    self._products(sums, i, steps, vectors[n : n + together], state)
                    for n in range(0, len(vectors), together)
                ),
                _each_of(steps, lambda step: _vectors(units, lambda e: cell(sums, e, first + e, step))),
            ),
        )

    def _products(self, sums: Any, i: Any, steps: Samples, vectors: list[tuple[int, int]], state: State) -> Any:
        """Add the products of all samples to some vectors of their sums, in registers."""
        tile = tir.decl_buffer((int64(steps.size * len(vectors) * _LANES),), self.dtype, "tile", scope="local")
        k = tir.Var("k", "int64")

        def each(body: Callable[[Step, Any, int, Any, Any], Any]) -> Any:
            parts = []
            for n, (p, (g, u)) in enumerate((p, gu) for p in range(steps.size) for gu in vectors):
                v = tir.Var("v", "int64")
                stored = body(steps.at(p), int64(n * _LANES) + v, g, int64(u) + v, self.row(int64(p), g))
                parts.append(tir.For(v, int64(0), int64(_LANES), tir.ForKind.VECTORIZED, stored))
            return tir.seq(*parts)

        def add(step: Step, at: Any, g: int, lane: Any, row: Any) -> Any:
            value = tir.BufferLoad(tile, (at,)) + state(step, k) * self._weight(i, g, k, lane)
            return tir.BufferStore(tile, value, (at,))

        return tir.AllocBuffer(
            tile,
            tir.seq(
                each(lambda _, at, g, lane, row: tir.BufferStore(tile, tir.BufferLoad(sums, (row + lane,)), (at,))),
                tir.For(k, int64(0), int64(self.hidden), tir.ForKind.SERIAL, each(add)),
                each(lambda _, at, g, lane, row: tir.BufferStore(sums, tir.BufferLoad(tile, (at,)), (row + lane,))),
            ),
        )


def _each_of(steps: Samples, body: Callable[[Step], Any]) -> Any:
    """``body(step)`` for each of some samples."""
    q = tir.Var("q", "int64")
    return (
        tir.For(q, _ZERO, int64(steps.size), tir.ForKind.SERIAL, steps.bind(q, body))
        if steps.size > 1
        else body(steps.at(0))
    )


def _vectors(count: int, body: Callable[[Any], Any]) -> Any:
    """``body(lane)`` for lanes of a block, as straight code: vectors, and what does not fill one."""
    wide = count // _LANES
    v, u, e = (tir.Var(n, "int64") for n in "vue")
    lanes = tir.For(v, int64(0), int64(_LANES), tir.ForKind.VECTORIZED, body(u * int64(_LANES) + v))
    parts = [tir.For(u, int64(0), int64(wide), tir.ForKind.UNROLLED, lanes)] if wide else []
    if count % _LANES:
        parts.append(tir.For(e, int64(wide * _LANES), int64(count % _LANES), tir.ForKind.UNROLLED, body(e)))
    return tir.seq(*parts)
