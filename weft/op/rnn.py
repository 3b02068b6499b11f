"""Recurrent layers.

``nn.lstm`` is decomposed: the projection of all inputs is one matrix product, which the compiler packs and tiles like any other, and
``nn.lstm_recurrence`` carries the state from step to step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.ir import Attrs, Call, Expr, Op, TensorType, TupleGetItem, TupleType, as_int
from weft.op.infer import tensor_arg
from weft.op.registry import Fusion, declare, make_call
from weft.topi.rnn import lstm_recurrence

__all__: list[str] = []


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
    "nn.lstm_recurrence", "xw r sequence_lens initial_h initial_c p", _ATTRS, infer=_recurrence_infer, lower=lstm_recurrence, reference=_recurrence_ref,
    fusion=Fusion.OPAQUE, rtol=1e-4, doc="The steps of an LSTM over projected inputs xw (steps, batch, directions * 4 hidden) and r (directions, hidden, 4 hidden).",
)  # fmt: skip
