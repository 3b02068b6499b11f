// What this program offers to the libraries that it opens: the runtime, tvm-ffi's C interface, and of the C library what
// generated code calls. In a static program a name has no address unless somebody asks for it: this file does.
#include <cstring>

#include "elf_library.h"

#define WEFT_HOST_SYMBOLS(X)                                                                                           \
  X(weft_abi_version) X(weft_parallel_for) X(weft_parallel_forwards) X(weft_num_threads) X(weft_set_num_threads)       \
  X(weft_request_tiles) X(weft_workspace_alloc) X(weft_workspace_free) X(weft_arg_error) X(weft_set_error)             \
  X(TVMBackendAnyListSetPackedArg) X(TVMBackendAnyListResetItem) X(TVMBackendAnyListMoveFromPackedReturn)              \
  X(TVMFFIFunctionCall) X(TVMFFIFunctionCreate) X(TVMFFIFunctionGetGlobal) X(TVMFFIFunctionSetGlobal)                  \
  X(TVMFFIObjectIncRef) X(TVMFFIObjectDecRef) X(TVMFFIErrorSetRaised) X(TVMFFIErrorSetRaisedFromCStr)                  \
  X(TVMFFIErrorMoveFromRaised) X(TVMFFIEnvModLookupFromImports) X(TVMFFITensorFromDLPack)                              \
  X(TVMFFITensorFromDLPackVersioned) X(TVMFFIHandleInitOnce) X(TVMFFIHandleDeinitOnce) X(TVMFFIAnyViewToOwnedAny)      \
  X(memcpy) X(memmove) X(memset) X(memcmp) X(memchr) X(strlen) X(strcmp) X(malloc) X(calloc) X(realloc) X(free)        \
  X(aligned_alloc) X(abort) X(printf) X(snprintf) X(syscall)                                                           \
  X(acos) X(acosf) X(acosh) X(acoshf) X(asin) X(asinf) X(asinh) X(asinhf) X(atan) X(atanf) X(atan2) X(atan2f)          \
  X(atanh) X(atanhf) X(cbrt) X(cbrtf) X(ceil) X(ceilf) X(copysign) X(copysignf) X(cos) X(cosf) X(cosh) X(coshf)        \
  X(erf) X(erff) X(erfc) X(erfcf) X(exp) X(expf) X(exp2) X(exp2f) X(exp10) X(exp10f) X(expm1) X(expm1f)                \
  X(fabs) X(fabsf) X(fdim) X(fdimf) X(floor) X(floorf) X(fma) X(fmaf) X(fmax) X(fmaxf) X(fmin) X(fminf)                \
  X(fmod) X(fmodf) X(frexp) X(frexpf) X(hypot) X(hypotf) X(ldexp) X(ldexpf) X(lgamma) X(lgammaf) X(log) X(logf)        \
  X(log10) X(log10f) X(log1p) X(log1pf) X(log2) X(log2f) X(logb) X(logbf) X(lrint) X(lrintf) X(lround) X(lroundf)      \
  X(modf) X(modff) X(nearbyint) X(nearbyintf) X(nextafter) X(nextafterf) X(pow) X(powf) X(remainder) X(remainderf)     \
  X(rint) X(rintf) X(round) X(roundf) X(scalbn) X(scalbnf) X(sin) X(sinf) X(sincos)         \
  X(sincosf) X(sinh) X(sinhf) X(sqrt) X(sqrtf) X(tan) X(tanf) X(tanh) X(tanhf) X(tgamma) X(tgammaf) X(trunc)           \
  X(truncf)

// Their types do not matter here, and some have several in C++: names of the assembler have none.
#define DECLARE(name) extern "C" void weft_host_##name() __asm__(#name);
WEFT_HOST_SYMBOLS(DECLARE)
#undef DECLARE

namespace weft {

void* host_symbol(const char* name) {
  struct Entry {
    const char* name;
    void* address;
  };
#define ENTRY(name) {#name, reinterpret_cast<void*>(weft_host_##name)},
  static const Entry entries[] = {WEFT_HOST_SYMBOLS(ENTRY)};
#undef ENTRY
  for (const Entry& e : entries) {
    if (std::strcmp(e.name, name) == 0) return e.address;
  }
  return nullptr;
}

}  // namespace weft
