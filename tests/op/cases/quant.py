"""Quantisation."""

from tests.op.contract import Case, Cases, Sizes, call, cases


@cases("quantize")
def _quantize(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, s.b, low=-30, high=30),
        s.real(s.b, low=0.1, high=0.3),
        s.integer(s.b, low=-5, high=5, dtype="int8"),
        axis=1,
    )
    yield call(
        s.real(s.b, low=-9, high=9),
        s.real(low=0.05, high=0.1),
        s.integer(low=0, high=9, dtype="uint8"),
        out_dtype="uint8",
    )


@cases("dequantize")
def _dequantize(s: Sizes) -> Cases:
    yield call(s.integer(s.a, s.b, dtype="int8"), s.real(s.a, low=0.1, high=0.3), s.integer(s.a, dtype="int8"), axis=0)
    yield call(
        s.integer(s.a, s.b, low=0, high=255, dtype="uint8"),
        s.real(low=0.1, high=0.3),
        s.integer(low=0, high=9, dtype="uint8"),
    )


@cases("requantize")
def _requantize(s: Sizes) -> Case:
    sums = s.integer(s.a, s.b, 5, low=-3000, high=3000, dtype="int32")
    return call(sums, s.real(5, low=0.001, high=0.1), s.real(5), low=3, atol=1)


@cases("requantize_sum")
def _requantize_sum(s: Sizes) -> Case:
    sums = s.integer(s.a, s.b, s.c, low=-300, high=300, dtype="int32")
    data = s.integer(s.a, s.b, s.c, low=0, high=255, dtype="uint8")
    factors = (s.real(1, s.c, low=0.1, high=0.5), s.real(1))
    return call(sums, data, *factors, s.real(1, 1, 1), low=-128, out_dtype="int8", atol=1)
