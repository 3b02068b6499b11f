"""The steps of recurrent layers, over inputs that are already projected.

Samples run in parallel; the gates of one sample and step are sums kept in registers, a block of gates at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import as_int, cast, const, int64, select

__all__ = ["ACTIVATIONS", "gru_recurrence", "lstm_recurrence", "rnn_recurrence"]

_BLOCK = 64  # gates whose sums are kept in registers at once


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
        self.gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind] * hidden
        self.dtype, self.limit = xw.dtype, attrs["clip"]
        self.reverse = d == 1 or attrs["direction"] == "reverse"

    def clipped(self, v: Any) -> Any:
        """The argument of an activation, limited by the attribute ``clip``."""
        return v if self.limit <= 0 else tir.max(tir.min(v, const(self.limit, v.dtype)), const(-self.limit, v.dtype))

    def input(self, step: Any, b: Any, gate: Any) -> Any:
        """The projected input of a gate."""
        return tir.BufferLoad(self.xw, (step, b, self.d * int64(self.gates) + gate))

    def buffer(self, size: int, name: str) -> Any:
        """A buffer of one sample and step."""
        return tir.decl_buffer((int64(size),), self.dtype, name)

    def each(self, body: Callable[[Any], Any], name: str = "j") -> Any:
        """``body(j)`` for each hidden unit: vectors of 16, then what is left."""
        wide = self.hidden // 16 * 16
        parts = []
        if wide:
            j, v = tir.Var(name, "int64"), tir.Var(name + "v", "int64")
            lanes = tir.For(v, int64(0), int64(16), tir.ForKind.VECTORIZED, body(j * int64(16) + v))
            parts.append(tir.For(j, int64(0), int64(wide // 16), tir.ForKind.SERIAL, lanes))
        if wide < self.hidden:
            j = tir.Var(name, "int64")
            parts.append(tir.For(j, int64(wide), int64(self.hidden - wide), tir.ForKind.SERIAL, body(j)))
        return tir.seq(*parts)

    def products(
        self, sums: Any, first: int, count: int, start: Callable[[Any], Any], state: Callable[[Any], Any]
    ) -> Any:
        """``sums[g] = start(g) + sum_k state(k) * r[k, g]`` for `count` gates from `first`, blockwise in registers."""
        block = next(w for w in (_BLOCK, 48, 32, 16, 8, 4, 2, 1) if count % w == 0)
        lanes = min(block, 16)
        g, k = tir.Var("g", "int64"), tir.Var("k", "int64")
        acc = tir.decl_buffer((int64(block),), self.dtype, "acc", scope="local")

        def across(body: Callable[[Any], Any]) -> Any:
            v, u = tir.Var("v", "int64"), tir.Var("u", "int64")
            inner = tir.For(v, int64(0), int64(lanes), tir.ForKind.VECTORIZED, body(u * int64(lanes) + v))
            return tir.For(u, int64(0), int64(block // lanes), tir.ForKind.UNROLLED, inner)

        def gate(e: Any) -> Any:
            return g * int64(block) + e + int64(first)

        def add(e: Any) -> Any:
            product = state(k) * tir.BufferLoad(self.r, (self.d, k, gate(e)))
            return tir.BufferStore(acc, tir.BufferLoad(acc, (e,)) + product, (e,))

        body = tir.seq(
            across(lambda e: tir.BufferStore(acc, start(gate(e)), (e,))),
            tir.For(k, int64(0), int64(self.hidden), tir.ForKind.SERIAL, across(add)),
            across(lambda e: tir.BufferStore(sums, tir.BufferLoad(acc, (e,)), (gate(e),))),
        )
        return tir.For(g, int64(0), int64(count // block), tir.ForKind.SERIAL, tir.AllocBuffer(acc, body))


def _recur(
    layer: _Layer, steps: Any, batch: Any, lens: Any, initial: list[tuple[Any, Any]], step: Callable[[Any, Any], Any]
) -> Any:
    """Set the states, clear outputs past each sample's length, and run ``step(position, sample)`` over the length."""
    y = layer.outputs[0]
    b, t, u, length = (tir.Var(n, "int64") for n in ("b", "t", "u", "length"))
    position = length - int64(1) - t if layer.reverse else t

    def start(source: Any, target: Any) -> Any:
        return layer.each(
            lambda j: tir.BufferStore(target, tir.BufferLoad(source, (layer.d, b, j)), (layer.d, b, j)), "s"
        )

    clear = layer.each(lambda j: tir.BufferStore(y, const(0, layer.dtype), (u, layer.d, b, j)), "z")
    body = tir.seq(
        *(start(source, target) for source, target in initial),
        tir.For(u, int64(0), steps, tir.ForKind.SERIAL, tir.IfThenElse(u >= length, clear)),
        tir.For(t, int64(0), length, tir.ForKind.SERIAL, step(position, b)),
    )
    known = tir.max(tir.min(cast("int64", tir.BufferLoad(lens, (b,))), steps), int64(0))
    return tir.For(b, int64(0), batch, tir.ForKind.PARALLEL, tir.LetStmt(length, known, body))


def _layers(
    kind: str, xw: Any, r: Any, inputs: list[Any], n_states: int, make: Callable[..., Any], attrs: dict[str, Any]
) -> Any:
    """All directions, one after another, as one te operation: every output, then the last states."""
    directions, hidden = as_int(r.shape[0]), as_int(r.shape[1])
    if directions is None or hidden is None:
        raise InvalidArgument(f"nn.{kind}: the hidden size must be constant")
    steps, batch = xw.shape[:2]

    def body(ins: Any, outs: Any) -> Any:
        layers = [_Layer(kind, d, ins[0], ins[1], outs, hidden, attrs) for d in range(directions)]
        return tir.seq(*(make(layer, steps, batch, ins) for layer in layers))

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

    def make(layer: _Layer, steps: Any, batch: Any, ins: Any) -> Any:
        _, _, lens, h0, c0, peepholes = ins
        _, yh, yc = layer.outputs
        return _recur(
            layer,
            steps,
            batch,
            lens,
            [(h0, yh), (c0, yc)],
            lambda at, b: _lstm_step(layer, peepholes, at, b, input_forget),
        )

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _layers("lstm", xw, r, [sequence_lens, initial_h, initial_c, p], 2, make, attrs)


def _lstm_step(layer: _Layer, peepholes: Any, at: Any, b: Any, input_forget: bool) -> Any:
    y, yh, yc = layer.outputs
    f_act, g_act, h_act = layer.activations
    hidden, d = layer.hidden, layer.d
    sums = layer.buffer(layer.gates, "gates")

    def cell(j: Any) -> Any:
        def gate(n: int, peephole: int | None, state: Any) -> Any:
            v = tir.BufferLoad(sums, (j + int64(n * hidden),))
            if peephole is not None:
                v = v + tir.BufferLoad(peepholes, (d, j + int64(peephole * hidden))) * state
            return layer.clipped(v)

        c_old, i, f, c_new, h_new = (tir.Var(n, layer.dtype) for n in ("c_old", "i", "f", "c_new", "h_new"))
        store = tir.seq(
            tir.BufferStore(yc, c_new, (d, b, j)),
            tir.BufferStore(yh, h_new, (d, b, j)),
            tir.BufferStore(y, h_new, (at, d, b, j)),
        )
        store = tir.LetStmt(h_new, f_act(gate(1, 1, c_new)) * h_act(c_new), store)
        store = tir.LetStmt(c_new, f * c_old + i * g_act(gate(3, None, None)), store)
        forget = const(1, layer.dtype) - i if input_forget else f_act(gate(2, 2, c_old))
        store = tir.LetStmt(i, f_act(gate(0, 0, c_old)), tir.LetStmt(f, forget, store))
        return tir.LetStmt(c_old, tir.BufferLoad(yc, (d, b, j)), store)

    state = lambda k: tir.BufferLoad(yh, (d, b, k))  # noqa: E731
    products = layer.products(sums, 0, layer.gates, lambda g: layer.input(at, b, g), state)
    return tir.AllocBuffer(sums, tir.seq(products, layer.each(cell)))


def gru_recurrence(
    xw: Any, r: Any, rb: Any, sequence_lens: Any, initial_h: Any, direction: str = "forward",
    activations: Any = ("sigmoid", "tanh"), clip: float = 0.0, linear_before_reset: bool = False,
) -> Any:  # fmt: skip
    """The steps of a GRU, gates in the order update, reset, candidate; `rb` is the candidate's recurrent bias.

    Where the reset comes before the linear map, `rb` is already in `xw` and not read.
    """

    def make(layer: _Layer, steps: Any, batch: Any, ins: Any) -> Any:
        _, _, bias, lens, h0 = ins
        run = lambda at, b: _gru_step(layer, bias, at, b, linear_before_reset)  # noqa: E731
        return _recur(layer, steps, batch, lens, [(h0, layer.outputs[1])], run)

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _layers("gru", xw, r, [rb, sequence_lens, initial_h], 1, make, attrs)


def _gru_step(layer: _Layer, bias: Any, at: Any, b: Any, linear_before_reset: bool) -> Any:
    y, yh = layer.outputs
    f_act, g_act = layer.activations
    n, d = layer.hidden, layer.d
    sums, reset = layer.buffer(layer.gates, "gates"), layer.buffer(n, "reset")

    def total(g: Any) -> Any:
        return tir.BufferLoad(sums, (g,))

    def state(k: Any) -> Any:
        return tir.BufferLoad(yh, (d, b, k))

    def reset_gate(j: Any) -> Any:
        return f_act(layer.clipped(total(j + int64(n))))

    def finish(j: Any, candidate: Any) -> Any:
        z, new = tir.Var("z", layer.dtype), tir.Var("h_new", layer.dtype)
        store = tir.seq(tir.BufferStore(yh, new, (d, b, j)), tir.BufferStore(y, new, (at, d, b, j)))
        mixed = (const(1, layer.dtype) - z) * g_act(layer.clipped(candidate)) + z * state(j)
        return tir.LetStmt(z, f_act(layer.clipped(total(j))), tir.LetStmt(new, mixed, store))

    last = int64(2 * n)
    first_two = layer.products(sums, 0, 2 * n, lambda g: layer.input(at, b, g), state)
    if linear_before_reset:
        third = layer.products(sums, 2 * n, n, lambda g: tir.BufferLoad(bias, (d, g - last)), state)
        cell = layer.each(lambda j: finish(j, layer.input(at, b, j + last) + reset_gate(j) * total(j + last)))
        return tir.AllocBuffer(sums, tir.seq(first_two, third, cell))
    damped = layer.each(lambda j: tir.BufferStore(reset, reset_gate(j) * state(j), (j,)), "r")
    third = layer.products(sums, 2 * n, n, lambda g: layer.input(at, b, g), lambda k: tir.BufferLoad(reset, (k,)))
    cell = layer.each(lambda j: finish(j, total(j + last)))
    return tir.AllocBuffer(sums, tir.AllocBuffer(reset, tir.seq(first_two, damped, third, cell)))


def rnn_recurrence(
    xw: Any,
    r: Any,
    sequence_lens: Any,
    initial_h: Any,
    direction: str = "forward",
    activations: Any = ("tanh",),
    clip: float = 0.0,
) -> Any:
    """The steps of a plain recurrent layer; all outputs and the last states."""

    def make(layer: _Layer, steps: Any, batch: Any, ins: Any) -> Any:
        _, _, lens, h0 = ins
        y, yh = layer.outputs
        sums = layer.buffer(layer.gates, "gates")

        def run(at: Any, b: Any) -> Any:
            def cell(j: Any) -> Any:
                new = tir.Var("h_new", layer.dtype)
                store = tir.seq(tir.BufferStore(yh, new, (layer.d, b, j)), tir.BufferStore(y, new, (at, layer.d, b, j)))
                return tir.LetStmt(new, layer.activations[0](layer.clipped(tir.BufferLoad(sums, (j,)))), store)

            state = lambda k: tir.BufferLoad(yh, (layer.d, b, k))  # noqa: E731
            products = layer.products(sums, 0, layer.gates, lambda g: layer.input(at, b, g), state)
            return tir.AllocBuffer(sums, tir.seq(products, layer.each(cell)))

        return _recur(layer, steps, batch, lens, [(h0, yh)], run)

    attrs = {"direction": direction, "activations": activations, "clip": clip}
    return _layers("rnn", xw, r, [sequence_lens, initial_h], 1, make, attrs)
