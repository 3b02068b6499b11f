// What the Relax machine does once, at load: finding functions, decoding instructions; and its instruments and messages.
#include <algorithm>
#include <cstring>

#include "error.h"
#include "guard.h"
#include "vm.h"

namespace weft {

using tvm::ffi::Any;

namespace {

constexpr const char* kCompiledPrefix = "__vmtir__";
constexpr int64_t kTailScan = 1 << 12;  // so many instructions may lie between a call and the Ret of its result

// Finds `name` in a module and, behind it, in its imports.
Callee find_in_module(tvm::ffi::ModuleObj* module, const std::string& name, std::vector<Any>* keep) {
  if (auto* code = dynamic_cast<CodeModule*>(module)) {
    if (TVMFFISafeCallType address = code->address(name)) return {address, nullptr};
  } else if (auto function = module->GetFunction(tvm::ffi::String(name))) {
    keep->push_back(*function);
    TVMFFIObject* object = raw(&keep->back())->v_obj;
    return {TVMFFIFunctionGetCellPtr(object)->safe_call, object};
  }
  const tvm::ffi::Array<Any>& imports = module->imports();
  return find_in_imports({imports.begin(), imports.end()}, name, keep);
}

}  // namespace

int append_frame(const std::string& function, int64_t line, const std::string& callee, int rc) {
  if (rc == -2) return rc;  // an error of the surrounding environment, set outside tvm-ffi
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) {
    fail("RuntimeError", "%s returned code %d without setting an error", callee.c_str(), rc);
    TVMFFIErrorMoveFromRaised(&error);
  }
  std::string text = "  File \"<weft:" + function + ">\", line " + std::to_string(line) + ", in " + callee + "\n";
  TVMFFIByteArray bytes{text.data(), text.size()};
  TVMFFIErrorGetCellPtr(error)->update_backtrace(error, &bytes, kTVMFFIBacktraceUpdateModeAppend);
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}

VM::VM(std::shared_ptr<const Program> program, std::vector<Any> imports, std::vector<DLDevice> devices,
       std::vector<Allocator> allocators)
    : program_(std::move(program)), imports_(std::move(imports)), devices_(std::move(devices)),
      allocators_(std::move(allocators)) {
  resolve_functions();
  decode();
}

VM::~VM() = default;

int32_t VM::find(const std::string& name) const {
  auto it = program_->by_name.find(name);
  if (it == program_->by_name.end()) return -1;
  return program_->functions[static_cast<size_t>(it->second)].kind == FuncKind::kPacked ? -1 : it->second;
}

void VM::set_instrument(Any function, bool by_frame) {
  std::lock_guard<std::mutex> lock(state_mutex);
  if (raw(&function)->type_index != kTVMFFIFunction) return instrument_.store(nullptr);
  instruments_kept_.push_back(Instrument{std::move(function), by_frame});
  instrument_.store(&instruments_kept_.back());
}

std::vector<Any> VM::call_values(int64_t pc, std::vector<int64_t>* registers) const {
  if (pc < 0 || pc >= static_cast<int64_t>(code_.size())) return {};
  const Insn& insn = code_[static_cast<size_t>(pc)];
  if (insn.func < 0) return {};
  std::vector<Any> out{function_values_[static_cast<size_t>(insn.func)],
                       tvm::ffi::String(program_->functions[static_cast<size_t>(insn.func)].name)};
  for (int32_t i = 0; i < insn.num_args; ++i) {
    int32_t k = arg_index_[static_cast<size_t>(insn.args + i)];
    out.emplace_back();
    if (k >= 0) {
      registers->push_back(i);
    } else {
      *raw(&out.back()) = pool_[static_cast<size_t>(~k)];
      retain(*raw(&out.back()));
    }
  }
  return out;
}

Callee find_in_imports(const std::vector<Any>& imports, const std::string& name, std::vector<Any>* keep) {
  for (const Any& import : imports) {
    Callee found = find_in_module(const_cast<tvm::ffi::ModuleObj*>(import.cast<const tvm::ffi::ModuleObj*>()), name, keep);
    if (found.call != nullptr) return found;
  }
  return {};
}

Callee find_callee(const std::vector<Any>& imports, const std::string& name, std::vector<Any>* keep) {
  Callee callee = find_in_imports(imports, name, keep);
  if (callee.call == nullptr) callee = {find_builtin(name), nullptr};
  TVMFFIByteArray text{name.data(), name.size()};
  TVMFFIObjectHandle handle = nullptr;
  if (callee.call != nullptr || TVMFFIFunctionGetGlobal(&text, &handle) != 0 || handle == nullptr) return callee;
  auto* object = static_cast<TVMFFIObject*>(handle);
  keep->emplace_back();
  *raw(&keep->back()) = object_any(object);
  return {TVMFFIFunctionGetCellPtr(object)->safe_call, object};
}

void raise_missing(const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string text;
  for (size_t i = 0; i < names.size() && i < 20; ++i) text += "\n- " + names[i];
  throw tvm::ffi::Error("ExecutableError",
                        "executable: " + std::to_string(names.size()) +
                            " functions that it calls are neither in its imported modules, nor builtins, nor "
                            "registered globally" + text + (names.size() > 20 ? "\n- ..." : "") +
                            "\n  help: import the module with the kernels, or register the function before making the VM", "");
}

// Imports first, then the runtime's own table, then the global registry.
void VM::resolve_functions() {
  size_t n = program_->functions.size();
  callees_.resize(n);
  compiled_.resize(n);
  function_values_.resize(n);
  std::vector<std::string> missing;
  for (size_t i = 0; i < n; ++i) {
    const FuncInfo& f = program_->functions[i];
    if (f.kind != FuncKind::kPacked) {
      auto closure = tvm::ffi::make_object<ClosureObj>();
      closure->program = program_;
      closure->func = static_cast<int32_t>(i);
      function_values_[i] = tvm::ffi::ObjectRef(closure);
      if (f.kind == FuncKind::kVM) continue;
      const std::string symbol = kCompiledPrefix + f.name;
      compiled_[i] = find_in_imports(imports_, symbol, &compiled_kept_);
      if (compiled_[i].call == nullptr) missing.push_back(symbol);
      continue;
    }
    std::vector<Any> keep;
    Callee callee = find_callee(imports_, f.name, &keep);
    if (callee.call == nullptr) {
      missing.push_back(f.name);
      continue;
    }
    callees_[i] = callee;
    if (!keep.empty()) {
      function_values_[i] = keep.back();
    } else {
      TVMFFIObjectHandle handle = nullptr;
      if (TVMFFIFunctionCreate(nullptr, callee.call, nullptr, &handle) == 0) {
        *raw(&function_values_[i]) = object_any(static_cast<TVMFFIObject*>(handle));
      }
    }
  }
  raise_missing(missing);
}

Callee VM::watched(int64_t index, std::string* name) const {
  if (index < 0 || index >= static_cast<int64_t>(callees_.size())) return {};
  *name = program_->functions[static_cast<size_t>(index)].name;
  return callees_[static_cast<size_t>(index)];
}

void VM::replace(int64_t index, const Callee& callee) {
  callees_[static_cast<size_t>(index)] = callee;
  for (Insn& insn : code_) {
    if (insn.op != Op::kCall || insn.func != index) continue;
    insn.call = callee.call;
    insn.self = callee.self;
  }
}

int32_t VM::pool_slot(const TVMFFIAny& value) {
  pool_.push_back(value);
  return ~static_cast<int32_t>(pool_.size() - 1);
}

int32_t VM::decode_argument(int64_t word) {
  int64_t value = arg_value(word);
  TVMFFIAny any{};
  switch (arg_kind(word)) {
    case ArgKind::kRegister:
      if (value == kVoidRegister) return pool_slot(any);  // reads as None
      if (value != kVMRegister) return static_cast<int32_t>(value);
      any.type_index = kTVMFFIOpaquePtr;
      any.v_ptr = this;
      return pool_slot(any);
    case ArgKind::kImmediate:
      any.type_index = kTVMFFIInt;
      any.v_int64 = value;
      return pool_slot(any);
    case ArgKind::kConstant: return pool_slot(*raw(&pool_owner_[static_cast<size_t>(value)]));
    case ArgKind::kFunction: break;
  }
  return pool_slot(*raw(&function_values_[static_cast<size_t>(value)]));
}

void VM::decode() {
  const Program& p = *program_;
  pool_owner_.assign(p.constants.begin(), p.constants.end());
  for (Any& value : pool_owner_) {  // kernels read constants where they run
    const DLTensor* t = devices_[0].device_type == kDLCPU ? nullptr : tensor_of(*raw(&value));
    if (t == nullptr) continue;
    TVMFFIObject* there = tensor_empty(t->shape, t->ndim, t->dtype, devices_[0], Allocator::kNaive);
    TVM_FFI_CHECK_SAFE_CALL(there == nullptr ? -1 : tensor_copy(*t, TVMFFITensorGetDLTensorPtr(there)));
    value = Any();
    raw(&value)->type_index = kTVMFFITensor;
    raw(&value)->v_obj = there;
  }
  if (guarded()) guard_tensors(&pool_owner_);
  code_.resize(p.instr_offset.size());
  frames_.resize(p.functions.size());
  TVMFFISafeCallType null_value = find_builtin("vm.builtin.null_value");
  TVMFFISafeCallType copy = find_builtin("vm.builtin.copy");
  TVMFFISafeCallType alloc_tensor = find_builtin("vm.builtin.alloc_tensor");
  for (size_t i = 0; i < p.functions.size(); ++i) {
    const FuncInfo& f = p.functions[i];
    Frame& frame = frames_[i];
    if (f.kind == FuncKind::kVMTIR) {  // instruments see an instruction also where the call comes from outside
      frame.entry = static_cast<int32_t>(code_.size());
      code_.push_back(Insn{Op::kCallVM, -1, static_cast<int32_t>(f.num_args), static_cast<int32_t>(arg_index_.size()),
                           static_cast<int32_t>(i), 0, nullptr, nullptr});
      for (int64_t k = 0; k < f.num_args; ++k) arg_index_.push_back(static_cast<int32_t>(k));
    }
    if (f.kind != FuncKind::kVM) continue;
    frame.num_regs = static_cast<int32_t>(f.register_file_size);
    frame.borrowed = static_cast<int32_t>(f.num_args);
    for (int64_t pc = f.start_instr; pc < f.end_instr; ++pc) {
      const int64_t* w = p.instr_data.data() + p.instr_offset[static_cast<size_t>(pc)];
      Insn& insn = code_[static_cast<size_t>(pc)];
      insn = Insn{Op::kRet, -1, 0, 0, -1, 0, nullptr, nullptr};
      switch (static_cast<Opcode>(w[0])) {
        case Opcode::kCall: {
          insn.dst = w[1] == kVoidRegister ? -1 : static_cast<int32_t>(w[1]);
          if (insn.dst >= 0 && insn.dst < f.num_args) frame.borrowed = 0;
          insn.func = static_cast<int32_t>(w[2]);
          insn.num_args = static_cast<int32_t>(w[3]);
          insn.args = static_cast<int32_t>(arg_index_.size());
          for (int64_t k = 0; k < w[3]; ++k) arg_index_.push_back(decode_argument(w[4 + k]));
          if (insn.num_args > frame.max_args) frame.max_args = insn.num_args;
          const Callee& callee = callees_[static_cast<size_t>(w[2])];
          insn.call = callee.call;
          insn.self = callee.self;
          insn.op = callee.call == nullptr ? Op::kCallVM : Op::kCall;
          if (callee.call == null_value && insn.num_args == 0) {
            insn.op = Op::kKill;
            // The last tensor of a storage takes the register's reference with it, which this instruction would give back.
            Insn* before = pc > f.start_instr ? &insn - 1 : nullptr;
            if (before != nullptr && before->op == Op::kCall && before->call == alloc_tensor && before->num_args == 4 &&
                insn.dst >= f.num_args && before->dst >= 0 && before->dst != insn.dst &&
                arg_index_[static_cast<size_t>(before->args)] == insn.dst) {
              before->op = Op::kCarve;
            }
          }
          if (callee.call == copy && insn.num_args == 1 && insn.dst >= 0) insn.op = Op::kMove;
          break;
        }
        case Opcode::kRet: insn.dst = static_cast<int32_t>(w[1]); break;
        case Opcode::kGoto:
          insn.op = Op::kGoto;
          insn.jump = static_cast<int32_t>(w[1]);
          break;
        case Opcode::kIf:
          insn.op = Op::kIf;
          insn.dst = static_cast<int32_t>(w[1]);
          insn.jump = static_cast<int32_t>(w[2]);
          break;
      }
    }
    mark_tail_calls(f);
  }
}

// Tail calls have no opcode: Call f -> r, then only what moves r, drops other registers or jumps ahead, then Ret of it.
void VM::mark_tail_calls(const FuncInfo& f) {
  TVMFFISafeCallType invoke = find_builtin("vm.builtin.invoke_closure");
  for (int64_t at = f.start_instr; at < f.end_instr; ++at) {
    Insn& call = code_[static_cast<size_t>(at)];
    bool closure = call.op == Op::kCall && call.call == invoke && call.num_args >= 2;
    if (closure) {
      const int32_t machine = arg_index_[static_cast<size_t>(call.args)];
      closure = machine < 0 && pool_[static_cast<size_t>(~machine)].type_index == kTVMFFIOpaquePtr;
    }
    const bool function = call.op == Op::kCallVM && program_->functions[static_cast<size_t>(call.func)].kind == FuncKind::kVM;
    if (call.dst < 0 || !(closure || function)) continue;
    int32_t value = call.dst;  // where the result is
    int64_t pc = at + 1;
    for (int64_t steps = 0; steps < kTailScan && value >= 0; ++steps) {
      const Insn& insn = code_[static_cast<size_t>(pc)];
      if (insn.op == Op::kMove && arg_index_[static_cast<size_t>(insn.args)] == value) {
        value = insn.dst;
      } else if (insn.op == Op::kRet && insn.dst == value) {
        call.op = closure ? Op::kTailClosure : Op::kTail;
        break;
      } else if (!(insn.op == Op::kMove || insn.op == Op::kKill || (insn.op == Op::kGoto && insn.jump > 0)) ||
                 (insn.op != Op::kGoto && insn.dst == value)) {
        break;
      }
      pc += insn.op == Op::kGoto ? insn.jump : 1;
    }
  }
}

[[gnu::cold]] int VM::add_frame_to_error(int32_t func, const Insn* at, int rc) {
  int64_t line = at - (code_.data() + program_->functions[static_cast<size_t>(func)].start_instr);
  return add_frame_to_error(func, line, at->func, rc);
}

[[gnu::cold]] int VM::add_frame_to_error(int32_t func, int64_t at, int32_t callee_index, int rc) {
  const FuncInfo& f = program_->functions[static_cast<size_t>(func)];
  return append_frame(f.name, at, callee_index >= 0 ? program_->functions[static_cast<size_t>(callee_index)].name
                                                    : kCompiledPrefix + f.name, rc);
}

}  // namespace weft
