"""The steps of recurrent layers, over inputs that are already projected.

Hidden units are computed a block at a time: the products of all gates of its units are sums kept in registers, over
weights that lie in the order in which they are read (:func:`panel_shape`), and the units' new states follow at once.
Where a step is much work its blocks run in parallel; else samples and directions do, each with all of its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import as_int, cast, const, int64, select
from weft.machine import UNKNOWN

__all__ = ["ACTIVATIONS", "UNITS", "gru_recurrence", "lstm_recurrence", "panel_shape", "rnn_recurrence"]

UNITS = {"lstm": 16, "gru": 16, "rnn": 64}
"""Hidden units of a block."""
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
"""Gates of a unit."""
_LANES = 16
_SUMS = 4  # vectors of sums at the same time, which hide how long an addition takes


def _const(v: Any, value: float) -> Any:
    return const(value, v.dtype)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": tir.sigmoid,
    "tanh": tir.tanh,
    "relu": lambda v: tir.max(v, _const(v, 0)),
    "affine": lambda v: v,
    "hardsigmoid": lambda v: tir.min(tir.max(v * _const(v, 0.2) + _const(v, 0.5), _const(v, 0)), _const(v, 1)),
    "softsign": lambda v: v / (_const(v, 1) + tir.abs(v)),
    "softplus": lambda v: tir.log(_const(v, 1) + tir.exp(v)),
    "elu": lambda v: select(v > _const(v, 0), v, tir.exp(v) - _const(v, 1)),
    "leakyrelu": lambda v: select(v > _const(v, 0), v, v * _const(v, 0.01)),
    "thresholdedrelu": lambda v: select(v > _const(v, 1), v, _const(v, 0)),
    "scaledtanh": tir.tanh,
}
"""Activations by name, with ONNX's default parameters."""


def panel_shape(kind: str, directions: int, hidden: int) -> tuple[int, int, int, int]:
    """Return the shape of packed recurrent weights: (directions, blocks, hidden, gates of a block).

    Element ``[d, i, k, g * U + u]`` is the weight from unit ``k`` to gate ``g`` of unit ``i * U + u``, where a block
    has ``U = UNITS[kind]`` units; past the last unit it is 0.
    """
    units = UNITS[kind]
    return directions, -(-hidden // units), hidden, GATES[kind] * units


@dataclass
class _Step:
    """A sample at a step: where its input stands, and how the state of the step before is read."""

    at: Any
    b: Any
    state: Callable[[Any], Any]


Cell = Callable[[Any, Any, Any, _Step], Any]
"""From the sums of a block, a lane, its unit and the step to the statement that stores the unit's new state."""


class _Layer:
    """What the loops of one direction share: buffers, sizes, activations."""

    def __init__(self, kind: str, d: int, xw: Any, r: Any, outputs: Any, hidden: int, attrs: dict[str, Any]) -> None:
        per_direction = {"lstm": 3, "gru": 2, "rnn": 1}[kind]
        names = [str(n).lower() for n in attrs["activations"]]
        names = names[per_direction * d : per_direction * (d + 1)] or names[:per_direction]
        for name in names:
            if name not in ACTIVATIONS:
                raise InvalidArgument(f"nn.{kind}: unknown activation '{name}'", expected=", ".join(ACTIVATIONS))
        self.activations = [ACTIVATIONS[n] for n in names]
        self.d, self.xw, self.r, self.outputs, self.hidden = int64(d), xw, r, outputs, hidden
        self.units, self.gates = UNITS[kind], GATES[kind]
        self.dtype, self.limit, self.zero = xw.dtype, attrs["clip"], const(0, xw.dtype)
        self.reverse = d == 1 or attrs["direction"] == "reverse"

    def clipped(self, v: Any) -> Any:
        """The argument of an activation, limited by the attribute ``clip``."""
        return v if self.limit <= 0 else tir.max(tir.min(v, const(self.limit, v.dtype)), const(-self.limit, v.dtype))

    def position(self, t: Any, length: Any) -> Any:
        """Where the input of step `t` stands."""
        return length - int64(1) - t if self.reverse else t

    def input(self, step: _Step, gate: int, unit: Any) -> Any:
        """The projected input of a unit's gate."""
        first = (self.d * int64(self.gates) + int64(gate)) * int64(self.hidden)
        return tir.BufferLoad(self.xw, (step.at, step.b, first + unit))

    def total(self, sums: Any, gate: int, lane: Any) -> Any:
        """The sum of a gate of a block's unit; rows after the gates are further sums of the same."""
        return tir.BufferLoad(sums, (int64(gate * self.units) + lane,))

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

    def block(self, i: Any, step: _Step, gates: range, start: Any, state: Callable[[Any], Any], cell: Cell) -> Any:
        """The sums ``start(gate, unit) + sum_k state(k) * weight`` of some gates of block `i`, then its cells."""
        whole, rest = divmod(self.hidden, self.units)
        full = self._block(i, step, gates, start, state, cell, self.units)
        if not rest:
            return full
        tail = self._block(i, step, gates, start, state, cell, rest)
        return tir.IfThenElse(i < int64(whole), full, tail) if whole else tail

    def _block(
        self, i: Any, step: _Step, gates: range, start: Any, state: Callable[[Any], Any], cell: Cell, count: int
    ) -> Any:
        units, first = self.units, i * int64(self.units)
        chains = max(1, _SUMS * _LANES // (len(gates) * units))
        sums = tir.decl_buffer((int64(chains * self.gates * units),), self.dtype, "sums", scope="local")

        def store(row: int, value: Callable[[Any], Any], count: int = units) -> Any:
            return _vectors(count, lambda e: tir.BufferStore(sums, value(e), (int64(row * units) + e,)))

        def begin(gate: int) -> Any:
            known = store(gate, lambda e: start(gate, first + e), count)
            return known if count == units else tir.seq(store(gate, lambda e: self.zero), known)

        def add(row: int, gate: int, k: Any) -> Any:
            def value(e: Any) -> Any:
                weight = tir.BufferLoad(self.r, (self.d, i, k, int64(gate * units) + e))
                return self.total(sums, row, e) + state(k) * weight

            return store(row, value)

        def products(low: int, high: int, chains: int) -> Any:
            k = tir.Var("k", "int64")
            each = (add(c * self.gates + g, g, int64(low) + k * int64(chains) + int64(c))
                    for c in range(chains) for g in gates)  # fmt: skip
            return tir.For(k, int64(0), int64((high - low) // chains), tir.ForKind.SERIAL, tir.seq(*each))

        whole = self.hidden // chains * chains
        others = [(g, c * self.gates + g) for c in range(1, chains) for g in gates]
        return tir.AllocBuffer(sums, tir.seq(
            *(begin(g) for g in gates),
            *(store(row, lambda e: self.zero) for _, row in others),
            *([products(0, whole, chains)] if whole else []),
            *([products(whole, self.hidden, 1)] if whole < self.hidden else []),
            *(store(g, lambda e, g=g, row=row: self.total(sums, g, e) + self.total(sums, row, e)) for g, row in others),
            _vectors(count, lambda e: cell(sums, e, first + e, step)),
        ))  # fmt: skip


def _vectors(count: int, body: Callable[[Any], Any]) -> Any:
    """``body(lane)`` for lanes of a block, as straight code: vectors, and what does not fill one."""
    wide = count // _LANES
    v, u, e = (tir.Var(n, "int64") for n in "vue")
    lanes = tir.For(v, int64(0), int64(_LANES), tir.ForKind.VECTORIZED, body(u * int64(_LANES) + v))
    parts = [tir.For(u, int64(0), int64(wide), tir.ForKind.UNROLLED, lanes)] if wide else []
    if count % _LANES:
        parts.append(tir.For(e, int64(wide * _LANES), int64(count % _LANES), tir.ForKind.UNROLLED, body(e)))
    return tir.seq(*parts)


Phases = Callable[[_Layer, _Step], list[Callable[[Any], Any]]]
"""What a step consists of: functions of a block's number, each to be done for all blocks before the next begins."""


class _Recurrence:
    """The loops around a step: over samples, steps and blocks, in the order that suits the amount of work."""

    def __init__(
        self, layers: list[_Layer], lens: Any, initial: Any, carried: list[tuple[Any, Any]], phases: Phases
    ) -> None:
        self.layers, self.lens, self.initial, self.carried, self.phases = layers, lens, initial, carried, phases
        xw, r = layers[0].xw, layers[0].r
        self.steps, self.batch, self.blocks = xw.shape[0], xw.shape[1], r.shape[1]

    def run(self) -> Any:
        """All of it."""
        layer = self.layers[0]
        if layer.gates * layer.hidden * layer.hidden >= UNKNOWN.parallel_step_products:
            return self._blocks_in_parallel()
        return self._samples_in_parallel()

    def _length(self, b: Any, body: Callable[[Any], Any]) -> Any:
        length = tir.Var("length", "int64")
        known = tir.max(tir.min(cast("int64", tir.BufferLoad(self.lens, (b,))), self.steps), int64(0))
        return tir.LetStmt(length, known, body(length))

    def _start(self, layer: _Layer, b: Any, length: Any) -> Any:
        """Copy the states that are updated in place, and clear the outputs past a sample's length."""
        u = tir.Var("u", "int64")
        at = (layer.d, b)
        copies = [layer.each(lambda j, s=s, t=t: tir.BufferStore(t, tir.BufferLoad(s, (*at, j)), (*at, j)))
                  for s, t in self.carried]  # fmt: skip
        clear = layer.each(lambda j: tir.BufferStore(layer.outputs[0], layer.zero, (u, *at, j)))
        return tir.seq(*copies, tir.For(u, length, self.steps - length, tir.ForKind.SERIAL, clear))

    def _finish(self, layer: _Layer, b: Any, length: Any) -> Any:
        """Copy the last output to the last state."""
        y, yh = layer.outputs[:2]
        at, last = (layer.d, b), layer.position(length - int64(1), length)

        def copy(source: Callable[[Any], Any]) -> Any:
            return layer.each(lambda j: tir.BufferStore(yh, source(j), (*at, j)))

        return tir.IfThenElse(
            length > int64(0),
            copy(lambda j: tir.BufferLoad(y, (last, *at, j))),
            copy(lambda j: tir.BufferLoad(self.initial, (*at, j))),
        )

    def _step(self, layer: _Layer, b: Any, t: Any, length: Any) -> _Step:
        """Step `t`, the first where `t` is None: its state is the initial one, else the output before."""
        at = (layer.d, b)
        if t is None:
            return _Step(layer.position(int64(0), length), b, lambda k: tir.BufferLoad(self.initial, (*at, k)))
        before = layer.position(t - int64(1), length)
        state = lambda k: tir.BufferLoad(layer.outputs[0], (before, *at, k))  # noqa: E731
        return _Step(layer.position(t, length), b, state)

    def _samples_in_parallel(self) -> Any:
        """Each sample and direction with all of its steps."""

        def whole(layer: _Layer, b: Any) -> Any:
            def one(length: Any) -> Any:
                t = tir.Var("t", "int64")
                others = self._all_blocks(layer, self._step(layer, b, t, length))
                return tir.seq(
                    self._start(layer, b, length),
                    tir.IfThenElse(length > int64(0), self._all_blocks(layer, self._step(layer, b, None, length))),
                    tir.For(t, int64(1), length - int64(1), tir.ForKind.SERIAL, others),
                    self._finish(layer, b, length),
                )

            return self._length(b, one)

        return self._directions(self.batch, whole)

    def _all_blocks(self, layer: _Layer, step: _Step) -> Any:
        parts = []
        for phase in self.phases(layer, step):
            i = tir.Var("i", "int64")
            parts.append(tir.For(i, int64(0), self.blocks, tir.ForKind.SERIAL, phase(i)))
        return tir.seq(*parts)

    def _blocks_in_parallel(self) -> Any:
        """Step by step, the blocks of a step and its directions at the same time."""

        def samples(body: Callable[[_Layer, Any, Any], Any]) -> Callable[[_Layer], Any]:
            def over(layer: _Layer) -> Any:
                b = tir.Var("b", "int64")
                inner = self._length(b, lambda length: body(layer, b, length))
                return tir.For(b, int64(0), self.batch, tir.ForKind.SERIAL, inner)

            return over

        def at_step(t: Any) -> Any:
            parts = []
            for n in range(len(self.phases(self.layers[0], self._step(self.layers[0], int64(0), t, int64(1))))):

                def block(layer: _Layer, i: Any, n: int = n) -> Any:
                    def one(layer: _Layer, b: Any, length: Any) -> Any:
                        now = int64(0) if t is None else t
                        work = self.phases(layer, self._step(layer, b, t, length))[n](i)
                        return tir.IfThenElse(now < length, work)

                    return samples(one)(layer)

                parts.append(self._directions(self.blocks, block))
            return tir.seq(*parts)

        t = tir.Var("t", "int64")
        return tir.seq(
            *(samples(self._start)(layer) for layer in self.layers),
            tir.IfThenElse(self.steps > int64(0), at_step(None)),
            tir.For(t, int64(1), self.steps - int64(1), tir.ForKind.SERIAL, at_step(t)),
            *(samples(self._finish)(layer) for layer in self.layers),
        )

    def _directions(self, extent: Any, body: Callable[[_Layer, Any], Any]) -> Any:
        """``body(layer, i)`` for each direction and ``i`` below `extent`, in parallel."""
        p = tir.Var("p", "int64")
        inner = body(self.layers[0], p)
        if len(self.layers) > 1:
            inner = tir.IfThenElse(p < extent, inner, body(self.layers[1], p - extent))
        return tir.For(p, int64(0), extent * int64(len(self.layers)), tir.ForKind.PARALLEL, inner)


def _recurrence(kind: str, xw: Any, r: Any, inputs: list[Any], n_states: int, make: Any, attrs: dict[str, Any]) -> Any:
    """All directions as one te operation: every output, then the last states.

    ``make(ins, outs)`` returns the lengths, the initial hidden state, pairs of initial and last states that are updated
    in place, and the phases.
    """
    directions, hidden = as_int(r.shape[0]), as_int(r.shape[2])
    if directions is None or hidden is None:
        raise InvalidArgument(f"nn.{kind}: the hidden size must be constant")
    steps, batch = xw.shape[:2]

    def body(ins: Any, outs: Any) -> Any:
        layers = [_Layer(kind, d, ins[0], ins[1], outs, hidden, attrs) for d in range(directions)]
        lens, initial, carried, phases = make(ins, outs)
        return _Recurrence(layers, lens, initial, carried, phases).run()

    state = (int64(directions), batch, int64(hidden))
    shapes = [(steps, int64(directions), batch, int64(hidden)), *[state] * n_states]
    return te.extern(shapes, [xw, r, *inputs], body, name=kind, dtype=[xw.dtype] * len(shapes))


def lstm_recurrence(
    xw: Any, r: Any, sequence_lens: Any, initial_h: Any, initial_c: Any, p: Any, direction: str = "forward",
    activations: Any = ("sigmoid", "tanh", "tanh"), clip: float = 0.0, input_forget: bool = False,
) -> Any:  # fmt: skip
    """The steps of an LSTM, gates in the order input, output, forget, cell.

    All outputs, last hidden and last cell states.
    """

    def make(ins: Any, outs: Any) -> Any:
        _, _, lens, h0, c0, peepholes = ins

        def phases(layer: _Layer, step: _Step) -> list[Any]:
            start = lambda g, j: layer.input(step, g, j)  # noqa: E731
            cell = _lstm_cell(layer, peepholes, input_forget)
            return [lambda i: layer.block(i, step, range(4), start, step.state, cell)]

        return lens, h0, [(c0, outs[2])], phases

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _recurrence("lstm", xw, r, [sequence_lens, initial_h, initial_c, p], 2, make, attrs)


def _lstm_cell(layer: _Layer, peepholes: Any, input_forget: bool) -> Cell:
    y, _, yc = layer.outputs
    f_act, g_act, h_act = layer.activations
    d, one = layer.d, const(1, layer.dtype)

    def cell(sums: Any, e: Any, j: Any, step: _Step) -> Any:
        def gate(n: int, peephole: int | None = None, state: Any = None) -> Any:
            v = layer.total(sums, n, e)
            if peephole is not None:
                v = v + tir.BufferLoad(peepholes, (d, j + int64(peephole * layer.hidden))) * state
            return layer.clipped(v)

        c_old, i, f, c_new = (tir.Var(n, layer.dtype) for n in ("c_old", "i", "f", "c_new"))
        store = tir.seq(
            tir.BufferStore(yc, c_new, (d, step.b, j)),
            tir.BufferStore(y, f_act(gate(1, 1, c_new)) * h_act(c_new), (step.at, d, step.b, j)),
        )
        store = tir.LetStmt(c_new, f * c_old + i * g_act(gate(3)), store)
        forget = one - i if input_forget else f_act(gate(2, 2, c_old))
        store = tir.LetStmt(i, f_act(gate(0, 0, c_old)), tir.LetStmt(f, forget, store))
        return tir.LetStmt(c_old, tir.BufferLoad(yc, (d, step.b, j)), store)

    return cell


def gru_recurrence(
    xw: Any, r: Any, rb: Any, sequence_lens: Any, initial_h: Any, direction: str = "forward",
    activations: Any = ("sigmoid", "tanh"), clip: float = 0.0, linear_before_reset: bool = False,
) -> Any:  # fmt: skip
    """The steps of a GRU, gates in the order update, reset, candidate; `rb` is the candidate's recurrent bias.

    Where the reset comes before the linear map, `rb` is already in `xw` and not read.
    """

    def make(ins: Any, outs: Any) -> Any:
        _, _, bias, lens, h0 = ins
        phases = _gru_phases if linear_before_reset else _gru_phases_reset_first
        return lens, h0, [], lambda layer, step: phases(layer, bias, step)

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _recurrence("gru", xw, r, [rb, sequence_lens, initial_h], 1, make, attrs)


def _gru_output(layer: _Layer, update: Any, candidate: Any, j: Any, step: _Step) -> Any:
    """Mix the candidate with the old state, and store."""
    z = tir.Var("z", layer.dtype)
    mixed = (const(1, layer.dtype) - z) * layer.activations[1](layer.clipped(candidate)) + z * step.state(j)
    return tir.LetStmt(z, update, tir.BufferStore(layer.outputs[0], mixed, (step.at, layer.d, step.b, j)))


def _gru_phases(layer: _Layer, bias: Any, step: _Step) -> list[Any]:
    """The reset gate scales what the linear map gave: one phase."""

    def gate(sums: Any, g: int, e: Any) -> Any:
        return layer.activations[0](layer.clipped(layer.total(sums, g, e)))

    def start(g: int, j: Any) -> Any:
        return layer.input(step, g, j) if g < 2 else tir.BufferLoad(bias, (layer.d, j))

    def cell(sums: Any, e: Any, j: Any, step: _Step) -> Any:
        candidate = layer.input(step, 2, j) + gate(sums, 1, e) * layer.total(sums, 2, e)
        return _gru_output(layer, gate(sums, 0, e), candidate, j, step)

    return [lambda i: layer.block(i, step, range(3), start, step.state, cell)]


def _gru_phases_reset_first(layer: _Layer, bias: Any, step: _Step) -> list[Any]:
    """The reset gate scales the state before the candidate's linear map.

    Between the phases the update gate waits where the output will be, the scaled state where the last one will be.
    """
    y, yh = layer.outputs
    at = (step.at, layer.d, step.b)
    start = lambda g, j: layer.input(step, g, j)  # noqa: E731

    def gates(sums: Any, e: Any, j: Any, step: _Step) -> Any:
        update, reset = (layer.activations[0](layer.clipped(layer.total(sums, g, e))) for g in (0, 1))
        scaled = tir.BufferStore(yh, reset * step.state(j), (layer.d, step.b, j))
        return tir.seq(tir.BufferStore(y, update, (*at, j)), scaled)

    def finish(sums: Any, e: Any, j: Any, step: _Step) -> Any:
        return _gru_output(layer, tir.BufferLoad(y, (*at, j)), layer.total(sums, 2, e), j, step)

    damped = lambda k: tir.BufferLoad(yh, (layer.d, step.b, k))  # noqa: E731
    return [
        lambda i: layer.block(i, step, range(2), start, step.state, gates),
        lambda i: layer.block(i, step, range(2, 3), start, damped, finish),
    ]


def rnn_recurrence(
    xw: Any, r: Any, sequence_lens: Any, initial_h: Any, direction: str = "forward", activations: Any = ("tanh",),
    clip: float = 0.0,
) -> Any:  # fmt: skip
    """The steps of a plain recurrent layer; all outputs and the last states."""

    def make(ins: Any, outs: Any) -> Any:
        _, _, lens, h0 = ins

        def phases(layer: _Layer, step: _Step) -> list[Any]:
            def cell(sums: Any, e: Any, j: Any, step: _Step) -> Any:
                new = layer.activations[0](layer.clipped(layer.total(sums, 0, e)))
                return tir.BufferStore(layer.outputs[0], new, (step.at, layer.d, step.b, j))

            start = lambda g, j: layer.input(step, g, j)  # noqa: E731
            return [lambda i: layer.block(i, step, range(1), start, step.state, cell)]

        return lens, h0, [], phases

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _recurrence("rnn", xw, r, [sequence_lens, initial_h], 1, make, attrs)
