"""Activation functions."""

from __future__ import annotations

import numpy as np

from tests.relay.op.contract import Case, Sizes, call, case, cases

case("nn.relu", make=lambda s: call(s.real(s.a, s.b), expect=lambda x: np.maximum(x, 0)))
case("nn.leaky_relu", make=lambda s: call(s.real(s.a, s.b), alpha=0.2, expect=lambda x: np.where(x > 0, x, 0.2 * x)))


@cases("nn.prelu")
def _prelu(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c), s.real(s.b), expect=lambda x, a: np.where(x > 0, x, a[:, None] * x))


@cases("nn.prelu")
def _prelu_last(s: Sizes) -> Case:
    return call(s.real(s.a, s.c), s.real(s.c), axis=-1, expect=lambda x, a: np.where(x > 0, x, a * x))
