"""Recurrent layers, with ONNX's gate orders and layouts.

``nn.lstm``, ``nn.gru`` and ``nn.rnn`` are decomposed: the projection of all inputs is one matrix product, which the
compiler packs and tiles like any other, and ``nn.lstm_recurrence`` and its kin carry the state from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.ir import Attrs, Call, Expr, Op, TensorType, TupleType, as_int, ceildiv, int64
from weft.op.attributes import Attribute, flag, number, word, words
from weft.op.infer import dims_of, index_arg, tensor_arg
from weft.op.registry import declare, make_call
from weft.op.relations import demand_equal, demand_indices, demand_same_shape
from weft.topi.precision import in_float32
from weft.topi.rnn import gru_recurrence, lstm_recurrence, rnn_recurrence
from weft.topi.rnn_activations import ACTIVATIONS, activation
from weft.topi.rnn_block import GATES, UNITS, panel_shape

_STATES = {"lstm": ("initial_h", "initial_c"), "gru": ("initial_h",), "rnn": ("initial_h",)}


def _layer_attrs(*activations: str) -> dict[str, Attribute]:
    return {
        "direction": word("forward", "forward", "reverse", "bidirectional"),
        "activations": words(activations, activation, *ACTIVATIONS),
        "clip": number(0.0),
    }


def _result(steps: Any, batch: Any, hidden: Any, directions: Any, dtype: str, n_states: int) -> TupleType:
    known = all(d is not None for d in (steps, batch, hidden, directions))
    state = TensorType((directions, batch, hidden) if known else None, dtype, 3)
    return TupleType((TensorType((steps, directions, batch, hidden) if known else None, dtype, 4), *[state] * n_states))


def _check(
    op: str, x: Expr, r: Expr, rest: dict[str, Expr], direction: str, r_ndim: int = 3
) -> tuple[TensorType, TensorType]:
    """Check ranks and data types; return the types of the input and of the recurrent weights."""
    ty, rt = tensor_arg(op, "x", x, ndim=3), tensor_arg(op, "r", r, ndim=r_ndim)
    for name, arg in rest.items():
        if name == "sequence_lens":
            tensor_arg(op, name, arg, ndim=1)
            index_arg(op, arg, name)
        else:
            tensor_arg(op, name, arg, ndim=3 if name.startswith("initial") or name == "w" else 2)
    if ty.shape is not None and rt.shape is not None:
        _demand(op, ty.shape, rt.shape, rest, direction, x.span)
    return ty, rt


def _demand(op: str, x: Any, r: Any, rest: dict[str, Expr], direction: str, where: Any) -> None:
    """Demand that all operands are of one number of directions, samples, gates and hidden units."""
    kind, whole = op.removeprefix("nn.").removesuffix("_recurrence"), not op.endswith("_recurrence")
    steps, batch, width = x
    directions, hidden, gates = r[0], r[2], int64(GATES[kind])
    demand_equal(f"{op}: directions of 'r'", directions, 2 if direction == "bidirectional" else 1, where)
    if whole:
        demand_equal(f"{op}: gates of 'r'", r[1], gates * hidden, where)
    else:
        demand_equal(f"{op}: columns of 'xw'", width, directions * gates * hidden, where)
        demand_equal(f"{op}: blocks of 'r'", r[1], ceildiv(hidden, int64(UNITS[kind])), where)
        demand_equal(f"{op}: width of a block of 'r'", r[3], gates * int64(UNITS[kind]), where)
    state = (directions, batch, hidden)
    expected = {
        "w": (directions, gates * hidden, width),
        "b": (directions, int64(2) * gates * hidden),
        "rb": (directions, hidden),
        "p": (directions, int64(3) * hidden),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
    }
    for name, arg in rest.items():
        demand_same_shape(f"{op}: '{name}'", dims_of(arg), expected[name], where)
    demand_indices(f"{op}: 'sequence_lens'", rest["sequence_lens"], 0, steps + 1, where)


def _infer(kind: str, names: tuple[str, ...]) -> Any:
    """The rule of a whole layer, x (steps, batch, inputs) and r (directions, gates, hidden)."""

    def infer(x: Expr, w: Expr, r: Expr, *rest: Expr, direction: str) -> TupleType:
        ty, rt = _check(f"nn.{kind}", x, r, {"w": w, **dict(zip(names, rest, strict=True))}, direction)
        xs, rs = ty.shape or (None,) * 3, rt.shape or (None,) * 3
        return _result(xs[0], xs[1], rs[2], rs[0], ty.dtype, len(_STATES[kind]))

    return infer


def _recurrence_infer(kind: str, names: tuple[str, ...]) -> Any:
    """The rule of the steps alone, xw (steps, batch, directions * gates) and r in panels."""

    def infer(xw: Expr, r: Expr, *rest: Expr, direction: str) -> TupleType:
        ty, rt = _check(f"nn.{kind}_recurrence", xw, r, dict(zip(names, rest, strict=True)), direction, 4)
        xs, rs = ty.shape or (None,) * 3, rt.shape or (None,) * 4
        return _result(xs[0], xs[1], rs[2], rs[0], ty.dtype, len(_STATES[kind]))

    return infer


def _packed(kind: str, r: Expr) -> Expr:
    """Recurrent weights (directions, gates, hidden) in the panels that the recurrence reads."""
    directions, _, hidden = (as_int(d) for d in r.ty.shape)  # type: ignore[attr-defined]
    packed = panel_shape(kind, directions, hidden)  # type: ignore[arg-type]
    gates, units = GATES[kind], UNITS[kind]
    blocks = packed[1]
    apart = make_call("reshape")(r, (directions, gates, hidden, hidden))
    padded = make_call("nn.pad")(apart, pad_width=(0, 0, 0, 0, 0, blocks * units - hidden, 0, 0))  # type: ignore[operator]
    blocked = make_call("reshape")(padded, (directions, gates, blocks, units, hidden))
    return make_call("reshape")(make_call("permute_dims")(blocked, axes=(0, 2, 4, 1, 3)), packed)


def _project(kind: str, x: Expr, w: Expr, r: Expr, bias: Expr) -> tuple[Expr, Expr] | None:
    """Return the inputs of all gates by one product, and the recurrent weights in panels."""
    directions, gates, inputs = (as_int(d) for d in w.ty.shape)  # type: ignore[attr-defined]
    if directions is None or gates is None or inputs is None:
        raise InvalidArgument(f"nn.{kind}: the sizes of the weights must be constant", found=str(w.ty), where=x.span)  # type: ignore[attr-defined]
    weights = make_call("reshape")(make_call("permute_dims")(w, axes=(2, 0, 1)), (inputs, directions * gates))
    row = make_call("reshape")(bias, (directions * gates,))
    return make_call("add")(make_call("matmul")(x, weights), row), _packed(kind, r)


def _parts(b: Expr, n: int) -> list[Expr]:
    """Equal parts of a bias, each by itself, so that those of constants are constants."""
    width = as_int(b.ty.shape[1])  # type: ignore[attr-defined]
    if width is None:
        raise InvalidArgument("the sizes of a recurrent layer's biases must be constant", found=str(b.ty), where=b.span)
    step = width // n
    return [make_call("strided_slice")(b, axes=(1,), begin=(i * step,), end=(i * step + step,)) for i in range(n)]


def _decompose(kind: str) -> Any:
    def decompose(x: Expr, w: Expr, r: Expr, b: Expr, *rest: Expr, **attrs: Any) -> Any:
        projected, recurrent = _project(kind, x, w, r, make_call("add")(*_parts(b, 2)))  # type: ignore[misc]
        return Call(Op.get(f"relax.nn.{kind}_recurrence"), (projected, recurrent, *rest), Attrs.of(attrs))

    return decompose


def _gru_decompose(x: Expr, w: Expr, r: Expr, b: Expr, sequence_lens: Expr, initial_h: Expr, **attrs: Any) -> Any:
    """As the others, but the candidate's recurrent bias stays apart where the reset gate comes after it."""
    first, second = _parts(b, 2)
    update, reset, candidate = _parts(b, 6)[3:]
    if attrs["linear_before_reset"]:
        second = make_call("concat")((update, reset, make_call("zeros_like")(candidate)), axis=1)
    projected, recurrent = _project("gru", x, w, r, make_call("add")(first, second))  # type: ignore[misc]
    return Call(
        Op.get("relax.nn.gru_recurrence"), (projected, recurrent, candidate, sequence_lens, initial_h), Attrs.of(attrs)
    )


# --- what they mean, in NumPy -----------------------------------------------------------------------------------------

_NUMPY: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": np.tanh,
    "relu": lambda v: np.maximum(v, 0),
    "affine": lambda v, a=1.0, b=0.0: a * v + b,
    "hardsigmoid": lambda v, a=0.2, b=0.5: np.clip(a * v + b, 0, 1),
    "softsign": lambda v: v / (1 + np.abs(v)),
    "softplus": lambda v: np.logaddexp(v, 0),
    "elu": lambda v, a=1.0: np.where(v > 0, v, a * (np.exp(v) - 1)),
    "leakyrelu": lambda v, a=0.01: np.where(v > 0, v, a * v),
    "thresholdedrelu": lambda v, a=1.0: np.where(v > a, v, 0),
    "scaledtanh": lambda v, a=1.0, b=1.0: a * np.tanh(b * v),
}


def _activation(text: str) -> Any:
    name, *parameters = text.lower().split()
    return lambda v: _NUMPY[name](v, *map(float, parameters))


def _run(
    kind: str, xw: Any, r: Any, lens: Any, states: list[Any], cell: Any, direction: str, activations: Any, clip: float
) -> Any:
    """Run ``cell(input, recurrent weights, states, activations, limit, direction)`` over all steps in float64."""
    directions, n = r.shape[0], r.shape[1]
    steps, batch = xw.shape[:2]
    y, states = np.zeros((steps, directions, batch, n)), [s.astype(np.float64) for s in states]
    per_direction = {"lstm": 3, "gru": 2, "rnn": 1}[kind]
    for d, b in np.ndindex(directions, batch):
        names = tuple(activations)[per_direction * d : per_direction * (d + 1)] or tuple(activations)[:per_direction]
        acts = list(map(_activation, names))
        limit = (lambda v: np.clip(v, -clip, clip)) if clip > 0 else (lambda v: v)
        length = max(min(int(lens[b]), steps), 0)
        for t in range(length):
            at = length - 1 - t if d == 1 or direction == "reverse" else t
            row = xw[at, b].reshape(directions, -1)[d].astype(np.float64)
            new = cell(row, r[d], [s[d, b] for s in states], acts, limit, d)
            for s, v in zip(states, new, strict=True):
                s[d, b] = v
            y[at, d, b] = states[0][d, b]
    return tuple(v.astype(xw.dtype) for v in (y, *states))


def _lstm_steps(
    xw: Any, r: Any, lens: Any, h0: Any, c0: Any, p: Any, *, input_forget: bool, cell_clip: float, **how: Any
) -> Any:
    def cell(row: Any, w: Any, states: Any, acts: Any, limit: Any, d: int) -> Any:
        (h, c), (f_act, g_act, h_act), (pi, po, pf) = states, acts, np.split(p[d], 3)
        i, o, f, g = np.split(row + h @ w, 4)
        i = f_act(limit(i + pi * c))
        c = (1 - i if input_forget else f_act(limit(f + pf * c))) * c + i * g_act(limit(g))
        c = np.clip(c, -cell_clip, cell_clip) if cell_clip > 0 else c
        return f_act(limit(o + po * c)) * h_act(c), c

    return _run("lstm", xw, r, lens, [h0, c0], cell, **how)


def _gru_steps(xw: Any, r: Any, rb: Any, lens: Any, h0: Any, *, linear_before_reset: bool, **how: Any) -> Any:
    def cell(row: Any, w: Any, states: Any, acts: Any, limit: Any, d: int) -> Any:
        (h,), (f_act, g_act), n = states, acts, w.shape[0]
        z, s = (f_act(limit(v)) for v in np.split(row[: 2 * n] + h @ w[:, : 2 * n], 2))
        mapped = s * (h @ w[:, 2 * n :] + rb[d]) if linear_before_reset else (s * h) @ w[:, 2 * n :]
        return ((1 - z) * g_act(limit(row[2 * n :] + mapped)) + z * h,)

    return _run("gru", xw, r, lens, [h0], cell, **how)


def _rnn_steps(xw: Any, r: Any, lens: Any, h0: Any, **how: Any) -> Any:
    def cell(row: Any, w: Any, states: Any, acts: Any, limit: Any, d: int) -> Any:
        return (acts[0](limit(row + states[0] @ w)),)

    return _run("rnn", xw, r, lens, [h0], cell, **how)


def _of_panels(kind: str, steps: Any) -> Any:
    """The reference of a recurrence, whose weights come in panels."""

    def reference(xw: Any, r: Any, *rest: Any, **attrs: Any) -> Any:
        directions, blocks, hidden, _ = r.shape
        apart = r.reshape(directions, blocks, hidden, GATES[kind], UNITS[kind]).transpose(0, 2, 3, 1, 4)
        units = apart.reshape(directions, hidden, GATES[kind], -1)[..., :hidden]
        return steps(xw, units.reshape(directions, hidden, GATES[kind] * hidden), *rest, **attrs)

    return reference


def _projected(x: Any, w: Any, bias: Any) -> Any:
    wide = np.einsum("tbi,dgi->tbdg", x.astype(np.float64), w.astype(np.float64))
    return (wide.reshape(*x.shape[:2], w.shape[0] * w.shape[1]) + bias.reshape(-1)).astype(x.dtype)


def _lstm_ref(x: Any, w: Any, r: Any, b: Any, *rest: Any, **attrs: Any) -> Any:
    gates = w.shape[1]
    return _lstm_steps(_projected(x, w, b[:, :gates] + b[:, gates:]), r.transpose(0, 2, 1), *rest, **attrs)


def _rnn_ref(x: Any, w: Any, r: Any, b: Any, *rest: Any, **attrs: Any) -> Any:
    gates = w.shape[1]
    return _rnn_steps(_projected(x, w, b[:, :gates] + b[:, gates:]), r.transpose(0, 2, 1), *rest, **attrs)


def _gru_ref(x: Any, w: Any, r: Any, b: Any, *rest: Any, **attrs: Any) -> Any:
    gates, n = w.shape[1], w.shape[1] // 3
    first, second = b[:, :gates], b[:, gates:].copy()
    apart = second[:, 2 * n :].copy()
    if attrs["linear_before_reset"]:
        second[:, 2 * n :] = 0
    return _gru_steps(_projected(x, w, first + second), r.transpose(0, 2, 1), apart, *rest, **attrs)


# --- declarations -----------------------------------------------------------------------------------------------------


def _layer(
    kind: str,
    names: tuple[str, ...],
    attrs: dict[str, Attribute],
    lower: Any,
    refs: tuple[Any, Any],
    decompose: Any,
    doc: str,
) -> None:
    declare(
        f"nn.{kind}",
        f"x w r b {' '.join(n for n in names if n != 'rb')}",
        attrs,
        infer=_infer(kind, ("b", *(n for n in names if n != "rb"))),
        lower=None,
        reference=refs[0],
        decompose=decompose,
        rtol=1e-4,
        doc=f"{doc}: x (steps, batch, inputs), w (directions, gates, inputs), r (directions, gates, hidden), "
        "b (directions, 2 gates); returns all outputs (steps, directions, batch, hidden) and the last states.",
    )
    declare(
        f"nn.{kind}_recurrence",
        f"xw r {' '.join(names)}",
        attrs,
        infer=_recurrence_infer(kind, names),
        lower=in_float32(lower),
        reference=refs[1],
        rtol=1e-4,
        doc=f"The steps of ``nn.{kind}`` over projected inputs xw (steps, batch, directions * gates), with "
        "r (directions, blocks, hidden, gates of a block), in the panels of ``weft.topi.rnn_block.panel_shape``.",
    )


_layer(
    "lstm",
    ("sequence_lens", "initial_h", "initial_c", "p"),
    {**_layer_attrs("sigmoid", "tanh", "tanh"), "input_forget": flag(False), "cell_clip": number(0.0)},
    lstm_recurrence,
    (_lstm_ref, _of_panels("lstm", _lstm_steps)),
    _decompose("lstm"),
    "LSTM with gates in the order input, output, forget, cell and peepholes p (directions, 3 hidden)",
)
_layer(
    "gru",
    ("rb", "sequence_lens", "initial_h"),
    {**_layer_attrs("sigmoid", "tanh"), "linear_before_reset": flag(False)},
    gru_recurrence,
    (_gru_ref, _of_panels("gru", _gru_steps)),
    _gru_decompose,
    "GRU with gates in the order update, reset, candidate",
)
_layer(
    "rnn",
    ("sequence_lens", "initial_h"),
    _layer_attrs("tanh"),
    rnn_recurrence,
    (_rnn_ref, _of_panels("rnn", _rnn_steps)),
    _decompose("rnn"),
    "A plain recurrent layer",
)
