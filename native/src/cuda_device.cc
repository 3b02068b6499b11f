// The driver is opened at run time, so that one build of the library runs with and without a GPU. Source of names and
// numbers: NVIDIA's CUDA driver API reference (the _v2 entry points are the 64-bit ones).
#include "cuda_driver.h"

#include <dlfcn.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <tuple>

#include "error.h"
#include "register.h"

namespace weft {
namespace cuda {

Driver::Driver() {
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

std::string Driver::text(Status status) const {
  const char* out = nullptr;
  if (cuGetErrorString(status, &out) != 0 || out == nullptr) return "CUDA error " + std::to_string(status);
  return std::string(out) + " (CUDA error " + std::to_string(status) + ")";
}

Driver& Driver::get() {
  static Driver* driver = new Driver();  // never destroyed: tensors may outlive static destruction
  return *driver;
}

Status Driver::reenter(int device) {
  Handle context;
  {
    std::lock_guard<std::mutex> lock(mutex);
    context = contexts.at(device);
  }
  return cuCtxSetCurrent(context);
}

int check(Status status, const char* doing) {
  return status == 0 ? 0 : fail("RuntimeError", "%s: %s", doing, Driver::get().text(status).c_str());
}

int enter(int device, Handle* out) {
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

void guard(int status) {
  TVM_FFI_CHECK_SAFE_CALL(status);
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

std::string compute_version(int device) {
  int handle = 0, major = 0, minor = 0;
  Driver& d = Driver::get();
  if (d.cuDeviceGet(&handle, device) != 0 || d.cuDeviceGetAttribute(&major, 75, handle) != 0 ||
      d.cuDeviceGetAttribute(&minor, 76, handle) != 0) {
    return "?";
  }
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace cuda

using namespace cuda;  // NOLINT: this file is the device

static Address address(const void* p) { return reinterpret_cast<Address>(p); }

// Memory that kernels of one launch sequence pass to each other. A thread keeps what it freed for its next calls on the
// same stream, where the order of the stream makes the reuse safe.
class Workspaces {
 public:
  ~Workspaces() {
    for (auto& [key, data] : free_) cuda_free(key.device, data);
  }
  void* take(int device, size_t nbytes) {
    const Key key{device, current_stream(device), nbytes};
    auto found = free_.lower_bound(key);
    if (found != free_.end() && found->first.device == device && found->first.stream == key.stream &&
        found->first.nbytes <= 2 * nbytes + 4096) {
      void* data = found->second;
      used_.emplace(data, found->first);
      free_.erase(found);
      return data;
    }
    void* data = cuda_alloc(device, nbytes);
    if (data != nullptr) used_.emplace(data, key);
    return data;
  }
  bool give(void* data) {
    auto found = used_.find(data);
    if (found == used_.end()) return false;
    free_.emplace(found->second, data);
    used_.erase(found);
    return true;
  }

 private:
  struct Key {
    int device;
    Handle stream;
    size_t nbytes;
    bool operator<(const Key& o) const {
      return std::tie(device, stream, nbytes) < std::tie(o.device, o.stream, o.nbytes);
    }
  };
  std::multimap<Key, void*> free_;
  std::map<void*, Key> used_;
};

static Workspaces& workspaces() {
  thread_local Workspaces all;
  return all;
}

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
  if (d.reenter(device) == 0) d.cuMemFree_v2(address(data));
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
  Globals()
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
             if (current_stream(device) == handle) guard(TVMFFIEnvSetStream(kDLCUDA, device, nullptr, nullptr));
             guard(check(Driver::get().cuStreamDestroy_v2(handle), "destroying a stream"));
           })
      .def("weft.cuda_stream_set",
           [](int device, int64_t stream) {
             guard(TVMFFIEnvSetStream(kDLCUDA, device, reinterpret_cast<Handle>(stream), nullptr));
           })
      .def("weft.cuda_stream_sync",
           [](int device, int64_t stream) {
             guard(enter(device));
             auto* handle = reinterpret_cast<Handle>(stream);
             guard(check(Driver::get().cuStreamSynchronize(handle), "waiting for the stream"));
           })
      .def("weft.cuda_stream_order",
           [](int device, int64_t first, int64_t then) {
             guard(enter(device));
             Driver& d = Driver::get();
             Handle event = nullptr;
             guard(check(d.cuEventCreate(&event, 2), "creating an event"));  // 2: without timing
             Status status = d.cuEventRecord(event, reinterpret_cast<Handle>(first));
             if (status == 0) status = d.cuStreamWaitEvent(reinterpret_cast<Handle>(then), event, 0);
             d.cuEventDestroy_v2(event);  // the driver keeps it until it has happened
             guard(check(status, "ordering two streams"));
           })
      .def("weft.cuda_workspace_alloc",
           [](int64_t nbytes) {
             if (nbytes < 0) guard(fail("ValueError", "a workspace of %lld bytes", static_cast<long long>(nbytes)));
             void* data = workspaces().take(current_device(), static_cast<size_t>(nbytes));
             if (data == nullptr) guard(-1);
             return data;
           })
      .def("weft.cuda_workspace_free",
           [](void* data) {
             if (!workspaces().give(data)) guard(fail("ValueError", "%p is no workspace of this thread", data));
           })
      .def("__tvm_set_device", [](int type, int device) {
        if (type != kDLCUDA) guard(fail("ValueError", "kernels run on CUDA devices, found device type %d", type));
        guard(enter(device));
        current_device() = device;
      });
}

CudaTimer::CudaTimer(int device) : device_(device) {
  guard(enter(device));
  Driver& d = Driver::get();
  guard(check(d.cuEventCreate(&begin_, 0), "creating an event"));
  guard(check(d.cuEventCreate(&end_, 0), "creating an event"));
}

CudaTimer::~CudaTimer() {
  Driver& d = Driver::get();
  if (begin_ != nullptr) d.cuEventDestroy_v2(begin_);
  if (end_ != nullptr) d.cuEventDestroy_v2(end_);
}

void CudaTimer::start() {
  guard(enter(device_));
  Driver& d = Driver::get();
  guard(check(d.cuCtxSynchronize(), "waiting for the device"));
  guard(check(d.cuEventRecord(begin_, current_stream(device_)), "recording an event"));
}

double CudaTimer::stop() {
  guard(enter(device_));
  Driver& d = Driver::get();
  float milliseconds = 0;
  guard(check(d.cuEventRecord(end_, current_stream(device_)), "recording an event"));
  guard(check(d.cuEventSynchronize(end_), "waiting for an event"));
  guard(check(d.cuEventElapsedTime(&milliseconds, begin_, end_), "timing events"));
  return milliseconds * 1e-3;
}

}  // namespace weft
