// Memory, copies, streams and events of NVIDIA GPUs, through the driver library that is opened at first use.
#ifndef WEFT_CUDA_DEVICE_H_
#define WEFT_CUDA_DEVICE_H_

#include <tvm/ffi/c_api.h>

#include <cstddef>

namespace weft {

// Each returns 0, or -1 (null) with the error raised; the environment variable WEFT_CUDA_DRIVER names another library.
void* cuda_alloc(int device, size_t nbytes);
void cuda_free(int device, void* data);
// Copies bytes where at least one side is a GPU. On the current stream of the GPU; waits when the host takes part.
int cuda_copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes);

// Seconds between two points of the current stream of a device, by its own clock.
class CudaTimer {
 public:
  explicit CudaTimer(int device);
  ~CudaTimer();
  void start();
  double stop();

 private:
  int device_;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

}  // namespace weft
#endif  // WEFT_CUDA_DEVICE_H_
