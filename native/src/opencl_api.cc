// OpenCL devices of all platforms, through the loader of OpenCL. Memory is shared virtual memory (coarse-grain buffers of
// OpenCL 2.0), so that tensors have addresses as everywhere. Source of names and numbers: the Khronos OpenCL 3.0
// specification.
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "device_api.h"
#include "error.h"

namespace weft {
namespace {

using Status = int32_t;
using Handle = DeviceHandle;
using Property = intptr_t;

#define WEFT_OPENCL_API(X)                                                                               \
  X(Status, clGetPlatformIDs, (uint32_t, Handle*, uint32_t*))                                            \
  X(Status, clGetDeviceIDs, (Handle, uint64_t, uint32_t, Handle*, uint32_t*))                            \
  X(Status, clGetDeviceInfo, (Handle, uint32_t, size_t, void*, size_t*))                                 \
  X(Handle, clCreateContext, (const Property*, uint32_t, const Handle*, void*, void*, Status*))          \
  X(Handle, clCreateCommandQueueWithProperties, (Handle, Handle, const uint64_t*, Status*))              \
  X(Status, clReleaseCommandQueue, (Handle))                                                             \
  X(Status, clFinish, (Handle))                                                                          \
  X(Status, clFlush, (Handle))                                                                           \
  X(void*, clSVMAlloc, (Handle, uint64_t, size_t, uint32_t))                                             \
  X(void, clSVMFree, (Handle, void*))                                                                    \
  X(Status, clEnqueueSVMMemcpy, (Handle, uint32_t, void*, const void*, size_t, uint32_t, void*, void*))  \
  X(Status, clEnqueueMarkerWithWaitList, (Handle, uint32_t, const Handle*, Handle*))                     \
  X(Status, clEnqueueBarrierWithWaitList, (Handle, uint32_t, const Handle*, Handle*))                    \
  X(Status, clWaitForEvents, (uint32_t, const Handle*))                                                  \
  X(Status, clGetEventProfilingInfo, (Handle, uint32_t, size_t, void*, size_t*))                         \
  X(Status, clReleaseEvent, (Handle))                                                                    \
  X(Handle, clCreateProgramWithSource, (Handle, uint32_t, const char**, const size_t*, Status*))         \
  X(Status, clBuildProgram, (Handle, uint32_t, const Handle*, const char*, void*, void*))                \
  X(Status, clGetProgramBuildInfo, (Handle, Handle, uint32_t, size_t, void*, size_t*))                   \
  X(Status, clReleaseProgram, (Handle))                                                                  \
  X(Handle, clCreateKernel, (Handle, const char*, Status*))                                              \
  X(Status, clReleaseKernel, (Handle))                                                                   \
  X(Status, clSetKernelArg, (Handle, uint32_t, size_t, const void*))                                     \
  X(Status, clSetKernelArgSVMPointer, (Handle, uint32_t, const void*))                                   \
  X(Status, clEnqueueNDRangeKernel, (Handle, Handle, uint32_t, const size_t*, const size_t*,             \
                                     const size_t*, uint32_t, const Handle*, Handle*))

enum Info : uint32_t {
  kMaxComputeUnits = 0x1002, kMaxWorkGroupSize = 0x1004, kMaxClock = 0x100C, kMaxAllocation = 0x1010,
  kSingleConfig = 0x101B, kGlobalMemory = 0x101F, kLocalMemory = 0x1023, kDeviceName = 0x102B, kDriverVersion = 0x102D,
  kVersion = 0x102F, kExtensions = 0x1030, kSvmCapabilities = 0x1053, kGroupMultiple = 0x1067,
};
constexpr uint32_t kQueueProperties = 0x1093, kBuildLog = 0x1183, kCommandEnd = 0x1283;
constexpr uint64_t kProfiling = 2, kReadWrite = 1, kCoarseGrain = 1, kRoundedDivision = 1 << 7;
constexpr uint64_t kKinds[] = {1 << 2, 1 << 3, 1 << 1};  // GPUs, accelerators, CPUs: the order in which they are counted

struct Device {
  Handle platform, id;
  Handle context, queue;  // made at first use
  std::vector<Handle> streams;
};

struct Functions {
#define WEFT_FIELD(result, name, args) result(*name) args = nullptr;
  WEFT_OPENCL_API(WEFT_FIELD)
#undef WEFT_FIELD
};

class OpenCLApi final : public DeviceApi, Functions {
 public:
  OpenCLApi() : DeviceApi(kDLOpenCL, "opencl") {
#define WEFT_NAME(result, name, args) #name,
    static const char* const kNames[] = {WEFT_OPENCL_API(WEFT_NAME) nullptr};
#undef WEFT_NAME
    open_driver(std::getenv("WEFT_OPENCL_DRIVER"), "libOpenCL.so.1", kNames, static_cast<Functions*>(this), &problem_);
    if (problem_.empty()) list();
  }

  std::string status_text(int status) const final {
    static const std::pair<Status, const char*> kNames[] = {
        {-1, "DEVICE_NOT_FOUND"}, {-2, "DEVICE_NOT_AVAILABLE"}, {-3, "COMPILER_NOT_AVAILABLE"},
        {-4, "MEM_OBJECT_ALLOCATION_FAILURE"}, {-5, "OUT_OF_RESOURCES"}, {-6, "OUT_OF_HOST_MEMORY"},
        {-11, "BUILD_PROGRAM_FAILURE"}, {-30, "INVALID_VALUE"}, {-36, "INVALID_COMMAND_QUEUE"},
        {-46, "INVALID_KERNEL_NAME"}, {-49, "INVALID_ARG_INDEX"}, {-50, "INVALID_ARG_VALUE"}, {-51, "INVALID_ARG_SIZE"},
        {-52, "INVALID_KERNEL_ARGS"}, {-54, "INVALID_WORK_GROUP_SIZE"}, {-55, "INVALID_WORK_ITEM_SIZE"},
        {-59, "INVALID_OPERATION"}, {-63, "INVALID_GLOBAL_WORK_SIZE"}, {-1001, "PLATFORM_NOT_FOUND_KHR"}};
    for (const auto& [number, text] : kNames) {
      if (number == status) return message("CL_%s (OpenCL error %d)", text, status);
    }
    return message("OpenCL error %d", status);
  }

  int count() final { return static_cast<int>(devices_.size()); }

  int enter(int device) final {
    if (devices_.empty()) {
      return fail("RuntimeError", "opencl:%d cannot be used: no OpenCL device (%s); WEFT_OPENCL_DRIVER may name the "
                  "library of OpenCL's loader", device, problem_.c_str());
    }
    if (device < 0 || device >= count()) {
      return fail("ValueError", "there is no device opencl:%d; the platforms have %d", device, count());
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Device& d = devices_[device];
    if (d.context != nullptr) return 0;
    Status status = 0;
    const Property properties[] = {0x1084, reinterpret_cast<Property>(d.platform), 0};
    Handle context = clCreateContext(properties, 1, &d.id, nullptr, nullptr, &status);
    if (check(status, device, "creating a context") != 0) return -1;
    d.queue = new_queue(context, d.id, &status);
    if (check(status, device, "creating a queue") != 0) return -1;
    d.context = context;
    return 0;
  }

  int alloc(int device, size_t nbytes, void** out) final {
    if (enter(device) != 0) return -1;
    *out = clSVMAlloc(devices_[device].context, kReadWrite, nbytes == 0 ? 1 : nbytes, 0);
    if (*out != nullptr) return 0;
    return fail("MemoryError", "cannot allocate %zu bytes on opencl:%d (%s): one block may have %llu, the device has %llu",
                nbytes, device, text(device, kDeviceName).c_str(), number(device, kMaxAllocation),
                number(device, kGlobalMemory));
  }
  void free(int device, void* data) final {  // commands that use it may be under way
    for (Handle q : queues(device)) clFinish(q);
    clSVMFree(devices_[device].context, data);
  }

  int copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) final {
    bool from_own = from_device.device_type == type, to_own = to_device.device_type == type;
    int device = to_own ? to_device.device_id : from_device.device_id;
    if (from_own && to_own && from_device.device_id != device) {  // another context: by the host
      std::vector<char> host(nbytes);
      DLDevice cpu{kDLCPU, 0};
      if (copy(from, from_device, host.data(), cpu, nbytes) != 0) return -1;
      return copy(host.data(), cpu, to, to_device, nbytes);
    }
    if (enter(device) != 0) return -1;
    Status status = clEnqueueSVMMemcpy(queue(device), !(from_own && to_own), to, from, nbytes, 0, nullptr, nullptr);
    return check(status, device, from_own && to_own ? "copying on the device"
                                 : to_own           ? "copying to the device"
                                                    : "copying from the device");
  }

  int sync(int device) final {
    if (enter(device) != 0) return -1;
    for (Handle q : queues(device)) {
      if (check(clFinish(q), device, "waiting for the device") != 0) return -1;
    }
    return 0;
  }

  int stream_create(int device, Handle* out) final {
    if (enter(device) != 0) return -1;
    Status status = 0;
    *out = new_queue(devices_[device].context, devices_[device].id, &status);
    if (check(status, device, "creating a queue") != 0) return -1;
    std::lock_guard<std::mutex> lock(mutex_);
    devices_[device].streams.push_back(*out);
    return 0;
  }
  int stream_free(int device, Handle stream) final {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto& all = devices_[device].streams;
      auto found = std::find(all.begin(), all.end(), stream);
      if (found == all.end()) return fail("ValueError", "%p is no stream of opencl:%d", stream, device);
      all.erase(found);
    }
    clFinish(stream);
    return check(clReleaseCommandQueue(stream), device, "releasing a queue");
  }
  int stream_sync(int device, Handle stream) final {
    return enter(device) == 0 ? check(clFinish(queue_of(device, stream)), device, "waiting for the queue") : -1;
  }
  int stream_order(int device, Handle first, Handle then) final {
    if (enter(device) != 0) return -1;
    Handle event = nullptr, before = queue_of(device, first);
    Status status = clEnqueueMarkerWithWaitList(before, 0, nullptr, &event);
    if (status == 0) status = clFlush(before);
    if (status == 0) status = clEnqueueBarrierWithWaitList(queue_of(device, then), 1, &event, nullptr);
    if (event != nullptr) clReleaseEvent(event);
    return check(status, device, "ordering two queues");
  }

  // An event of Weft's holds the one that the last marker gave.
  int event_create(int device, Handle* out) final {
    *out = new Handle(nullptr);
    return enter(device);
  }
  int event_record(int device, Handle event) final {
    if (enter(device) != 0) return -1;
    auto* slot = static_cast<Handle*>(event);
    if (*slot != nullptr) clReleaseEvent(*slot);
    *slot = nullptr;
    return check(clEnqueueMarkerWithWaitList(queue(device), 0, nullptr, slot), device, "recording an event");
  }
  int event_seconds(int device, Handle first, Handle then, double* out) final {
    Handle events[] = {*static_cast<Handle*>(first), *static_cast<Handle*>(then)};
    uint64_t at[2] = {0, 0};
    if (check(clWaitForEvents(2, events), device, "waiting for an event") != 0) return -1;
    for (int i : {0, 1}) {
      Status status = clGetEventProfilingInfo(events[i], kCommandEnd, sizeof(uint64_t), &at[i], nullptr);
      if (check(status, device, "timing events") != 0) return -1;
    }
    *out = static_cast<double>(at[1] - at[0]) * 1e-9;
    return 0;
  }
  void event_free(Handle event) final {
    auto* slot = static_cast<Handle*>(event);
    if (*slot != nullptr) clReleaseEvent(*slot);
    delete slot;
  }

  int attribute(int device, const std::string& what, tvm::ffi::Any* out) final {
    static const std::tuple<const char*, Info, int> kNumbers[] = {
        {"max_threads_per_block", kMaxWorkGroupSize, 1}, {"max_shared_memory_per_block", kLocalMemory, 1},
        {"warp_size", kGroupMultiple, 1}, {"max_clock_rate", kMaxClock, 1000},
        {"multi_processor_count", kMaxComputeUnits, 1}, {"total_global_memory", kGlobalMemory, 1}};
    static const std::pair<const char*, Info> kTexts[] = {{"device_name", kDeviceName}, {"api_version", kVersion},
                                                          {"driver_version", kDriverVersion},
                                                          {"extensions", kExtensions}};
    if (enter(device) != 0) return -1;
    for (const auto& [name, info, unit] : kNumbers) {
      auto value = what == name ? number(device, info) : 0;
      if (value != 0) *out = static_cast<int64_t>(value) * unit;
    }
    for (const auto& [name, info] : kTexts) {
      if (what == name) *out = tvm::ffi::String(text(device, info));
    }
    return 0;
  }

  int load(int device, const std::string& image, const std::string&, const std::string& kernel, Handle* out) final {
    if (enter(device) != 0) return -1;
    Device& d = devices_[device];
    const char* source = image.c_str();
    size_t length = image.size();
    Status status = 0;
    *out = clCreateProgramWithSource(d.context, 1, &source, &length, &status);
    if (check(status, device, "reading a program") != 0) return -1;
    std::string options = number(device, kSingleConfig) & kRoundedDivision ? "-cl-fp32-correctly-rounded-divide-sqrt" : "";
    if (image.find("sub_group_") != std::string::npos) options += " -cl-std=CL3.0";
    status = clBuildProgram(*out, 1, &d.id, options.c_str(), nullptr, nullptr);
    if (status == 0) return 0;
    size_t size = 0;
    clGetProgramBuildInfo(*out, d.id, kBuildLog, 0, nullptr, &size);
    std::string log(size, 0);
    clGetProgramBuildInfo(*out, d.id, kBuildLog, size, log.data(), nullptr);
    clReleaseProgram(*out);
    return fail("RuntimeError", "opencl:%d (%s) does not compile the program of \"%s\": %s\n%s", device,
                text(device, kDeviceName).c_str(), kernel.c_str(), status_text(status).c_str(), log.c_str());
  }
  void unload(int, Handle program) final { clReleaseProgram(program); }

  int kernel(int device, Handle program, const std::string& name, Handle* out) final {
    Status status = 0;
    *out = clCreateKernel(program, name.c_str(), &status);
    return status == 0 ? 0 : fail("RuntimeError", "opencl:%d: the program has no kernel \"%s\": %s", device, name.c_str(),
                                  status_text(status).c_str());
  }
  void kernel_free(Handle kernel) final { clReleaseKernel(kernel); }

  int launch(int device, Handle kernel, const KernelLaunch& l) final {
    std::lock_guard<std::mutex> lock(launching_);  // arguments are a state of the kernel
    uint32_t i = 0;
    for (const auto& a : l.arguments) {
      Status status = a.is_pointer ? clSetKernelArgSVMPointer(kernel, i, reinterpret_cast<const void*>(a.bits))
                                   : clSetKernelArg(kernel, i, a.size, &a.bits);
      if (status != 0) return status;
      ++i;
    }
    if (l.has_shared) {
      if (Status status = clSetKernelArg(kernel, i, l.shared, nullptr)) return status;
    }
    size_t local[3], global[3];
    for (int axis = 0; axis < 3; ++axis) {
      local[axis] = l.extents[3 + axis];
      global[axis] = local[axis] * l.extents[axis];
    }
    Handle q = queue(device);
    Status status = clEnqueueNDRangeKernel(q, kernel, 3, nullptr, global, local, 0, nullptr, nullptr);
    return status == 0 ? clFlush(q) : status;
  }

 private:
  int check(Status status, int device, const char* doing) const {
    return status == 0 ? 0 : fail("RuntimeError", "opencl:%d: %s: %s", device, doing, status_text(status).c_str());
  }

  void list() {
    uint32_t n = 0, found = 0;
    Status status = clGetPlatformIDs(0, nullptr, &n);
    std::vector<Handle> platforms(n);
    if (status == 0 && n != 0) clGetPlatformIDs(n, platforms.data(), nullptr);
    for (uint64_t kind : kKinds) {
      for (Handle platform : platforms) {
        uint32_t m = 0;
        if (clGetDeviceIDs(platform, kind, 0, nullptr, &m) != 0 || m == 0) continue;
        std::vector<Handle> ids(m);
        clGetDeviceIDs(platform, kind, m, ids.data(), nullptr);
        for (Handle id : ids) {
          ++found;
          if (number_of(id, kSvmCapabilities) & kCoarseGrain) devices_.push_back({platform, id, nullptr, nullptr, {}});
        }
      }
    }
    problem_ = status != 0 ? status_text(status)
                           : message("%u platforms, %u devices without shared virtual memory, which is of OpenCL 2.0", n,
                                     found);
  }

  unsigned long long number_of(Handle id, Info info) const {  // 0 where a device does not know it
    unsigned long long out = 0;
    return clGetDeviceInfo(id, info, sizeof(out), &out, nullptr) == 0 ? out : 0;
  }
  unsigned long long number(int device, Info info) const { return number_of(devices_[device].id, info); }

  std::string text(int device, Info info) const {
    size_t size = 0;
    if (clGetDeviceInfo(devices_[device].id, info, 0, nullptr, &size) != 0 || size == 0) return "";
    std::string out(size, 0);
    clGetDeviceInfo(devices_[device].id, info, size, out.data(), nullptr);
    out.resize(size - 1);  // its terminating zero
    return out;
  }

  Handle new_queue(Handle context, Handle id, Status* status) const {
    const uint64_t properties[] = {kQueueProperties, kProfiling, 0};
    return clCreateCommandQueueWithProperties(context, id, properties, status);
  }
  Handle queue_of(int device, Handle stream) const { return stream != nullptr ? stream : devices_[device].queue; }
  Handle queue(int device) const { return queue_of(device, current_stream(device)); }
  std::vector<Handle> queues(int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Handle> out = devices_[device].streams;
    out.push_back(devices_[device].queue);
    return out;
  }

  std::string problem_;  // why there is no device
  std::vector<Device> devices_;
  std::mutex mutex_, launching_;
};

}  // namespace

DeviceApi* opencl_api() {
  static OpenCLApi* api = new OpenCLApi();  // never destroyed: tensors may outlive static destruction
  return api;
}

}  // namespace weft
