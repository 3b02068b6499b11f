"""What every CUDA C program of ours starts with: arithmetic that means the same on all targets, and 16-bit floats.

NVRTC comes without NVIDIA's headers, so float16 and bfloat16 are types of our own: a value is stored in 16 bits,
computed with as float32 and rounded to nearest after each operation.
"""

from weft.target.clike import arithmetic
from weft.target.cuda.emitter import TYPES

PRELUDE = f"""\
{arithmetic(TYPES, "__device__ inline", popcount="__popcll", clz="__clzll")}
template <class T, class F> __device__ inline T weft_reinterpret(F from) {{
  union {{ F from; T to; }} bits;
  bits.from = from;
  return bits.to;
}}
"""

HALF = """\
struct weft_float16 {
  unsigned short bits;
  weft_float16() = default;
  __device__ weft_float16(float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
  __device__ operator float() const {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
};
struct weft_bfloat16 {
  unsigned short bits;
  weft_bfloat16() = default;
  __device__ weft_bfloat16(float v) {
    unsigned int b = __float_as_int(v);
    bits = v != v ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
  }
  __device__ operator float() const { return __int_as_float((unsigned int)bits << 16); }
};
"""
