// tvm-ffi's own files register their classes and functions for scripting languages when a program begins, which is half
// of the runtime's size. JavaScript (native/wasm/host.cc) and clients of the server (native/server) ask for none of them,
// so these blocks are never called.
#ifndef WEFT_SMALL_NO_REFLECTION_H_
#define WEFT_SMALL_NO_REFLECTION_H_

#include <tvm/ffi/base_detail.h>

#undef TVM_FFI_STATIC_INIT_BLOCK
#define TVM_FFI_STATIC_INIT_BLOCK() \
  [[maybe_unused]] static void TVM_FFI_STR_CONCAT(never_called_, __COUNTER__)()

#endif  // WEFT_SMALL_NO_REFLECTION_H_
