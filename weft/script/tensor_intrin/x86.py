"""Sums of products of bytes on x86.

Each is registered with what it computes and how it is called; a processor without the instruction refuses the call
when code is made.
"""

# pyright: reportInvalidTypeForm=false, reportUnknownParameterType=false

from typing import Any

from weft.script import tir
from weft.tir.schedule import TensorIntrin
from weft.tir.script.parsing import prim_func

T: Any = tir  # the language of programs

__all__ = [
    "AVX512_DOT_16x4_INTRIN", "VNNI_DOT_16x4_INTRIN", "dot_product_16x4_u8i8i32_avx512",
    "dot_product_16x4_u8i8i32_desc", "dot_product_16x4_u8i8i32_vnni",
]  # fmt: skip

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"


@prim_func
def dot_product_16x4_u8i8i32_desc(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((16, 4), "int8", offset_factor=1),
    C: T.Buffer((16,), "int32", offset_factor=1),
) -> None:
    """Add 16 sums of four products each: row ``i`` of B with A, to ``C[i]``."""
    with T.block("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        for i, k in T.grid(16, 4):
            with T.block("update"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")


@prim_func
def dot_product_16x4_u8i8i32_vnni(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((16, 4), "int8", offset_factor=1),
    C: T.Buffer((16,), "int32", offset_factor=1),
) -> None:
    """Call ``vpdpbusd`` of AVX-512 VNNI."""
    with T.block("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        C[T.ramp(0, 1, 16)] = T.call_llvm_pure_intrin(
            "int32x16",
            "llvm.x86.avx512.vpdpbusd.512",
            C.vload([0], "int32x16"),
            T.broadcast(T.reinterpret("int32", A.vload([0], "uint8x4")), 16),
            T.reinterpret("int32x16", B.vload([0, 0], "int8x64")),
        )


@prim_func
def dot_product_16x4_u8i8i32_avx512(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((16, 4), "int8", offset_factor=1),
    C: T.Buffer((16,), "int32", offset_factor=1),
) -> None:
    """Call ``vpmaddubsw``, whose sums of two products saturate at 16 bits, and ``vpmaddwd`` of AVX-512."""
    with T.block("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        C[T.ramp(0, 1, 16)] = C.vload([0], "int32x16") + T.call_llvm_pure_intrin(
            "int32x16",
            "llvm.x86.avx512.pmaddw.d.512",
            T.call_llvm_pure_intrin(
                "int16x32",
                "llvm.x86.avx512.pmaddubs.w.512",
                T.reinterpret("uint8x64", T.broadcast(T.reinterpret("int32", A.vload([0], "uint8x4")), 16)),
                B.vload([0, 0], "int8x64"),
            ),
            T.broadcast(T.int16(1), 32),
        )


TensorIntrin.register(VNNI_DOT_16x4_INTRIN, dot_product_16x4_u8i8i32_desc, dot_product_16x4_u8i8i32_vnni, override=True)
TensorIntrin.register(
    AVX512_DOT_16x4_INTRIN, dot_product_16x4_u8i8i32_desc, dot_product_16x4_u8i8i32_avx512, override=True
)
