// What the CUDA device and its modules share: the driver's functions, contexts, streams and errors.
#ifndef WEFT_CUDA_DRIVER_H_
#define WEFT_CUDA_DRIVER_H_

#include <tvm/ffi/extra/c_env_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "cuda_device.h"

namespace weft {
namespace cuda {

using Status = int;
using Address = unsigned long long;
using Handle = void*;  // a context, stream, event, module or function

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

struct Driver {
#define WEFT_FIELD(name, args) Status(*name) args = nullptr;
  WEFT_CUDA_API(WEFT_FIELD)
#undef WEFT_FIELD
  std::string problem;  // why there is no driver; empty when there is
  int count = 0;
  std::mutex mutex;
  std::map<int, Handle> contexts;

  static Driver& get();
  std::string text(Status status) const;
  // Makes the context of a device that has one current; an error is told but not raised, as destructors need it.
  Status reenter(int device);

 private:
  Driver();
};

// 0, or -1 with the error raised.
int check(Status status, const char* doing);
// Makes a device's primary context current in this thread.
int enter(int device, Handle* context = nullptr);
// Throws the error that a call raised.
void guard(int status);

inline Handle current_stream(int device) { return TVMFFIEnvGetStream(kDLCUDA, device); }
// The device that kernels of this thread run on.
int& current_device();
// "9.0"; enter(device) came before.
std::string compute_version(int device);

}  // namespace cuda
}  // namespace weft
#endif  // WEFT_CUDA_DRIVER_H_
