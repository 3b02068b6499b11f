"""8-bit floats, which no CPU computes with: conversions by integer arithmetic on their bits.

Source: the OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), and for the ``fnuz`` forms the types of the same
name in ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.ir import DataType, PrimExpr, Select, all_of, any_of, cast, const, logical_not, select
from weft.tir.intrin import nearbyint, reinterpret


@dataclass(frozen=True)
class _Format:
    """Bits of the mantissa, exponent bias, the largest finite code, and the codes of infinity and NaN."""

    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int
    has_negative_zero: bool = True


FLOAT8 = {
    "float8_e4m3fn": _Format(3, 7, 0x7E, None, 0x7F),
    "float8_e5m2": _Format(2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, None, 0x80, has_negative_zero=False),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, None, 0x80, has_negative_zero=False),
}
"""The formats by the name of their data type."""


def _u(value: int) -> Any:
    return const(value, "uint32")


def float8_to_float32(x: PrimExpr) -> Any:
    """Convert one value; every 8-bit float is a float32."""
    form = FLOAT8[DataType(x.dtype).code]
    bits = cast("uint32", reinterpret("uint8", x))
    magnitude = bits & _u(0x7F)
    exponent = magnitude >> _u(form.mantissa)
    normal = reinterpret("float32", (magnitude << _u(23 - form.mantissa)) + _u((127 - form.bias) << 23))
    small = cast("float32", magnitude) * const(2.0 ** (1 - form.bias - form.mantissa), "float32")
    value = select(exponent.equal(_u(0)), small, normal)
    if form.infinity is not None:
        value = select(magnitude.equal(_u(form.infinity)), const(float("inf"), "float32"), value)
        is_nan = magnitude > _u(form.infinity)
    else:
        is_nan = (bits if form.nan == 0x80 else magnitude).equal(_u(form.nan))
    signed = reinterpret("float32", reinterpret("uint32", value) | ((bits >> _u(7)) << _u(31)))
    return select(is_nan, const(float("nan"), "float32"), signed)


def float32_to_float8(x: PrimExpr, dtype: str) -> Any:
    """Round one float32 to nearest, halves to even; beyond the range is infinity, or NaN where there is none."""
    form = FLOAT8[DataType(dtype).code]
    bits = reinterpret("uint32", x)
    magnitude = bits & _u(0x7FFFFFFF)
    shift = 23 - form.mantissa
    rounded = (magnitude + _u((1 << (shift - 1)) - 1) + ((magnitude >> _u(shift)) & _u(1))) >> _u(shift)
    normal = rounded - _u((127 - form.bias) << form.mantissa)
    scale = 2.0 ** (form.bias - 1 + form.mantissa)
    small = cast("uint32", nearbyint(reinterpret("float32", magnitude) * const(scale, "float32")))
    is_small = magnitude < _u((128 - form.bias) << 23)
    # Above, the product with `scale` may not fit an integer, so what is not small is taken as zero there.
    small = Select(is_small, small, _u(0))
    code = Select(is_small, small, normal)
    beyond = form.nan if form.infinity is None else form.infinity
    too_large = all_of(logical_not(is_small), any_of(normal > _u(form.largest), magnitude >= _u(0x7F800000)))
    code = select(too_large, _u(beyond), code)
    sign = (bits >> _u(31)) << _u(7)
    if form.has_negative_zero:
        code = code | sign
    else:
        code = select(any_of(code.equal(_u(0)), code.equal(_u(0x80))), code, code | sign)
    code = select(magnitude > _u(0x7F800000), _u(form.nan), code)
    return reinterpret(dtype, cast("uint8", code))
