"""Sorting, the k greatest, searching."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Sizes, call, case, cases

case("sort", make=lambda s: call(s.real(s.b, s.c), axis=0, expect=lambda x: np.sort(x, 0)))
case("sort", make=lambda s: call(s.real(s.a, s.c), is_ascend=False, expect=lambda x: -np.sort(-x)))
case("argsort", make=lambda s: call(s.real(s.a, s.c), dtype="int64", expect=np.argsort))
case("argsort", make=lambda s: call(s.real(s.a, s.c), is_ascend=False, expect=lambda x: np.argsort(-x).astype("int32")))


@cases("topk")
def _topk(s: Sizes) -> Cases:
    yield call(s.real(s.a, 6), k=2, expect=lambda x: (-np.sort(-x)[:, :2], np.int32(np.argsort(-x)[:, :2])))
    yield call(s.real(6, s.b), k=3, axis=0, ret_type="values", is_ascend=True, expect=lambda x: np.sort(x, 0)[:3])
    yield call(s.real(s.a, s.c), k=0, ret_type="indices", expect=lambda x: np.int32(np.argsort(-x)))


@cases("dyn.topk")
def _dyn_topk(s: Sizes) -> Case:
    return call(s.real(s.a, 6), np.int64(2), expect=lambda x, k: (-np.sort(-x)[:, :2], np.int32(np.argsort(-x)[:, :2])))


@cases("searchsorted")
def _searchsorted(s: Sizes) -> Case:
    rows = s.integer(s.c, low=0, high=9)
    rows.value.sort()
    return call(rows, s.integer(s.a, s.b, low=-1, high=10), expect=lambda x, v: np.int32(np.searchsorted(x, v)))


@cases("searchsorted")
def _searchsorted_rows(s: Sizes) -> Case:
    rows = s.integer(s.a, s.c, low=0, high=9)
    rows.value.sort(-1)
    return call(
        rows,
        s.integer(s.a, 4, low=-1, high=10),
        right=True,
        dtype="int64",
        expect=lambda x, v: np.stack([np.searchsorted(a, b, "right") for a, b in zip(x, v, strict=True)]),
    )
