"""Sums of products of bytes on Arm's processors."""

from typing import Any

from weft.script import tir
from weft.script.tensor_intrin.dot_product import dot_products, fills
from weft.script.tensor_intrin.dot_product_common import (
    DP4A_S8S8S32_INTRIN,
    DP4A_S8U8S32_INTRIN,
    DP4A_U8S8S32_INTRIN,
    DP4A_U8U8U32_INTRIN,
)

T: Any = tir

__all__ = [
    "ARM_DOT_4x4_i8_NEON_INTRIN",
    "ARM_DOT_4x4_i8_SDOT_INTRIN",
    "ARM_DOT_4x4_u8_HDOT_INTRIN",
    "ARM_DOT_4x4_u8_UDOT_INTRIN",
    "DP4A_S8S8S32_INTRIN",
    "DP4A_S8U8S32_INTRIN",
    "DP4A_U8S8S32_INTRIN",
    "DP4A_U8U8U32_INTRIN",
]

ARM_DOT_4x4_i8_NEON_INTRIN = "dot_4x4_i8i8s32_neon"
ARM_DOT_4x4_i8_SDOT_INTRIN = "dot_4x4_i8i8s32_sdot"
ARM_DOT_4x4_u8_UDOT_INTRIN = "dot_4x4_u8u8u32_udot"
ARM_DOT_4x4_u8_HDOT_INTRIN = "dot_4x4_u8u8i32_hdot"


def _neon(c: Any, a: Any, b: Any) -> Any:
    """Widen products to 16 bits, where those of two bytes fit, and add neighbours in 32."""
    a = T.reinterpret("int8x16", fills(a, 4))

    def pairs(first: int) -> Any:
        halves = (T.Shuffle([v], list(range(first, first + 8))) for v in (a, b))
        products = T.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.smull.v8i16", *halves)
        return T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", products)

    return c + T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.addp.v4i32", pairs(0), pairs(8))


def _dot(instruction: str) -> Any:
    """Call the one instruction of processors that have ``dotprod``."""

    def call(c: Any, a: Any, b: Any) -> Any:
        a = T.reinterpret(b.dtype, fills(a, 4))
        return T.call_llvm_pure_intrin(c.dtype, f"llvm.aarch64.neon.{instruction}.v4i32.v16i8", c, a, b)

    return call


dot_products(ARM_DOT_4x4_i8_NEON_INTRIN, 4, 4, ("int8", "int8", "int32"), _neon)
dot_products(ARM_DOT_4x4_i8_SDOT_INTRIN, 4, 4, ("int8", "int8", "int32"), _dot("sdot"))
dot_products(ARM_DOT_4x4_u8_UDOT_INTRIN, 4, 4, ("uint8", "uint8", "uint32"), _dot("udot"))
dot_products(ARM_DOT_4x4_u8_HDOT_INTRIN, 4, 4, ("uint8", "uint8", "int32"), _dot("udot"))
