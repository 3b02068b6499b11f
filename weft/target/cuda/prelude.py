"""What every CUDA C program of ours starts with: arithmetic that means the same on all targets, and 16-bit floats.

NVRTC comes without NVIDIA's headers, so float16 and bfloat16 are types of our own: a value is stored in 16 bits,
computed with as float32 and rounded to nearest after each operation.
"""

__all__ = ["HALF", "PRELUDE"]

PRELUDE = """\
template <class T> __device__ inline T weft_div(T a, T b) {
  return b == 0 ? T(0) : b == T(-1) && T(-1) < T(0) ? T(0) - a : a / b;
}
template <class T> __device__ inline T weft_mod(T a, T b) {
  return b == 0 || (b == T(-1) && T(-1) < T(0)) ? T(0) : a % b;
}
template <class T> __device__ inline T weft_floormod(T a, T b) {
  T r = weft_mod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
template <class T> __device__ inline T weft_floordiv(T a, T b) {
  T q = weft_div(a, b), r = weft_mod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? q - 1 : q;
}
template <class T> __device__ inline T weft_min(T a, T b) { return a != a || a < b ? a : b; }
template <class T> __device__ inline T weft_max(T a, T b) { return a != a || a > b ? a : b; }
template <class T> __device__ inline T weft_abs(T a) { return a < T(0) ? T(0) - a : a; }
template <class T> __device__ inline T weft_shift_left(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? T((unsigned long long)a << b) : T(0);
}
template <class T> __device__ inline T weft_shift_right(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? T(a >> b) : a < T(0) ? T(-1) : T(0);
}
template <class T> __device__ inline T weft_popcount(T a) {
  return T(__popcll((unsigned long long)a & (~0ull >> (64 - 8 * sizeof(T)))));
}
template <class T> __device__ inline T weft_clz(T a) {
  return T(__clzll((unsigned long long)a & (~0ull >> (64 - 8 * sizeof(T)))) - (64 - 8 * (int)sizeof(T)));
}
template <class T> __device__ inline T weft_pow(T a, T n) {
  T out = 1;
  for (; n > 0; n >>= 1, a = T((unsigned long long)a * a)) out = n & 1 ? T((unsigned long long)out * a) : out;
  return out;
}
template <class T, class F> __device__ inline T weft_saturate(F v, T low, T high) {
  return v != v ? T(0) : v <= (F)low ? low : v >= (F)high ? high : (T)v;
}
template <class T, class F> __device__ inline T weft_reinterpret(F from) {
  union { F from; T to; } bits;
  bits.from = from;
  return bits.to;
}
template <class T> __device__ inline bool weft_isnan(T a) { return a != a; }
template <class T> __device__ inline bool weft_isfinite(T a) { return a - a == T(0); }
template <class T> __device__ inline bool weft_isinf(T a) { return a == a && a - a != T(0); }
template <class T> __device__ inline T weft_floordiv_float(T a, T b) { return floor(a / b); }
template <class T> __device__ inline T weft_floormod_float(T a, T b) {
  T r = fmod(a, b);
  return r != T(0) && ((r < T(0)) != (b < T(0))) ? r + b : r;
}
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
