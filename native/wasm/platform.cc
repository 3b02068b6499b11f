// What the runtime asks of a platform, where that is WebAssembly: one thread and no other devices.
#include "device_api.h"
#include "error.h"
#include "weft/runtime.h"

// The tag of C++ exceptions, which the linker of shared programs would define.
__asm__(
    ".globl __cpp_exception\n"
    ".tagtype __cpp_exception i32\n"
    "__cpp_exception:\n");

namespace weft {

DeviceApi* DeviceApi::find(int32_t) { return nullptr; }

int device_enter(DLDevice device) {
  return fail("ValueError", "WebAssembly has the CPU alone; found device type %d", device.device_type);
}
int device_copy(const void*, DLDevice from, void*, DLDevice to, size_t) {
  return device_enter(from.device_type == kDLCPU ? to : from);
}
int pooled_alloc(DLDevice device, size_t, void**) { return device_enter(device); }
bool pooled_free(void*) { return false; }

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
