// Raising tvm-ffi errors, from code that returns codes (fail) and from code inside an ffi guard (raise).
#ifndef WEFT_ERROR_H_
#define WEFT_ERROR_H_

#include <tvm/ffi/c_api.h>

#include <string>

namespace weft {

// Sets the raised error of this thread, printf-style, and returns -1.
[[gnu::cold]] [[gnu::format(printf, 2, 3)]] int fail(const char* kind, const char* format, ...);

[[gnu::cold]] [[gnu::format(printf, 1, 2)]] std::string message(const char* format, ...);
// Throws such an error instead.
[[noreturn]] [[gnu::cold]] [[gnu::format(printf, 2, 3)]] void raise_error(const char* kind, const char* format, ...);

// "float32", "float32[3, 4]", "int", "None", ...: what a value is, for messages.
std::string describe(const TVMFFIAny& value);
std::string dtype_name(DLDataType dtype);
std::string shape_text(const int64_t* shape, int64_t ndim);
// The tensor of an argument, owned or borrowed, or null.
inline const DLTensor* tensor_of(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(value.v_obj);
  if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(value.v_ptr);
  return nullptr;
}

}  // namespace weft
#endif  // WEFT_ERROR_H_
