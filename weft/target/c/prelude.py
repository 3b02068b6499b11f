"""The C text before the functions of a module: the structures of tvm-ffi and DLPack, errors, arithmetic.

Arithmetic has the rules of the other targets: division by zero gives 0, minimum and maximum pass NaN on, float to
integer saturates and turns NaN into 0, shifts by too many bits leave zeros or the sign.
"""

from __future__ import annotations

__all__ = ["CALLS", "PRELUDE"]

PRELUDE = r"""#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
  void* data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct {
  int32_t type_index;
  uint32_t padding;
  union { int64_t v_int64; double v_float64; void* v_ptr; };
} TVMFFIAny;

extern void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) __attribute__((weak));

static __attribute__((unused, cold)) int weft_fail(const char* kind, const char* format, ...) {
  char text[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, text);
  return -1;
}

static __attribute__((unused, cold)) int weft_wrong_dtype(
    int arg, const char* name, const char* signature, const char* expected, DLDataType found) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  return weft_fail("TypeError", "Mismatched %s.dtype on argument #%d when calling:\n  `%s`,\n"
                   "  expected %s, found %s%d%s", name, arg, signature, expected,
                   found.code < 7 ? names[found.code] : "a dtype of bits ",
                   (int)found.bits, found.lanes > 1 ? " in vectors" : "");
}

static inline __attribute__((unused)) const DLTensor* weft_tensor(const TVMFFIAny* a) {
  return a->type_index == 70 ? (const DLTensor*)((const char*)a->v_ptr + 24)
       : a->type_index == 7 ? (const DLTensor*)a->v_ptr : NULL;
}

static inline __attribute__((unused)) int64_t weft_row_major(const DLTensor* t, int d) {
  int64_t step = 1;
  for (int k = t->ndim - 1; k > d; --k) step *= t->shape[k];
  return step;
}

static inline __attribute__((unused)) int64_t weft_stride(const DLTensor* t, int d) {
  return t->strides ? t->strides[d] : weft_row_major(t, d);
}

static inline __attribute__((unused)) bool weft_compact(const DLTensor* t) {
  bool same = true;
  for (int d = 0; d < t->ndim; ++d) {
    if (t->shape[d] == 0) return true;
    if (t->shape[d] > 1 && weft_stride(t, d) != weft_row_major(t, d)) same = false;
  }
  return same;
}

static inline __attribute__((unused)) void* weft_alloc(int64_t bytes) {
  void* p = NULL;
  return posix_memalign(&p, 64, bytes > 0 ? (size_t)bytes : 1) == 0 ? p : NULL;
}

#define FN static inline __attribute__((unused))
#define WEFT_INT(N, T, U, BITS, LOW, HIGH) \
  FN T weft_div_##N(T a, T b) { return b == 0 ? 0 : (T)-1 < 0 && b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b); } \
  FN T weft_mod_##N(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? 0 : (T)(a % b); } \
  FN T weft_floormod_##N(T a, T b) { \
    T r = weft_mod_##N(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; } \
  FN T weft_floordiv_##N(T a, T b) { \
    T r = weft_mod_##N(a, b), q = weft_div_##N(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(q - 1) : q; } \
  FN T weft_min_##N(T a, T b) { return a < b ? a : b; } \
  FN T weft_max_##N(T a, T b) { return a > b ? a : b; } \
  FN T weft_abs_##N(T a) { return a < 0 ? (T)(0 - (U)a) : a; } \
  FN T weft_shift_left_##N(T a, T b) { return (uint64_t)b < BITS ? (T)((U)a << b) : 0; } \
  FN T weft_shift_right_##N(T a, T b) { return (uint64_t)b < BITS ? (T)(a >> b) : a < 0 ? (T)-1 : 0; } \
  FN T weft_popcount_##N(T a) { return (T)__builtin_popcountll((uint64_t)(U)a); } \
  FN T weft_clz_##N(T a) { return (T)(a == 0 ? BITS : __builtin_clzll((uint64_t)(U)a) - (64 - BITS)); } \
  FN T weft_pow_##N(T a, T n) { \
    U r = 1, b = (U)a, k = (U)n; \
    if (n < 0) return a == 1 ? 1 : a == (T)-1 ? (k & 1 ? (T)-1 : 1) : 0; \
    for (; k; k >>= 1, b *= b) if (k & 1) r *= b; \
    return (T)r; } \
  FN T weft_saturate_##N(double v) { \
    return v != v ? 0 : v >= (double)HIGH ? HIGH : v <= (double)LOW ? LOW : (T)v; }
WEFT_INT(int8, int8_t, uint8_t, 8, INT8_MIN, INT8_MAX)
WEFT_INT(int16, int16_t, uint16_t, 16, INT16_MIN, INT16_MAX)
WEFT_INT(int32, int32_t, uint32_t, 32, INT32_MIN, INT32_MAX)
WEFT_INT(int64, int64_t, uint64_t, 64, INT64_MIN, INT64_MAX)
WEFT_INT(uint8, uint8_t, uint8_t, 8, 0, UINT8_MAX)
WEFT_INT(uint16, uint16_t, uint16_t, 16, 0, UINT16_MAX)
WEFT_INT(uint32, uint32_t, uint32_t, 32, 0, UINT32_MAX)
WEFT_INT(uint64, uint64_t, uint64_t, 64, 0, UINT64_MAX)

#define WEFT_FLOAT(N, T, S) \
  FN T weft_div_##N(T a, T b) { return a / b; } \
  FN T weft_mod_##N(T a, T b) { return fmod##S(a, b); } \
  FN T weft_floormod_##N(T a, T b) { \
    T m = fmod##S(a, b); if (m == 0) return copysign##S(0, b); return (m < 0) != (b < 0) && m == m ? m + b : m; } \
  FN T weft_floordiv_##N(T a, T b) { \
    if (b == 0) return a / b; \
    T m = fmod##S(a, b), q = (a - m) / b; \
    if (m == m && m != 0 && (m < 0) != (b < 0)) q -= 1; \
    if (q == 0) return copysign##S(0, a / b); \
    T f = floor##S(q); return q - f > (T)0.5 ? f + 1 : f; } \
  FN T weft_min_##N(T a, T b) { return a != a || a < b ? a : b; } \
  FN T weft_max_##N(T a, T b) { return a != a || a > b ? a : b; } \
  FN T weft_abs_##N(T a) { return fabs##S(a); } \
  FN T weft_rsqrt_##N(T a) { return 1 / sqrt##S(a); } \
  FN T weft_sigmoid_##N(T a) { return 1 / (1 + exp##S(-a)); }
WEFT_FLOAT(float32, float, f)
WEFT_FLOAT(float64, double, )

FN bool weft_min_bool(bool a, bool b) { return a && b; }
FN bool weft_max_bool(bool a, bool b) { return a || b; }
FN bool weft_abs_bool(bool a) { return a; }
"""

CALLS = r"""#include <string.h>
typedef struct { const char* data; size_t size; } TVMFFIByteArray;
extern int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, void** out) __attribute__((weak));
extern int TVMFFIFunctionCall(void* f, TVMFFIAny* args, int32_t n, TVMFFIAny* out) __attribute__((weak));
extern int TVMFFIObjectDecRef(void* object) __attribute__((weak));
extern int TVMFFIEnvModLookupFromImports(void* module, const char* name, void** out) __attribute__((weak));
__attribute__((weak)) void* __tvm_ffi__library_ctx = NULL;  /* the loader puts the module there */

/* Calls a function of the module's imports, or the global one that `known` keeps; args[n] takes the result. */
static __attribute__((unused)) int weft_call(const char* name, void** known, TVMFFIAny* args, int32_t n) {
  void* f = known ? __atomic_load_n(known, __ATOMIC_ACQUIRE) : NULL;
  if (!known) {
    if (TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, name, &f)) return -1;
  } else if (!f) {
    TVMFFIByteArray key = {name, strlen(name)};
    if (TVMFFIFunctionGetGlobal(&key, &f) || !f)
      return weft_fail("ValueError", "there is no global function '%s'; register it before the kernel runs", name);
    __atomic_store_n(known, f, __ATOMIC_RELEASE);
  }
  if (TVMFFIFunctionCall(f, args, n, &args[n])) return -1;
  if (args[n].type_index >= 64) TVMFFIObjectDecRef(args[n].v_ptr);
  return 0;
}
"""
"""What modules that call packed functions have besides."""
