"""Device functions to GLSL: one text with all kernels, of which ``WEFT_KERNEL`` chooses one."""

import re
from collections.abc import Mapping

from weft import tir
from weft.ir import DataType, IRModule, Var, find, walk
from weft.target.clike import arithmetic
from weft.target.gpu import DeviceCode, dynamic_bytes, rewritten
from weft.target.target import Target
from weft.target.vulkan.assemble import assemble
from weft.target.vulkan.emitter import FROM_BITS, TYPES, Emitter
from weft.tir.transform import lower_math

_HEAD = """\
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_spirv_intrinsics : require
// What is not a number, and the sign of zero, are kept: SignedZeroInfNanPreserve.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
"""
_BITS = """\
int weft_popcount64(uint64_t v) { uvec2 w = unpackUint2x32(v); return bitCount(w.x) + bitCount(w.y); }
int weft_clz64(uint64_t v) { uvec2 w = unpackUint2x32(v); return w.y != 0 ? 31 - findMSB(w.y) : 63 - findMSB(w.x); }
void weft_barrier() { groupMemoryBarrier(); barrier(); }
#define fabs abs
"""
# The remainder of a division is subtracted one bit of the quotient at a time, which is exact.
_REMAINDER = """\
{0} copysign({0} a, {0} b) {{
  return {2}(({1}(a) & {3}) | ({1}(b) & ~{3}));
}}
{0} fmod({0} a, {0} b) {{
  {0} x = abs(a), y = abs(b);
  int p, q;
  if (!(y > 0) || !(x - x == 0)) return {0}(uintBitsToFloat(0x7fc00000U));
  while (x >= y) {{
    {0} m = frexp(x, p), n = frexp(y, q);
    x -= ldexp(y, m < n ? p - q - 1 : p - q);
  }}
  return copysign(x, a);
}}
"""
_FLOATS = {
    "float32": ("float", "floatBitsToUint", "uintBitsToFloat", "0x7fffffffU"),
    "float64": ("double", "doubleBitsToUint64", "uint64BitsToDouble", "0x7fffffffffffffffUL"),
}
_HALF = """\
float weft_from_float16(uint16_t bits) {
  uint b = uint(bits), m = b & 0x7fffU;
  float v = m < 0x400U ? float(m) * 5.9604644775390625e-8f
                       : uintBitsToFloat(m < 0x7c00U ? (m << 13) + 0x38000000U : m << 13 | 0x7f800000U);
  return uintBitsToFloat(floatBitsToUint(v) | (b & 0x8000U) << 16);
}
uint16_t weft_to_float16(float v) {
  uint b = floatBitsToUint(v), sign = b >> 16 & 0x8000U, m = b & 0x7fffffffU;
  if (m > 0x7f800000U) return uint16_t(sign | 0x7e00U);
  if (m >= 0x477ff000U) return uint16_t(sign | 0x7c00U);
  if (m < 0x38800000U) return uint16_t(sign | floatBitsToUint(uintBitsToFloat(m) + 0.5f) - 0x3f000000U);
  return uint16_t(sign | m - 0x38000000U + 0xfffU + (m >> 13 & 1U) >> 13);
}
float weft_float16(float v) { return weft_from_float16(weft_to_float16(v)); }
float weft_from_bfloat16(uint16_t bits) { return uintBitsToFloat(uint(bits) << 16); }
uint16_t weft_to_bfloat16(float v) {
  uint b = floatBitsToUint(v);
  return v != v ? uint16_t(0x7fc0) : uint16_t(b + 0x7fffU + (b >> 16 & 1U) >> 16);
}
float weft_bfloat16(float v) { return weft_from_bfloat16(weft_to_bfloat16(v)); }
"""
_PUSHED = 14  # arguments beside the place of the first block, in the 128 bytes that every device takes with a launch


def _shared_arithmetic(types: Mapping[str, str]) -> str:
    """The functions that all languages like C have, with casts as calls; a sigmoid is written out before."""
    text = arithmetic(types, "", popcount="weft_popcount64", clz="weft_clz64", long="L", suffix="")
    names = "|".join(["T", "U", "F", "WEFT_U64", *types.values()])
    text = re.sub(rf"\(({names})\)(-?[\w.]+|(?=\())", lambda m: f"{m[1]}({m[2]})" if m[2] else m[1], text)
    return re.sub(r".*weft_sigmoid.*\n", "", text.replace("##S(", "("))


def _kernel(name: str, func: tir.PrimFunc, number: int, max_threads: int) -> str:
    """Write a device function, as ``lower_for_gpu`` makes them."""
    s = Emitter()
    s.bounds(func, max_threads)
    params = s.body(func)
    words = [f"weft_words[{i}]" for i in range(len(params))]
    if len(params) > _PUSHED:
        words = [f"weft_at_uint64_t(weft_words[0] + {8 * i}UL).v" for i in range(len(params))]
    taken = [_parameter(p, word, s) for p, word in zip(params, words, strict=True)]
    body = "\n".join([*s.declared, "void main() {", *taken, *s.lines, "}"])
    loaded = {n.buffer.data for n in find(func.body, tir.BufferLoad)}
    # What threads of a block write and read behind a barrier is not kept in a cache of one of them.
    kept = "coherent " if "weft_barrier" in body and not s.stored.isdisjoint(loaded - s.arrays) else ""
    places = [
        f"layout(buffer_reference, std430, buffer_reference_align = {DataType(dtype).itemsize}) {kept}"
        f"buffer weft_at_{of} {{ {of} v; }};"
        for dtype, of in TYPES.items()
        if dtype not in FROM_BITS.keys() - _FLOATS.keys() and dtype != "handle" and f"weft_at_{of}(" in body
    ]
    push = f"layout(push_constant, std430) uniform weft_Push {{ uvec4 weft_base; uint64_t weft_words[{_PUSHED}]; }};"
    return "\n".join([f"#if WEFT_KERNEL == {number}  // {name}", push, *places, body, "#endif", ""])


def _parameter(p: Var, word: str, s: Emitter) -> str:
    """Take a parameter out of the 64 bits that it arrives in."""
    if p in s.pointers:
        return f"  uint64_t {s.names[p]} = {word};"
    of, bits = s.type_of(p.dtype, p), s.cast(TYPES[f"uint{max(8, DataType(p.dtype).bits)}"], word)
    value = FROM_BITS[str(p.dtype)].format(bits) if str(p.dtype) in FROM_BITS else s.cast(of, bits)
    return f"  {of} {s.names[p]} = {value};"


def emit_glsl(functions: Mapping[str, tir.PrimFunc], max_threads: int = 256) -> str:
    """Write device functions as one text of GLSL; a block of a kernel may have `max_threads` threads.

    What a device may lack (float64) is in the text only where a kernel needs it.
    """
    lowered = lower_math(library=False)(IRModule(dict(functions)))
    body = "\n".join(
        _kernel(name, lowered[name], number, max_threads)  # pyright: ignore[reportArgumentType]
        for number, name in enumerate(functions)
    )
    floats = [d for d in _FLOATS if d == "float32" or "double" in body or d in body]
    types = {d: of for d, of in TYPES.items() if d != "float64" or d in floats}
    return "".join(
        [
            _HEAD,
            _BITS,
            *(_REMAINDER.format(*_FLOATS[d]) for d in floats),
            _shared_arithmetic(types),
            *([_HALF] if "float16" in body else []),
            body,
        ]
    )


def vulkan_code(functions: Mapping[str, tir.PrimFunc], target: Target) -> DeviceCode:
    """Make SPIR-V of a text, which ``tvm_callback_vulkan_postproc`` may rewrite where it is registered."""
    text = rewritten(emit_glsl(functions, target.max_num_threads), target)
    shared = {
        name: sum(
            dynamic_bytes(n.buffer)
            for n in walk(f.body)
            if isinstance(n, tir.AllocBuffer) and n.buffer.scope.startswith("shared")
        )
        for name, f in functions.items()
    }
    return DeviceCode({"glsl": lambda: text}, lambda: (assemble(text, shared), "spv"))
