// What kernels compiled by Apache TVM expect of their runtime: a library of theirs has pointer variables
// `__TVMBackend...`, which the loader sets. Weft's loader sets them to these, so that no TVM is needed in the process.
#include "tvm_backend.h"

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <map>
#include <mutex>
#include <string>

#include "error.h"
#include "vm.h"
#include "weft/runtime.h"

namespace weft {
namespace {

struct GroupEnv {  // TVMParallelGroupEnv
  void* sync_handle;
  int32_t num_task;
};

using Lambda = int (*)(int task_id, GroupEnv* env, void* data);

struct Launch {
  Lambda lambda;
  void* data;
  GroupEnv env;
};

int32_t run_tasks(int64_t begin, int64_t end, void* ctx) {
  auto* launch = static_cast<Launch*>(ctx);
  for (int64_t i = begin; i < end; ++i) {
    if (int rc = launch->lambda(static_cast<int>(i), &launch->env, launch->data)) return rc;
  }
  return 0;
}

int parallel_launch(Lambda lambda, void* data, int num_task) {
  Launch launch{lambda, data, {nullptr, num_task > 0 ? num_task : weft_num_threads()}};
  return weft_parallel_for(run_tasks, &launch, launch.env.num_task, 1);
}

// Tasks here are pieces of a loop, not threads that run side by side, so they cannot wait for each other.
int parallel_barrier(int, GroupEnv* env) {
  if (env->num_task <= 1) return 0;
  return fail("RuntimeError", "this kernel waits for its other tasks at a barrier, which this runtime does not have");
}

void* alloc_workspace(int device_type, int, uint64_t nbytes, int, int) {
  if (device_type == kDLCPU) return weft_workspace_alloc(static_cast<int64_t>(nbytes));
  fail("ValueError", "workspace on device type %d: this runtime has only the CPU", device_type);
  return nullptr;
}

int free_workspace(int, int, void* ptr) {
  weft_workspace_free(ptr);
  return 0;
}

// The functions that code looks up by name, builtins of the virtual machine among them.
int lookup(TVMFFIObjectHandle library, const char* name, TVMFFIObjectHandle* out) {
  TVMFFISafeCallType builtin = find_builtin(name);
  if (builtin == nullptr) return TVMFFIEnvModLookupFromImports(library, name, out);
  static std::mutex mutex;
  static std::map<std::string, TVMFFIObjectHandle> made;  // callers keep what they get
  std::lock_guard<std::mutex> lock(mutex);
  TVMFFIObjectHandle& function = made[name];
  if (function == nullptr && TVMFFIFunctionCreate(nullptr, builtin, nullptr, &function) != 0) return -1;
  *out = function;
  return 0;
}

}  // namespace

const BackendSymbol kBackendSymbols[] = {
    {"__TVMBackendParallelLaunch", reinterpret_cast<void*>(parallel_launch)},
    {"__TVMBackendParallelBarrier", reinterpret_cast<void*>(parallel_barrier)},
    {"__TVMBackendAllocWorkspace", reinterpret_cast<void*>(alloc_workspace)},
    {"__TVMBackendFreeWorkspace", reinterpret_cast<void*>(free_workspace)},
    {"__TVMFFIFunctionCall", reinterpret_cast<void*>(TVMFFIFunctionCall)},
    {"__TVMFFIErrorSetRaisedFromCStr", reinterpret_cast<void*>(TVMFFIErrorSetRaisedFromCStr)},
    {"__TVMFFIHandleInitOnce", reinterpret_cast<void*>(TVMFFIHandleInitOnce)},
    {"__TVMFFIHandleDeinitOnce", reinterpret_cast<void*>(TVMFFIHandleDeinitOnce)},
    {"__TVMFFIEnvModLookupFromImports", reinterpret_cast<void*>(lookup)},
    {nullptr, nullptr},
};

}  // namespace weft

// What Relax functions compiled with exec_mode="compiled" call: lists are arrays of tvm-ffi values.
extern "C" {

WEFT_API int TVMBackendAnyListSetPackedArg(void* list, int index, TVMFFIAny* args, int position) {
  args[position] = static_cast<TVMFFIAny*>(list)[index];
  return 0;
}

WEFT_API int TVMBackendAnyListResetItem(void* list, int index) {
  TVMFFIAny old = static_cast<TVMFFIAny*>(list)[index];
  static_cast<TVMFFIAny*>(list)[index] = TVMFFIAny{};
  weft::release(old);
  return 0;
}

WEFT_API int TVMBackendAnyListMoveFromPackedReturn(void* list, int index, TVMFFIAny* args, int position) {
  TVMFFIAny old = static_cast<TVMFFIAny*>(list)[index];
  static_cast<TVMFFIAny*>(list)[index] = args[position];
  args[position] = TVMFFIAny{};
  weft::release(old);
  return 0;
}

}  // extern "C"
