"""The steps of recurrent layers, over inputs that are already projected."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import as_int, cast, const, int64, select

__all__ = ["lstm_recurrence"]


_BLOCK = 64  # gates whose sums are kept in registers at once


_ACTIVATIONS = {
    "sigmoid": tir.sigmoid,
    "tanh": tir.tanh,
    "relu": lambda v: tir.max(v, const(0, v.dtype)),
    "affine": lambda v: v,
    "hardsigmoid": lambda v: tir.min(
        tir.max(v * const(0.2, v.dtype) + const(0.5, v.dtype), const(0, v.dtype)), const(1, v.dtype)
    ),
    "softsign": lambda v: v / (const(1, v.dtype) + tir.abs(v)),
    "softplus": lambda v: tir.log(const(1, v.dtype) + tir.exp(v)),
    "elu": lambda v: select(v > const(0, v.dtype), v, tir.exp(v) - const(1, v.dtype)),
    "leakyrelu": lambda v: select(v > const(0, v.dtype), v, v * const(0.01, v.dtype)),
    "thresholdedrelu": lambda v: select(v > const(1, v.dtype), v, const(0, v.dtype)),
    "scaledtanh": lambda v: tir.tanh(v),
}


def _activation(name: str) -> Any:
    fn = _ACTIVATIONS.get(name.lower())
    if fn is None:
        raise InvalidArgument(f"nn.lstm: unknown activation '{name}'", expected=", ".join(_ACTIVATIONS))
    return fn


def _vector_loop(extent: int, body: Any, name: str) -> Any:
    """``body(i)`` for i in 0..extent-1, in vectors of 16 where that divides."""
    width = 16 if extent % 16 == 0 else 1
    outer, inner = tir.Var(name, "int64"), tir.Var(name + "v", "int64")
    if width == 1:
        return tir.For(outer, int64(0), int64(extent), tir.ForKind.SERIAL, body(outer))
    lanes = tir.For(inner, int64(0), int64(width), tir.ForKind.VECTORIZED, body(outer * int64(width) + inner))
    return tir.For(outer, int64(0), int64(extent // width), tir.ForKind.SERIAL, lanes)


def lstm_recurrence(
    xw: Any, r: Any, sequence_lens: Any, initial_h: Any, initial_c: Any, p: Any, direction: str = "forward",
    activations: Any = ("sigmoid", "tanh", "tanh"), clip: float = 0.0, input_forget: bool = False,
) -> Any:  # fmt: skip
    steps, batch = xw.shape[:2]
    directions, hidden = as_int(r.shape[0]), as_int(r.shape[1])
    if directions is None or hidden is None:
        raise InvalidArgument("nn.lstm: the hidden size must be constant")
    dtype = xw.dtype

    def body(ins: Any, outs: Any) -> Any:
        parts = [
            _direction(
                d,
                d == 1 or direction == "reverse",
                ins,
                outs,
                steps,
                batch,
                hidden,
                tuple(activations)[3 * d : 3 * d + 3] or tuple(activations)[:3],
                clip,
                input_forget,
            )
            for d in range(directions)  # type: ignore[arg-type]
        ]
        return tir.seq(*parts)

    state = (int64(directions), batch, int64(hidden))
    return te.extern(
        [(steps, int64(directions), batch, int64(hidden)), state, state],
        [xw, r, sequence_lens, initial_h, initial_c, p],
        body,
        name="lstm",
        dtype=[dtype] * 3,
    )


def _direction(
    d: int,
    reverse: bool,
    ins: Any,
    outs: Any,
    steps: Any,
    batch: Any,
    hidden: int,
    activations: tuple[str, ...],
    clip: float,
    input_forget: bool,
) -> Any:
    """The loop over samples and steps of one direction; samples run in parallel."""
    xw, r, lens, h0, c0, p = ins
    y, yh, yc = outs
    f_act, g_act, h_act = (_activation(a) for a in activations)
    b, t = tir.Var("b", "int64"), tir.Var("t", "int64")
    at_d, gates = int64(d), 4 * hidden
    sums = tir.decl_buffer((int64(gates),), xw.dtype, "gates")
    length = cast("int64", tir.BufferLoad(lens, (b,)))
    step = length - int64(1) - t if reverse else t

    def load(buffer: Any, *index: Any) -> Any:
        return tir.BufferLoad(buffer, index)

    def limited(v: Any) -> Any:
        return v if clip <= 0 else tir.max(tir.min(v, const(clip, v.dtype)), const(-clip, v.dtype))

    def cell(j: Any) -> Any:
        def gate(n: int, peephole: int | None, state: Any) -> Any:
            v = load(sums, j + int64(n * hidden))
            if peephole is not None:
                v = v + load(p, at_d, j + int64(peephole * hidden)) * state
            return limited(v)

        c_old = tir.Var("c_old", xw.dtype)
        i, f = tir.Var("i", xw.dtype), tir.Var("f", xw.dtype)
        c_new = tir.Var("c_new", xw.dtype)
        h_new = tir.Var("h_new", xw.dtype)
        forget = const(1, xw.dtype) - i if input_forget else f_act(gate(2, 2, c_old))
        store = tir.seq(
            tir.BufferStore(yc, c_new, (at_d, b, j)),
            tir.BufferStore(yh, h_new, (at_d, b, j)),
            tir.BufferStore(y, h_new, (step, at_d, b, j)),
        )
        store = tir.LetStmt(h_new, f_act(gate(1, 1, c_new)) * h_act(c_new), store)
        store = tir.LetStmt(c_new, f * c_old + i * g_act(gate(3, None, None)), store)
        store = tir.LetStmt(i, f_act(gate(0, 0, c_old)), tir.LetStmt(f, forget, store))
        return tir.LetStmt(c_old, load(yc, at_d, b, j), store)

    one_step = tir.AllocBuffer(
        sums, tir.seq(_products(sums, xw, r, yh, d, step, b, hidden), _vector_loop(hidden, cell, "j"))
    )
    clear = _vector_loop(hidden, lambda j: tir.BufferStore(y, const(0, xw.dtype), (t, at_d, b, j)), "z")
    padding = tir.For(t, int64(0), steps, tir.ForKind.SERIAL, tir.IfThenElse(t >= length, clear))
    t2 = tir.Var("t", "int64")
    run = tir.substitute(tir.For(t, int64(0), tir.min(length, steps), tir.ForKind.SERIAL, one_step), {t: t2})
    start = tir.seq(
        _vector_loop(hidden, lambda j: tir.BufferStore(yh, load(h0, at_d, b, j), (at_d, b, j)), "s"),
        _vector_loop(hidden, lambda j: tir.BufferStore(yc, load(c0, at_d, b, j), (at_d, b, j)), "s"),
    )
    return tir.For(b, int64(0), batch, tir.ForKind.PARALLEL, tir.seq(start, padding, run))


def _products(sums: Any, xw: Any, r: Any, yh: Any, d: int, step: Any, b: Any, hidden: int) -> Any:
    """``sums = xw[step, b] + h @ r`` in blocks of gates whose sums stay in registers."""
    gates = 4 * hidden
    block = next(w for w in (_BLOCK, 48, 32, 16, 1) if gates % w == 0)
    lanes = min(block, 16)
    g, k = tir.Var("g", "int64"), tir.Var("k", "int64")
    acc = tir.decl_buffer((int64(block),), xw.dtype, "acc", scope="local")

    def across(body: Any) -> Any:
        v, u = tir.Var("v", "int64"), tir.Var("u", "int64")
        inner = tir.For(v, int64(0), int64(lanes), tir.ForKind.VECTORIZED, body(u * int64(lanes) + v))
        return tir.For(u, int64(0), int64(block // lanes), tir.ForKind.UNROLLED, inner)

    first = across(
        lambda e: tir.BufferStore(acc, tir.BufferLoad(xw, (step, b, int64(d * gates) + g * int64(block) + e)), (e,))
    )

    def add(e: Any) -> Any:
        product = tir.BufferLoad(yh, (int64(d), b, k)) * tir.BufferLoad(r, (int64(d), k, g * int64(block) + e))
        return tir.BufferStore(acc, tir.BufferLoad(acc, (e,)) + product, (e,))

    last = across(lambda e: tir.BufferStore(sums, tir.BufferLoad(acc, (e,)), (g * int64(block) + e,)))
    inner = tir.seq(first, tir.For(k, int64(0), int64(hidden), tir.ForKind.SERIAL, across(add)), last)
    return tir.For(g, int64(0), int64(gates // block), tir.ForKind.SERIAL, tir.AllocBuffer(acc, inner))
