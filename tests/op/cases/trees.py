"""Decision trees."""

import numpy as np

from tests.op.contract import Array, Case, Sizes, call, case


def _two_levels(s: Sizes, aggregate: str, wide: int) -> Case:
    """Three nodes that ask and four leaves; some features are not numbers."""
    x = s.rng.uniform(-1, 1, (int(s.b), int(s.a))).astype(f"f{wide}")
    x[s.rng.random(x.shape) < 0.1] = np.nan
    x[:1] = -0.0
    limits = s.rng.uniform(-1, 1, 7).astype(x.dtype).view(f"i{wide}")
    limits = np.where(limits < 0, np.iinfo(limits.dtype).min - limits, limits)
    limits[0], limits[3:] = 0, np.iinfo(limits.dtype).max - 1
    nodes = np.stack([limits, s.rng.integers(0, 2 * int(s.a), 7), [1, 3, 5, 3, 4, 5, 6], [0, 0, 0, 0, 1, 2, 3]], 1)
    nodes = np.concatenate([nodes, nodes[3:4]]).astype(limits.dtype)
    roots = s.rng.integers(0, 7, int(s.c)).astype(np.int32)
    given = (Array(x, (s.b, s.a)), Array(nodes, (8, 4)), Array(roots, (s.c,)), s.real(4, s.d))
    return call(*given, aggregate=aggregate)


case("tree_scores", make=lambda s: _two_levels(s, "sum", 4))
case("tree_scores", make=lambda s: _two_levels(s, "min", 4))
case("tree_scores", make=lambda s: _two_levels(s, "max", 4))
case("tree_scores", make=lambda s: _two_levels(s, "sum", 8))
