"""A layer of long short-term memory as a scan over its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import PrimExpr, as_int, const, floordiv
from weft.te import Tensor
from weft.topi.shape import simplify

Scalar = Callable[[Any], Any]


def lstm(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Scalar = tir.sigmoid,
    g_act: Scalar = tir.tanh,
    h_act: Scalar = tir.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> Any:
    """Run an LSTM over sequences.

    Parameters
    ----------
    Xs : Tensor
        (steps, batch, inputs).
    Wi, Wh : Tensor
        (4 * hidden, inputs) and (4 * hidden, hidden or projected), the gates in the order of `weight_layout`.
    Bi, Bh : Tensor, optional
        (4 * hidden,).
    h_init, c_init : Tensor, optional
        (batch, hidden or projected) and (batch, hidden); zero by default.
    proj : Tensor, optional
        (projected, hidden), by which each hidden state is multiplied.
    p_i, p_f, p_o : Tensor, optional
        (batch, hidden): how much of the cell state the gates see.
    reverse : bool
        Whether to begin with the last step.

    Returns
    -------
    (Tensor, Tensor)
        Hidden and cell states after each step, in the order in which they were made.
    """
    if sorted(weight_layout) != sorted("IFGO"):
        raise InvalidArgument(f"lstm: unknown order of gates '{weight_layout}'", expected="the letters I, F, G and O")
    if (as_int(Wi.shape[0]) or 0) % 4:
        raise InvalidArgument("lstm: weights of four gates", expected="4 * hidden rows", found=str(Wi.shape[0]))
    steps, batch, _ = Xs.shape
    hidden, length = simplify(floordiv(Wi.shape[0], 4)), simplify(steps + 1)
    out = hidden if proj is None else proj.shape[0]
    h_state = te.placeholder((length, batch, out), Xs.dtype, "h_state")
    c_state = te.placeholder((length, batch, hidden), Xs.dtype, "c_state")
    gates = _gates(Xs, Wi, Wh, Bi, Bh, h_state, hidden, reverse)

    def gate(name: str, act: Scalar, peep: Any = None, cell: Any = None) -> Any:
        which = weight_layout.index(name)

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> Any:
            value = gates(t, b, which, j)
            return act(value if peep is None else value + peep(b, j) * cell(t, b, j))

        return te.compute((length, batch, hidden), element, name=f"{name.lower()}_gate")

    def before(t: PrimExpr, b: Any, j: PrimExpr) -> Any:
        return c_state(t - 1, b, j)

    i, f, g = gate("I", f_act, p_i, before), gate("F", f_act, p_f, before), gate("G", g_act)
    next_c = te.compute(
        (length, batch, hidden), lambda t, b, j: f(t, b, j) * before(t, b, j) + i(t, b, j) * g(t, b, j), name="next_c"
    )
    o = gate("O", f_act, p_o, next_c)
    next_h = te.compute((length, batch, hidden), lambda *at: o(*at) * h_act(next_c(*at)), name="next_h")
    if proj is not None:
        next_h = _product(next_h, proj, (length, batch, out), "next_h_projected")
    starts = [_start(h_init, batch, out, Xs.dtype, "h_init"), _start(c_init, batch, hidden, Xs.dtype, "c_init")]
    found = te.scan(starts, [next_h, next_c], [h_state, c_state], name="lstm_scan")
    names = ("hidden_states", "cell_states")
    hs, cs = (
        te.compute((steps, *t.shape[1:]), lambda s, b, j, t=t: t(s + 1, b, j), name=name)
        for t, name in zip(found, names, strict=True)
    )
    return hs, cs


def _start(given: Any, batch: Any, size: Any, dtype: str, name: str) -> Any:
    return te.compute((1, batch, size), lambda _, b, j: const(0, dtype) if given is None else given(b, j), name=name)


def _product(x: Any, w: Any, shape: Any, name: str) -> Any:
    k = te.reduce_axis((0, x.shape[2]), "k")
    return te.compute(shape, lambda t, b, j: te.sum(x(t, b, k.var) * w(j, k.var), axis=k), name=name)


def _gates(Xs: Any, Wi: Any, Wh: Any, Bi: Any, Bh: Any, h_state: Any, hidden: Any, reverse: bool) -> Any:
    """What the four gates are made of: inputs, the last hidden states, and biases."""
    steps, batch, _ = Xs.shape
    inputs = _product(Xs, Wi, (steps, batch, Wi.shape[0]), "inputs")
    k = te.reduce_axis((0, Wh.shape[1]), "kh")
    shape = (simplify(steps + 1), batch, 4, hidden)
    states = te.compute(
        shape, lambda t, b, i, j: te.sum(h_state(t - 1, b, k.var) * Wh(i * hidden + j, k.var), axis=k), name="states"
    )

    def element(t: PrimExpr, b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        value = inputs(steps - t if reverse else t - 1, b, i * hidden + j) + states(t, b, i, j)
        for bias in (Bi, Bh):
            value = value if bias is None else value + bias(i * hidden + j)
        return value

    return te.compute(shape, element, name="gates")
