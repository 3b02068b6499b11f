"""``sdot4`` of AMD's GPUs: four products of bytes and their sum."""

from typing import Any

from weft.script import tir
from weft.script.tensor_intrin.dot_product import one_dot_product

T: Any = tir

__all__ = ["AMDGPU_SDOT4_INTRIN"]

AMDGPU_SDOT4_INTRIN = "sdot4"

one_dot_product(
    AMDGPU_SDOT4_INTRIN,
    ("int8", "int8", "int32"),
    lambda c, a, b: T.call_llvm_pure_intrin("int32", "llvm.amdgcn.sdot4", a, b, c, T.bool(False)),
)
