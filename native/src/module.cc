// Modules of executables and virtual machines.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "device_api.h"
#include "error.h"
#include "module.h"
#include "register.h"
#include "vm.h"
#include "weft/runtime.h"

namespace weft {

using tvm::ffi::GetRef;

Function make_function(void* self, TVMFFISafeCallType call, void (*deleter)(void*)) {
  TVMFFIObjectHandle handle = nullptr;
  if (TVMFFIFunctionCreate(self, call, deleter, &handle) != 0) {
    deleter(self);
    check(-1);
  }
  return take(static_cast<TVMFFIObject*>(handle)).cast<Function>();
}

// ---- virtual machines -----------------------------------------------------------------------------------------------

class VMModuleObj final : public ModuleObj, public WatchedModule {
 public:
  VMModuleObj(std::shared_ptr<const Program> program, const Array<Any>& imports, std::vector<DLDevice> devices,
              std::vector<Allocator> allocators)
      : vm(std::move(program), std::vector<Any>(imports.begin(), imports.end()), std::move(devices),
           std::move(allocators)) {
    imports_ = imports;
  }
  const char* kind() const final { return "weft.VirtualMachine"; }
  int GetPropertyMask() const final { return Module::kRunnable; }
  Optional<Function> GetFunction(const String& name) final {
    {
      std::lock_guard<std::mutex> lock(vm.state_mutex);
      auto it = vm.saved.find(name);
      if (it != vm.saved.end()) return it->second;
    }
    int32_t index = vm.find(name);
    if (index < 0) return std::nullopt;
    auto* self = new Entry{GetRef<Module>(this), &vm, index};
    return make_function(self, &Entry::call, [](void* p) { delete static_cast<Entry*>(p); });
  }
  bool ImplementsFunction(const String& name) final { return vm.find(name) >= 0; }
  Watched& machine() final { return vm; }

  VM vm;

 private:
  struct Entry {
    Module keep;
    VM* vm;
    int32_t index;
    static int call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
      auto* entry = static_cast<Entry*>(self);
      try {
        return entry->vm->run_from_outside(entry->index, args, n, ret);
      } catch (const tvm::ffi::Error& e) {  // of a kind of its own, such as OutOfMemory
        tvm::ffi::detail::SetSafeCallRaised(e);
        return -1;
      } catch (const std::bad_alloc& e) {
        return fail("MemoryError", "%s", e.what());
      } catch (const std::exception& e) {
        return fail("InternalError", "%s", e.what());
      }
    }
  };
};

// ---- executables ----------------------------------------------------------------------------------------------------

class ExecutableObj final : public ModuleObj {
 public:
  explicit ExecutableObj(std::shared_ptr<const Program> program) : program(std::move(program)) {}
  const char* kind() const final { return "weft.Executable"; }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }
  Bytes SaveToBytes() const final { return Bytes(write_program(*program)); }

  // A function of the executable on a CPU machine that is made at the first use.
  Optional<Function> GetFunction(const String& name) final {
    auto it = program->by_name.find(name);
    if (it == program->by_name.end()) return std::nullopt;
    if (program->functions[static_cast<size_t>(it->second)].kind == FuncKind::kPacked) return std::nullopt;
    std::lock_guard<std::mutex> lock(mutex_);
    if (vm_ == nullptr) vm_ = make_vm({DLDevice{kDLCPU, 0}}, {Allocator::kPooled});
    return vm_->GetFunction(name);
  }
  bool ImplementsFunction(const String& name) final {
    auto it = program->by_name.find(name);
    return it != program->by_name.end() && program->functions[static_cast<size_t>(it->second)].kind != FuncKind::kPacked;
  }
  void ImportModule(const Module& other) final {
    ModuleObj::ImportModule(other);
    std::lock_guard<std::mutex> lock(mutex_);
    vm_ = nullptr;
  }
  void ClearImports() final {
    ModuleObj::ClearImports();
    std::lock_guard<std::mutex> lock(mutex_);
    vm_ = nullptr;
  }

  tvm::ffi::ObjectPtr<VMModuleObj> make_vm(std::vector<DLDevice> devices, std::vector<Allocator> allocators) {
    return tvm::ffi::make_object<VMModuleObj>(program, imports_, std::move(devices), std::move(allocators));
  }

  const std::shared_ptr<const Program> program;

 private:
  std::mutex mutex_;
  tvm::ffi::ObjectPtr<VMModuleObj> vm_;
};

static ExecutableObj* as_executable(const Module& m) { return as<ExecutableObj>(m, "an executable"); }
static VM& as_vm(const Module& m) { return as<VMModuleObj>(m, "a virtual machine")->vm; }

static Module executable_from_bytes(const char* data, size_t size, TVMFFIObject* keep = nullptr) {
  return Module(tvm::ffi::make_object<ExecutableObj>(read_program(data, size, keep)));
}

std::vector<int64_t> words_of(const tvm::ffi::Tensor& tensor) {
  DLDataType t = tensor.dtype();
  if (t.code != kDLInt || t.bits != 64 || tensor.ndim() != 1 || !tensor.IsContiguous()) {
    raise("TypeError", "instruction words must be a vector of int64");
  }
  const auto* data = reinterpret_cast<const int64_t*>(static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset());
  return std::vector<int64_t>(data, data + tensor.size(0));
}

Any tensor_of_words(const std::vector<int64_t>& words) {
  auto n = static_cast<int64_t>(words.size());
  TVMFFIObject* out = tensor_empty(&n, 1, DLDataType{kDLInt, 64, 1}, DLDevice{kDLCPU, 0}, Allocator::kPooled);
  if (out != nullptr && n != 0) std::memcpy(TVMFFITensorGetDLTensorPtr(out)->data, words.data(), words.size() * 8);
  return take(out);
}

std::vector<Any> list_of(const Any& value) {
  auto array = argument<Array<Any>>(raw(&value), 0);
  return std::vector<Any>(array.begin(), array.end());
}

Any array_of(const std::vector<Any>& values) { return Array<Any>(values.begin(), values.end()); }

Any own_constant(const Any& value) {
  Any owned;
  check(own_argument(*raw(&value), raw(&owned)));
  const DLTensor* t = tensor_of(*raw(&owned));
  if (t == nullptr || t->device.device_type != kDLCPU) return owned;
  if ((reinterpret_cast<uintptr_t>(t->data) + t->byte_offset) % kAlignment == 0) return owned;
  Any copy = take(tensor_empty(t->shape, t->ndim, t->dtype, t->device, Allocator::kNaive));
  check(tensor_copy(*t, TVMFFITensorGetDLTensorPtr(raw(&copy)->v_obj)));
  return copy;
}

static Module executable_from_parts(const Array<Any>& functions, const Array<Any>& constants, const Array<Any>& scopes,
                                    const tvm::ffi::Tensor& offsets, const tvm::ffi::Tensor& words,
                                    const Array<Module>& imports) {
  auto program = std::make_shared<Program>();
  for (const Any& row : functions) {
    std::vector<Any> f = list_of(row);
    if (f.size() != 7) raise("ValueError", "a function row has 7 fields");
    FuncInfo info;
    auto kind = f[0].cast<int64_t>();
    if (kind < 0 || kind > 2) raise("ExecutableError", "executable: unknown function kind " + std::to_string(kind));
    info.kind = static_cast<FuncKind>(kind);
    info.name = f[1].cast<String>();
    info.start_instr = f[2].cast<int64_t>();
    info.end_instr = f[3].cast<int64_t>();
    info.num_args = f[4].cast<int64_t>();
    info.register_file_size = f[5].cast<int64_t>();
    for (const Any& p : list_of(f[6])) info.params.push_back(p.cast<String>());
    program->functions.push_back(std::move(info));
  }
  for (const Any& value : constants) program->constants.push_back(own_constant(value));
  for (const Any& row : scopes) {
    std::vector<Any> s = list_of(row);
    program->memory_scopes.emplace_back(s.at(0).cast<int64_t>(), std::string(s.at(1).cast<String>()));
  }
  program->instr_offset = words_of(offsets);
  program->instr_data = words_of(words);
  verify_program(program.get());
  Module module(tvm::ffi::make_object<ExecutableObj>(program));
  for (const Module& m : imports) module->ImportModule(m);
  return module;
}

static Array<Any> executable_functions(const Module& module) {
  Array<Any> out;
  for (const FuncInfo& f : as_executable(module)->program->functions) {
    Array<String> params;
    for (const auto& p : f.params) params.push_back(p);
    out.push_back(Array<Any>({static_cast<int64_t>(f.kind), String(f.name), f.start_instr, f.end_instr, f.num_args,
                              f.register_file_size, params}));
  }
  return out;
}

// ---- libraries with modules inside ----------------------------------------------------------------------------------

// The blob of `__tvm_ffi__library_bin`: u64 nbytes, the import tree as CSR, then the modules (docs/reference/executable.md).
class Blob {
 public:
  explicit Blob(const char* data) {
    uint64_t nbytes;
    std::memcpy(&nbytes, data, 8);
    at_ = data + 8;
    end_ = at_ + nbytes;
  }
  uint64_t u64() {
    uint64_t value;
    std::memcpy(&value, bytes(8), 8);
    return value;
  }
  const char* bytes(uint64_t n) {
    if (n > static_cast<uint64_t>(end_ - at_)) raise("ExecutableError", "library: the embedded modules are cut short");
    const char* p = at_;
    at_ += n;
    return p;
  }
  std::vector<uint64_t> indices() {
    uint64_t n = u64();
    if (n > static_cast<uint64_t>(end_ - at_) / 8) raise("ExecutableError", "library: the embedded modules are cut short");
    std::vector<uint64_t> out(static_cast<size_t>(n));
    for (auto& v : out) v = u64();
    return out;
  }

 private:
  const char* at_;
  const char* end_;
};

static Module module_from_bytes(const std::string& kind, const char* data, uint64_t size, TVMFFIObject* keep) {
  if (kind == "weft.Executable" || kind == "relax.VMExecutable") {
    return executable_from_bytes(data, static_cast<size_t>(size), keep);
  }
  std::string name = "ffi.Module.load_from_bytes." + kind;
  auto loader = Function::GetGlobal(name);
  if (!loader.has_value()) {
    raise("ExecutableError", "library: it holds a module of kind \"" + kind + "\" and nothing registered " + name);
  }
  return (*loader)(Bytes(data, static_cast<size_t>(size))).cast<Module>();
}

Module load_tree(const char* data, const Module& code, TVMFFIObject* keep) {
  Blob blob(data);
  std::vector<uint64_t> indptr = blob.indices(), children = blob.indices();
  if (indptr.empty()) raise("ExecutableError", "library: the import tree is empty");
  std::vector<Module> modules;
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    uint64_t n = blob.u64();
    std::string kind(blob.bytes(n), static_cast<size_t>(n));
    if (kind == "_lib") {
      modules.push_back(code);
    } else {
      uint64_t size = blob.u64();
      modules.push_back(module_from_bytes(kind, blob.bytes(size), size, keep));
    }
  }
  if (modules.empty()) raise("ExecutableError", "library: it holds no modules");
  for (size_t i = 0; i < modules.size(); ++i) {
    for (uint64_t j = indptr[i]; j < indptr[i + 1]; ++j) {
      if (j >= children.size() || children[static_cast<size_t>(j)] >= modules.size()) {
        raise("ExecutableError", "library: the import tree names a module that is not there");
      }
      modules[i]->ImportModule(modules[static_cast<size_t>(children[static_cast<size_t>(j)])]);
    }
  }
  return modules[0];
}

// ---- the stateful interface -----------------------------------------------------------------------------------------

static int32_t function_index(const VM& vm, const std::string& name) {
  int32_t index = vm.find(name);
  if (index >= 0) return index;
  std::string known;
  for (const FuncInfo& f : vm.program().functions) {
    if (f.kind != FuncKind::kPacked) known += (known.empty() ? "" : ", ") + f.name;
  }
  raise("ValueError", "the executable has no function \"" + name + "\"; it has: " + known);
}

static std::vector<Any> own_all(const TVMFFIAny* args, int32_t n) {
  std::vector<Any> out(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) check(own_argument(args[i], raw(&out[static_cast<size_t>(i)])));
  return out;
}

static void check_arity(const VM& vm, int32_t index, size_t n) {
  const FuncInfo& f = vm.program().functions[static_cast<size_t>(index)];
  if (f.num_args == static_cast<int64_t>(n)) return;
  std::string names;
  for (const auto& p : f.params) names += (names.empty() ? "" : ", ") + p;
  raise("TypeError", f.name + "(" + names + "): expected " + std::to_string(f.num_args) + " arguments, found " + std::to_string(n));
}

static void vm_set_input(tvm::ffi::PackedArgs args, Any*) {
  VM& vm = as_vm(argument<Module>(args, 0));
  std::string name = argument<String>(args, 1);
  check_arity(vm, function_index(vm, name), static_cast<size_t>(args.size()) - 2);
  std::vector<Any> owned = own_all(reinterpret_cast<const TVMFFIAny*>(args.data()) + 2, args.size() - 2);
  std::lock_guard<std::mutex> lock(vm.state_mutex);
  vm.inputs[name] = std::move(owned);
}

static void vm_invoke_stateful(const Module& module, const String& name) {
  VM& vm = as_vm(module);
  int32_t index = function_index(vm, name);
  std::vector<Any> inputs;
  {
    std::lock_guard<std::mutex> lock(vm.state_mutex);
    auto it = vm.inputs.find(name);
    if (it != vm.inputs.end()) inputs = it->second;
    else if (vm.program().functions[static_cast<size_t>(index)].num_args != 0) {
      raise("ValueError", "invoke_stateful(\"" + std::string(name) + "\"): call set_input first");
    }
  }
  Any result;
  check(vm.run_from_outside(index, raw(inputs.data()), static_cast<int32_t>(inputs.size()), raw(&result)));
  std::lock_guard<std::mutex> lock(vm.state_mutex);
  vm.outputs[name] = std::move(result);
}

// The output of a function, or an item of it: args are the module, the name and the path of indices.
static Any find_output(tvm::ffi::PackedArgs args) {
  VM& vm = as_vm(argument<Module>(args, 0));
  std::string name = argument<String>(args, 1);
  function_index(vm, name);
  Any value;
  {
    std::lock_guard<std::mutex> lock(vm.state_mutex);
    auto it = vm.outputs.find(name);
    if (it == vm.outputs.end()) raise("ValueError", "\"" + name + "\" has no output yet: call invoke_stateful first");
    value = it->second;
  }
  for (int32_t i = 2; i < args.size(); ++i) {
    auto index = argument<int64_t>(args, i);
    auto array = value.as<Array<Any>>();
    if (!array.has_value()) raise("IndexError", "the output of \"" + name + "\" is not a tuple at index " + std::to_string(i - 2));
    if (index < 0 || index >= static_cast<int64_t>(array->size())) {
      raise("IndexError", "output " + std::to_string(index) + " of a tuple of " + std::to_string(array->size()));
    }
    value = (*array)[index];
  }
  return value;
}

static void vm_get_output(tvm::ffi::PackedArgs args, Any* ret) { *ret = find_output(args); }

static void vm_get_output_arity(tvm::ffi::PackedArgs args, Any* ret) {
  auto array = find_output(args).as<Array<Any>>();
  *ret = array.has_value() ? static_cast<int64_t>(array->size()) : int64_t{-1};
}

static void vm_invoke_closure(tvm::ffi::PackedArgs args, Any* ret) {
  VM& vm = as_vm(argument<Module>(args, 0));
  const auto* all = reinterpret_cast<const TVMFFIAny*>(args.data());
  check(vm.invoke_closure(all[1], all + 2, args.size() - 2, raw(ret)));
}

// save_function(vm, name, saved_name, include_return, args...)
static void vm_save_function(tvm::ffi::PackedArgs args, Any*) {
  Module module = argument<Module>(args, 0);
  VM& vm = as_vm(module);
  std::string name = argument<String>(args, 1);
  int32_t index = function_index(vm, name);
  bool include_return = argument<bool>(args, 3);
  check_arity(vm, index, static_cast<size_t>(args.size()) - 4);
  std::vector<Any> owned = own_all(reinterpret_cast<const TVMFFIAny*>(args.data()) + 4, args.size() - 4);
  // The machine owns the saved function, so it refers back without a count; the Function handed out keeps the module.
  VM* self = &vm;
  Function saved = Function::FromPacked([self, index, include_return, owned](tvm::ffi::PackedArgs, Any* result) {
    Any value;
    check(self->run_from_outside(index, raw(owned.data()), static_cast<int32_t>(owned.size()), raw(&value)));
    if (include_return) *result = std::move(value);
  });
  std::lock_guard<std::mutex> lock(vm.state_mutex);
  vm.saved.insert_or_assign(argument<String>(args, 2), saved);
}

void read_devices(const Array<int64_t>& flat, std::vector<DLDevice>* devices, std::vector<Allocator>* allocators) {
  for (size_t i = 0; i + 2 < flat.size(); i += 3) {
    auto at = static_cast<int64_t>(i);
    DLDevice device{static_cast<DLDeviceType>(flat[at]), static_cast<int32_t>(flat[at + 1])};
    if (device.device_type != kDLCPU) check(device_enter(device));
    if (flat[at + 2] != 1 && flat[at + 2] != 2) raise("ValueError", "unknown allocator " + std::to_string(flat[at + 2]));
    devices->push_back(device);
    allocators->push_back(static_cast<Allocator>(flat[at + 2]));
  }
  if (devices->empty()) raise("ValueError", "a virtual machine needs a device");
}

static Module vm_create(const Module& executable, const Array<int64_t>& flat) {
  std::vector<DLDevice> devices;
  std::vector<Allocator> allocators;
  read_devices(flat, &devices, &allocators);
  return Module(as_executable(executable)->make_vm(std::move(devices), std::move(allocators)));
}

[[gnu::noinline]] static Any text(const char* s) { return String(s); }

static Array<Any> opcode_table() {
  static const struct {
    const char *name, *operands, *meaning;
    int64_t number;
  } kRows[] = {
#define WEFT_RELAX_OP(name, number, operands, meaning) {#name, operands, meaning, number},
#include "relax_ops.def"
#undef WEFT_RELAX_OP
  };
  Array<Any> out;
  for (const auto& r : kRows) out.push_back(Array<Any>({text(r.name), r.number, text(r.operands), text(r.meaning)}));
  return out;
}

static Any tensor_make_empty(const tvm::ffi::Shape& shape, DLDataType dtype, DLDevice device) {
  Allocator kind = device.device_type == kDLCPU ? Allocator::kPooled : Allocator::kNaive;
  return take(tensor_empty(shape.data(), static_cast<int32_t>(shape.size()), dtype, device, kind));
}

Any tensor_part(const Any& source, const int64_t* shape, int32_t rank, DLDataType dtype, uint64_t at) {
  const DLTensor* t = tensor_of(*raw(&source));
  int64_t from = 0, to = 0;
  if (!is_contiguous(*t) || !tensor_nbytes(t->shape, t->ndim, t->dtype, &from) || !tensor_nbytes(shape, rank, dtype, &to) ||
      at > static_cast<uint64_t>(from) || to > from - static_cast<int64_t>(at)) {
    raise("ValueError", "cannot view " + describe(*raw(&source)) + " as " + dtype_name(dtype) + shape_text(shape, rank));
  }
  return take(tensor_new(raw(&source)->v_obj, static_cast<char*>(t->data) + t->byte_offset + at, t->device, dtype, shape, rank));
}

static Any tensor_view(const tvm::ffi::Tensor& tensor, const tvm::ffi::Shape& shape, DLDataType dtype, int64_t at) {
  return tensor_part(tensor, shape.data(), static_cast<int32_t>(shape.size()), dtype, static_cast<uint64_t>(at));
}

static void tensor_copy_to(const tvm::ffi::Tensor& from, const tvm::ffi::Tensor& to) {
  Any source = from, target = to;
  check(tensor_copy(*tensor_of(*raw(&source)), TVMFFITensorGetDLTensorPtr(raw(&target)->v_obj)));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("ffi.Module.load_from_bytes.weft.Executable",
           [](const Bytes& bytes) { return executable_from_bytes(bytes.data(), bytes.size()); })
      .def("weft.executable_from_bytes", [](const Bytes& b) { return executable_from_bytes(b.data(), b.size()); })
      .def("weft.executable_from_parts", executable_from_parts)
      .def("weft.module_to_bytes", [](const Module& m) { return m->SaveToBytes(); })
      .def("weft.executable_to_bytes", [](const Module& m) { return as_executable(m)->SaveToBytes(); })
      .def("weft.executable_size", [](const Module& m, int64_t at) { return static_cast<int64_t>(program_size(*as_executable(m)->program, at)); })
      .def("weft.executable_append",
           [](const Module& m, const String& path, int64_t at) { append_program(*as_executable(m)->program, path, at); })
      .def("weft.executable_functions", executable_functions)
      .def("weft.executable_constants",
           [](const Module& m) {
             const auto& c = as_executable(m)->program->constants;
             return Array<Any>(c.begin(), c.end());
           })
      .def("weft.executable_scopes",
           [](const Module& m) {
             Array<Any> out;
             for (const auto& [i, s] : as_executable(m)->program->memory_scopes) out.push_back(Array<Any>({i, String(s)}));
             return out;
           })
      .def("weft.executable_code",
           [](const Module& m) {
             const auto& p = *as_executable(m)->program;
             return Array<Any>({tensor_of_words(p.instr_offset), tensor_of_words(p.instr_data)});
           })
      .def("weft.opcodes", opcode_table)
      .def("weft.builtin_names",
           [] {
             Array<String> out;
             for (const auto& n : builtin_names()) out.push_back(n);
             return out;
           })
      .def("weft.builtin",
           [](const String& name) -> Optional<Function> {
             TVMFFISafeCallType call = find_builtin(name);
             if (call == nullptr) return std::nullopt;
             return make_function(nullptr, call, nullptr);
           })
      .def("weft.load_tree",
           [](const Bytes& blob, const Module& code) {
             uint64_t nbytes = 0;
             if (blob.size() >= 8) std::memcpy(&nbytes, blob.data(), 8);
             if (blob.size() < 8 || nbytes != blob.size() - 8) raise("ExecutableError", "library: the embedded modules are cut short");
             return load_tree(blob.data(), code);
           })
      .def("weft.vm_create", vm_create)
      .def("weft.vm_set_instrument", [](const Module& m, Any f, bool by_frame) { as_vm(m).set_instrument(std::move(f), by_frame); })
      .def("weft.vm_call_values",
           [](int64_t pc) {  // of the machine that runs on this thread, so that an instrument need not hold it
             std::vector<int64_t> registers;
             VM* vm = current_vm();
             std::vector<Any> values = vm != nullptr ? vm->call_values(pc, &registers) : std::vector<Any>();
             if (values.empty()) raise("IndexError", "the executable has no Call at instruction " + std::to_string(pc));
             return Array<Any>({Array<Any>(values.begin(), values.end()), Array<int64_t>(registers.begin(), registers.end())});
           })
      .def_packed("weft.vm_set_input", vm_set_input)
      .def("weft.vm_invoke_stateful", vm_invoke_stateful)
      .def_packed("weft.vm_get_output", vm_get_output)
      .def_packed("weft.vm_get_output_arity", vm_get_output_arity)
      .def_packed("weft.vm_invoke_closure", vm_invoke_closure)
      .def_packed("weft.vm_save_function", vm_save_function)
      .def("weft.tensor_empty", tensor_make_empty)
      .def("weft.tensor_view", tensor_view)
      .def("weft.tensor_copy", tensor_copy_to)
      .def("weft.pool_statistics",
           [] {
             PoolStatistics s = pool_statistics();
             return Array<int64_t>({s.live_bytes, s.peak_bytes, s.free_bytes, s.system_allocations});
           })
      .def("weft.pool_trim", pool_trim);
}

}  // namespace weft

extern "C" int32_t weft_vm_create(TVMFFIObjectHandle executable, DLDevice device, TVMFFIObjectHandle* out) {
  TVM_FFI_SAFE_CALL_BEGIN();
  weft::Any any;
  *weft::raw(&any) = weft::object_any(static_cast<TVMFFIObject*>(executable));
  weft::retain(*weft::raw(&any));
  weft::Any vm = weft::vm_create(any.cast<weft::Module>(),
                                 weft::Array<int64_t>({static_cast<int64_t>(device.device_type), device.device_id, 2}));
  *out = weft::raw(&vm)->v_obj;
  *weft::raw(&vm) = TVMFFIAny{};
  TVM_FFI_SAFE_CALL_END();
}
