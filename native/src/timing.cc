// Timing a function without Python in the loop.
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "device_api.h"
#include "register.h"
#include "vm.h"

namespace weft {

// One repeat: seconds of `number` calls, on the clock of the device if it has one.
static double time_once(TVMFFIObject* f, const TVMFFIAny* args, int32_t n, int64_t number, DeviceTimer* gpu) {
  TVMFFISafeCallType call = TVMFFIFunctionGetCellPtr(f)->safe_call;
  if (gpu != nullptr) gpu->start();
  auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < number; ++i) {
    TVMFFIAny ret{};
    TVM_FFI_CHECK_SAFE_CALL(call(f, args, n, &ret));
    release(ret);
  }
  if (gpu != nullptr) return gpu->stop();
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

// time_function(f, number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms,
//               repeats_to_cooldown, device_type, device_id, before, args...) -> seconds per call, one number a repeat
// `before`, or None, is called before each timing, with whether it is the first of its repeat.
constexpr int32_t kFixed = 10;  // arguments before the function's own

static void time_function(tvm::ffi::PackedArgs args, Any* ret) {
  auto function = argument<tvm::ffi::Function>(args, 0);
  auto number = argument<int64_t>(args, 1), repeat = argument<int64_t>(args, 2);
  auto min_ms = argument<int64_t>(args, 3), zero_limit = argument<int64_t>(args, 4);
  auto cooldown_ms = argument<int64_t>(args, 5), to_cooldown = argument<int64_t>(args, 6);
  std::optional<DeviceTimer> gpu;
  auto type = argument<int>(args, 7);
  if (type != kDLCPU) gpu.emplace(DLDevice{static_cast<DLDeviceType>(type), argument<int>(args, 8)});
  auto before = argument<tvm::ffi::Optional<tvm::ffi::Function>>(args, 9);
  DeviceTimer* timer = gpu.has_value() ? &*gpu : nullptr;
  const auto* values = reinterpret_cast<const TVMFFIAny*>(args.data()) + kFixed;
  Any holder = function;
  TVMFFIObject* f = raw(&holder)->v_obj;
  if (number < 1) number = 1;
  time_once(f, values, args.size() - kFixed, 1, timer);  // warm up
  tvm::ffi::Array<double> out;
  for (int64_t r = 0; r < repeat; ++r) {
    double seconds = 0;
    int64_t zero = 0;
    for (bool first = true;; first = false) {
      if (before.has_value()) (*before)(first);
      seconds = time_once(f, values, args.size() - kFixed, number, timer);
      if (seconds * 1e3 >= static_cast<double>(min_ms)) break;
      if (seconds == 0 && ++zero >= zero_limit) break;
      double wanted = static_cast<double>(min_ms) / (seconds * 1e3 / static_cast<double>(number)) + 1;
      double grown = static_cast<double>(number) * 1.618;
      number = static_cast<int64_t>(wanted > grown ? wanted : grown);
    }
    out.push_back(seconds / static_cast<double>(number));
    if (cooldown_ms > 0 && to_cooldown > 0 && r % to_cooldown == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(cooldown_ms));
    }
  }
  *ret = out;
}

TVM_FFI_STATIC_INIT_BLOCK() { Globals().def_packed("weft.time_function", time_function); }

}  // namespace weft
