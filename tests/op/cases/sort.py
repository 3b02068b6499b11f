"""Sorting."""

import numpy as np

from tests.op.contract import Array, Case, Sizes, call, case, cases

case("topk", make=lambda s: call(s.real(s.a, 6, s.b), k=3, axis=1))
case("topk", make=lambda s: call(s.integer(s.a, 9, low=0, high=3, dtype="int32"), k=4, largest=False, dtype="int64"))
case("topk", make=lambda s: call(s.real(s.c, s.a), k=-1, axis=0, ret_type="values"))
case("topk", make=lambda s: call(s.real(s.b, s.a), k=1, axis=-1, ret_type="indices"))
case("topk", make=lambda s: call(s.real(s.a, 3), k=0))


@cases("topk")
def _topk_nan(s: Sizes) -> Case:
    x = s.real(s.a, 6)
    x.value[:, 1:5:2] = np.nan
    return call(x, k=3)


_LIMITS = Array(np.array([-2, 0, 0, 3]), (4,))
case("bucketize", make=lambda s: call(s.integer(s.a, s.b, low=-4, high=5), _LIMITS, out_int32=True))
case("bucketize", make=lambda s: call(s.integer(s.a, low=-4, high=5), _LIMITS, right=True))
case("sort", "argsort", make=lambda s, name: call(s.integer(s.a, s.b, low=0, high=4), axis=-1))
case("sort", "argsort", make=lambda s, name: call(s.integer(s.b, s.a, low=0, high=4), axis=0, descending=True))
case("sort", "argsort", make=lambda s, name: call(s.real(s.a, 200), axis=1))
case("places", make=lambda s: call(s.boolean(s.a)))
case("places", make=lambda s: call(Array(np.zeros(int(s.b), bool), (s.b,))))
case("median", make=lambda s: call(s.integer(s.b, s.a, s.c, low=-2, high=3), axis=1))
case("median", make=lambda s: call(s.real(s.a, s.b, s.c), axis=(0, -1), keepdims=True))
case("median", make=lambda s: call(s.real(s.a, s.c)))
