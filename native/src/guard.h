// Guarded memory, for finding kernels that leave their tensors: WEFT_GUARD=1 or "start" (docs/debugging-memory.md).
#ifndef WEFT_GUARD_H_
#define WEFT_GUARD_H_

#include <tvm/ffi/any.h>

#include <atomic>
#include <cstddef>
#include <vector>

namespace weft {

enum class Guard : unsigned char { kOff, kEnd, kStart };  // where the page is that is close to the data
extern Guard guard;  // decided when the library is loaded

#if defined(__wasm__)  // its memory has no pages to protect
constexpr bool guarded() { return false; }
#else
inline bool guarded() { return __builtin_expect(guard != Guard::kOff, 0); }
#endif

// Memory of its own between pages that cannot be touched, 64-byte aligned, full of NaNs. Null when there is none.
void* guard_alloc(size_t nbytes, const char* what);
// The memory can no longer be touched. Ends the process with a message when bytes beside the block were written.
void guard_free(void* data);
// Tensors that came from elsewhere, constants and arguments, move to guarded memory of their own; and what a call wrote
// to its arguments goes back.
void guard_tensors(std::vector<tvm::ffi::Any>* values);
void guard_give_back(const std::vector<tvm::ffi::Any>& values, const TVMFFIAny* args);

extern std::atomic<const char*> guard_kernel;  // the one that the program called last, for messages; null outside
int guard_call(const char* name, TVMFFISafeCallType call, void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);

}  // namespace weft
#endif  // WEFT_GUARD_H_
