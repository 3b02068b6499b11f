"""Drawing indices by probability."""

import numpy as np

from tests.op.contract import Array, Cases, Sizes, call, cases


def _rows(s: Sizes, batch: int, vocabulary: int) -> Array:
    values = s.rng.dirichlet(np.ones(vocabulary), batch).astype("float32")
    return Array(values.reshape(batch, vocabulary), (batch, vocabulary))


@cases("multinomial_from_uniform")
def _multinomial(s: Sizes) -> Cases:
    yield call(_rows(s, s.a, s.c), s.real(s.a, 1, low=0.0, high=1.0), dtype="int32")
    yield call(_rows(s, s.a, s.c), s.real(s.b, 1, low=0.0, high=1.0), s.integer(s.b, 1, low=0, high=int(s.a)))
