"""Non-maximum suppression."""

import numpy as np

from tests.op.contract import Array, Case, Sizes, call, case


def _case(s: Sizes, center: bool) -> Case:
    batch, classes, n = int(s.a), int(s.b), int(s.c)
    boxes = np.concatenate([s.rng.uniform(0, 30, (batch, n, 2)), s.rng.uniform(1, 30, (batch, n, 2))], 2)
    scores = s.rng.random((batch, classes, n), np.float32)
    order = np.argsort(-scores, 2, kind="stable")
    limits = [Array(np.array([v], t), (1,)) for v, t in ((3, "int64"), (0.3, "float32"), (0.2, "float32"))]
    given = [Array(boxes.astype("float32"), (s.a, s.c, 4)), *(Array(x, (s.a, s.b, s.c)) for x in (scores, order))]
    return call(*given, *limits, center=center)


case("vision.suppressed", make=lambda s: _case(s, False))
case("vision.suppressed", make=lambda s: _case(s, True))
