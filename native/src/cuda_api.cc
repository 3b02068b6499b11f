// NVIDIA GPUs, through the driver. Source of names and numbers: NVIDIA's CUDA driver API reference (the _v2 entry points
// are the 64-bit ones).
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "device_api.h"
#include "error.h"

namespace weft {
namespace {

using Status = int;
using Address = unsigned long long;
using Handle = DeviceHandle;

#define WEFT_CUDA_API(X)                                                                           \
  X(cuInit, (unsigned))                                                                            \
  X(cuGetErrorString, (Status, const char**))                                                      \
  X(cuDeviceGetCount, (int*))                                                                      \
  X(cuDeviceGet, (int*, int))                                                                      \
  X(cuDeviceGetName, (char*, int, int))                                                            \
  X(cuDeviceGetAttribute, (int*, int, int))                                                        \
  X(cuDeviceTotalMem_v2, (size_t*, int))                                                           \
  X(cuDevicePrimaryCtxRetain, (Handle*, int))                                                      \
  X(cuCtxSetCurrent, (Handle))                                                                     \
  X(cuCtxSynchronize, ())                                                                          \
  X(cuMemAlloc_v2, (Address*, size_t))                                                             \
  X(cuMemFree_v2, (Address))                                                                       \
  X(cuMemcpyHtoDAsync_v2, (Address, const void*, size_t, Handle))                                  \
  X(cuMemcpyDtoHAsync_v2, (void*, Address, size_t, Handle))                                        \
  X(cuMemcpyDtoDAsync_v2, (Address, Address, size_t, Handle))                                      \
  X(cuMemcpyPeerAsync, (Address, Handle, Address, Handle, size_t, Handle))                         \
  X(cuStreamCreate, (Handle*, unsigned))                                                           \
  X(cuStreamDestroy_v2, (Handle))                                                                  \
  X(cuStreamSynchronize, (Handle))                                                                 \
  X(cuStreamWaitEvent, (Handle, Handle, unsigned))                                                 \
  X(cuEventCreate, (Handle*, unsigned))                                                            \
  X(cuEventRecord, (Handle, Handle))                                                               \
  X(cuEventSynchronize, (Handle))                                                                  \
  X(cuEventElapsedTime, (float*, Handle, Handle))                                                  \
  X(cuEventDestroy_v2, (Handle))                                                                   \
  X(cuModuleLoadData, (Handle*, const void*))                                                      \
  X(cuModuleUnload, (Handle))                                                                      \
  X(cuModuleGetFunction, (Handle*, Handle, const char*))                                           \
  X(cuFuncSetAttribute, (Handle, int, int))                                                        \
  X(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     Handle, void**, void**))

constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kPlainShared = 48 << 10;  // what every kernel may use without asking

Address address(const void* p) { return reinterpret_cast<Address>(p); }

struct Functions {
#define WEFT_FIELD(name, args) Status(*name) args = nullptr;
  WEFT_CUDA_API(WEFT_FIELD)
#undef WEFT_FIELD
};

class CudaApi final : public DeviceApi, Functions {
 public:
  CudaApi() : DeviceApi(kDLCUDA, "cuda") {
#define WEFT_NAME(name, args) #name,
    static const char* const kNames[] = {WEFT_CUDA_API(WEFT_NAME) nullptr};
#undef WEFT_NAME
    open_driver(std::getenv("WEFT_CUDA_DRIVER"), "libcuda.so.1", kNames, static_cast<Functions*>(this), &problem_);
    if (!problem_.empty()) return;
    if (Status s = cuInit(0)) problem_ = "cuInit: " + status_text(s);
    else if (Status s = cuDeviceGetCount(&count_)) problem_ = "cuDeviceGetCount: " + status_text(s);
  }

  std::string status_text(int status) const final {
    const char* out = nullptr;
    if (cuGetErrorString(status, &out) != 0 || out == nullptr) return message("CUDA error %d", status);
    return message("%s (CUDA error %d)", out, status);
  }

  int count() final { return problem_.empty() ? count_ : 0; }

  int enter(int device) final { return enter(device, nullptr); }

  int alloc(int device, size_t nbytes, void** out) final {
    Address data = 0;
    if (enter(device) != 0) return -1;
    if (Status status = cuMemAlloc_v2(&data, nbytes == 0 ? 1 : nbytes)) {
      return fail("MemoryError", "cannot allocate %zu bytes on cuda:%d: %s", nbytes, device, status_text(status).c_str());
    }
    *out = reinterpret_cast<void*>(data);
    return 0;
  }

  void free(int device, void* data) final {  // at process end the driver may be gone
    if (reenter(device) == 0) cuMemFree_v2(address(data));
  }

  int copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) final {
    bool from_gpu = from_device.device_type == kDLCUDA, to_gpu = to_device.device_type == kDLCUDA;
    int device = to_gpu ? to_device.device_id : from_device.device_id;
    Handle context = nullptr, other = nullptr;
    if (from_gpu && to_gpu && enter(from_device.device_id, &other) != 0) return -1;
    if (enter(device, &context) != 0) return -1;
    Handle stream = current_stream(device);
    if (from_gpu && to_gpu) {
      if (context == other) {
        return check(cuMemcpyDtoDAsync_v2(address(to), address(from), nbytes, stream), "copying on the device");
      }
      return check(cuMemcpyPeerAsync(address(to), context, address(from), other, nbytes, stream), "copying to a peer");
    }
    Status status = to_gpu ? cuMemcpyHtoDAsync_v2(address(to), from, nbytes, stream)
                           : cuMemcpyDtoHAsync_v2(to, address(from), nbytes, stream);
    if (check(status, to_gpu ? "copying to the device" : "copying from the device") != 0) return -1;
    return check(cuStreamSynchronize(stream), "waiting for the copy");
  }

  int sync(int device) final {
    return enter(device) == 0 ? check(cuCtxSynchronize(), "waiting for the device") : -1;
  }

  int stream_create(int device, Handle* out) final {
    return enter(device) == 0 ? check(cuStreamCreate(out, 1), "creating a stream") : -1;  // 1: non-blocking
  }
  int stream_free(int device, Handle stream) final {
    return enter(device) == 0 ? check(cuStreamDestroy_v2(stream), "destroying a stream") : -1;
  }
  int stream_sync(int device, Handle stream) final {
    return enter(device) == 0 ? check(cuStreamSynchronize(stream), "waiting for the stream") : -1;
  }
  int stream_order(int device, Handle first, Handle then) final {
    Handle event = nullptr;
    if (enter(device) != 0 || check(cuEventCreate(&event, 2), "creating an event") != 0) return -1;  // 2: without timing
    Status status = cuEventRecord(event, first);
    if (status == 0) status = cuStreamWaitEvent(then, event, 0);
    cuEventDestroy_v2(event);  // the driver keeps it until it has happened
    return check(status, "ordering two streams");
  }

  int event_create(int device, Handle* out) final {
    return enter(device) == 0 ? check(cuEventCreate(out, 0), "creating an event") : -1;
  }
  int event_record(int device, Handle event) final {
    return enter(device) == 0 ? check(cuEventRecord(event, current_stream(device)), "recording an event") : -1;
  }
  int event_seconds(int device, Handle first, Handle then, double* out) final {
    float milliseconds = 0;
    if (enter(device) != 0 || check(cuEventSynchronize(then), "waiting for an event") != 0) return -1;
    if (check(cuEventElapsedTime(&milliseconds, first, then), "timing events") != 0) return -1;
    *out = milliseconds * 1e-3;
    return 0;
  }
  void event_free(Handle event) final { cuEventDestroy_v2(event); }

  int attribute(int device, const std::string& what, tvm::ffi::Any* out) final {
    static const std::pair<const char*, int> kNumbers[] = {
        {"max_threads_per_block", 1}, {"max_shared_memory_per_block", 8}, {"warp_size", 10},
        {"max_clock_rate", 13}, {"multi_processor_count", 16}};
    int handle = 0;
    if (enter(device) != 0 || check(cuDeviceGet(&handle, device), "cuDeviceGet") != 0) return -1;
    for (const auto& [name, number] : kNumbers) {
      if (what != name) continue;
      int value = 0;
      if (check(cuDeviceGetAttribute(&value, number, handle), "cuDeviceGetAttribute") != 0) return -1;
      *out = value;
    }
    if (what == "compute_version") *out = tvm::ffi::String(compute_version(handle));
    if (what == "device_name") {
      char text[256] = "";
      if (check(cuDeviceGetName(text, sizeof(text), handle), "cuDeviceGetName") != 0) return -1;
      *out = tvm::ffi::String(text);
    }
    if (what == "total_global_memory") {
      size_t bytes = 0;
      if (check(cuDeviceTotalMem_v2(&bytes, handle), "cuDeviceTotalMem") != 0) return -1;
      *out = static_cast<int64_t>(bytes);
    }
    return 0;
  }

  int load(int device, const std::string& image, const std::string& format, const std::string& kernel,
           Handle* out) final {
    if (enter(device) != 0) return -1;
    Status status = cuModuleLoadData(out, image.c_str());
    if (status == 0) return 0;
    int handle = 0;
    std::string version = cuDeviceGet(&handle, device) == 0 ? compute_version(handle) : "?", arch;
    for (char c : version) arch += c == '.' ? "" : std::string(1, c);
    return fail("RuntimeError", "cuda:%d (compute capability %s) cannot load the %s code of \"%s\": %s; expected code for "
                "sm_%s: build with Target(\"cuda -arch=sm_%s\")", device, version.c_str(), format.c_str(), kernel.c_str(),
                status_text(status).c_str(), arch.c_str(), arch.c_str());
  }
  void unload(int device, Handle program) final {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      allowed_.clear();  // a later kernel may have the handle of one that goes
    }
    if (reenter(device) == 0) cuModuleUnload(program);
  }
  int kernel(int, Handle program, const std::string& name, Handle* out) final {
    Status status = cuModuleGetFunction(out, program, name.c_str());
    return status == 0 ? 0 : fail("RuntimeError", "the code has no kernel \"%s\": %s", name.c_str(),
                                  status_text(status).c_str());
  }
  int launch(int device, Handle kernel, const KernelLaunch& l) final {
    if (l.shared > kPlainShared) {
      std::lock_guard<std::mutex> lock(mutex_);
      unsigned& allowed = allowed_[kernel];
      if (l.shared > allowed) {
        if (Status status = cuFuncSetAttribute(kernel, kMaxDynamicShared, static_cast<int>(l.shared))) return status;
        allowed = l.shared;
      }
    }
    std::vector<void*> pointers;
    for (const auto& a : l.arguments) pointers.push_back(const_cast<uint64_t*>(&a.bits));
    const unsigned* e = l.extents;
    return cuLaunchKernel(kernel, e[0], e[1], e[2], e[3], e[4], e[5], l.shared, current_stream(device), pointers.data(),
                          nullptr);
  }

 private:
  int check(Status status, const char* doing) const {
    return status == 0 ? 0 : fail("RuntimeError", "%s: %s", doing, status_text(status).c_str());
  }

  int enter(int device, Handle* out) {
    if (!problem_.empty()) {
      return fail("RuntimeError", "cuda:%d cannot be used: no CUDA driver (%s); WEFT_CUDA_DRIVER may name its library",
                  device, problem_.c_str());
    }
    if (device < 0 || device >= count_) {
      return fail("ValueError", "there is no device cuda:%d; the driver has %d", device, count_);
    }
    Handle context;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = contexts_.find(device);
      if (found == contexts_.end()) {
        int handle = 0;
        Handle fresh = nullptr;
        if (check(cuDeviceGet(&handle, device), "cuDeviceGet") != 0) return -1;
        if (check(cuDevicePrimaryCtxRetain(&fresh, handle), "cuDevicePrimaryCtxRetain") != 0) return -1;
        found = contexts_.emplace(device, fresh).first;
      }
      context = found->second;
    }
    if (out != nullptr) *out = context;
    return check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  }

  // Makes the context of a device that has one current, without errors, as destructors need it.
  Status reenter(int device) {
    Handle context;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      context = contexts_.at(device);
    }
    return cuCtxSetCurrent(context);
  }

  std::string compute_version(int handle) const {  // "9.0"
    int major = 0, minor = 0;
    if (cuDeviceGetAttribute(&major, 75, handle) != 0 || cuDeviceGetAttribute(&minor, 76, handle) != 0) return "?";
    return message("%d.%d", major, minor);
  }

  std::string problem_;  // why there is no driver; empty when there is
  int count_ = 0;
  std::mutex mutex_;
  std::map<int, Handle> contexts_;
  std::map<Handle, unsigned> allowed_;  // bytes of dynamic shared memory that a kernel has been given
};

}  // namespace

DeviceApi* cuda_api() {
  static CudaApi* api = new CudaApi();  // never destroyed: tensors may outlive static destruction
  return api;
}

}  // namespace weft
