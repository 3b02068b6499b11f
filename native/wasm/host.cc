// What JavaScript calls beside tvm-ffi's own interface (web/src/runtime.js), and what it gives.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <cstring>

#include "error.h"
#include "memory.h"
#include "module.h"
#include "vm.h"

#define WEFT_EXPORT(name) extern "C" __attribute__((export_name(#name), used))
#define WEFT_IMPORT(name) extern "C" __attribute__((import_module("weft"), import_name(#name)))

// Calls a JavaScript function by its number: 0, or -1 with the error raised.
WEFT_IMPORT(call) int32_t weft_host_call(int32_t number, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);
// Nobody refers to a JavaScript function any more.
WEFT_IMPORT(drop) void weft_host_drop(int32_t number);

namespace {

// The bytes of a model file, which its constants lie in.
class FileObj : public tvm::ffi::Object {
 public:
  explicit FileObj(void* data) : data(data) {}
  ~FileObj() { std::free(data); }
  void* data;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.WebFile", FileObj, tvm::ffi::Object);
};

void give(tvm::ffi::Any value, TVMFFIObjectHandle* out) {
  *out = weft::raw(&value)->v_obj;
  *weft::raw(&value) = TVMFFIAny{};
}

}  // namespace

// Memory on a cache line, or null.
WEFT_EXPORT(weft_host_alloc) void* weft_host_alloc(size_t nbytes) {
  void* data = nullptr;
  return posix_memalign(&data, weft::kAlignment, nbytes > 0 ? nbytes : 1) == 0 ? data : nullptr;
}

WEFT_EXPORT(weft_host_free) void weft_host_free(void* data) { std::free(data); }

// A JavaScript function as a packed function, under the number that it has there.
WEFT_EXPORT(weft_host_function) int32_t weft_host_function(int32_t number, TVMFFIObjectHandle* out) {
  auto call = [](void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
    return weft_host_call(static_cast<int32_t>(reinterpret_cast<intptr_t>(self)), args, n, ret);
  };
  auto drop = [](void* self) { weft_host_drop(static_cast<int32_t>(reinterpret_cast<intptr_t>(self))); };
  return TVMFFIFunctionCreate(reinterpret_cast<void*>(static_cast<intptr_t>(number)), call, drop, out);
}

// A fresh tensor; `dtype` is code | bits << 8 | lanes << 16. Null with the error raised.
WEFT_EXPORT(weft_host_tensor)
TVMFFIObjectHandle weft_host_tensor(const int64_t* shape, int32_t ndim, int32_t dtype) {
  DLDataType type{static_cast<uint8_t>(dtype), static_cast<uint8_t>(dtype >> 8), static_cast<uint16_t>(dtype >> 16)};
  return weft::tensor_empty(shape, ndim, type, DLDevice{kDLCPU, 0}, weft::Allocator::kPooled);
}

// An Array of values.
WEFT_EXPORT(weft_host_array)
int32_t weft_host_array(const TVMFFIAny* items, int32_t n, TVMFFIObjectHandle* out) {
  TVM_FFI_SAFE_CALL_BEGIN();
  const auto* begin = reinterpret_cast<const tvm::ffi::AnyView*>(items);
  give(tvm::ffi::Array<tvm::ffi::Any>(begin, begin + n), out);
  TVM_FFI_SAFE_CALL_END();
}

// A function of a module or of what it imports; null where there is none.
WEFT_EXPORT(weft_host_lookup)
int32_t weft_host_lookup(TVMFFIObjectHandle module, const char* name, TVMFFIObjectHandle* out) {
  TVM_FFI_SAFE_CALL_BEGIN();
  tvm::ffi::Any self;
  *weft::raw(&self) = weft::object_any(static_cast<TVMFFIObject*>(module));
  weft::retain(*weft::raw(&self));
  auto found = self.cast<tvm::ffi::Module>()->GetFunction(tvm::ffi::String(name), true);
  *out = nullptr;
  if (found.has_value()) give(*found, out);
  TVM_FFI_SAFE_CALL_END();
}

// The modules in a blob, whose memory (of weft_host_alloc) now belongs to them; `code` has the kernels.
WEFT_EXPORT(weft_host_modules)
int32_t weft_host_modules(void* blob, size_t nbytes, TVMFFIObjectHandle code, TVMFFIObjectHandle* out) {
  TVM_FFI_SAFE_CALL_BEGIN();
  tvm::ffi::Any file = tvm::ffi::ObjectRef(tvm::ffi::make_object<FileObj>(blob));
  uint64_t size = 0;
  if (nbytes >= 8) std::memcpy(&size, blob, 8);
  if (nbytes < 8 || size != nbytes - 8) weft::raise_error("ExecutableError", "the model file is cut short");
  tvm::ffi::Any kernels;
  *weft::raw(&kernels) = weft::object_any(static_cast<TVMFFIObject*>(code));
  weft::retain(*weft::raw(&kernels));
  give(weft::load_tree(static_cast<const char*>(blob), kernels.cast<tvm::ffi::Module>(), weft::raw(&file)->v_obj), out);
  TVM_FFI_SAFE_CALL_END();
}
