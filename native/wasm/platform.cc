// What the runtime asks of a platform, where that is WebAssembly: one thread and no other devices.
#include "cuda_device.h"
#include "error.h"
#include "weft/runtime.h"

// The tag of C++ exceptions, which the linker of shared programs would define.
__asm__(
    ".globl __cpp_exception\n"
    ".tagtype __cpp_exception i32\n"
    "__cpp_exception:\n");

namespace weft {

void* cuda_alloc(int, size_t) {
  fail("ValueError", "WebAssembly has no CUDA devices");
  return nullptr;
}

void cuda_free(int, void*) {}

int cuda_copy(const void*, DLDevice, void*, DLDevice, size_t) {
  return fail("ValueError", "WebAssembly has no CUDA devices");
}

}  // namespace weft

extern "C" {

// Destructors of variables of the thread, which never ends.
int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

int32_t weft_parallel_for(weft_parallel_body body, void* ctx, int64_t extent, int64_t) {
  return extent > 0 ? body(0, extent, ctx) : 0;
}

int32_t weft_parallel_forwards(weft_parallel_body body, void* ctx, int64_t extent, int64_t grain) {
  return weft_parallel_for(body, ctx, extent, grain);
}

int32_t weft_num_threads(void) { return 1; }

void weft_set_num_threads(int32_t) {}

int32_t weft_request_tiles(void) { return -1; }

}  // extern "C"
