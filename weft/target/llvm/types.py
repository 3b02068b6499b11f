"""LLVM types and constants as text."""

import math
import struct
from functools import cache

import numpy as np

from weft import error, ir

_FLOATS = {32: "float", 64: "double"}

TENSOR = "{ ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }"
"""A DLTensor. Its offsets depend on the width of pointers, so nobody counts them."""
_MEMBERS = {
    "data": 0,
    "device_type": 1,
    "device_id": 2,
    "ndim": 3,
    "dtype": 4,
    "shape": 7,
    "strides": 8,
    "byte_offset": 9,
}


def tensor_member(pointer: str, name: str) -> str:
    """The address of a member of a DLTensor; ``dtype`` is code, bits and lanes in one word."""
    return f"getelementptr inbounds {TENSOR}, ptr {pointer}, i64 0, i32 {_MEMBERS[name]}"


@cache
def llvm_type(dtype: str) -> str:
    """The type of a value in a register.

    Bool is ``i1``, floats of 16 and 8 bits are their bits (they are moved, and converted to be computed with).
    """
    dt = ir.DataType(dtype)
    if dt.code == "handle":
        element = "ptr"
    elif dt.code == "bool":
        element = "i1"
    elif dt.is_integer or (dt.is_float and dt.bits < 32):
        element = f"i{dt.bits}"
    elif dt.is_float and dt.bits in _FLOATS:
        element = _FLOATS[dt.bits]
    else:
        raise error.CodegenError(f"data type '{dtype}' has no LLVM type")
    if isinstance(dt.lanes, ir.ScalableLanes):
        raise error.CodegenError("target llvm has no code for vectors of no fixed length", found=dtype)
    return element if dt.lanes == 1 else f"<{dt.lanes} x {element}>"


@cache
def memory_type(dtype: str) -> str:
    """The type of a value in memory; bool is a byte."""
    dt = ir.DataType(dtype)
    return ("i8" if dt.lanes == 1 else f"<{dt.lanes} x i8>") if dt.code == "bool" else llvm_type(dtype)


def float_constant(value: float, dtype: str) -> str:
    """A floating-point constant.

    LLVM writes float and double as the bits of the double, shorter ones are integers here.
    """
    dt = ir.DataType(dtype)
    if dt.bits == 64 or dt.bits == 32:
        if dt.bits == 32 and math.isfinite(value):
            value = struct.unpack("<f", struct.pack("<f", _clamp(value)))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    with np.errstate(over="ignore"):
        return str(int(np.asarray(value).astype(ir.numpy_dtype(dt)).view(f"uint{dt.bits}")))


def _clamp(value: float) -> float:
    limit = 3.4028234663852886e38
    return math.copysign(math.inf, value) if abs(value) > limit * (1 + 2**-25) else max(-limit, min(limit, value))
