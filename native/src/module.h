// What the files with module classes share: values as arguments of functions that Python calls.
#ifndef WEFT_MODULE_H_
#define WEFT_MODULE_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <vector>

#include "memory.h"
#include "vm.h"

namespace weft {

[[noreturn]] inline void raise(const char* kind, const std::string& message) {
  throw tvm::ffi::Error(kind, message, "");
}

inline void check(int rc) { TVM_FFI_CHECK_SAFE_CALL(rc); }

// An owned handle as a value; null is an error that was raised.
inline tvm::ffi::Any take(TVMFFIObject* object) {
  if (object == nullptr) check(-1);
  tvm::ffi::Any out;
  *raw(&out) = object_any(object);
  return out;
}

// A module as one of its own class.
template <typename T>
T* as(const tvm::ffi::Module& module, const char* what) {
  auto* found = dynamic_cast<T*>(const_cast<tvm::ffi::ModuleObj*>(module.operator->()));
  if (found == nullptr) raise("TypeError", std::string("expected ") + what + ", found a module of kind " + module->kind());
  return found;
}

// Takes ownership of `self`, which `deleter` frees.
tvm::ffi::Function make_function(void* self, TVMFFISafeCallType call, void (*deleter)(void*));
// A vector of int64 as words, and back.
std::vector<int64_t> words_of(const tvm::ffi::Tensor& tensor);
tvm::ffi::Any tensor_of_words(const std::vector<int64_t>& words);
// Lists of values as vectors, and back.
std::vector<tvm::ffi::Any> list_of(const tvm::ffi::Any& value);
tvm::ffi::Any array_of(const std::vector<tvm::ffi::Any>& values);
// A constant as kernels like it: contiguous and 64-byte aligned; copied only where the caller's memory is not.
tvm::ffi::Any own_constant(const tvm::ffi::Any& value);
// Devices and allocators from rows of device type, device id, allocator.
void read_devices(const tvm::ffi::Array<int64_t>& flat, std::vector<DLDevice>* devices,
                  std::vector<Allocator>* allocators);

// The root of the import tree in a blob (docs/reference/executable.md); `code` stands where the blob says `_lib`, and
// `keep` keeps the blob in place.
tvm::ffi::Module load_tree(const char* data, const tvm::ffi::Module& code, TVMFFIObject* keep = nullptr);

}  // namespace weft
#endif  // WEFT_MODULE_H_
