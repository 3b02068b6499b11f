// What all kinds of devices share: the table of them, copies between two kinds, workspaces, timers, Python's functions.
#include "device_api.h"

#include <dlfcn.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <map>
#include <tuple>

#include "error.h"
#include "register.h"

namespace weft {

DeviceApi* DeviceApi::find(int32_t type) {
  switch (type) {
    case kDLCUDA: return cuda_api();
    case kDLOpenCL: return opencl_api();
    default: return nullptr;
  }
}

void open_driver(const char* variable, const char* path, const char* const* names, void* functions,
                 std::string* problem) {
  const char* named = std::getenv(variable);
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
  DeviceApi* api = DeviceApi::find(type);
  if (api == nullptr) expect_ok(fail("ValueError", "this runtime has the CPU, CUDA and OpenCL; found device type %d", type));
  return *api;
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

// Memory that kernels of one launch sequence pass to each other. A thread keeps what it freed for its next calls on the
// same stream, where the order of the stream makes the reuse safe.
class Workspaces {
 public:
  ~Workspaces() {
    for (auto& [key, data] : free_) DeviceApi::find(key.type)->free(key.device, data);
  }
  void* take(DLDevice device, size_t nbytes) {
    DeviceApi& api = api_of(device.device_type);
    const Key key{api.type, device.device_id, api.current_stream(device.device_id), nbytes};
    auto found = free_.lower_bound(key);
    if (found != free_.end() && found->first.same_place(key) && found->first.nbytes <= 2 * nbytes + 4096) {
      void* data = found->second;
      used_.emplace(data, found->first);
      free_.erase(found);
      return data;
    }
    void* data = nullptr;
    expect_ok(api.alloc(device.device_id, nbytes, &data));
    used_.emplace(data, key);
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
    int32_t type;
    int device;
    DeviceHandle stream;
    size_t nbytes;
    bool operator<(const Key& o) const {
      return std::tie(type, device, stream, nbytes) < std::tie(o.type, o.device, o.stream, o.nbytes);
    }
    bool same_place(const Key& o) const { return type == o.type && device == o.device && stream == o.stream; }
  };
  std::multimap<Key, void*> free_;
  std::map<void*, Key> used_;
};

static Workspaces& workspaces() {
  thread_local Workspaces all;
  return all;
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
             expect_ok(api.stream_free(device, handle(stream)));
           })
      .def("weft.device_stream_set",
           [](int type, int device, int64_t stream) {
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
             return workspaces().take(chosen, static_cast<size_t>(nbytes));
           })
      .def("weft.device_workspace_free",
           [](void* data) {
             if (!workspaces().give(data)) expect_ok(fail("ValueError", "%p is no workspace of this thread", data));
           })
      .def("__tvm_set_device", [](int type, int device) {
        expect_ok(api_of(type).enter(device));
        chosen = DLDevice{static_cast<DLDeviceType>(type), device};
      });
}

}  // namespace weft
