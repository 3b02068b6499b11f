"""Activation functions."""

import numpy as np

from tests.relay.op.contract import call, case

case("nn.leaky_relu", make=lambda s: call(s.real(s.a, s.b), alpha=0.2, expect=lambda x: np.where(x > 0, x, 0.2 * x)))
