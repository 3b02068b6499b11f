"""Decision trees."""

import numpy as np

from tests.op.contract import Array, Case, Sizes, call, cases


@cases("tree_leaves")
def _two_levels(s: Sizes) -> Case:
    """Three nodes that ask and four leaves; some features are not numbers."""
    x = s.rng.uniform(-1, 1, (int(s.a), int(s.c))).astype(np.float32)
    x[s.rng.random(x.shape) < 0.1] = np.nan
    modes = [*s.rng.integers(0, 6, 3), 6, 6, 6, 6]
    columns = (
        s.rng.integers(0, int(s.c), 7), s.rng.uniform(-1, 1, 7).astype(np.float32), modes,
        s.rng.integers(0, 2, 7), [1, 3, 5, 3, 4, 5, 6], [2, 4, 6, 3, 4, 5, 6],
    )  # fmt: skip
    arrays = [c if isinstance(c, np.ndarray) and c.dtype == np.float32 else np.array(c, np.int32) for c in columns]
    roots = s.rng.integers(0, 7, int(s.d)).astype(np.int32)
    return call(Array(x, (s.a, s.c)), *(Array(a, (7,)) for a in arrays), Array(roots, (s.d,)))
