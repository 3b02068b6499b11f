"""Element-wise operators."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Sizes, call, case, cases


@cases("trunc_divide")
def _trunc_divide(s: Sizes) -> Cases:
    yield call(s.real(s.a, s.b), s.real(s.b, low=0.5), expect=lambda a, b: np.trunc(a / b), rtol=1e-3, atol=1e-4)
    divisor = s.integer(1, low=1, dtype="int32")
    yield call(s.integer(s.a, s.b, dtype="int32"), divisor, expect=lambda a, b: np.trunc(a / b).astype(a.dtype))


case("cast", make=lambda s: call(s.real(s.a, s.b), dtype="int32", expect=lambda x: x.astype("int32")))
case("cast_like", make=lambda s: call(s.real(s.a, s.b), s.integer(3), expect=lambda x, y: x.astype(y.dtype)))
case("clip", make=lambda s: call(s.real(s.a, s.b), a_min=-1.0, a_max=2.0, expect=lambda x: np.clip(x, -1, 2)))
case("copy", make=lambda s: call(s.real(s.a, s.b), expect=lambda x: x))
case("where", make=lambda s: call(s.boolean(s.a, 1), s.real(s.b), s.real(s.a, s.b), expect=np.where))


@cases("where")
def _where_integers(s: Sizes) -> Case:
    return call(
        s.integer(s.a, low=0, high=2, dtype="int32"), s.real(s.a), s.real(s.a), expect=lambda c, x, y: np.where(c, x, y)
    )


@cases("fixed_point_multiply")
def _fixed_point_multiply(s: Sizes) -> Cases:
    yield call(
        s.integer(s.a, s.b, low=-5000, high=5000, dtype="int32"), multiplier=1 << 30, shift=2, expect=lambda x: x * 2
    )
    yield call(s.integer(s.a, dtype="int32"), multiplier=1 << 30, shift=0, expect=lambda x: np.floor(x / 2 + 0.5))


case("reinterpret", make=lambda s: call(s.real(s.a, s.b), dtype="int32", expect=lambda x: x.view("int32")))


@cases("relay.op.annotation.simulated_quantize")
def _simulated_quantize(s: Sizes) -> Case:
    limits = np.float32(0.25), np.float32(-7), np.float32(7)
    return call(
        s.real(s.a, s.b), *limits, kind=1, expect=lambda x, d, low, high: np.clip(np.rint(x / d), low, high) * d
    )
