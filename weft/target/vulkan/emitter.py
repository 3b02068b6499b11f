"""GLSL beside what all languages like C share: addresses of buffers, casts, numbers of 16 bits, threads.

Memory of the device is reached by 64-bit addresses (``GL_EXT_buffer_reference``), so that offsets have no bound. A
number of 16 bits is 16 bits of memory; its value is a float, rounded after each operation. Vectors are refused:
threads are the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from weft import error, ir, tir
from weft.target import clike
from weft.target.gpu import AXES

TYPES = {
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint",
    "uint64": "uint64_t",
    "handle": "uint64_t",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}
TO_BITS = {
    "float32": "floatBitsToUint({0})",
    "float64": "doubleBitsToUint64({0})",
    "bool": "uint8_t({0})",
    "float16": "weft_to_float16({0})",
    "bfloat16": "weft_to_bfloat16({0})",
}
FROM_BITS = {
    "float32": "uintBitsToFloat({0})",
    "float64": "uint64BitsToDouble({0})",
    "bool": "({0} != uint8_t(0))",
    "float16": "weft_from_float16({0})",
    "bfloat16": "weft_from_bfloat16({0})",
}
_IN_MEMORY = ("bool", "float16", "bfloat16")
EXPR = ir.Dispatch("GLSL expression", (ir.PrimExpr,), default=clike.EXPR.default, extends=clike.EXPR)
STMT = ir.Dispatch("GLSL statement", (tir.Stmt,), default=clike.DEVICE_STMT.default, extends=clike.DEVICE_STMT)
EXPR.on(ir.Let)(clike.let)


@EXPR.on(ir.FloatImm)
def _float(e: ir.FloatImm, s: Emitter) -> str:
    wide = e.dtype == "float64"
    if math.isfinite(e.value):
        return s.convert(e.dtype, f"{float(e.value)!r}{'lf' if wide else 'f'}", e)
    bits = 0x7FC00000 if math.isnan(e.value) else 0x7F800000 if e.value > 0 else 0xFF800000
    return s.convert(e.dtype, f"uintBitsToFloat(0x{bits:x}U)", e)


@STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: Emitter) -> None:
    if not isinstance(node.value, ir.IntImm):
        s.emit(f"{s.expr(node.value)};")


def _barrier(e: ir.CallIntrin, s: Emitter) -> str:
    if getattr(e.args[0], "value", "") == "warp":
        raise s.refuse(e)
    return "weft_barrier()"


def _reinterpret(e: ir.CallIntrin, s: Emitter) -> str:
    source, result = str(e.args[0].dtype), str(e.dtype)
    bits = s.cast(TYPES[f"uint{ir.DataType(source).bits}"], TO_BITS.get(source, "{0}").format(s.expr(e.args[0])))
    return FROM_BITS[result].format(bits) if result in FROM_BITS else s.convert(result, bits, e)


def _address(e: ir.CallIntrin, s: Emitter) -> str:
    load = e.args[0]
    if not isinstance(load, tir.BufferLoad) or load.buffer.data in s.arrays:
        raise s.refuse(e)
    return s.address(load.buffer, load.indices)


def _wave(e: ir.CallIntrin, s: Emitter) -> str:
    """GLSL has these of float32 alone, which answer where one is too far out to be reduced."""
    name, x = e.op.name.removeprefix("tir."), e.args[0]  # type: ignore[union-attr]
    if not (isinstance(x, ir.Cast) and x.value.dtype == "float32"):
        raise error.CodegenError(f"target vulkan has no code for intrinsic 'tir.{name}' of {e.dtype}", where=e.span)
    return s.cast(s.type_of(e.dtype, e), f"{name}({s.expr(x.value)})")


class Emitter(clike.DeviceEmitter):
    """The state of emission of a kernel."""

    target = "vulkan"
    expressions = EXPR
    statements = STMT
    types = TYPES
    memory_types: ClassVar = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
    loads: ClassVar = {t: FROM_BITS[t] for t in _IN_MEMORY}
    stores: ClassVar = {t: TO_BITS[t] for t in _IN_MEMORY}
    conversions: ClassVar = {"float16": "weft_float16", "bfloat16": "weft_bfloat16"}
    float32_suffix = ""
    long_suffix = "L"
    thread_axes: ClassVar = {
        tag: f"(gl_WorkGroupID.{tag[-1]} + weft_base.{tag[-1]})"
        if tag.startswith("block")
        else f"gl_LocalInvocationID.{tag[-1]}"
        for tag in AXES
    }
    shared_prefix = "shared "
    exactly = "precise "
    has_dynamic_shared = False
    libm = frozenset(("sqrt", "floor", "ceil", "trunc", "nearbyint", "fabs", "fma", "fmod", "copysign"))
    renamed: ClassVar = {"nearbyint": "roundEven", "fabs": "abs"}
    special: ClassVar = {
        **clike.DeviceEmitter.special,
        "tvm_storage_sync": _barrier,
        "address_of": _address,
        "reinterpret": _reinterpret,
        **dict.fromkeys(("sin", "cos", "tan"), _wave),
        "any_lane": lambda e, s: s.expr(e.args[0]),
    }

    def __init__(self) -> None:
        super().__init__()
        self.arrays: set[ir.Var] = set()  # memory of a thread or of a block, which has no address

    def cast(self, of: str, text: str) -> str:
        """A value as one of a type of the language."""
        return f"{of}({text})"

    def address(self, buffer: tir.Buffer, indices: Sequence[ir.PrimExpr]) -> str:
        """Where an element of a flat buffer lies on the device."""
        size = ir.DataType(buffer.dtype).itemsize
        return f"({self.name(buffer.data)} + uint64_t({self.expr(indices[0])}) * {size}UL)"

    def element(self, buffer: tir.Buffer, indices: Sequence[ir.PrimExpr]) -> str:
        """An element of a flat buffer, to read or to assign."""
        if len(indices) != 1:
            raise error.CodegenError(f"buffer '{buffer.name}' is not flat", found=f"{len(indices)} indices")
        of = self.memory_type(buffer.dtype, buffer)
        if buffer.data not in self.arrays:
            return f"weft_at_{of}{self.address(buffer, indices)}.v"
        if self.pointers[buffer.data] != of:
            raise error.CodegenError(
                f"target vulkan cannot read '{buffer.name}' as another type",
                where=buffer.span,
                expected=self.pointers[buffer.data],
                found=of,
            )
        return f"{self.name(buffer.data)}[int({self.expr(indices[0])})]"


@STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: Emitter) -> None:
    s.arrays.add(node.buffer.data)
    clike.DEVICE_STMT(node, s)
