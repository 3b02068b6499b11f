"""``dp4a`` of CUDA: four products of bytes and their sum."""

from typing import Any

from weft.script import tir
from weft.script.tensor_intrin.dot_product import one_dot_product

T: Any = tir

__all__ = ["DP4A_S8S8S32_INTRIN", "DP4A_S8U8S32_INTRIN", "DP4A_U8S8S32_INTRIN", "DP4A_U8U8U32_INTRIN"]

DP4A_S8S8S32_INTRIN = "dp4a_s8s8s32"
DP4A_U8S8S32_INTRIN = "dp4a_u8s8s32"
DP4A_S8U8S32_INTRIN = "dp4a_s8u8s32"
DP4A_U8U8U32_INTRIN = "dp4a_u8u8u32"
_SIGNS = -0x7F7F7F80
"""The sign bit of each of four bytes: as signed numbers, four times -128."""


def _dp4a(c: Any, a: Any, b: Any) -> Any:
    return T.call_pure_extern(c.dtype, "__dp4a", a, b, c)


def _mixed(c: Any, unsigned: Any, signed: Any) -> Any:
    """CUDA's function takes operands of one kind: unsigned bytes are written as signed ones and 128 more."""
    signs = T.int32(_SIGNS)
    return _dp4a(c, unsigned ^ signs, signed) - _dp4a(T.int32(0), signs, signed)


one_dot_product(DP4A_S8S8S32_INTRIN, ("int8", "int8", "int32"), _dp4a)
one_dot_product(DP4A_U8U8U32_INTRIN, ("uint8", "uint8", "uint32"), _dp4a)
one_dot_product(DP4A_U8S8S32_INTRIN, ("uint8", "int8", "int32"), _mixed)
one_dot_product(DP4A_S8U8S32_INTRIN, ("int8", "uint8", "int32"), lambda c, a, b: _mixed(c, b, a))
