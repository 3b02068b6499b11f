// What a kind of device gives the runtime: memory, copies, streams, events, code. Each kind is one object in a table;
// tensors, timers, host functions and modules of kernels know this class alone. A driver's library is opened at first
// use, so that one build of the runtime runs with and without it.
#ifndef WEFT_DEVICE_API_H_
#define WEFT_DEVICE_API_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace weft {

using DeviceHandle = void*;  // a driver's stream, event, program or kernel; the null stream is the device's own

// A kernel's work: seven numbers (blocks and threads along x, y, z, bytes of dynamic shared memory) and arguments.
struct KernelLaunch {
  struct Argument {
    uint64_t bits;  // an address on the device, or a number in the low bytes
    size_t size;
    bool is_pointer;
  };
  unsigned extents[6] = {1, 1, 1, 1, 1, 1};
  unsigned shared = 0;
  bool has_shared = false;  // whether the kernel takes dynamic shared memory
  std::vector<Argument> arguments;
};

// Functions that return int give 0, or -1 with the error raised.
class DeviceApi {
 public:
  DeviceApi(DLDeviceType type, const char* name) : type(type), name(name) {}
  // The devices of a type, or null where the runtime has none such.
  static DeviceApi* find(int32_t type);

  virtual int count() = 0;           // of devices that can be used; 0 without a driver
  virtual int enter(int device) = 0;  // the device is there, and what this thread does next is for it
  virtual int alloc(int device, size_t nbytes, void** out) = 0;
  virtual void free(int device, void* data) = 0;  // as a destructor: without errors
  // At least one side is a device of this type, the other one, too, or the host; waits when the host takes part.
  virtual int copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes) = 0;
  virtual int sync(int device) = 0;
  virtual int stream_create(int device, DeviceHandle* out) = 0;
  virtual int stream_free(int device, DeviceHandle stream) = 0;
  virtual int stream_sync(int device, DeviceHandle stream) = 0;
  virtual int stream_order(int device, DeviceHandle first, DeviceHandle then) = 0;
  virtual int event_create(int device, DeviceHandle* out) = 0;
  virtual int event_record(int device, DeviceHandle event) = 0;  // on the current stream
  virtual int event_seconds(int device, DeviceHandle first, DeviceHandle then, double* out) = 0;  // waits for both
  virtual void event_free(DeviceHandle event) = 0;
  // What a device says of itself (the names are those of Python's Device); None where this kind does not say.
  virtual int attribute(int device, const std::string& what, tvm::ffi::Any* out) = 0;
  // `kernel` is the one that is wanted first, for messages.
  virtual int load(int device, const std::string& image, const std::string& format, const std::string& kernel,
                   DeviceHandle* out) = 0;
  virtual void unload(int device, DeviceHandle program) = 0;
  virtual int kernel(int device, DeviceHandle program, const std::string& name, DeviceHandle* out) = 0;
  virtual void kernel_free(DeviceHandle) {}
  virtual std::string status_text(int status) const = 0;
  // Runs a kernel on the current stream; the driver's status, 0 for success.
  virtual int launch(int device, DeviceHandle kernel, const KernelLaunch& launch) = 0;

  DeviceHandle current_stream(int device) const { return TVMFFIEnvGetStream(type, device); }

  const DLDeviceType type;
  const char* const name;

 protected:
  ~DeviceApi() = default;
};

DeviceApi* cuda_api();
DeviceApi* opencl_api();
DeviceApi* vulkan_api();  // of libweft_vulkan.so beside the runtime; null where it is missing
DeviceApi* packed_api(int32_t type);  // what a library outside of the runtime brings; null where there is none

// Opens a driver's library, or the one that is named instead, and looks up its functions: `names` ends in null,
// and `functions` has a pointer for each. What is wrong goes into `problem`.
void open_driver(const char* named, const char* path, const char* const* names, void* functions, std::string* problem);
// Throws the error that a call raised.
void expect_ok(int status);
// The device of a type that kernels of this thread run on.
int current_device(int32_t type);
// The device is there; 0, or -1 with the error raised.
int device_enter(DLDevice device);
// Memory that is taken again when it has been freed: on the stream that was current when it was taken, where the order
// of the stream makes that safe.
int pooled_alloc(DLDevice device, size_t nbytes, void** out);
bool pooled_free(void* data);  // false where it is not from there
// Copies bytes where at least one side is no CPU.
int device_copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes);

// Seconds between two points of the current stream of a device, by its own clock.
class DeviceTimer {
 public:
  explicit DeviceTimer(DLDevice device);
  ~DeviceTimer();
  void start();
  double stop();

 private:
  DeviceApi* api_;
  int device_;
  DeviceHandle begin_ = nullptr;
  DeviceHandle end_ = nullptr;
};

}  // namespace weft
#endif  // WEFT_DEVICE_API_H_
