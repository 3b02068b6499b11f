// Modules of the Relay virtual machine, and the functions through which Python reaches them.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>

#include "error.h"
#include "module.h"
#include "register.h"
#include "relay_vm.h"

namespace weft {

namespace {

class RelayVMObj final : public ModuleObj, public WatchedModule {
 public:
  RelayVMObj(std::shared_ptr<const RelayProgram> program, const Array<Any>& imports, std::vector<DLDevice> devices,
             std::vector<Allocator> allocators)
      : vm(std::move(program), std::vector<Any>(imports.begin(), imports.end()), std::move(devices),
           std::move(allocators)) {
    imports_ = imports;
  }
  const char* kind() const final { return "weft.RelayVirtualMachine"; }
  int GetPropertyMask() const final { return Module::kRunnable; }
  Optional<Function> GetFunction(const String& name) final {
    int32_t index = vm.find(name);
    if (index < 0) return std::nullopt;
    return make_function(new Entry{tvm::ffi::GetRef<Module>(this), &vm, index}, &Entry::call,
                         [](void* p) { delete static_cast<Entry*>(p); });
  }
  bool ImplementsFunction(const String& name) final { return vm.find(name) >= 0; }
  Watched& machine() final { return vm; }

  RelayVM vm;

 private:
  struct Entry {
    Module keep;
    RelayVM* vm;
    int32_t index;
    static int call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
      auto* entry = static_cast<Entry*>(self);
      TVM_FFI_SAFE_CALL_BEGIN();
      check(entry->vm->run_from_outside(entry->index, args, n, ret));
      TVM_FFI_SAFE_CALL_END();
    }
  };
};

class RelayExecutableObj final : public ModuleObj {
 public:
  explicit RelayExecutableObj(std::shared_ptr<const RelayProgram> program) : program(std::move(program)) {}
  const char* kind() const final { return "weft.RelayExecutable"; }
  int GetPropertyMask() const final { return Module::kBinarySerializable; }
  Bytes SaveToBytes() const final { return Bytes(write_relay_program(*program)); }
  Optional<Function> GetFunction(const String&) final { return std::nullopt; }
  Module make_vm(std::vector<DLDevice> devices, std::vector<Allocator> allocators) {
    return Module(tvm::ffi::make_object<RelayVMObj>(program, imports_, std::move(devices), std::move(allocators)));
  }

  const std::shared_ptr<const RelayProgram> program;
};

RelayVM& as_vm(const Module& m) { return as<RelayVMObj>(m, "a Relay virtual machine")->vm; }
RelayExecutableObj* as_executable(const Module& m) { return as<RelayExecutableObj>(m, "a Relay executable"); }

int32_t function_index(const RelayVM& vm, const std::string& name) {
  int32_t index = vm.find(name);
  if (index >= 0) return index;
  std::string known;
  for (const RelayFunction& f : vm.program().functions) known += (known.empty() ? "" : ", ") + f.name;
  raise("ValueError", "the executable has no function \"" + name + "\"; it has: " + known);
}

// A call of the machine in argument 0, of the function that argument 1 names, with the rest.
struct MachineCall {
  explicit MachineCall(tvm::ffi::PackedArgs all)
      : machine(all.size() > 0 ? all[0].cast<Module>() : (raise("TypeError", "expected a machine"), Module(nullptr))),
        vm(as_vm(machine)), args(reinterpret_cast<const TVMFFIAny*>(all.data()) + 2), n(all.size() - 2) {
    if (n < 0) raise("TypeError", "expected 2 arguments or more, found " + std::to_string(n + 2));
    first = args[-1];
  }
  int32_t function() const {
    return function_index(vm, reinterpret_cast<const tvm::ffi::AnyView*>(&first)->cast<String>());
  }
  Module machine;
  RelayVM& vm;
  const TVMFFIAny* args;
  int32_t n;
  TVMFFIAny first;
};

// An object of one of the kinds of cells.
Cell* as_cell(const Any& value, int32_t type, const char* what) {
  if (raw(&value)->type_index != type) raise("TypeError", std::string("expected ") + what + ", found " + describe(*raw(&value)));
  return cell_of(*raw(&value));
}
Cell* as_adt(const Any& value) { return as_cell(value, adt_type(), "a value of a data type"); }

std::vector<std::string> names_of(const Array<Any>& names) {
  std::vector<std::string> out;
  for (const Any& name : names) out.push_back(name.cast<String>());
  return out;
}

Any array_of_names(const std::vector<std::string>& names) {
  std::vector<Any> out;
  for (const auto& name : names) out.push_back(String(name));
  return array_of(out);
}

// relay_from_parts(functions, constants, primitives, imports): rows of name, parameters, their devices, register file
// size, words; rows of device, value.
Module from_parts(const Array<Any>& functions, const Array<Any>& constants, const Array<Any>& primitives,
                  const Array<Module>& imports) {
  auto program = std::make_shared<RelayProgram>();
  for (const Any& row : functions) {
    std::vector<Any> fields = list_of(row);
    if (fields.size() != 5) raise("ValueError", "a function row has 5 fields");
    RelayFunction f;
    f.name = fields[0].cast<String>();
    f.params = names_of(fields[1].cast<Array<Any>>());
    f.param_devices = words_of(fields[2].cast<tvm::ffi::Tensor>());
    f.registers = fields[3].cast<int64_t>();
    f.words = words_of(fields[4].cast<tvm::ffi::Tensor>());
    program->functions.push_back(std::move(f));
  }
  for (const Any& row : constants) {
    std::vector<Any> fields = list_of(row);
    if (fields.size() != 2) raise("ValueError", "a constant row has 2 fields");
    program->constants.push_back(RelayConstant{own_constant(fields[1]), fields[0].cast<int64_t>()});
  }
  program->primitives = names_of(primitives);
  verify_relay_program(program.get());
  Module module(tvm::ffi::make_object<RelayExecutableObj>(program));
  for (const Module& m : imports) module->ImportModule(m);
  return module;
}

Module from_bytes(const Bytes& bytes) {
  return Module(tvm::ffi::make_object<RelayExecutableObj>(read_relay_program(bytes.data(), bytes.size())));
}

Bytes to_bytes(const Module& executable) { return as_executable(executable)->SaveToBytes(); }

// What relay_from_parts takes.
Any parts(const Module& executable) {
  const RelayProgram& program = *as_executable(executable)->program;
  std::vector<Any> functions, constants;
  for (const RelayFunction& f : program.functions) {
    functions.push_back(array_of({String(f.name), array_of_names(f.params), tensor_of_words(f.param_devices),
                                  f.registers, tensor_of_words(f.words)}));
  }
  for (const RelayConstant& c : program.constants) constants.push_back(array_of({c.device, c.value}));
  return array_of({array_of(functions), array_of(constants), array_of_names(program.primitives)});
}

[[gnu::noinline]] Any text(const char* s) { return String(s); }

Any opcodes() {
  std::vector<Any> rows, scalars;
  for (int i = 0; i < kRelayOpCount; ++i) {
    const RelayOpInfo& row = kRelayOps[i];
    rows.push_back(array_of({text(row.name), row.number, text(row.operands), text(row.fields), text(row.meaning)}));
  }
  for (int i = 0; i < kRelayScalarCount; ++i) {
    scalars.push_back(array_of({text(kRelayScalars[i].name), kRelayScalars[i].number}));
  }
  return array_of({array_of(rows), array_of(scalars)});
}

Module vm_create(const Module& executable, const Array<int64_t>& flat) {
  std::vector<DLDevice> devices;
  std::vector<Allocator> allocators;
  read_devices(flat, &devices, &allocators);
  return as_executable(executable)->make_vm(std::move(devices), std::move(allocators));
}

void vm_invoke(tvm::ffi::PackedArgs args, Any* ret) {
  MachineCall call(args);
  check(call.vm.run_from_outside(call.function(), call.args, call.n, raw(ret)));
}

void vm_invoke_closure(tvm::ffi::PackedArgs args, Any* ret) {
  MachineCall call(args);
  check(call.vm.invoke_closure(call.first, call.args, call.n, raw(ret)));
}

void vm_set_input(tvm::ffi::PackedArgs args, Any*) {
  MachineCall call(args);
  const RelayFunction& f = call.vm.program().functions[static_cast<size_t>(call.function())];
  std::vector<Any> owned(static_cast<size_t>(call.n));
  if (owned.size() != f.params.size()) {
    raise("TypeError", f.name + ": expected " + std::to_string(f.params.size()) + " arguments, found " + std::to_string(call.n));
  }
  for (size_t i = 0; i < owned.size(); ++i) check(own_argument(call.args[i], raw(&owned[i])));
  std::lock_guard<std::mutex> lock(call.vm.state_mutex);
  call.vm.inputs[f.name] = std::move(owned);
}

void vm_invoke_stateful(const Module& module, const String& name) {
  RelayVM& vm = as_vm(module);
  int32_t index = function_index(vm, name);
  const RelayFunction& f = vm.program().functions[static_cast<size_t>(index)];
  std::vector<Any> inputs;
  {
    std::lock_guard<std::mutex> lock(vm.state_mutex);
    auto it = vm.inputs.find(f.name);
    if (it != vm.inputs.end()) inputs = it->second;
    else if (!f.params.empty()) raise("ValueError", "invoke_stateful(\"" + f.name + "\"): call set_input first");
  }
  Any result;
  check(vm.run_from_outside(index, raw(inputs.data()), static_cast<int32_t>(inputs.size()), raw(&result)));
  std::lock_guard<std::mutex> lock(vm.state_mutex);
  vm.outputs[f.name] = std::move(result);
}

Any vm_get_output(const Module& module, const String& name) {
  RelayVM& vm = as_vm(module);
  function_index(vm, name);
  std::lock_guard<std::mutex> lock(vm.state_mutex);
  auto it = vm.outputs.find(name);
  if (it == vm.outputs.end()) raise("ValueError", "\"" + std::string(name) + "\" has no output yet: call invoke_stateful first");
  return it->second;
}

void vm_set_instrument(const Module& module, Any function) { as_vm(module).set_instrument(std::move(function)); }

// relay_adt(tag, fields...)
void adt(tvm::ffi::PackedArgs args, Any* ret) {
  const int32_t n = args.size() - 1;
  if (n < 0) raise("TypeError", "expected a tag");
  auto tag = argument<int64_t>(args, 0);
  if (tag < 0) raise("ValueError", "a tag is not negative, found " + std::to_string(tag));
  Cell* full = cell_new(adt_type(), tag, n);
  if (full == nullptr) check(-1);
  full->n = 0;  // fields that are set, should one be refused
  *raw(ret) = object_any(&full->object);
  const auto* fields = reinterpret_cast<const TVMFFIAny*>(args.data()) + 1;
  for (; full->n < n; ++full->n) check(own_argument(fields[full->n], &full->fields[full->n]));
}

Any field_outside(Any field) {
  check(leave_machine(raw(&field), DLDevice{kDLCPU, 0}));
  return field;
}

Any adt_field(const Any& value, int64_t i) {
  Cell* cell = as_adt(value);
  if (i < 0 || i >= cell->n) raise("IndexError", "field " + std::to_string(i) + " of a value of " + std::to_string(cell->n) + " fields");
  Any field;
  *raw(&field) = cell->fields[i];
  retain(cell->fields[i]);
  return field_outside(std::move(field));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("ffi.Module.load_from_bytes.weft.RelayExecutable", from_bytes)
      .def("weft.relay_from_parts", from_parts)
      .def("weft.relay_from_bytes", from_bytes)
      .def("weft.relay_to_bytes", to_bytes)
      .def("weft.relay_parts", parts)
      .def("weft.relay_opcodes", opcodes)
      .def("weft.relay_vm_create", vm_create)
      .def_packed("weft.relay_vm_invoke", vm_invoke)
      .def_packed("weft.relay_vm_invoke_closure", vm_invoke_closure)
      .def_packed("weft.relay_vm_set_input", vm_set_input)
      .def("weft.relay_vm_invoke_stateful", vm_invoke_stateful)
      .def("weft.relay_vm_get_output", vm_get_output)
      .def("weft.relay_vm_set_instrument", vm_set_instrument)
      .def_packed("weft.relay_adt", adt)
      .def("weft.relay_adt_tag", [](const Any& value) { return as_adt(value)->tag; })
      .def("weft.relay_adt_size", [](const Any& value) { return static_cast<int64_t>(as_adt(value)->n); })
      .def("weft.relay_adt_field", adt_field)
      .def("weft.relay_ref_value", [](const Any& value) { return field_outside(read_ref(as_cell(value, ref_type(), "a reference"))); });
}

}  // namespace
}  // namespace weft
