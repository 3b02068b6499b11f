"""Sums of products on Hexagon's vectors of 128 bytes."""

from typing import Any

from weft.script import tir
from weft.script.tensor_intrin.dot_product import dot_products, fills

T: Any = tir

__all__ = [
    "VDMPY_i16i16i32_INTRIN",
    "VRMPY_u8i8i32_INTRIN",
    "VRMPY_u8i8i32_VTCM_INTRIN",
    "VRMPY_u8u8i32_INTRIN",
    "VRMPY_u8u8i32_VTCM_INTRIN",
]

VRMPY_u8u8i32_INTRIN = "dot_32x4_u8u8i32_vrmpy"
VRMPY_u8i8i32_INTRIN = "dot_32x4_u8i8i32_vrmpy"
VDMPY_i16i16i32_INTRIN = "dot_product_32x2_i16i16i32_vdmpy"
VRMPY_u8u8i32_VTCM_INTRIN = "dot_32x4_u8u8i32_vtcm_vrmpy"
VRMPY_u8i8i32_VTCM_INTRIN = "dot_32x4_u8i8i32_vtcm_vrmpy"


def _call(instruction: str) -> Any:
    def call(c: Any, a: Any, b: Any) -> Any:
        operands = (c, fills(a, 32), T.reinterpret("int32x32", b))
        return T.call_llvm_pure_intrin("int32x32", f"llvm.hexagon.V6.{instruction}.acc.128B", *operands)

    return call


for _unsigned, _mixed, _scope in (
    (VRMPY_u8u8i32_INTRIN, VRMPY_u8i8i32_INTRIN, "global"),
    (VRMPY_u8u8i32_VTCM_INTRIN, VRMPY_u8i8i32_VTCM_INTRIN, "global.vtcm"),
):
    dot_products(_unsigned, 32, 4, ("uint8", "uint8", "int32"), _call("vrmpyubv"), _scope)
    dot_products(_mixed, 32, 4, ("uint8", "int8", "int32"), _call("vrmpybusv"), _scope)
dot_products(VDMPY_i16i16i32_INTRIN, 32, 2, ("int16", "int16", "int32"), _call("vdmpyhvsat"))
