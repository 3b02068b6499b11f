"""Recurrent layers."""

from tests.op.contract import Case, Cases, Sizes, call, case, cases
from weft.topi.rnn_block import panel_shape

NEAR = {"rtol": 1e-3, "atol": 1e-4}


def _lens(s: Sizes, batch: int, steps: int):
    return s.integer(batch, low=0, high=int(steps) + 1, dtype="int32")


def _lstm_inputs(s: Sizes, n: int, directions: int, projected: bool):
    gates = 4 * n
    x = (
        (s.real(s.b, s.a, directions * gates),)
        if projected
        else (s.real(s.b, s.a, 3), s.real(directions, gates, 3, low=-1, high=1))
    )
    r = (
        s.real(*panel_shape("lstm", directions, n), low=-1, high=1)
        if projected
        else s.real(directions, gates, n, low=-1, high=1)
    )
    bias = () if projected else (s.real(directions, 2 * gates),)
    state = s.real(directions, s.a, n), s.real(directions, s.a, n)
    return (*x, r, *bias, _lens(s, s.a, s.b), *state, s.real(directions, 3 * n))


case("nn.lstm", make=lambda s: call(*_lstm_inputs(s, 4, 1, False), **NEAR))
case("nn.lstm_recurrence", make=lambda s: call(*_lstm_inputs(s, 16, 1, True), **NEAR))


@cases("nn.lstm_recurrence")
def _lstm_recurrence(s: Sizes) -> Cases:
    yield call(*_lstm_inputs(s, 5, 1, True), direction="reverse", clip=0.6, input_forget=True, cell_clip=0.4, **NEAR)
    yield call(
        *_lstm_inputs(s, 12, 2, True),
        direction="bidirectional",
        activations=("sigmoid", "tanh", "tanh", "hardsigmoid", "relu", "softsign"),
        **NEAR,
    )


@cases("nn.lstm_recurrence")
def _recurrence_long_lengths(s: Sizes) -> Case:
    """Lengths past the number of steps, and negative ones, are limited."""
    inputs = list(_lstm_inputs(s, 20, 1, True))
    inputs[2].value[:] = s.rng.integers(-3, 99, int(s.a))
    return call(*inputs, direction="reverse", **NEAR)


def _gru_inputs(s: Sizes, n: int, directions: int, projected: bool):
    gates = 3 * n
    tail = _lens(s, s.a, s.b), s.real(directions, s.a, n)
    if projected:
        return (
            s.real(s.b, s.a, directions * gates),
            s.real(*panel_shape("gru", directions, n), low=-1, high=1),
            s.real(directions, n),
            *tail,
        )
    x, w, r = s.real(s.b, s.a, 3), s.real(directions, gates, 3), s.real(directions, gates, n, low=-1, high=1)
    return x, w, r, s.real(directions, 2 * gates), *tail


@cases("nn.gru")
def _gru(s: Sizes) -> Cases:
    yield call(*_gru_inputs(s, 4, 1, False), **NEAR)
    yield call(*_gru_inputs(s, 5, 2, False), direction="bidirectional", linear_before_reset=True, **NEAR)


@cases("nn.gru_recurrence")
def _gru_recurrence(s: Sizes) -> Cases:
    yield call(*_gru_inputs(s, 18, 1, True), clip=0.7, **NEAR)
    yield call(*_gru_inputs(s, 7, 2, True), direction="bidirectional", linear_before_reset=True, **NEAR)


def _rnn_inputs(s: Sizes, n: int, directions: int, projected: bool):
    tail = _lens(s, s.a, s.b), s.real(directions, s.a, n)
    if projected:
        return s.real(s.b, s.a, directions * n), s.real(*panel_shape("rnn", directions, n), low=-1, high=1), *tail
    return (
        s.real(s.b, s.a, 3),
        s.real(directions, n, 3),
        s.real(directions, n, n, low=-1, high=1),
        s.real(directions, 2 * n),
        *tail,
    )


case("nn.rnn", make=lambda s: call(*_rnn_inputs(s, 4, 1, False), **NEAR))


@cases("nn.rnn_recurrence")
def _rnn_recurrence(s: Sizes) -> Case:
    return call(*_rnn_inputs(s, 9, 2, True), direction="bidirectional", activations=("relu", "tanh"), clip=2.0, **NEAR)


# A step is so much work that its blocks run in parallel, and the last block is not full. The weights are small, so that
# rounding errors do not grow from step to step.


def _small(inputs: tuple, scale: float = 0.05) -> tuple:
    inputs[1].value[:] *= scale
    return inputs


@cases("nn.rnn_recurrence")
def _rnn_recurrence_blocks(s: Sizes) -> Case:
    inputs = _small(_rnn_inputs(s, 370, 2, True))
    return call(*inputs, direction="bidirectional", activations=("relu", "tanh"), clip=2.0, **NEAR)


@cases("nn.lstm_recurrence")
def _recurrence_blocks(s: Sizes) -> Case:
    return call(*_small(_lstm_inputs(s, 185, 2, True)), direction="bidirectional", **NEAR)


case("nn.gru_recurrence", make=lambda s: call(*_small(_gru_inputs(s, 210, 1, True)), direction="reverse", **NEAR))
