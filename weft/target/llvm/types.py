"""LLVM types and constants as text."""

from __future__ import annotations

import math
import struct
from functools import lru_cache

from weft.error import CodegenError
from weft.ir import DataType

__all__ = ["float_constant", "llvm_type", "memory_type"]

_FLOATS = {("float", 16): "half", ("float", 32): "float", ("float", 64): "double", ("bfloat", 16): "bfloat"}


@lru_cache(maxsize=None)
def llvm_type(dtype: str) -> str:
    """The type of a value in a register; bool is ``i1``."""
    dt = DataType(dtype)
    if dt.code == "handle":
        element = "ptr"
    elif dt.code == "bool":
        element = "i1"
    elif dt.is_integer or dt.code.startswith(
        "float8"
    ):  # float8 is bits that are moved, and converted by integer arithmetic
        element = f"i{dt.bits}"
    elif (dt.code, dt.bits) in _FLOATS:
        element = _FLOATS[dt.code, dt.bits]
    else:
        raise CodegenError(f"data type '{dtype}' has no LLVM type")
    return element if dt.lanes == 1 else f"<{dt.lanes} x {element}>"


@lru_cache(maxsize=None)
def memory_type(dtype: str) -> str:
    """The type of a value in memory; bool is a byte."""
    dt = DataType(dtype)
    return ("i8" if dt.lanes == 1 else f"<{dt.lanes} x i8>") if dt.code == "bool" else llvm_type(dtype)


def float_constant(value: float, dtype: str) -> str:
    """A floating-point constant; LLVM writes float and double as the bits of the double."""
    dt = DataType(dtype)
    if dt.bits == 64 or dt.bits == 32:
        if dt.bits == 32 and math.isfinite(value):
            value = struct.unpack("<f", struct.pack("<f", _clamp(value)))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dt.code == "float":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    rounded = bits >> 16 if not math.isfinite(value) else (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return f"0xR{rounded:04X}"


def _clamp(value: float) -> float:
    limit = 3.4028234663852886e38
    return math.copysign(math.inf, value) if abs(value) > limit * (1 + 2**-25) else max(-limit, min(limit, value))
