// Code for devices: an image (cubin, PTX, OpenCL C, SPIR-V) with the table of its kernels, loaded on each device at its first
// launch. The kind of a module is the name of the kind of device. The saved bytes are laid out as Apache TVM's runtime
// lays out its modules of these kinds.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device_api.h"
#include "error.h"
#include "register.h"

namespace weft {
namespace {

struct Kernel {
  std::string name;
  std::vector<DLDataType> types;  // of the arguments; pointers are handles
  std::vector<int> parameters;    // what the arguments after them give: extents of axes, bytes of shared memory
};

constexpr int kSharedMemory = 6;  // the launch parameter after the six axes

int launch_parameter(const std::string& tag) {
  static const char* const kAxes[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                      "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  for (int i = 0; i < 6; ++i) {
    if (tag == kAxes[i]) return i;
  }
  if (tag == "tir.use_dyn_shared_memory" || tag == "tirx.use_dyn_shared_memory") return kSharedMemory;
  raise_error("ValueError", "a kernel's launch parameter is \"%s\"; this runtime has blockIdx.x to threadIdx.z and "
              "tir.use_dyn_shared_memory", tag.c_str());
}

// Saved bytes: strings and vectors with a u64 length.
class Reader {
 public:
  explicit Reader(const std::string& data) : at_(data.data()), end_(at_ + data.size()) {}
  const char* bytes(uint64_t n) {
    if (n > static_cast<uint64_t>(end_ - at_)) {
      raise_error("ExecutableError", "library: its module of device code is cut short");
    }
    const char* p = at_;
    at_ += n;
    return p;
  }
  template <typename T>
  T value() {
    T v;
    std::memcpy(&v, bytes(sizeof(v)), sizeof(v));
    return v;
  }
  std::string str() {
    auto n = value<uint64_t>();
    return std::string(bytes(n), static_cast<size_t>(n));
  }

 private:
  const char* at_;
  const char* end_;
};

class DeviceModuleObj final : public ModuleObj {
 public:
  DeviceModuleObj(DeviceApi* api, const Bytes& bytes, Optional<Function> source)
      : api(api), bytes_(bytes.data(), bytes.size()), source_(std::move(source)) {
    Reader r(bytes_);
    format_ = r.str();
    if (format_ == "cuda") {
      raise_error("ExecutableError", "library: its CUDA module holds a program in CUDA C; expected a cubin or PTX: "
                  "export it where CUDA's compiler is installed");
    }
    for (auto n = r.value<uint64_t>(); n > 0; --n) {
      r.str();  // the key in the table
      Kernel k;
      k.name = r.str();
      for (auto m = r.value<uint64_t>(); m > 0; --m) k.types.push_back(r.value<DLDataType>());
      for (auto m = r.value<uint64_t>(); m > 0; --m) k.parameters.push_back(launch_parameter(r.str()));
      for (auto m = r.value<uint64_t>(); m > 0; --m) {
        if (r.value<int32_t>() != 0) {
          raise_error("ExecutableError", "library: the kernel %s takes a tensor map", k.name.c_str());
        }
      }
      kernels.push_back(std::move(k));
    }
    image_ = r.str();
  }
  ~DeviceModuleObj() {
    for (auto& [key, handle] : functions_) api->kernel_free(handle);
    for (auto& [device, handle] : loaded_) api->unload(device, handle);
  }
  const char* kind() const final { return api == nullptr ? "webgpu" : api->name; }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }
  bool ImplementsFunction(const String& name) final { return find(name) != nullptr; }
  Optional<Function> GetFunction(const String& name) final;
  String InspectSource(const String& format) const final {
    bool is_text = api == nullptr || format_ == "ptx" || format_ == "cl";
    if (is_text && (format == format_.c_str() || (format.empty() && !source_.has_value()))) return image_.c_str();
    return source_.has_value() ? (*source_)(format).cast<String>() : String();
  }
  Bytes SaveToBytes() const final { return Bytes(bytes_); }

  // A kernel on a device; it lives as long as the module.
  int function_on(int device, const std::string& name, DeviceHandle* out) {
    std::lock_guard<std::mutex> lock(mutex_);
    DeviceHandle& function = functions_[{device, name}];
    if (function == nullptr) {
      DeviceHandle& program = loaded_[device];
      if (program == nullptr && api->load(device, image_, format_, name, &program) != 0) {
        loaded_.erase(device);
        functions_.erase({device, name});
        return -1;
      }
      if (api->kernel(device, program, name, &function) != 0) return functions_.erase({device, name}), -1;
    }
    *out = function;
    return 0;
  }

  DeviceApi* const api;  // null where the kernels are text for another host
  std::vector<Kernel> kernels;

 private:
  const Kernel* find(const String& name) const {
    for (const Kernel& k : kernels) {
      if (k.name == std::string_view(name.data(), name.size())) return &k;
    }
    return nullptr;
  }

  std::string bytes_;
  std::string image_;
  std::string format_;
  Optional<Function> source_;  // the text in a format
  std::mutex mutex_;
  std::map<int, DeviceHandle> loaded_;
  std::map<std::pair<int, std::string>, DeviceHandle> functions_;
};

// A kernel as a packed function: its arguments, then the values of its launch parameters.
class Launcher {
 public:
  Launcher(Module keep, DeviceModuleObj* module, const Kernel* kernel)
      : keep_(std::move(keep)), module_(module), kernel_(kernel) {}

  void operator()(PackedArgs args, Any*) const {
    size_t n = kernel_->types.size();
    const auto& parameters = kernel_->parameters;
    if (static_cast<size_t>(args.size()) != n + parameters.size()) {
      raise_error("TypeError", "%s: expected %zu arguments and %zu launch parameters, found %d", kernel_->name.c_str(), n,
                  parameters.size(), static_cast<int>(args.size()));
    }
    int64_t given[7] = {1, 1, 1, 1, 1, 1, 0};
    KernelLaunch launch;
    for (size_t i = 0; i < parameters.size(); ++i) {
      given[parameters[i]] = argument<int64_t>(args, static_cast<int>(n + i));
      launch.has_shared |= parameters[i] == kSharedMemory;
    }
    for (int i = 0; i < 7; ++i) {
      if (given[i] == 0 && i < kSharedMemory) return;  // no threads: nothing to do
      if (given[i] < 0 || given[i] > std::numeric_limits<int32_t>::max()) refuse(given, "an extent out of range");
      (i < kSharedMemory ? launch.extents[i] : launch.shared) = static_cast<unsigned>(given[i]);
    }
    launch.arguments.resize(n);
    for (size_t i = 0; i < n; ++i) put(args[static_cast<int>(i)], static_cast<int>(i), &launch.arguments[i]);
    DeviceApi* api = module_->api;
    int device = current_device(api->type);
    expect_ok(api->enter(device));
    DeviceHandle function = nullptr;
    expect_ok(module_->function_on(device, kernel_->name, &function));
    if (int status = api->launch(device, function, launch)) refuse(given, api->status_text(status));
  }

 private:
  [[noreturn]] void refuse(const int64_t* l, const std::string& why) const {
    auto at = [l](int i) { return static_cast<long long>(l[i]); };
    raise_error("RuntimeError", "cannot launch %s with a grid of (%lld, %lld, %lld) blocks of (%lld, %lld, %lld) threads "
                "and %lld bytes of dynamic shared memory on %s:%d: %s; a device says what it has: max_threads_per_block, "
                "max_shared_memory_per_block", kernel_->name.c_str(), at(0), at(1), at(2), at(3), at(4), at(5), at(6),
                module_->api->name, current_device(module_->api->type), why.c_str());
  }

  void put(AnyView arg, int i, KernelLaunch::Argument* out) const {
    DLDataType t = kernel_->types[static_cast<size_t>(i)];
    const char* expected = nullptr;
    out->is_pointer = t.code == kDLOpaqueHandle;
    out->size = out->is_pointer ? sizeof(void*) : (static_cast<size_t>(t.bits) + 7) / 8;
    out->bits = 0;
    if (t.code == kDLOpaqueHandle) {
      if (auto tensor = arg.try_cast<DLTensor*>()) {
        out->bits = reinterpret_cast<uint64_t>(static_cast<char*>((*tensor)->data) + (*tensor)->byte_offset);
      } else if (auto pointer = arg.try_cast<void*>()) {
        out->bits = reinterpret_cast<uint64_t>(*pointer);
      } else {
        expected = "a pointer or a tensor";
      }
    } else if (t.code == kDLFloat) {
      auto value = arg.try_cast<double>();
      auto narrow = static_cast<float>(value.value_or(0));
      if (!value.has_value()) expected = "a float";
      else if (t.bits == 64) std::memcpy(&out->bits, &*value, 8);
      else if (t.bits == 32) std::memcpy(&out->bits, &narrow, 4);
      else expected = "a tensor, for a 16-bit float";
    } else {
      auto value = arg.try_cast<int64_t>();
      if (value.has_value()) std::memcpy(&out->bits, &*value, 8);  // little endian: the low bytes come first
      else expected = "an int";
    }
    if (expected == nullptr) return;
    raise_error("TypeError", "%s: argument %d: expected %s, found %s", kernel_->name.c_str(), i, expected,
                arg.GetTypeKey().c_str());
  }

  Module keep_;
  DeviceModuleObj* module_;
  const Kernel* kernel_;
};

Optional<Function> DeviceModuleObj::GetFunction(const String& name) {
  const Kernel* kernel = find(name);
  if (kernel == nullptr) return std::nullopt;
  if (api == nullptr) raise_error("ValueError", "kernels of webgpu run in browsers, not here");
  return Function::FromPacked(Launcher(tvm::ffi::GetRef<Module>(this), this, kernel));
}

// `source(format)` gives a text of the code; a module that was saved has none but its image.
Module device_module(int type, const Bytes& bytes, Optional<Function> source) {
  DeviceApi* api = DeviceApi::find(type);
  if (api == nullptr && type != kDLWebGPU) raise_error("ValueError", "there is no kind of device %d", type);
  return Module(tvm::ffi::make_object<DeviceModuleObj>(api, bytes, std::move(source)));
}

// What a library has saved.
[[gnu::noinline]] Module loaded(const Bytes& bytes, int type) { return device_module(type, bytes, std::nullopt); }

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("weft.device_module", device_module)
      .def("weft.device_kernels",
           [](const Module& m) {
             Array<String> out;
             const auto* code = dynamic_cast<const DeviceModuleObj*>(m.operator->());
             if (code == nullptr) raise_error("TypeError", "expected a module of device code, found %s", m->kind());
             for (const Kernel& k : code->kernels) out.push_back(k.name);
             return out;
           })
      .def("ffi.Module.load_from_bytes.cuda", [](const Bytes& b) { return loaded(b, kDLCUDA); })
      .def("ffi.Module.load_from_bytes.opencl", [](const Bytes& b) { return loaded(b, kDLOpenCL); })
      .def("ffi.Module.load_from_bytes.vulkan", [](const Bytes& b) { return loaded(b, kDLVulkan); })
      .def("ffi.Module.load_from_bytes.webgpu", [](const Bytes& b) { return loaded(b, kDLWebGPU); });
}

}  // namespace
}  // namespace weft
