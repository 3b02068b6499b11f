// Devices that a library outside of the runtime brings, as global functions `weft.device.<name>.<what>`; <name> is that
// of DLPack's device type: ext_dev, metal, hexagon, ...
//
//   alloc(device_id, nbytes) -> address      free(device_id, address)
//   copy(from_address, from_type, from_id, to_address, to_type, to_id, nbytes)    one side may be the CPU (1)
//   count() -> devices that can be used      sync(device_id)
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include "device_api.h"
#include "error.h"

namespace weft {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::Optional;

class PackedApi final : public DeviceApi {
 public:
  using DeviceApi::DeviceApi;

  bool exists() const { return find("alloc").has_value(); }

  int count() final {
    Any result;
    return call(&result, "count") == 0 ? static_cast<int>(result.as<int64_t>().value_or(0)) : 0;
  }
  int enter(int device) final {
    int devices = count();
    if (device >= 0 && device < devices) return 0;
    return fail("ValueError", "there is no device %s:%d; there are %d", name, device, devices);
  }
  int alloc(int device, size_t nbytes, void** out) final {
    Any result;
    if (call(&result, "alloc", device, static_cast<int64_t>(nbytes)) != 0) return -1;
    *out = result.as<void*>().value_or(nullptr);
    if (*out != nullptr) return 0;
    return fail("MemoryError", "%s:%d gave no memory for %zu bytes", name, device, nbytes);
  }
  void free(int device, void* data) final {
    Any result;
    if (call(&result, "free", device, data) == 0) return;
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    if (error != nullptr) TVMFFIObjectDecRef(error);
  }
  int copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) final {
    Any result;
    return call(&result, "copy", const_cast<void*>(from), static_cast<int64_t>(from_device.device_type),
                from_device.device_id, to, static_cast<int64_t>(to_device.device_type), to_device.device_id,
                static_cast<int64_t>(nbytes));
  }
  int sync(int device) final {
    Any result;
    return call(&result, "sync", device);
  }

  int stream_create(int, DeviceHandle*) final { return has_no("streams"); }
  int stream_free(int, DeviceHandle) final { return has_no("streams"); }
  int stream_sync(int, DeviceHandle) final { return has_no("streams"); }
  int stream_order(int, DeviceHandle, DeviceHandle) final { return has_no("streams"); }
  int event_create(int, DeviceHandle*) final { return has_no("events"); }
  int event_record(int, DeviceHandle) final { return has_no("events"); }
  int event_seconds(int, DeviceHandle, DeviceHandle, double*) final { return has_no("events"); }
  void event_free(DeviceHandle) final {}
  int attribute(int, const std::string&, Any*) final { return 0; }
  int load(int, const std::string&, const std::string&, const std::string&, DeviceHandle*) final {
    return has_no("modules of kernels");
  }
  void unload(int, DeviceHandle) final {}
  int kernel(int, DeviceHandle, const std::string&, DeviceHandle*) final { return has_no("modules of kernels"); }
  std::string status_text(int status) const final { return message("%s error %d", name, status); }
  int launch(int, DeviceHandle, const KernelLaunch&) final { return has_no("modules of kernels"); }

 private:
  Optional<Function> find(const char* what) const {
    return Function::GetGlobal(message("weft.device.%s.%s", name, what));
  }

  // Calls one of the device's functions; errors of any kind become the raised error.
  template <typename... Args>
  int call(Any* result, const char* what, Args... args) {
    TVM_FFI_SAFE_CALL_BEGIN();
    Optional<Function> function = find(what);
    if (!function.has_value()) raise_error("ValueError", "there is no function weft.device.%s.%s", name, what);
    *result = (*function)(args...);
    TVM_FFI_SAFE_CALL_END();
  }

  int has_no(const char* what) const { return fail("RuntimeError", "devices of the kind %s have no %s", name, what); }
};

}  // namespace

DeviceApi* packed_api(int32_t type) {
  static PackedApi kinds[] = {
      {kDLVulkan, "vulkan"}, {kDLMetal, "metal"},   {kDLVPI, "vpi"},       {kDLROCM, "rocm"}, {kDLExtDev, "ext_dev"},
      {kDLOneAPI, "oneapi"}, {kDLWebGPU, "webgpu"}, {kDLHexagon, "hexagon"}, {kDLMAIA, "maia"}};
  for (PackedApi& kind : kinds) {
    if (kind.type == type) return kind.exists() ? &kind : nullptr;
  }
  return nullptr;
}

}  // namespace weft
