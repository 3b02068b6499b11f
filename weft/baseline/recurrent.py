"""Recurrent layers, in NumPy: one product for the inputs of all steps, then a product a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.baseline.operators import floats, operator, sigmoid
from weft.baseline.refusal import NotInBaseline

_Step = Callable[[np.ndarray, np.ndarray, list[np.ndarray]], list[np.ndarray]]
"""From a step's inputs (batch, gates), the weights of hidden values (gates, hidden) and the states to new states."""


def _layer(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    bias: np.ndarray,
    lengths: Any,
    states: list[Any],
    direction: str,
    hidden: int | None,
    gates: int,
    step: Callable[[int], _Step],
) -> list[np.ndarray]:
    """Run a layer; `bias` (directions, gates) is added to the inputs, and ``step(d)`` is the step of a direction.

    What NumPy would repeat to fit is left to the compiled model, which refuses it.

    Returns (steps, directions, batch, hidden) of the first state, and each state as it is at the end.
    """
    floats(x, w, r, *states)
    n, batch, _ = x.shape
    size = r.shape[2]
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    rows = (len(backward), gates * size)
    fit = w.shape == (*rows, x.shape[2]) and r.shape == (*rows, size) and bias.shape == rows
    fit = fit and all(s is None or s.shape == (len(backward), batch, size) for s in states) and hidden in (None, size)
    if not fit or (lengths is not None and (lengths != n).any()):
        raise NotInBaseline("sequences of several lengths")
    out = np.empty((n, len(backward), batch, size), np.float32)
    ends: list[list[np.ndarray]] = []
    for d, reverse in enumerate(backward):
        now = [np.zeros((batch, size), np.float32) if s is None else s[d] for s in states]
        inputs, one, matrix = x @ w[d].T + bias[d], step(d), r[d]
        for t in range(n - 1, -1, -1) if reverse else range(n):
            now = one(inputs[t], matrix, now)
            out[t, d] = now[0]
        ends.append(now)
    return [out, *map(np.stack, zip(*ends, strict=True))]


def _both(b: Any, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The biases of inputs and of hidden values."""
    if b is None:
        return np.zeros(w.shape[:2], np.float32), np.zeros(w.shape[:2], np.float32)
    floats(b)
    if b.shape != (w.shape[0], 2 * w.shape[1]):
        raise NotInBaseline("a bias of another size")
    return b[:, : w.shape[1]], b[:, w.shape[1] :]


@operator("LSTM")
def _lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    *,
    direction: str = "forward",
    hidden_size: int | None = None,
) -> tuple[Any, ...]:
    def step(gates: np.ndarray, matrix: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        hidden, cell = states
        i, o, f, new = np.split(gates + hidden @ matrix.T, 4, 1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(new)
        return [sigmoid(o) * np.tanh(cell), cell]

    bias = np.add(*_both(b, w))
    return tuple(_layer(x, w, r, bias, lengths, [h, c], direction, hidden_size, 4, lambda d: step))


@operator("GRU")
def _gru(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    direction: str = "forward",
    hidden_size: int | None = None,
    linear_before_reset: int = 0,
) -> tuple[Any, ...]:
    inner, outer = _both(b, w)
    size = r.shape[2]

    def step_of(d: int) -> _Step:
        def step(gates: np.ndarray, matrix: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
            (hidden,) = states
            z, reset = np.split(sigmoid(gates[:, : 2 * size] + hidden @ matrix[: 2 * size].T), 2, 1)
            last, more = matrix[2 * size :].T, outer[d, 2 * size :]
            past = reset * (hidden @ last + more) if linear_before_reset else (reset * hidden) @ last + more
            return [(1 - z) * np.tanh(gates[:, 2 * size :] + past) + z * hidden]

        return step

    bias = inner.copy()
    bias[:, : 2 * size] += outer[:, : 2 * size]
    return tuple(_layer(x, w, r, bias, lengths, [h], direction, hidden_size, 3, step_of))


@operator("RNN")
def _rnn(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    direction: str = "forward",
    hidden_size: int | None = None,
) -> tuple[Any, ...]:
    def step(gates: np.ndarray, matrix: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        return [np.tanh(gates + states[0] @ matrix.T)]

    return tuple(_layer(x, w, r, np.add(*_both(b, w)), lengths, [h], direction, hidden_size, 1, lambda d: step))
