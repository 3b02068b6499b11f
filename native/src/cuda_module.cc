// Device code for NVIDIA GPUs: an image (cubin or PTX) with the table of its kernels, loaded on each device at its
// first launch. The saved bytes are laid out as Apache TVM's runtime lays out its modules of kind "cuda".
#include <tvm/ffi/any.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "cuda_driver.h"
#include "error.h"
#include "register.h"

namespace weft {
namespace {

using namespace cuda;  // NOLINT
using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::ModuleObj;
using tvm::ffi::Optional;
using tvm::ffi::PackedArgs;
using tvm::ffi::String;

[[noreturn]] void raise(const char* kind, const std::string& message) { throw tvm::ffi::Error(kind, message, ""); }

struct Kernel {
  std::string name;
  std::vector<DLDataType> types;   // of the arguments; pointers are handles
  std::vector<std::string> tags;   // what the arguments after them give: extents of axes, bytes of shared memory
};

constexpr int kSharedMemory = 6;  // the launch parameter after the six axes
constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

int launch_parameter(const std::string& tag) {
  static const char* const kAxes[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                      "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  for (int i = 0; i < 6; ++i) {
    if (tag == kAxes[i]) return i;
  }
  if (tag == "tir.use_dyn_shared_memory" || tag == "tirx.use_dyn_shared_memory") return kSharedMemory;
  raise("ValueError", "a kernel's launch parameter is \"" + tag + "\"; this runtime has blockIdx.x to threadIdx.z and "
        "tir.use_dyn_shared_memory");
}

// ---- saved bytes: strings and vectors with a u64 length --------------------------------------------------------------

class Writer {
 public:
  std::string out;
  void u64(uint64_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof(v)); }
  void str(const std::string& s) {
    u64(s.size());
    out += s;
  }
};

class Reader {
 public:
  Reader(const char* data, size_t size) : at_(data), end_(data + size) {}
  const char* bytes(uint64_t n) {
    if (n > static_cast<uint64_t>(end_ - at_)) raise("ExecutableError", "library: its CUDA module is cut short");
    const char* p = at_;
    at_ += n;
    return p;
  }
  uint64_t u64() {
    uint64_t v;
    std::memcpy(&v, bytes(8), 8);
    return v;
  }
  std::string str() {
    uint64_t n = u64();
    return std::string(bytes(n), static_cast<size_t>(n));
  }

 private:
  const char* at_;
  const char* end_;
};

class CudaModuleObj final : public ModuleObj {
 public:
  CudaModuleObj(std::string image, std::string format, std::vector<Kernel> kernels, Optional<Function> source)
      : image_(std::move(image)), format_(std::move(format)), kernels_(std::move(kernels)), source_(std::move(source)) {}
  ~CudaModuleObj() {
    for (auto& [device, handle] : loaded_) {
      if (Driver::get().reenter(device) == 0) Driver::get().cuModuleUnload(handle);
    }
  }
  const char* kind() const final { return "cuda"; }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }
  bool ImplementsFunction(const String& name) final { return find(name) != nullptr; }
  Optional<Function> GetFunction(const String& name) final;
  String InspectSource(const String& format) const final {
    if (format_ == "ptx" && (format == "ptx" || (format.empty() && !source_.has_value()))) return image_.c_str();
    return source_.has_value() ? (*source_)(format).cast<String>() : String();
  }
  const std::vector<Kernel>& kernels() const { return kernels_; }

  Bytes SaveToBytes() const final {
    Writer w;
    w.str(format_);
    w.u64(kernels_.size());
    for (const Kernel& k : kernels_) {
      w.str(k.name);  // the key in the table
      w.str(k.name);
      w.u64(k.types.size());
      for (DLDataType t : k.types) w.out.append(reinterpret_cast<const char*>(&t), sizeof(t));
      w.u64(k.tags.size());
      for (const auto& t : k.tags) w.str(t == "tir.use_dyn_shared_memory" ? "tirx.use_dyn_shared_memory" : t);
      w.u64(0);  // further tags of arguments
    }
    w.str(image_);
    return Bytes(w.out);
  }

  // The kernel on a device whose context is current.
  int function_on(int device, const std::string& name, Handle* out) {
    Driver& d = Driver::get();
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = loaded_.find(device);
    if (found == loaded_.end()) {
      Handle fresh = nullptr;
      if (Status status = d.cuModuleLoadData(&fresh, image_.c_str())) return refuse(status, device, name);
      found = loaded_.emplace(device, fresh).first;
    }
    Status status = d.cuModuleGetFunction(out, found->second, name.c_str());
    if (status == 0) return 0;
    return fail("RuntimeError", "the %s code has no kernel \"%s\": %s", format_.c_str(), name.c_str(),
                d.text(status).c_str());
  }

 private:
  const Kernel* find(const String& name) const {
    for (const Kernel& k : kernels_) {
      if (k.name == std::string_view(name.data(), name.size())) return &k;
    }
    return nullptr;
  }

  int refuse(Status status, int device, const std::string& name) {
    std::string version = compute_version(device), arch;
    for (char c : version) arch += c == '.' ? "" : std::string(1, c);
    return fail("RuntimeError", "cuda:%d (compute capability %s) cannot load the %s code of \"%s\": %s; expected code for "
                "sm_%s: build with Target(\"cuda -arch=sm_%s\")", device, version.c_str(), format_.c_str(), name.c_str(),
                Driver::get().text(status).c_str(), arch.c_str(), arch.c_str());
  }

  std::string image_;
  std::string format_;
  std::vector<Kernel> kernels_;
  Optional<Function> source_;  // the text in a format
  std::mutex mutex_;
  std::map<int, Handle> loaded_;
};

// A kernel as a packed function: its arguments, then the values of its launch parameters.
class Launcher {
 public:
  Launcher(Module keep, CudaModuleObj* module, const Kernel* kernel)
      : keep_(std::move(keep)), module_(module), kernel_(kernel), cache_(std::make_shared<Cache>()) {
    for (const auto& tag : kernel->tags) parameters_.push_back(launch_parameter(tag));
  }

  void operator()(PackedArgs args, Any*) const {
    size_t n = kernel_->types.size();
    if (static_cast<size_t>(args.size()) != n + parameters_.size()) {
      raise("TypeError", kernel_->name + ": expected " + std::to_string(n) + " arguments and " +
            std::to_string(parameters_.size()) + " launch parameters, found " + std::to_string(args.size()));
    }
    int64_t launch[7] = {1, 1, 1, 1, 1, 1, 0};
    for (size_t i = 0; i < parameters_.size(); ++i) {
      launch[parameters_[i]] = args[static_cast<int>(n + i)].cast<int64_t>();
    }
    for (int i = 0; i < 7; ++i) {
      if (launch[i] == 0 && i < kSharedMemory) return;  // no threads: nothing to do
      if (launch[i] < 0 || launch[i] > std::numeric_limits<int32_t>::max()) refuse(launch, "an extent out of range");
    }
    std::vector<uint64_t> values(n);
    std::vector<void*> pointers(n);
    for (size_t i = 0; i < n; ++i) {
      put(args[static_cast<int>(i)], i, &values[i]);
      pointers[i] = &values[i];
    }
    int device = current_device();
    guard(enter(device));
    Driver& d = Driver::get();
    auto at = [&](int i) { return static_cast<unsigned>(launch[i]); };
    Handle function = prepare(device, static_cast<int>(launch[kSharedMemory]));
    Status status = d.cuLaunchKernel(function, at(0), at(1), at(2), at(3), at(4), at(5), at(6), current_stream(device),
                                     pointers.data(), nullptr);
    if (status != 0) refuse(launch, d.text(status));
  }

 private:
  struct Cache {
    std::mutex mutex;
    std::map<int, std::pair<Handle, int>> on;  // the function on a device, and the shared memory that it may use
  };

  Handle prepare(int device, int shared) const {
    std::lock_guard<std::mutex> lock(cache_->mutex);
    auto& [function, allowed] = cache_->on[device];
    if (function == nullptr) guard(module_->function_on(device, kernel_->name, &function));
    if (shared > (48 << 10) && shared > allowed) {
      Status status = Driver::get().cuFuncSetAttribute(function, kMaxDynamicShared, shared);
      if (status != 0) {
        raise("RuntimeError", kernel_->name + ": cuda:" + std::to_string(device) + " does not give a block " +
              std::to_string(shared) + " bytes of shared memory: " + Driver::get().text(status));
      }
      allowed = shared;
    }
    return function;
  }

  [[noreturn]] void refuse(const int64_t* launch, const std::string& why) const {
    auto text = [&](int i) {
      return "(" + std::to_string(launch[i]) + ", " + std::to_string(launch[i + 1]) + ", " +
             std::to_string(launch[i + 2]) + ")";
    };
    raise("RuntimeError", "cannot launch " + kernel_->name + " with a grid of " + text(0) + " blocks of " + text(3) +
          " threads and " + std::to_string(launch[kSharedMemory]) + " bytes of dynamic shared memory: " + why +
          "; a device says what it has: max_threads_per_block, max_shared_memory_per_block");
  }

  void put(AnyView arg, size_t i, uint64_t* out) const {
    DLDataType t = kernel_->types[i];
    auto expected = [&](const char* what) {
      raise("TypeError", kernel_->name + ": argument " + std::to_string(i) + ": expected " + what + ", found " +
            arg.GetTypeKey());
    };
    if (t.code == kDLOpaqueHandle) {
      if (auto tensor = arg.try_cast<DLTensor*>()) {
        *out = reinterpret_cast<uint64_t>(static_cast<char*>((*tensor)->data) + (*tensor)->byte_offset);
      } else if (auto pointer = arg.try_cast<void*>()) {
        *out = reinterpret_cast<uint64_t>(*pointer);
      } else {
        expected("a pointer or a tensor");
      }
    } else if (t.code == kDLFloat) {
      auto value = arg.try_cast<double>();
      if (!value.has_value()) expected("a float");
      auto narrow = static_cast<float>(*value);
      if (t.bits == 64) std::memcpy(out, &*value, 8);
      else if (t.bits == 32) std::memcpy(out, &narrow, 4);
      else raise("TypeError", kernel_->name + ": argument " + std::to_string(i) + " is a 16-bit float; pass a tensor");
    } else {
      auto value = arg.try_cast<int64_t>();
      if (!value.has_value()) expected("an int");
      std::memcpy(out, &*value, 8);  // little endian: the low bytes come first
    }
  }

  Module keep_;
  CudaModuleObj* module_;
  const Kernel* kernel_;
  std::vector<int> parameters_;
  std::shared_ptr<Cache> cache_;
};

Optional<Function> CudaModuleObj::GetFunction(const String& name) {
  const Kernel* kernel = find(name);
  if (kernel == nullptr) return std::nullopt;
  return Function::FromPacked(Launcher(tvm::ffi::GetRef<Module>(this), this, kernel));
}

Module make(std::string image, std::string format, std::vector<Kernel> kernels, Optional<Function> source) {
  for (const Kernel& k : kernels) {
    for (const auto& tag : k.tags) launch_parameter(tag);
  }
  return Module(tvm::ffi::make_object<CudaModuleObj>(std::move(image), std::move(format), std::move(kernels),
                                                     std::move(source)));
}

Module from_bytes(const Bytes& bytes) {
  Reader r(bytes.data(), bytes.size());
  std::string format = r.str();
  if (format == "cuda") {
    raise("ExecutableError", "library: its CUDA module holds a program in CUDA C; expected a cubin or PTX: export it "
          "where CUDA's compiler is installed");
  }
  std::vector<Kernel> kernels;
  for (uint64_t n = r.u64(); n > 0; --n) {
    Kernel k;
    r.str();
    k.name = r.str();
    for (uint64_t m = r.u64(); m > 0; --m) {
      DLDataType t;
      std::memcpy(&t, r.bytes(sizeof(t)), sizeof(t));
      k.types.push_back(t);
    }
    for (uint64_t m = r.u64(); m > 0; --m) k.tags.push_back(r.str());
    for (uint64_t m = r.u64(); m > 0; --m) {
      int32_t tag;
      std::memcpy(&tag, r.bytes(sizeof(tag)), sizeof(tag));
      if (tag != 0) raise("ExecutableError", "library: the CUDA kernel " + k.name + " takes a tensor map");
    }
    kernels.push_back(std::move(k));
  }
  std::string image = r.str();
  return make(std::move(image), std::move(format), std::move(kernels), std::nullopt);
}

// Rows are [name, [types], [tags]]; `source(format)` gives a text of the code.
Module cuda_module(const Bytes& image, const String& format, const Array<Any>& rows, Optional<Function> source) {
  std::vector<Kernel> kernels;
  for (const Any& row : rows) {
    auto fields = row.cast<Array<Any>>();
    Kernel k;
    k.name = fields[0].cast<String>();
    for (const Any& t : fields[1].cast<Array<Any>>()) k.types.push_back(t.cast<DLDataType>());
    for (const Any& t : fields[2].cast<Array<Any>>()) k.tags.push_back(t.cast<String>());
    kernels.push_back(std::move(k));
  }
  return make(std::string(image.data(), image.size()), format, std::move(kernels), std::move(source));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("weft.cuda_module", cuda_module)
      .def("weft.cuda_kernels",
           [](const Module& m) {
             Array<String> out;
             const auto* cuda = dynamic_cast<const CudaModuleObj*>(m.operator->());
             if (cuda == nullptr) raise("TypeError", std::string("expected a CUDA module, found ") + m->kind());
             for (const Kernel& k : cuda->kernels()) out.push_back(k.name);
             return out;
           })
      .def("ffi.Module.load_from_bytes.cuda", from_bytes);
}

}  // namespace
}  // namespace weft
