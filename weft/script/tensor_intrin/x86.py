"""Sums of products of bytes on x86.

Each is registered with what it computes and how it is called; a processor without the instruction refuses the call
when code is made.
"""

from typing import Any

from weft.script import tir
from weft.script.tensor_intrin.dot_product import dot_products, fills

T: Any = tir

__all__ = [
    "AVX512_DOT_16x4_INTRIN",
    "VNNI_DOT_16x4_INTRIN",
    "dot_product_16x4_u8i8i32_avx512",
    "dot_product_16x4_u8i8i32_desc",
    "dot_product_16x4_u8i8i32_vnni",
]

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"
_BYTES = ("uint8", "int8", "int32")


def _vnni(c: Any, a: Any, b: Any) -> Any:
    """Call ``vpdpbusd`` of AVX-512 VNNI."""
    return T.call_llvm_pure_intrin(
        "int32x16", "llvm.x86.avx512.vpdpbusd.512", c, fills(a, 16), T.reinterpret("int32x16", b)
    )


def _avx512(c: Any, a: Any, b: Any) -> Any:
    """Call ``vpmaddubsw``, whose sums of two products saturate at 16 bits, and ``vpmaddwd`` of AVX-512."""
    pairs = T.call_llvm_pure_intrin(
        "int16x32", "llvm.x86.avx512.pmaddubs.w.512", T.reinterpret("uint8x64", fills(a, 16)), b
    )
    return c + T.call_llvm_pure_intrin("int32x16", "llvm.x86.avx512.pmaddw.d.512", pairs, T.broadcast(T.int16(1), 32))


dot_product_16x4_u8i8i32_desc = dot_products(VNNI_DOT_16x4_INTRIN, 16, 4, _BYTES, _vnni).desc
dot_product_16x4_u8i8i32_vnni = dot_products(VNNI_DOT_16x4_INTRIN, 16, 4, _BYTES, _vnni).impl
dot_product_16x4_u8i8i32_avx512 = dot_products(AVX512_DOT_16x4_INTRIN, 16, 4, _BYTES, _avx512).impl
