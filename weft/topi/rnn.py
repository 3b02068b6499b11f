"""The steps of recurrent layers, over inputs that are already projected.

Hidden units are computed a block at a time: the products of all gates of its units are sums kept in registers, over
weights that lie in the order in which they are read, and the units' new states follow at once (``rnn_block``). Where a
step is much work its blocks run in parallel; else samples and directions do, each with all of its steps. Samples go
through a block some at a time, as far as all of them last, so that weights are loaded once for them, then half as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from weft import error, machine, te, tir
from weft.ir import PrimExpr, as_int, cast, ceildiv, const, int64, select
from weft.topi.rnn_block import Cell, Layer, Samples, Step, clipped, old_state
from weft.topi.typing import Buffers

_ZERO = int64(0)
_SAMPLES = 4  # that go through a block together

Phases = Callable[[Layer, Samples], list[Callable[[Any], Any]]]
"""What a step consists of: functions of a block's number, each to be done for all blocks before the next begins."""


class _Recurrence:
    """The loops around a step: over samples, steps and blocks, in the order that suits the amount of work."""

    def __init__(
        self, layers: list[Layer], lens: Any, initial: Any, carried: list[tuple[Any, Any]], phases: Phases
    ) -> None:
        self.layers, self.lens, self.initial, self.carried, self.phases = layers, lens, initial, carried, phases
        xw, r = layers[0].xw, layers[0].r
        self.steps, self.batch, self.blocks = xw.shape[0], xw.shape[1], r.shape[1]

    def run(self) -> Any:
        """All of it."""
        layer = self.layers[0]
        if layer.gates * layer.hidden * layer.hidden >= machine.UNKNOWN.parallel_step_products:
            return self._blocks_in_parallel()
        return self._samples_in_parallel()

    def _group_size(self) -> int:
        """How many samples go through a block together, at most: such that few are left over."""
        n = as_int(self.batch)
        if n is None:
            return _SAMPLES
        return max(range(1, min(n, _SAMPLES) + 1), key=lambda size: (n // size * size, size), default=1)

    def _length(self, b: Any) -> Any:
        """How many steps a sample has."""
        return tir.max(tir.min(cast("int64", tir.BufferLoad(self.lens, (b,))), self.steps), int64(0))

    def _least(self, first: Any, size: int, body: Callable[[Any], Any]) -> Any:
        """``body(n)``, where all of some samples have at least `n` steps; none, where not all of them are there."""
        last, n = self.batch - int64(1), tir.Var("least", "int64")
        least = self._length(first)
        for q in range(1, size):
            least = tir.min(least, self._length(tir.min(first + int64(q), last)))
        whole = (as_int(self.batch) or 1) % size == 0 and as_int(self.batch) is not None
        if size > 1 and not whole:
            least = select(first + int64(size) <= self.batch, least, int64(0))
        return tir.LetStmt(n, least, body(n))

    def _alone(self, first: Any, size: int, body: Callable[[Any, Any], Any]) -> Any:
        """``body(sample, length)`` for those samples of a group that are there, one after the other."""
        return self._each(first, tir.min(int64(size), self.batch - first), body)

    def _each(self, first: Any, count: Any, body: Callable[[Any, Any], Any]) -> Any:
        """``body(sample, length)`` for samples one after the other."""
        q = tir.Var("b", "int64")
        inner = self._least(first + q, 1, lambda length: body(first + q, length))
        return tir.For(q, int64(0), count, tir.ForKind.SERIAL, inner)

    def _start(self, layer: Layer, b: Any, length: Any) -> Any:
        """Copy the states that are updated in place, and clear the outputs past a sample's length."""
        u = tir.Var("u", "int64")
        at = (layer.d, b)
        copies = [
            layer.each(lambda j, s=s, t=t: tir.BufferStore(t, tir.BufferLoad(s, (*at, j)), (*at, j)))
            for s, t in self.carried
        ]
        clear = layer.each(lambda j: tir.BufferStore(layer.outputs[0], layer.zero, (u, *at, j)))
        return tir.seq(*copies, tir.For(u, length, self.steps - length, tir.ForKind.SERIAL, clear))

    def _finish(self, layer: Layer, b: Any, length: Any) -> Any:
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

    def _step(self, layer: Layer, b: Any, t: Any, length: Any, place: Any = _ZERO) -> Step:
        """Step `t`, the first where `t` is None: its state is the initial one, else the output before."""
        at = (layer.d, b)
        if t is None:
            return Step(layer.position(int64(0), length), b, lambda k: tir.BufferLoad(self.initial, (*at, k)), place)
        before = layer.position(t - int64(1), length)
        state = lambda k: tir.BufferLoad(layer.outputs[0], (before, *at, k))  # noqa: E731
        return Step(layer.position(t, length), b, state, place)

    def _together(self, layer: Layer, first: Any, size: int, t: Any, body: Callable[[Samples], Any]) -> Any:
        """``body(samples)`` for samples from the first on, at step `t`.

        Their lengths, which say where a step stands that is counted from the end, are read ahead of the loops in it.
        """
        lengths = [tir.Var(f"length{q}", "int64") for q in range(size)]
        ahead = as_int(layer.d) is not None and not layer.reverse  # the length says nothing

        def bind(place: Any, body: Callable[[Step], Any]) -> Any:
            q = as_int(place)
            length = tir.Var("length", "int64") if q is None else lengths[q]
            made = body(self._step(layer, first + place, t, length, place))
            return made if ahead or q is not None else tir.LetStmt(length, self._length(first + place), made)

        made = body(Samples(size, bind))
        for q in () if ahead else reversed(range(size)):
            made = tir.LetStmt(lengths[q], self._length(first + int64(q)), made)
        return made

    def _samples_in_parallel(self) -> Any:
        """Each group of samples and direction with all of its steps."""
        size = self._group_size()
        groups = ceildiv(self.batch, int64(size))
        return self._directions(groups, lambda layer, g: self._all_steps(layer, g * int64(size), size))

    def _all_steps(self, layer: Layer, first: Any, size: int) -> Any:
        """All steps of some samples: together as long as all of them last, then in halves that do so."""

        def steps(first: Any, size: int, begin: Any, end: Any) -> Any:
            t, later = tir.Var("t", "int64"), tir.max(begin, int64(1))
            at = lambda t: self._together(layer, first, size, t, lambda s: self._all_blocks(layer, s))  # noqa: E731
            return tir.seq(
                tir.IfThenElse(tir.all(begin < int64(1), end > int64(0)), at(None)),
                tir.For(t, later, tir.max(end - later, int64(0)), tir.ForKind.SERIAL, at(t)),
            )

        def together(first: PrimExpr, size: int, begin: PrimExpr, least: PrimExpr) -> Any:
            part, b = max(1, size // 2), tir.Var("b", "int64")
            at, end = first + b * int64(part), tir.max(begin, least)
            parts = ceildiv(tir.min(int64(size), self.batch - first), int64(part))
            rest = self._least(at, part, lambda n: together(at, part, end, n)) if size > 1 else None
            alone = () if rest is None else (tir.For(b, int64(0), parts, tir.ForKind.SERIAL, rest),)
            return tir.seq(steps(first, size, begin, least), *alone)

        return tir.seq(
            self._alone(first, size, lambda b, length: self._start(layer, b, length)),
            self._least(first, size, lambda n: together(first, size, int64(0), n)),
            self._alone(first, size, lambda b, length: self._finish(layer, b, length)),
        )

    def _all_blocks(self, layer: Layer, steps: Samples) -> Any:
        parts = []
        for phase in self.phases(layer, steps):
            i = tir.Var("i", "int64")
            parts.append(tir.For(i, int64(0), self.blocks, tir.ForKind.SERIAL, phase(i)))
        return tir.seq(*parts)

    def _blocks_in_parallel(self) -> Any:
        """Step by step, the blocks of a step and its directions at the same time."""
        layers, t = self.layers, tir.Var("t", "int64")
        n_phases = len(self.phases(layers[0], Samples(1, lambda q, body: body(self._step(layers[0], q, t, _ZERO)))))

        def at_step(t: Any) -> Any:
            each = (lambda layer, i, n=n: self._phase_of_all(layer, i, t, n) for n in range(n_phases))
            return tir.seq(*(self._directions(self.blocks, block) for block in each))

        every = lambda what: (self._each(int64(0), self.batch, lambda b, n, x=x: what(x, b, n)) for x in layers)  # noqa: E731
        return tir.seq(
            *every(self._start),
            tir.IfThenElse(self.steps > int64(0), at_step(None)),
            tir.For(t, int64(1), self.steps - int64(1), tir.ForKind.SERIAL, at_step(t)),
            *every(self._finish),
        )

    def _phase_of_all(self, layer: Layer, i: Any, t: Any, n: int) -> Any:
        """One phase of a block at step `t`, for all samples that last so long."""
        now = int64(0) if t is None else t

        def work(first: Any, size: int) -> Any:
            return self._together(layer, first, size, t, lambda s: self.phases(layer, s)[n](i))

        size, g = self._group_size(), tir.Var("g", "int64")
        first = g * int64(size)

        def one(least: Any) -> Any:
            alone = self._alone(first, size, lambda b, m: tir.IfThenElse(now < m, work(b, 1)))
            return tir.IfThenElse(now < least, work(first, size), *([alone] if size > 1 else []))

        groups = ceildiv(self.batch, int64(size))
        return tir.For(g, int64(0), groups, tir.ForKind.SERIAL, self._least(first, size, one))

    def _directions(self, extent: Any, body: Callable[[Layer, Any], Any]) -> Any:
        """``body(layer, i)`` for each direction and ``i`` below `extent`, in parallel."""
        p, d = tir.Var("p", "int64"), tir.Var("d", "int64")
        first, *others = self.layers
        if not others:
            inner = body(first, p)
        elif others[0].activations == first.activations:  # code for both is made once
            either = copy(first)
            either.d = d
            inner = tir.LetStmt(d, select(p < extent, _ZERO, int64(1)), body(either, p - d * extent))
        else:
            inner = tir.IfThenElse(p < extent, body(first, p), body(others[0], p - extent))
        return tir.For(p, int64(0), extent * int64(len(self.layers)), tir.ForKind.PARALLEL, inner)


def _recurrence(kind: str, xw: Any, r: Any, inputs: list[Any], n_states: int, make: Any, attrs: dict[str, Any]) -> Any:
    """All directions as one te operation: every output, then the last states.

    ``make(ins, outs)`` returns the lengths, the initial hidden state, pairs of initial and last states that are updated
    in place, and the phases.
    """
    directions, hidden = as_int(r.shape[0]), as_int(r.shape[2])
    if directions is None or hidden is None:
        raise error.InvalidArgument(f"nn.{kind}: the hidden size must be constant")
    steps, batch = xw.shape[:2]

    def body(ins: Buffers, outs: Buffers) -> Any:
        layers = [Layer(kind, d, ins[0], ins[1], outs, hidden, attrs) for d in range(directions)]
        lens, initial, carried, phases = make(ins, outs)
        return _Recurrence(layers, lens, initial, carried, phases).run()

    state = (int64(directions), batch, int64(hidden))
    shapes = [(steps, int64(directions), batch, int64(hidden)), *[state] * n_states]
    return te.extern(shapes, [xw, r, *inputs], body, name=kind, dtype=[xw.dtype] * len(shapes))


def lstm_recurrence(
    xw: te.Tensor,
    r: te.Tensor,
    sequence_lens: te.Tensor,
    initial_h: te.Tensor,
    initial_c: te.Tensor,
    p: te.Tensor,
    direction: str = "forward",
    activations: Sequence[str] = ("sigmoid", "tanh", "tanh"),
    clip: float = 0.0,
    input_forget: bool = False,
    cell_clip: float = 0.0,
) -> Any:
    """The steps of an LSTM, gates in the order input, output, forget, cell; `cell_clip` limits cell states.

    All outputs, last hidden and last cell states.
    """

    def make(ins: Buffers, outs: Buffers) -> Any:
        _, _, lens, h0, c0, peepholes = ins

        def phases(layer: Layer, steps: Samples) -> list[Any]:
            cell = _lstm_cell(layer, peepholes, input_forget, cell_clip)
            return [lambda i: layer.block(i, steps, range(4), layer.input, old_state, cell)]

        return lens, h0, [(c0, outs[2])], phases

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _recurrence("lstm", xw, r, [sequence_lens, initial_h, initial_c, p], 2, make, attrs)


def _lstm_cell(layer: Layer, peepholes: Any, input_forget: bool, cell_clip: float) -> Cell:
    y, _, yc = layer.outputs
    f_act, g_act, h_act = layer.activations
    d, one = layer.d, const(1, layer.dtype)

    def cell(sums: Any, e: Any, j: Any, step: Step) -> Any:
        def gate(n: int, peephole: int | None = None, state: Any = None) -> Any:
            v = layer.total(sums, n, e, step.place)
            if peephole is not None:
                v = v + tir.BufferLoad(peepholes, (d, j + int64(peephole * layer.hidden))) * state
            return clipped(v, layer.limit)

        c_old, i, f, c_new = (tir.Var(n, layer.dtype) for n in ("c_old", "i", "f", "c_new"))
        store = tir.seq(
            tir.BufferStore(yc, c_new, (d, step.b, j)),
            tir.BufferStore(y, f_act(gate(1, 1, c_new)) * h_act(c_new), (step.at, d, step.b, j)),
        )
        store = tir.LetStmt(c_new, clipped(f * c_old + i * g_act(gate(3)), cell_clip), store)
        forget = one - i if input_forget else f_act(gate(2, 2, c_old))
        store = tir.LetStmt(i, f_act(gate(0, 0, c_old)), tir.LetStmt(f, forget, store))
        return tir.LetStmt(c_old, tir.BufferLoad(yc, (d, step.b, j)), store)

    return cell


def gru_recurrence(
    xw: te.Tensor,
    r: te.Tensor,
    rb: te.Tensor,
    sequence_lens: te.Tensor,
    initial_h: te.Tensor,
    direction: str = "forward",
    activations: Sequence[str] = ("sigmoid", "tanh"),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> Any:
    """The steps of a GRU, gates in the order update, reset, candidate; `rb` is the candidate's recurrent bias.

    Where the reset comes before the linear map, `rb` is already in `xw` and not read.
    """

    def make(ins: Buffers, outs: Buffers) -> Any:
        _, _, bias, lens, h0 = ins
        phases = _gru_phases if linear_before_reset else _gru_phases_reset_first
        return lens, h0, [], lambda layer, steps: phases(layer, bias, steps)

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _recurrence("gru", xw, r, [rb, sequence_lens, initial_h], 1, make, attrs)


def _gru_output(layer: Layer, update: Any, candidate: Any, j: Any, step: Step) -> Any:
    """Mix the candidate with the old state, and store."""
    z = tir.Var("z", layer.dtype)
    mixed = (const(1, layer.dtype) - z) * layer.activations[1](clipped(candidate, layer.limit)) + z * step.state(j)
    return tir.LetStmt(z, update, tir.BufferStore(layer.outputs[0], mixed, (step.at, layer.d, step.b, j)))


def _gru_phases(layer: Layer, bias: Any, steps: Samples) -> list[Any]:
    """The reset gate scales what the linear map gave: one phase."""

    def start(step: Step, g: int, j: Any) -> Any:
        return layer.input(step, g, j) if g < 2 else tir.BufferLoad(bias, (layer.d, j))

    def cell(sums: Any, e: Any, j: Any, step: Step) -> Any:
        mapped = layer.gate(sums, 1, e, step.place) * layer.total(sums, 2, e, step.place)
        return _gru_output(layer, layer.gate(sums, 0, e, step.place), layer.input(step, 2, j) + mapped, j, step)

    return [lambda i: layer.block(i, steps, range(3), start, old_state, cell)]


def _gru_phases_reset_first(layer: Layer, bias: Any, steps: Samples) -> list[Any]:
    """The reset gate scales the state before the candidate's linear map.

    Between the phases the update gate waits where the output will be, the scaled state where the last one will be.
    """
    y, yh = layer.outputs

    def gates(sums: Any, e: Any, j: Any, step: Step) -> Any:
        update, reset = (layer.gate(sums, g, e, step.place) for g in (0, 1))
        scaled = tir.BufferStore(yh, reset * step.state(j), (layer.d, step.b, j))
        return tir.seq(tir.BufferStore(y, update, (step.at, layer.d, step.b, j)), scaled)

    def finish(sums: Any, e: Any, j: Any, step: Step) -> Any:
        update = tir.BufferLoad(y, (step.at, layer.d, step.b, j))
        return _gru_output(layer, update, layer.total(sums, 2, e, step.place), j, step)

    damped = lambda step, k: tir.BufferLoad(yh, (layer.d, step.b, k))  # noqa: E731
    return [
        lambda i: layer.block(i, steps, range(2), layer.input, old_state, gates),
        lambda i: layer.block(i, steps, range(2, 3), layer.input, damped, finish),
    ]


def rnn_recurrence(
    xw: te.Tensor,
    r: te.Tensor,
    sequence_lens: te.Tensor,
    initial_h: te.Tensor,
    direction: str = "forward",
    activations: Sequence[str] = ("tanh",),
    clip: float = 0.0,
) -> Any:
    """The steps of a plain recurrent layer; all outputs and the last states."""

    def make(ins: Buffers, outs: Buffers) -> Any:
        _, _, lens, h0 = ins

        def phases(layer: Layer, steps: Samples) -> list[Any]:
            def cell(sums: Any, e: Any, j: Any, step: Step) -> Any:
                new = layer.gate(sums, 0, e, step.place)
                return tir.BufferStore(layer.outputs[0], new, (step.at, layer.d, step.b, j))

            return [lambda i: layer.block(i, steps, range(1), layer.input, old_state, cell)]

        return lens, h0, [], phases

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _recurrence("rnn", xw, r, [sequence_lens, initial_h], 1, make, attrs)
