"""Gathering by index."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Sizes, call, cases


def _batched(x, i, axis, mode="clip"):
    return np.stack([np.take(a, b, axis - 1, mode=mode) for a, b in zip(x, i, strict=True)])


@cases("take")
def _take(s: Sizes) -> Cases:
    yield call(s.real(s.a, 5), s.integer(s.b, 2, low=0, high=5), axis=1, expect=lambda x, i: np.take(x, i, 1))
    yield call(
        s.real(2, 4), s.integer(s.b, low=-9, high=9), mode="wrap", expect=lambda x, i: np.take(x, i, mode="wrap")
    )
    yield call(
        s.real(s.a, 5, s.c),
        s.integer(s.a, 3, low=-7, high=7),
        axis=1,
        batch_dims=1,
        expect=lambda x, i: _batched(x, i, 1),
    )
    yield call(
        s.real(s.a, s.c, 5, 2),
        s.integer(s.a, 3, low=-7, high=7),
        axis=2,
        batch_dims=1,
        mode="wrap",
        expect=lambda x, i: _batched(x, i, 2, "wrap"),
    )


@cases("gather")
def _gather(s: Sizes) -> Case:
    return call(
        s.real(s.a, 5), s.integer(s.a, 3, low=0, high=5), axis=1, expect=lambda x, i: np.take_along_axis(x, i, 1)
    )


@cases("gather_nd")
def _gather_nd(s: Sizes) -> Case:
    return call(s.real(4, 5, s.c), s.integer(2, s.b, low=0, high=4), expect=lambda x, i: x[i[0], i[1]])


@cases("gather_nd", when=lambda s: s.a > 0)
def _gather_nd_batched(s: Sizes) -> Case:
    return call(
        s.real(3, 5, s.c),
        s.integer(1, 3, low=0, high=5),
        batch_dims=1,
        index_rank=1,
        expect=lambda x, i: np.stack([x[n, i[0, n]] for n in range(3)]),
    )


@cases("sequence_mask")
def _sequence_mask(s: Sizes) -> Cases:
    yield call(
        s.real(s.c, s.a, 2),
        s.integer(s.a, low=0, high=4, dtype="int32"),
        mask_value=-1.0,
        expect=lambda x, n: np.where(np.arange(s.c)[:, None, None] < n[None, :, None], x, -1),
    )
    yield call(
        s.real(s.a, s.c),
        s.integer(s.a, low=0, high=4),
        axis=1,
        expect=lambda x, n: np.where(np.arange(s.c) < n[:, None], x, 0),
    )
