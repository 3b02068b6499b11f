#include "packed_device.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <string>

#include "error.h"

namespace weft {

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::Optional;

static const char* name_of(int32_t type) {
  switch (type) {
    case kDLOpenCL: return "opencl";
    case kDLVulkan: return "vulkan";
    case kDLMetal: return "metal";
    case kDLVPI: return "vpi";
    case kDLROCM: return "rocm";
    case kDLExtDev: return "ext_dev";
    case kDLOneAPI: return "oneapi";
    case kDLWebGPU: return "webgpu";
    case kDLHexagon: return "hexagon";
    case kDLMAIA: return "maia";
    default: return nullptr;
  }
}

static Optional<Function> find(int32_t type, const char* what) {
  const char* name = name_of(type);
  if (name == nullptr) return std::nullopt;
  return Function::GetGlobal(std::string("weft.device.") + name + "." + what);
}

bool packed_device_exists(int32_t type) { return find(type, "alloc").has_value(); }

// Calls one of a device's functions; errors of any kind become the raised error.
template <typename... Args>
static int call(Any* result, int32_t type, const char* what, Args... args) {
  TVM_FFI_SAFE_CALL_BEGIN();
  Optional<Function> function = find(type, what);
  if (!function.has_value()) raise_error("ValueError", "device type %d has no function \"%s\"", type, what);
  *result = (*function)(args...);
  TVM_FFI_SAFE_CALL_END();
}

void* packed_device_alloc(DLDevice device, size_t nbytes) {
  Any result;
  if (call(&result, device.device_type, "alloc", device.device_id, static_cast<int64_t>(nbytes)) != 0) return nullptr;
  auto address = result.as<void*>();
  if (address.has_value() && *address != nullptr) return *address;
  fail("MemoryError", "device type %d gave no memory for %lld bytes", device.device_type, static_cast<long long>(nbytes));
  return nullptr;
}

void packed_device_free(DLDevice device, void* data) {
  Any result;
  if (call(&result, device.device_type, "free", device.device_id, data) != 0) {
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    if (error != nullptr) TVMFFIObjectDecRef(error);
  }
}

int packed_device_copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) {
  Any result;
  int32_t type = from_device.device_type == kDLCPU ? to_device.device_type : from_device.device_type;
  return call(&result, type, "copy", const_cast<void*>(from), static_cast<int64_t>(from_device.device_type),
              from_device.device_id, to, static_cast<int64_t>(to_device.device_type), to_device.device_id,
              static_cast<int64_t>(nbytes));
}

}  // namespace weft
