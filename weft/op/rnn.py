"""Recurrent layers.

``nn.lstm`` is decomposed: the projection of all inputs is one matrix product, which the compiler packs and tiles like any other, and
``nn.lstm_recurrence`` carries the state from step to step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import Attrs, Call, Expr, Op, TensorType, TupleGetItem, TupleType, as_int, cast, const, int64, select
from weft.op.infer import tensor_arg
from weft.op.registry import Fusion, declare, make_call

__all__: list[str] = []

_BLOCK = 64  # gates whose sums are kept in registers at once


def _types(steps: Any, batch: Any, hidden: Any, directions: Any, dtype: str) -> TupleType:
    state = TensorType((directions, batch, hidden), dtype, 3)
    return TupleType((TensorType((steps, directions, batch, hidden), dtype, 4), state, state))


_ATTRS = {"direction": "forward", "activations": ("sigmoid", "tanh", "tanh"), "clip": 0.0, "input_forget": False}


def _lstm_infer(
    x: Expr, w: Expr, r: Expr, b: Expr, sequence_lens: Expr, initial_h: Expr, initial_c: Expr, p: Expr, **_: Any
) -> TupleType:
    ty, rt = tensor_arg("nn.lstm", "x", x, ndim=3), tensor_arg("nn.lstm", "r", r, ndim=3)
    if ty.shape is None or rt.shape is None:
        raise InvalidArgument("nn.lstm: shapes must be known (they may be symbolic)", where=x.span)
    return _types(ty.shape[0], ty.shape[1], rt.shape[2], rt.shape[0], ty.dtype)


def _lstm_decompose(
    x: Expr, w: Expr, r: Expr, b: Expr, sequence_lens: Expr, initial_h: Expr, initial_c: Expr, p: Expr, **attrs: Any
) -> Any:
    """Project all inputs by one product, then recur."""
    directions, gates, inputs = (as_int(d) for d in w.ty.shape)  # type: ignore[attr-defined]
    if directions is None or gates is None or inputs is None:
        return None
    weights = make_call("reshape")(make_call("permute_dims")(w, axes=(2, 0, 1)), (inputs, directions * gates))
    halves = make_call("split")(b, 2, axis=1)
    bias = make_call("add")(*(TupleGetItem(halves, i) for i in range(2)))
    projected = make_call("add")(make_call("matmul")(x, weights), make_call("reshape")(bias, (directions * gates,)))
    recurrent = make_call("permute_dims")(r, axes=(0, 2, 1))
    return Call(
        Op.get("relax.nn.lstm_recurrence"),
        (projected, recurrent, sequence_lens, initial_h, initial_c, p),
        Attrs.of(attrs),
    )


def _lstm_ref(
    x: Any, w: Any, r: Any, b: Any, sequence_lens: Any, initial_h: Any, initial_c: Any, p: Any, **attrs: Any
) -> Any:
    gates = w.shape[1]
    projected = np.einsum("tbi,dgi->tbdg", x, w).reshape(*x.shape[:2], -1) + (b[:, :gates] + b[:, gates:]).reshape(-1)
    return _recurrence_ref(
        projected.astype(x.dtype), r.transpose(0, 2, 1), sequence_lens, initial_h, initial_c, p, **attrs
    )


declare(
    "nn.lstm", "x w r b sequence_lens initial_h initial_c p", _ATTRS, infer=_lstm_infer, lower=None, reference=_lstm_ref, decompose=_lstm_decompose,
    fusion=Fusion.OPAQUE, rtol=1e-4,
    doc="LSTM with ONNX's gate order (input, output, forget, cell): x (steps, batch, inputs), w (directions, 4 hidden, inputs), "
    "r (directions, 4 hidden, hidden), b (directions, 8 hidden), p (directions, 3 hidden); returns all outputs and both last states.",
)  # fmt: skip


# --- the recurrence ----------------------------------------------------------------------------------------------------


def _recurrence_infer(
    xw: Expr, r: Expr, sequence_lens: Expr, initial_h: Expr, initial_c: Expr, p: Expr, **_: Any
) -> TupleType:
    ty, rt = tensor_arg("nn.lstm_recurrence", "xw", xw, ndim=3), tensor_arg("nn.lstm_recurrence", "r", r, ndim=3)
    return _types(ty.shape[0], ty.shape[1], rt.shape[1], rt.shape[0], ty.dtype)  # type: ignore[index]


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


def _recurrence_lower(
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


_NUMPY = {
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "tanh": np.tanh, "relu": lambda v: np.maximum(v, 0), "affine": lambda v: v,
    "hardsigmoid": lambda v: np.clip(0.2 * v + 0.5, 0, 1), "softsign": lambda v: v / (1 + np.abs(v)), "softplus": lambda v: np.log1p(np.exp(v)),
    "elu": lambda v: np.where(v > 0, v, np.exp(v) - 1), "leakyrelu": lambda v: np.where(v > 0, v, 0.01 * v),
    "thresholdedrelu": lambda v: np.where(v > 1, v, 0), "scaledtanh": np.tanh,
}  # fmt: skip


def _recurrence_ref(
    xw: Any,
    r: Any,
    sequence_lens: Any,
    initial_h: Any,
    initial_c: Any,
    p: Any,
    direction: str,
    activations: Any,
    clip: float,
    input_forget: bool,
) -> Any:
    directions, n = r.shape[0], r.shape[1]
    steps, batch = xw.shape[:2]
    y, h, c = np.zeros((steps, directions, batch, n)), initial_h.astype(np.float64), initial_c.astype(np.float64)
    for d, b in np.ndindex(directions, batch):
        f_act, g_act, h_act = (
            _NUMPY[a.lower()] for a in (tuple(activations)[3 * d : 3 * d + 3] or tuple(activations)[:3])
        )
        limit = (lambda v: np.clip(v, -clip, clip)) if clip > 0 else (lambda v: v)
        length = min(int(sequence_lens[b]), steps)
        for t in range(length):
            at = length - 1 - t if d == 1 or direction == "reverse" else t
            i, o, f, g = np.split(xw[at, b].reshape(directions, -1)[d] + h[d, b] @ r[d], 4)
            pi, po, pf = np.split(p[d], 3)
            i = f_act(limit(i + pi * c[d, b]))
            f = 1 - i if input_forget else f_act(limit(f + pf * c[d, b]))
            c[d, b] = f * c[d, b] + i * g_act(limit(g))
            h[d, b] = f_act(limit(o + po * c[d, b])) * h_act(c[d, b])
            y[at, d, b] = h[d, b]
    return y.astype(xw.dtype), h.astype(xw.dtype), c.astype(xw.dtype)


declare(
    "nn.lstm_recurrence", "xw r sequence_lens initial_h initial_c p", _ATTRS, infer=_recurrence_infer, lower=_recurrence_lower, reference=_recurrence_ref,
    fusion=Fusion.OPAQUE, rtol=1e-4, doc="The steps of an LSTM over projected inputs xw (steps, batch, directions * 4 hidden) and r (directions, hidden, 4 hidden).",
)  # fmt: skip
