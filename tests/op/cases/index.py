"""Gathering and scattering."""

import numpy as np

from tests.op.contract import Array, Case, Cases, Sizes, call, case, cases

case("take", make=lambda s: call(s.real(s.a, 6, s.c), s.integer(s.b, 2, low=-6, high=6), axis=1))
case("take", make=lambda s: call(s.real(s.a, 4), s.integer(low=0, high=4, dtype="int32"), axis=-1))
case("take", make=lambda s: call(s.integer(9), s.integer(s.b, low=0, high=9)))
case("take", make=lambda s: call(s.real(4, s.a), s.integer(s.b, low=-9, high=9), axis=0, mode="clip"))
case("take", make=lambda s: call(s.real(4, s.a), s.integer(s.b, low=-4, high=9), axis=0, mode="wrap"))
case("take", make=lambda s: call(s.real(4, s.a, s.c), s.integer(s.b, low=-4, high=9), axis=1, mode="nan"))
case("gather_elements", make=lambda s: call(s.real(s.a, 6, s.c), s.integer(s.a, s.b, s.c, low=-6, high=6), axis=1))


@cases("gather_elements")
def _gather_elements_last(s: Sizes) -> Case:
    return call(s.integer(s.a, 4), s.integer(s.a, s.b, low=0, high=4, dtype="int32"), axis=-1)


case("gather_nd", make=lambda s: call(s.real(4, 5, s.c), s.integer(s.a, s.b, 2, low=-4, high=4)))
case("gather_nd", make=lambda s: call(s.real(s.a, 5, s.c), s.integer(s.a, s.b, 1, low=0, high=5), batch_dims=1))
case("gather_nd", make=lambda s: call(s.real(s.a, s.d, 5, 3), s.integer(s.a, s.d, 2, low=0, high=3), batch_dims=2))
case("gather_nd", make=lambda s: call(s.real(4, 5), s.integer(2, low=0, high=4)))


def _distinct(s: Sizes, rows: int, n: int, picked: int) -> Array:
    out = s.integer(rows, picked)
    for r in range(rows):
        out.value[r] = s.rng.permutation(n)[:picked]
    return out


@cases("scatter_elements")
def _scatter_elements(s: Sizes) -> Cases:
    yield call(s.real(s.a, 8), _distinct(s, s.a, 8, 5), s.real(s.a, 5), axis=1)
    yield call(s.real(8, s.a), s.integer(3, s.a, low=-8, high=8), s.real(3, s.a), axis=0, reduction="add", atol=1e-5)


def _scatter_reduce(kind: str) -> None:
    @cases("scatter_elements")
    def make(s: Sizes) -> Case:
        given = s.integer(s.a, s.c, 4), s.integer(s.a, s.c, 6, low=0, high=4), s.integer(s.a, s.c, 6)
        return call(*given, axis=-1, reduction=kind)

    @cases("scatter_nd")
    def make_nd(s: Sizes) -> Case:
        return call(s.integer(4, s.c), s.integer(s.b, 1, low=0, high=4), s.integer(s.b, s.c), reduction=kind)

    @cases("scatter_nd")
    def make_short_rows(s: Sizes) -> Case:
        at = s.integer(s.b, 1, low=0, high=4)
        return call(s.integer(4, s.c, s.a, 3), at, s.integer(s.b, s.c, s.a, 3), reduction=kind)


for _kind in ("add", "mul", "max", "min", "mean"):
    _scatter_reduce(_kind)


@cases("scatter_nd")
def _scatter_nd(s: Sizes) -> Cases:
    yield call(s.real(5, 6), _distinct(s, 4, 5, 2), s.real(4))
    indices = _distinct(s, 1, 5, 3)
    yield call(s.real(5, s.b), Array(np.ascontiguousarray(indices.value.T), (3, 1)), s.real(3, s.b))


case("scatter_elements", make=lambda s: call(s.boolean(s.a, 8), _distinct(s, s.a, 8, 5), s.boolean(s.a, 5), axis=1))
case("one_hot", make=lambda s: call(s.integer(s.a, s.b, low=0, high=5), 2.0, -1.0, depth=5, axis=-1))
case("one_hot", make=lambda s: call(s.integer(s.a, s.b, low=-2, high=9), 1, 0, depth=5, axis=1))


@cases("index_tensor")
def _index_tensor(s: Sizes) -> Case:
    return call(s.real(4, 5, s.c), (s.integer(s.a, 1, low=0, high=4), s.integer(s.b, low=-5, high=5)))


def _rows(s: Sizes, n: int, size: int) -> Array:
    out = s.integer(n)
    out.value[:] = s.rng.permutation(size)[:n]
    return out


@cases("index_put")
def _index_put(s: Sizes) -> Cases:
    yield call(s.real(4, s.c), (_rows(s, 3, 4),), s.real(3, s.c))
    yield call(
        s.integer(4, 5),
        (s.integer(s.b, low=-4, high=4), s.integer(s.b, low=0, high=5)),
        s.integer(s.b),
        accumulate=True,
    )


@cases("reverse_sequence")
def _reverse_sequence(s: Sizes) -> Case:
    return call(s.real(4, s.a, s.c), s.integer(s.a, low=0, high=5), seq_axis=0, batch_axis=1)
