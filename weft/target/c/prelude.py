"""The C text before the functions of a module: the structures of tvm-ffi and DLPack, errors, arithmetic."""

from weft.target.c.emitter import TYPES
from weft.target.clike import arithmetic

_STRUCTURES = r"""#define _GNU_SOURCE
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

static inline __attribute__((unused)) bool weft_placed(const DLTensor* t) {
  for (int d = 0; t->data == NULL && d < t->ndim; ++d) {
    if (t->shape[d] == 0) return true;
  }
  return t->data != NULL;
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

"""

PRELUDE = _STRUCTURES + arithmetic(
    TYPES, "static inline __attribute__((unused))", "__builtin_popcountll", "__builtin_clzll"
)

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
