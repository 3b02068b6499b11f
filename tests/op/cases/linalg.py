"""Systems of linear equations, and entries written into caches."""

import numpy as np

from tests.op.contract import Array, Cases, Sizes, call, case, cases


def _matrices(s: Sizes, size: int) -> Array:
    """Matrices whose largest elements are not on the diagonal."""
    x = s.real(s.d, size, size, dtype="float64")
    return Array(x.value + 9 * np.roll(np.eye(size), 1, 0), x.dims)


case("linalg.solve", make=lambda s: call(_matrices(s, s.a), s.real(s.d, s.a, s.c, dtype="float64")))
case("linalg.solve", make=lambda s: call(_matrices(s, 4), s.real(s.d, 4, s.b, dtype="float64")))


@cases("tensor_scatter")
def _tensor_scatter(s: Sizes) -> Cases:
    yield call(s.real(s.a, 9, s.b), s.real(s.a, 4, s.b), s.integer(s.a, low=-2, high=8), axis=1)
    yield call(
        s.real(s.a, 2, 6, s.c), s.real(s.a, 2, 5, s.c), s.integer(s.a, low=0, high=6, dtype="int32"), circular=True
    )
