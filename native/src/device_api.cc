// What all kinds of devices share: the table of them, copies between two kinds, workspaces, timers, Python's functions.
#include "device_api.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <tuple>

#include "error.h"
#include "register.h"

namespace weft {

DeviceApi* DeviceApi::find(int32_t type) {
  switch (type) {
    case kDLCUDA: return cuda_api();
    case kDLOpenCL: return opencl_api();
    case kDLVulkan:
      if (DeviceApi* api = vulkan_api()) return api;
      [[fallthrough]];
    default: return packed_api(type);
  }
}

DeviceApi* vulkan_api() {
  static DeviceApi* const api = [] {
    static const char* const kNames[] = {"weft_vulkan_api", nullptr};
    DeviceApi* (*make)() = nullptr;
    std::string problem;
    open_driver(nullptr, "libweft_vulkan.so", kNames, &make, &problem);
    return make != nullptr ? make() : nullptr;
  }();
  return api;
}

void open_driver(const char* named, const char* path, const char* const* names, void* functions,
                 std::string* problem) {
  if (named != nullptr && *named != 0) path = named;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *problem = dlerror();
    return;
  }
  for (auto* slot = static_cast<void**>(functions); *names != nullptr; ++names, ++slot) {
    *slot = dlsym(library, *names);
    if (*slot == nullptr && problem->empty()) *problem = message("%s has no %s", path, *names);
  }
}

void expect_ok(int status) { TVM_FFI_CHECK_SAFE_CALL(status); }

static thread_local DLDevice chosen{kDLCPU, 0};

int current_device(int32_t type) { return chosen.device_type == type ? chosen.device_id : 0; }

static DeviceApi& api_of(int type) {
  if (DeviceApi::find(type) == nullptr) expect_ok(device_enter(DLDevice{static_cast<DLDeviceType>(type), 0}));
  return *DeviceApi::find(type);
}

int device_copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) {
  bool from_host = from_device.device_type == kDLCPU, to_host = to_device.device_type == kDLCPU;
  if (from_host || to_host || from_device.device_type == to_device.device_type) {
    DeviceApi* api = DeviceApi::find(from_host ? to_device.device_type : from_device.device_type);
    return api->copy(from, from_device, to, to_device, nbytes);
  }
  std::vector<char> host(nbytes);  // two drivers that do not know each other
  DLDevice cpu{kDLCPU, 0};
  if (device_copy(from, from_device, host.data(), cpu, nbytes) != 0) return -1;
  return device_copy(host.data(), cpu, to, to_device, nbytes);
}

int device_enter(DLDevice device) {
  DeviceApi* api = DeviceApi::find(device.device_type);
  if (api != nullptr) return api->enter(device.device_id);
  return fail("ValueError", "this runtime has the CPU, CUDA and OpenCL; found device type %d", device.device_type);
}

namespace {

struct Place {
  DLDevice device;
  DeviceHandle stream;
  size_t nbytes;
  bool operator<(const Place& o) const { return key() < o.key(); }
  std::tuple<int, int, DeviceHandle, size_t> key() const {
    return {device.device_type, device.device_id, stream, nbytes};
  }
};

struct DevicePool {
  std::mutex mutex;
  std::multimap<Place, void*> free;
  std::map<void*, Place> used;
};
DevicePool& pool = *new DevicePool();  // never destroyed: tensors may outlive static destruction

}  // namespace

int pooled_alloc(DLDevice device, size_t nbytes, void** out) {
  if (device_enter(device) != 0) return -1;
  DeviceApi& api = *DeviceApi::find(device.device_type);
  const Place place{device, api.current_stream(device.device_id), nbytes};
  std::lock_guard<std::mutex> lock(pool.mutex);
  auto found = pool.free.lower_bound(place);
  const Place most{device, place.stream, 2 * nbytes + 4096};
  if (found != pool.free.end() && !(most < found->first)) {
    *out = found->second;
    pool.used.emplace(*out, found->first);
    pool.free.erase(found);
    return 0;
  }
  int status = api.alloc(device.device_id, nbytes, out);
  if (status != 0 && !pool.free.empty()) {  // all that nobody uses goes back first
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    TVMFFIObjectDecRef(error);
    for (auto& [key, data] : pool.free) DeviceApi::find(key.device.device_type)->free(key.device.device_id, data);
    pool.free.clear();
    status = api.alloc(device.device_id, nbytes, out);
  }
  if (status == 0) pool.used.emplace(*out, place);
  return status;
}

bool pooled_free(void* data) {
  std::lock_guard<std::mutex> lock(pool.mutex);
  auto found = pool.used.find(data);
  if (found == pool.used.end()) return false;
  pool.free.emplace(found->second, data);
  pool.used.erase(found);
  return true;
}

DeviceTimer::DeviceTimer(DLDevice device) : api_(&api_of(device.device_type)), device_(device.device_id) {
  expect_ok(api_->event_create(device_, &begin_));
  expect_ok(api_->event_create(device_, &end_));
}

DeviceTimer::~DeviceTimer() {
  if (begin_ != nullptr) api_->event_free(begin_);
  if (end_ != nullptr) api_->event_free(end_);
}

void DeviceTimer::start() {
  expect_ok(api_->sync(device_));
  expect_ok(api_->event_record(device_, begin_));
}

double DeviceTimer::stop() {
  double seconds = 0;
  expect_ok(api_->event_record(device_, end_));
  expect_ok(api_->event_seconds(device_, begin_, end_, &seconds));
  return seconds;
}

static DeviceHandle handle(int64_t stream) { return reinterpret_cast<DeviceHandle>(stream); }

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("weft.device_count",
           [](int type) { return static_cast<int64_t>(DeviceApi::find(type) ? DeviceApi::find(type)->count() : 0); })
      .def("weft.device_attribute",
           [](int type, int device, const tvm::ffi::String& what) {
             tvm::ffi::Any out;
             expect_ok(api_of(type).attribute(device, what, &out));
             return out;
           })
      .def("weft.device_sync", [](int type, int device) { expect_ok(api_of(type).sync(device)); })
      .def("weft.device_stream_create",
           [](int type, int device) {
             DeviceHandle out = nullptr;
             expect_ok(api_of(type).stream_create(device, &out));
             return reinterpret_cast<int64_t>(out);
           })
      .def("weft.device_stream_free",
           [](int type, int device, int64_t stream) {
             DeviceApi& api = api_of(type);
             expect_ok(api.enter(device));
             if (api.current_stream(device) == handle(stream)) expect_ok(TVMFFIEnvSetStream(type, device, nullptr, nullptr));
             expect_ok(api.stream_sync(device, handle(stream)));  // pooled memory of it may go to its successor
             expect_ok(api.stream_free(device, handle(stream)));
           })
      .def("weft.device_stream_set",
           [](int type, int device, int64_t stream) {
             if (device < 0) expect_ok(fail("ValueError", "a device numbered %d", device));
             expect_ok(TVMFFIEnvSetStream(type, device, handle(stream), nullptr));
           })
      .def("weft.device_stream_sync",
           [](int type, int device, int64_t stream) { expect_ok(api_of(type).stream_sync(device, handle(stream))); })
      .def("weft.device_stream_order",
           [](int type, int device, int64_t first, int64_t then) {
             expect_ok(api_of(type).stream_order(device, handle(first), handle(then)));
           })
      .def("weft.device_workspace_alloc",
           [](int64_t nbytes) {
             if (nbytes < 0) expect_ok(fail("ValueError", "a workspace of %lld bytes", static_cast<long long>(nbytes)));
             void* out = nullptr;
             expect_ok(pooled_alloc(chosen, static_cast<size_t>(nbytes), &out));
             return out;
           })
      .def("weft.device_workspace_free",
           [](void* data) {
             if (!pooled_free(data)) expect_ok(fail("ValueError", "%p is no workspace", data));
           })
      .def("__tvm_set_device", [](int type, int device) {
        expect_ok(api_of(type).enter(device));
        chosen = DLDevice{static_cast<DLDeviceType>(type), device};
      });
}

}  // namespace weft
