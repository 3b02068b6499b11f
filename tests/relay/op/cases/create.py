"""Tensors from shapes, shapes from tensors."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Known, Sizes, call, case, cases

case("full", make=lambda s: call(np.float32(2.5), shape=(2, int(s.b)), expect=lambda v: np.full((2, s.b), v)))
case("full", make=lambda s: call(np.float32(2.5), shape=(3,), dtype="int32", expect=lambda v: np.full(3, 2, "int32")))
case("dyn.full", make=lambda s: call(np.float32(2.5), np.int32([2, s.b]), expect=lambda v, n: np.full(n, v)))


@cases("zeros", "ones")
def _zeros(s: Sizes, name: str) -> Case:
    return call(shape=(int(s.a), int(s.b)), dtype="int8", expect=lambda: getattr(np, name)((s.a, s.b), "int8"))


@cases("dyn.zeros", "dyn.ones")
def _dyn_zeros(s: Sizes, name: str) -> Case:
    return call(np.int64([s.a, s.b]), dtype="int32", expect=lambda n: getattr(np, name[4:])(n, "int32"))


case("full_like", make=lambda s: call(s.real(s.a, s.b), np.float32(1.5), expect=np.full_like))


@cases("arange")
def _arange(s: Sizes) -> Cases:
    yield call(np.int64(s.a), np.int64(20), np.int64(3), dtype="int32", expect=lambda *v: np.arange(*v, dtype="int32"))
    yield call(Known(np.float32(1)), Known(np.float32(-2)), Known(np.float32(-0.5)), expect=np.arange)


case("arange", make=lambda s: call(np.float32(0), np.float32(s.a + 0.5), np.float32(1), expect=np.arange))
case("shape_of", make=lambda s: call(s.real(s.a, s.b, 3), expect=lambda x: np.int32(x.shape)))
case("shape_of", make=lambda s: call(np.float32(1), dtype="int64", expect=lambda x: np.zeros(0, "int64")))
case("ndarray_size", make=lambda s: call(s.real(s.a, s.b, 3), dtype="int64", expect=lambda x: np.int64(x.size)))


@cases("one_hot")
def _one_hot(s: Sizes) -> Case:
    return call(
        s.integer(s.a, low=0, high=4),
        np.float32(5),
        np.float32(-1),
        depth=4,
        axis=0,
        expect=lambda i, on, off: np.where(np.arange(4)[:, None] == i, on, off),
    )


@cases("dyn.one_hot")
def _dyn_one_hot(s: Sizes) -> Case:
    return call(
        s.integer(s.a, low=0, high=4),
        np.int32(5),
        np.int32(0),
        np.int64(4),
        dtype="int32",
        expect=lambda i, on, off, depth: np.where(i[:, None] == np.arange(4), on, off),
    )
