"""Quantisation."""

from __future__ import annotations

from tests.op.contract import Case, Sizes, call, cases


@cases("quantize")
def _quantize(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.b, low=-30, high=30),
        s.real(s.b, low=0.1, high=0.3),
        s.integer(s.b, low=-5, high=5, dtype="int8"),
        axis=1,
    )


@cases("quantize")
def _quantize_scalar(s: Sizes) -> Case:
    return call(
        s.real(s.b, low=-9, high=9),
        s.real(low=0.05, high=0.1),
        s.integer(low=0, high=9, dtype="uint8"),
        out_dtype="uint8",
    )


@cases("dequantize")
def _dequantize(s: Sizes) -> Case:
    return call(s.integer(s.a, s.b, dtype="int8"), s.real(s.a, low=0.1, high=0.3), s.integer(s.a, dtype="int8"), axis=0)


@cases("dequantize")
def _dequantize_scalar(s: Sizes) -> Case:
    return call(
        s.integer(s.a, s.b, low=0, high=255, dtype="uint8"),
        s.real(low=0.1, high=0.3),
        s.integer(low=0, high=9, dtype="uint8"),
    )
