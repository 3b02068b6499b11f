"""Moving, joining, cutting and repeating tensors."""

from typing import Any

import numpy as np

from tests.relay.op.contract import Case, Cases, Known, Sizes, call, case, cases


def _shaped(shape: Any) -> Any:
    return lambda x, *_: np.reshape(x, shape)


@cases("reshape")
def _reshape(s: Sizes) -> Cases:
    yield call(s.real(s.a, s.c, 6), newshape=(0, 0, 2, -1), expect=_shaped((s.a, s.c, 2, 3)))
    yield call(s.real(s.a, s.b, s.c), newshape=(0, -2, 1, 1), expect=_shaped((s.a, s.b, s.c, 1, 1)))
    yield call(s.real(s.a, s.b, s.c, 2), newshape=(-3, -3), expect=_shaped((s.a * s.b, s.c * 2)))
    yield call(s.real(s.a, 6, s.c), newshape=(0, -4, 2, -1, -2), expect=_shaped((s.a, 2, 3, s.c)))
    yield call(s.integer(s.a, s.b), newshape=-1, expect=_shaped(s.a * s.b))


@cases("contrib_reverse_reshape")
def _reverse_reshape(s: Sizes) -> Cases:
    yield call(s.real(s.a, 5, s.c), newshape=(-1, 0), expect=_shaped((s.a * 5, s.c)))
    yield call(s.real(2, s.c, 6), newshape=(-1, 0, -4, 3, 2), expect=_shaped((2, s.c, 3, 2)))


case("dyn.reshape", make=lambda s: call(s.real(s.a, s.c, 6), np.int64([0, -1, 3]), expect=_shaped((s.a, s.c * 2, 3))))
case("dyn.reshape", make=lambda s: call(s.real(s.a, s.b), Known(np.int32([-3])), expect=_shaped(s.a * s.b)))
case("reshape_like", make=lambda s: call(s.real(s.a, 6), s.real(s.a, 2, 3), expect=lambda x, y: x.reshape(y.shape)))


@cases("reshape_like")
def _like_part(s: Sizes) -> Case:
    return call(
        s.real(s.a, 6, s.c), s.real(7, 2, 3), lhs_begin=1, lhs_end=2, rhs_begin=1, expect=_shaped((s.a, 2, 3, s.c))
    )


case("transpose", make=lambda s: call(s.real(s.a, s.b, s.c), axes=(1, -1, 0), expect=lambda x: x.transpose(1, 2, 0)))
case("transpose", make=lambda s: call(s.real(s.a, s.b, s.c), axes=None, expect=lambda x: x.T))
case("squeeze", make=lambda s: call(s.real(1, s.a, 1), axis=(0,), expect=lambda x: x[0]))
case("squeeze", make=lambda s: call(s.real(1, 3, 1), expect=np.squeeze))
case("nn.batch_flatten", make=lambda s: call(s.real(s.a, s.b, s.c), expect=_shaped((s.a, s.b * s.c))))
case("expand_dims", make=lambda s: call(s.real(s.a, s.b), axis=1, num_newaxis=2, expect=lambda x: x[:, None, None]))
case("expand_dims", make=lambda s: call(s.real(s.a), axis=-1, expect=lambda x: x[:, None]))
case("reverse", make=lambda s: call(s.real(s.a, s.b), axis=-1, expect=lambda x: x[:, ::-1]))


@cases("concatenate")
def _concatenate(s: Sizes) -> Case:
    return call((s.real(s.a, s.b), s.real(s.a, s.c)), axis=-1, expect=lambda t: np.concatenate(t, -1))


@cases("split")
def _split(s: Sizes) -> Cases:
    yield call(s.real(s.a, 7), indices_or_sections=(2, 5), axis=1, expect=lambda x: tuple(np.split(x, [2, 5], 1)))
    yield call(s.real(6, s.b), indices_or_sections=3, expect=lambda x: tuple(np.split(x, 3)))


@cases("broadcast_to")
def _broadcast_to(s: Sizes) -> Case:
    return call(s.real(s.a, 1), shape=(2, int(s.a), 3), expect=lambda x: np.broadcast_to(x, (2, s.a, 3)))


@cases("dyn.broadcast_to")
def _dyn_broadcast_to(s: Sizes) -> Case:
    return call(s.real(s.a, 1), np.int64([2, s.a, 3]), expect=lambda x, y: np.broadcast_to(x, (2, s.a, 3)))


@cases("broadcast_to_like")
def _broadcast_to_like(s: Sizes) -> Case:
    return call(s.real(s.b), s.real(s.a, s.b), expect=lambda x, y: np.broadcast_to(x, y.shape))


@cases("collapse_sum_like")
def _collapse_sum_like(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c), s.real(s.b, 1), expect=lambda x, y: x.sum((0, 2), dtype="float64")[:, None])


@cases("collapse_sum_to")
def _collapse_sum_to(s: Sizes) -> Case:
    return call(s.real(s.a, 5, s.c), shape=(5, 1), expect=lambda x: x.sum((0, 2), dtype="float64")[:, None])


case("tile", make=lambda s: call(s.real(s.a, s.b), reps=(2, 1, 3), expect=lambda x: np.tile(x, (2, 1, 3))))
case("dyn.squeeze", make=lambda s: call(s.real(1, s.a, 1, s.b, 1), np.int64([0, -3]), expect=lambda x, _: x[0, :, 0]))
case("dyn.squeeze", make=lambda s: call(s.real(s.a, 1), np.int32([1]), expect=lambda x, _: x[:, 0]))
case("dyn.expand_dims", make=lambda s: call(s.real(s.a, s.b), np.int64(1), expect=lambda x, _: x[:, None]))
case(
    "dyn.expand_dims",
    make=lambda s: call(s.real(s.a, s.b), np.int64(-1), num_newaxis=2, expect=lambda x, _, **k: x[..., None, None]),
)
case("dyn.tile", make=lambda s: call(s.real(s.a, s.b), np.int64([2, 1, 3]), expect=lambda x, _: np.tile(x, (2, 1, 3))))
case("dyn.tile", make=lambda s: call(s.real(s.a, s.b), np.int64([2]), expect=lambda x, _: np.tile(x, (2,))))
