// The driver is opened at run time, so that one build of the library runs with and without a GPU. Source of names and
// numbers: NVIDIA's CUDA driver API reference (the _v2 entry points are the 64-bit ones).
#include "cuda_device.h"

#include <dlfcn.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "error.h"

namespace weft {
namespace {

using Status = int;
using Address = unsigned long long;
using Handle = void*;  // a context, stream or event

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
  X(cuStreamSynchronize, (Handle))

struct Driver {
#define WEFT_FIELD(name, args) Status(*name) args = nullptr;
  WEFT_CUDA_API(WEFT_FIELD)
#undef WEFT_FIELD
  std::string problem;  // why there is no driver; empty when there is
  int count = 0;
  std::mutex mutex;
  std::map<int, Handle> contexts;

  Driver() {
    const char* named = std::getenv("WEFT_CUDA_DRIVER");
    const char* path = named != nullptr && *named != 0 ? named : "libcuda.so.1";
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = dlerror();
      return;
    }
#define WEFT_LOAD(name, args)                                                           \
  name = reinterpret_cast<Status(*) args>(dlsym(library, #name));                       \
  if (name == nullptr && problem.empty()) problem = std::string(path) + " has no " #name;
    WEFT_CUDA_API(WEFT_LOAD)
#undef WEFT_LOAD
    if (!problem.empty()) return;
    if (Status s = cuInit(0)) problem = std::string(path) + ": cuInit: " + text(s);
    else if (Status s = cuDeviceGetCount(&count)) problem = std::string(path) + ": cuDeviceGetCount: " + text(s);
  }

  std::string text(Status status) const {
    const char* out = nullptr;
    if (cuGetErrorString(status, &out) != 0 || out == nullptr) return "CUDA error " + std::to_string(status);
    return std::string(out) + " (CUDA error " + std::to_string(status) + ")";
  }

  static Driver& get() {
    static Driver* driver = new Driver();  // never destroyed: tensors may outlive static destruction
    return *driver;
  }
};

thread_local std::map<int, Handle> streams;  // the current stream of each device; absent is the default stream

int check(Status status, const char* doing) {
  return status == 0 ? 0 : fail("RuntimeError", "%s: %s", doing, Driver::get().text(status).c_str());
}

// Makes a device's primary context current in this thread.
int enter(int device, Handle* out = nullptr) {
  Driver& d = Driver::get();
  if (!d.problem.empty()) {
    return fail("RuntimeError", "cuda:%d cannot be used: no CUDA driver (%s); WEFT_CUDA_DRIVER may name its library",
                device, d.problem.c_str());
  }
  if (device < 0 || device >= d.count) {
    return fail("ValueError", "there is no device cuda:%d; the driver has %d", device, d.count);
  }
  Handle context;
  {
    std::lock_guard<std::mutex> lock(d.mutex);
    auto found = d.contexts.find(device);
    if (found == d.contexts.end()) {
      int handle = 0;
      Handle fresh = nullptr;
      if (check(d.cuDeviceGet(&handle, device), "cuDeviceGet") != 0) return -1;
      if (check(d.cuDevicePrimaryCtxRetain(&fresh, handle), "cuDevicePrimaryCtxRetain") != 0) return -1;
      found = d.contexts.emplace(device, fresh).first;
    }
    context = found->second;
  }
  if (out != nullptr) *out = context;
  return check(d.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Handle current_stream(int device) {
  auto found = streams.find(device);
  return found == streams.end() ? nullptr : found->second;
}

Address address(const void* p) { return reinterpret_cast<Address>(p); }

void guard(int status) {
  TVM_FFI_CHECK_SAFE_CALL(status);
}

}  // namespace

void* cuda_alloc(int device, size_t nbytes) {
  Address out = 0;
  if (enter(device) != 0) return nullptr;
  Driver& d = Driver::get();
  Status status = d.cuMemAlloc_v2(&out, nbytes == 0 ? 1 : nbytes);
  if (status != 0) {
    fail("MemoryError", "cannot allocate %zu bytes on cuda:%d: %s", nbytes, device, d.text(status).c_str());
    return nullptr;
  }
  return reinterpret_cast<void*>(out);
}

void cuda_free(int device, void* data) {  // as a destructor: at process end the driver may be gone, so no errors
  Driver& d = Driver::get();
  Handle context;
  {
    std::lock_guard<std::mutex> lock(d.mutex);
    context = d.contexts.at(device);  // there since the allocation
  }
  if (d.cuCtxSetCurrent(context) == 0) d.cuMemFree_v2(address(data));
}

int cuda_copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) {
  bool from_gpu = from_device.device_type == kDLCUDA, to_gpu = to_device.device_type == kDLCUDA;
  int device = to_gpu ? to_device.device_id : from_device.device_id;
  Handle context = nullptr, other = nullptr;
  if (from_gpu && to_gpu && enter(from_device.device_id, &other) != 0) return -1;
  if (enter(device, &context) != 0) return -1;
  Driver& d = Driver::get();
  Handle stream = current_stream(device);
  if (from_gpu && to_gpu) {
    if (context == other) {
      return check(d.cuMemcpyDtoDAsync_v2(address(to), address(from), nbytes, stream), "copying on the device");
    }
    return check(d.cuMemcpyPeerAsync(address(to), context, address(from), other, nbytes, stream), "copying to a peer");
  }
  Status status = to_gpu ? d.cuMemcpyHtoDAsync_v2(address(to), from, nbytes, stream)
                         : d.cuMemcpyDtoHAsync_v2(to, address(from), nbytes, stream);
  if (check(status, to_gpu ? "copying to the device" : "copying from the device") != 0) return -1;
  return check(d.cuStreamSynchronize(stream), "waiting for the copy");
}

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("weft.cuda_count",
           [] { return static_cast<int64_t>(Driver::get().problem.empty() ? Driver::get().count : 0); })
      .def("weft.cuda_sync",
           [](int device) {
             guard(enter(device));
             guard(check(Driver::get().cuCtxSynchronize(), "waiting for the device"));
           })
      .def("weft.cuda_attribute",
           [](int device, int attribute) {
             guard(enter(device));
             int out = 0, handle = 0;
             guard(check(Driver::get().cuDeviceGet(&handle, device), "cuDeviceGet"));
             guard(check(Driver::get().cuDeviceGetAttribute(&out, attribute, handle), "cuDeviceGetAttribute"));
             return static_cast<int64_t>(out);
           })
      .def("weft.cuda_name",
           [](int device) {
             guard(enter(device));
             int handle = 0;
             char name[256] = "";
             guard(check(Driver::get().cuDeviceGet(&handle, device), "cuDeviceGet"));
             guard(check(Driver::get().cuDeviceGetName(name, sizeof(name), handle), "cuDeviceGetName"));
             return tvm::ffi::String(name);
           })
      .def("weft.cuda_total_memory",
           [](int device) {
             guard(enter(device));
             int handle = 0;
             size_t out = 0;
             guard(check(Driver::get().cuDeviceGet(&handle, device), "cuDeviceGet"));
             guard(check(Driver::get().cuDeviceTotalMem_v2(&out, handle), "cuDeviceTotalMem"));
             return static_cast<int64_t>(out);
           })
      .def("weft.cuda_stream_create",
           [](int device) {
             guard(enter(device));
             Handle out = nullptr;
             guard(check(Driver::get().cuStreamCreate(&out, 1), "creating a stream"));  // 1: non-blocking
             return reinterpret_cast<int64_t>(out);
           })
      .def("weft.cuda_stream_free",
           [](int device, int64_t stream) {
             guard(enter(device));
             auto* handle = reinterpret_cast<Handle>(stream);
             if (current_stream(device) == handle) streams.erase(device);
             guard(check(Driver::get().cuStreamDestroy_v2(handle), "destroying a stream"));
           })
      .def("weft.cuda_stream_set",
           [](int device, int64_t stream) { streams[device] = reinterpret_cast<Handle>(stream); });
}

}  // namespace weft
