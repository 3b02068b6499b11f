"""Probabilities of pairs of classes."""

import numpy as np

from tests.op.contract import Array, Case, Sizes, call, cases


@cases("couple_pairs")
def _some_certain(s: Sizes) -> Case:
    """The diagonal is not read; one row may be no numbers."""
    rows, count = int(s.a), int(s.c)
    one = s.rng.uniform(0.05, 0.95, (rows, count, count)).astype(np.float32)
    pairs = np.triu(one, 1) + np.tril(1 - one.transpose(0, 2, 1), -1) + np.eye(count, dtype=np.float32) * np.nan
    pairs[1:2] = np.nan
    return call(Array(pairs.astype(np.float32), (s.a, s.c, s.c)))
