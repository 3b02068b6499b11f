// Decoding once, then a loop without index checks (the verifier has bounded every index) whose instructions jump to each
// other. What a register holds is checked where an instruction needs a certain kind of value.
#include "relay_vm.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstring>

#include "error.h"
#include "guard.h"
#include "relay_frame.h"

namespace weft {

using tvm::ffi::Any;

namespace {

constexpr int64_t kMaxDepth = 1 << 20;       // frames of one thread
constexpr int kMaxNested = 500;              // calls from primitives back into machines
constexpr int kMaxTuples = 64;               // nested tuples that become arrays; what is deeper stays as it is
constexpr int kMaxTraceback = 50;

}  // namespace

// What a value is, for messages: scalars are tensors there too.
std::string describe_value(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFIBool) return "a scalar bool";
  if (value.type_index == kTVMFFIInt) return value.zero_padding == kInt32 ? "a scalar int32" : "a scalar int64";
  if (value.type_index == kTVMFFINone) return "an empty register";
  return describe(value);
}

// Reads an integer or bool of one element; `as` gets the register form of its dtype. False when it is none.
bool read_scalar(const TVMFFIAny& value, TVMFFIAny* as) {
  *as = TVMFFIAny{};
  if (is_scalar(value)) {
    *as = value;
    return true;
  }
  const DLTensor* t = tensor_of(value);
  if (t == nullptr || t->device.device_type != kDLCPU || t->dtype.lanes != 1 || t->dtype.bits % 8 != 0) return false;
  for (int32_t i = 0; i < t->ndim; ++i) {
    if (t->shape[i] != 1) return false;
  }
  const char* data = static_cast<const char*>(t->data) + t->byte_offset;
  uint64_t bits = 0;
  if (t->dtype.bits == 0 || t->dtype.bits > 64) return false;
  std::memcpy(&bits, data, t->dtype.bits / 8);
  switch (t->dtype.code) {
    case kDLInt: {
      int shift = 64 - t->dtype.bits;
      as->v_int64 = static_cast<int64_t>(bits << shift) >> shift;
      break;
    }
    case kDLUInt: as->v_int64 = static_cast<int64_t>(bits); break;
    case kDLBool: as->v_int64 = bits != 0; break;
    default: return false;
  }
  bool flag = t->dtype.code == kDLBool || (t->dtype.code == kDLUInt && t->dtype.bits == 1);
  as->type_index = flag ? kTVMFFIBool : kTVMFFIInt;
  as->zero_padding = t->dtype.code == kDLInt && t->dtype.bits == 32 ? kInt32 : 0;
  return true;
}

RelayVM::Stack& RelayVM::stack() {
  static thread_local Stack stack;
  return stack;
}

// ---- loading --------------------------------------------------------------------------------------------------------

RelayVM::RelayVM(std::shared_ptr<const RelayProgram> program, std::vector<Any> imports, std::vector<DLDevice> devices,
                 std::vector<Allocator> allocators)
    : program_(std::move(program)), number_(program_->number), imports_(std::move(imports)),
      devices_(std::move(devices)), allocators_(std::move(allocators)) {
  if (static_cast<int64_t>(devices_.size()) < program_->num_devices) {
    throw tvm::ffi::Error("ExecutableError", "the program is for " + std::to_string(program_->num_devices) +
                          " devices, the virtual machine has " + std::to_string(devices_.size()), "");
  }
  for (size_t i = devices_.size(); i-- > 0;) {
    if (devices_[i].device_type == kDLCPU) host_ = devices_[i];
  }
  std::vector<std::string> missing;
  for (const std::string& name : program_->primitives) {
    callees_.push_back(find_callee(imports_, name, &kept_));
    if (callees_.back().call == nullptr) missing.push_back(name);
  }
  raise_missing(missing);
  for (const RelayConstant& constant : program_->constants) {
    const DLTensor* t = tensor_of(*raw(&constant.value));
    const DLDevice& device = devices_[static_cast<size_t>(constant.device)];
    Any value = constant.value;
    TVMFFIAny scalar;
    if (t != nullptr && (t->device.device_type != device.device_type || t->device.device_id != device.device_id)) {
      TVMFFIObject* copy = tensor_empty(t->shape, t->ndim, t->dtype, device, Allocator::kNaive);
      TVM_FFI_CHECK_SAFE_CALL(copy == nullptr ? -1 : 0);
      Any owner;
      *raw(&owner) = object_any(copy);
      TVM_FFI_CHECK_SAFE_CALL(tensor_copy(*t, TVMFFITensorGetDLTensorPtr(copy)));
      value = owner;
    } else if (t != nullptr && t->ndim == 0 && device.device_type == kDLCPU && device.device_id == host_.device_id && t->dtype.code == kDLInt && t->dtype.bits >= 32 &&
               read_scalar(*raw(&value), &scalar)) {
      value = Any();
      *raw(&value) = scalar;
    }
    constants_.push_back(std::move(value));
  }
  if (guarded()) guard_tensors(&constants_);
  decode();
}

Callee RelayVM::watched(int64_t index, std::string* name) const {
  if (index < 0 || index >= static_cast<int64_t>(callees_.size())) return {};
  *name = program_->primitives[static_cast<size_t>(index)];
  return callees_[static_cast<size_t>(index)];
}

// Whether the value of a call that is left in `dst` is all that is done after instruction `at`.
bool RelayVM::is_tail_call(const RelayFunction& f, size_t at, int64_t dst) const {
  for (size_t steps = 0; steps < f.starts.size(); ++steps) {
    const int64_t* w = f.words.data() + f.starts[++at];
    switch (static_cast<RelayOp>(w[0])) {
      case RelayOp::kRet: return w[1] == dst;
      case RelayOp::kMove:
        if (w[1] == dst) dst = w[2];
        else if (w[2] == dst) return false;
        break;
      case RelayOp::kKillRegister:
        if (w[1] == dst) return false;
        break;
      case RelayOp::kGoto:
        if (w[1] <= 0) return false;
        at += static_cast<size_t>(w[1]) - 1;
        break;
      default: return false;
    }
  }
  return false;
}

void RelayVM::decode() {
  size_t max_params = 0;
  for (const RelayFunction& f : program_->functions) max_params = std::max(max_params, f.params.size());
  for (const RelayFunction& f : program_->functions) decode_function(f, static_cast<int32_t>(max_params));
}

// Where the operands of an instruction go: registers to a and b, jumps to dst and n, a dtype to n, other numbers to value.
void RelayVM::decode_function(const RelayFunction& f, int32_t max_params) {
  Code code{&f, static_cast<int32_t>(insns_.size()), static_cast<int32_t>(f.registers), 0,
            static_cast<int32_t>(f.params.size())};
  for (size_t at = 0; at < f.starts.size(); ++at) {
    const int64_t* w = f.words.data() + f.starts[at];
    int row = relay_op_row(*w);
    Insn insn{};
    insn.op = static_cast<Op>(row);
    insn.args = static_cast<int32_t>(arg_index_.size());
    bool second_register = false, second_jump = false;
    for (const char* op = kRelayOps[row].operands; *op != '\0'; ++op) {
      if (*op == 'a' || *op == 'x') continue;
      int64_t word = *++w;
      switch (*op) {
        case 'd': insn.dst = static_cast<int32_t>(word); break;
        case 'r':
          (second_register ? insn.b : insn.a) = static_cast<int32_t>(word);
          second_register = true;
          break;
        case 'o':
          (second_jump ? insn.n : insn.dst) = static_cast<int32_t>(word);
          second_jump = true;
          break;
        case 'c': insn.code = static_cast<uint8_t>(word); break;
        case 't': insn.n = static_cast<int32_t>(word); break;
        case 'n':
          insn.n = static_cast<int32_t>(word);
          for (int64_t i = 0; i < word; ++i) arg_index_.push_back(static_cast<int32_t>(*++w));
          break;
        case 's':
          insn.args = static_cast<int32_t>(kept_.size());
          kept_.push_back(tvm::ffi::Shape(w + 1, w + 1 + word));
          w += word;
          break;
        case 'l': break;
        case 'u':
          if (insn.op == Op::kInvokePacked) break;
          [[fallthrough]];
        default: insn.value = word;
      }
    }
    int32_t area = 0;
    if (insn.op == Op::kInvokePacked || insn.op == Op::kInvoke) area = insn.n;
    if (insn.op == Op::kInvokeClosure) area = max_params;
    code.area = std::max(code.area, area);
    if ((insn.op == Op::kInvoke || insn.op == Op::kInvokeClosure) && is_tail_call(f, at, insn.dst)) {
      insn.op = insn.op == Op::kInvoke ? Op::kTailInvoke : Op::kTailInvokeClosure;
      // Arguments take the references of their registers, each register's once.
      auto begin = arg_index_.begin() + insn.args;
      for (auto i = arg_index_.end(); i != begin;) {
        --i;
        if (std::find(begin, i, *i) != i) *i = ~*i;
      }
    }
    insns_.push_back(insn);
  }
  codes_.push_back(code);
}

// ---- frames ---------------------------------------------------------------------------------------------------------

// Makes a frame whose first registers get references to `first`. Null with the error raised.
RelayVM::Frame* RelayVM::push(Stack* st, const Code& code, const TVMFFIAny* first, size_t n_first) const {
  size_t need = Frame::words(code);
  Chunk* chunk = st->chunk;
  TVMFFIAny* top = st->top;
  if (__builtin_expect(st->depth >= kMaxDepth, 0)) {
    fail("RecursionError", "%s: more than %lld nested calls of functions", code.function->name.c_str(),
         static_cast<long long>(kMaxDepth));
    return nullptr;
  }
  if (__builtin_expect(static_cast<size_t>(st->limit - st->top) < need, 0) && !st->grow(need)) {
    fail("MemoryError", "no memory for a frame of %s", code.function->name.c_str());
    return nullptr;
  }
  auto* frame = reinterpret_cast<Frame*>(st->top);
  st->top += need;
  ++st->depth;
  frame->caller = nullptr;
  frame->code = &code;
  frame->chunk = chunk;
  frame->top = top;
  TVMFFIAny* regs = frame->regs();
  for (size_t i = 0; i < n_first; ++i) {
    regs[i] = first[i];
    retain(first[i]);
  }
  std::memset(static_cast<void*>(regs + n_first), 0, (static_cast<size_t>(code.num_regs) - n_first) * sizeof(TVMFFIAny));
  return frame;
}

// Takes the top frame off; its registers have been released.
void RelayVM::pop(Stack* st, const Frame* frame) {
  if (__builtin_expect(st->chunk != frame->chunk, 0)) {
    st->chunk = frame->chunk;
    st->limit = st->chunk->words + st->chunk->size;
  }
  st->top = frame->top;
  --st->depth;
}

static inline void release_registers(TVMFFIAny* regs, int32_t n) {
  for (int32_t i = 0; i < n; ++i) release(regs[i]);
}

int RelayVM::arity_error(const RelayFunction& f, size_t found) const {
  std::string names;
  for (const auto& p : f.params) names += (names.empty() ? "" : ", ") + p;
  return fail("TypeError", "%s(%s): expected %zu arguments, found %zu", f.name.c_str(), names.c_str(), f.params.size(), found);
}

std::string RelayVM::callee_name(const Insn& insn) const {
  switch (insn.op) {
    case Op::kInvoke:
    case Op::kTailInvoke: return program_->functions[static_cast<size_t>(insn.value)].name;
    case Op::kTailInvokeClosure: return "InvokeClosure";
    case Op::kInvokePacked: return program_->primitives[static_cast<size_t>(insn.value)];
    default: return kRelayOps[static_cast<int>(insn.op)].name;
  }
}

// Puts the frames from `frame` outwards into the raised error's traceback, and takes them off the stack.
[[gnu::cold]] void RelayVM::unwind(Stack* st, Frame* frame, const Insn* at, int rc) const {
  for (int lines = 0; frame != nullptr; ++lines) {
    if (lines < kMaxTraceback) {
      rc = append_frame(frame->code->function->name, at - (insns_.data() + frame->code->begin), callee_name(*at), rc);
    }
    Frame* caller = frame->caller;
    release_registers(frame->regs(), frame->code->num_regs);
    pop(st, frame);
    frame = caller;
    if (frame != nullptr) at = frame->at;
  }
}

// The frame of a call: a new one, or for a tail call the old one's place. Null with the error raised; then nothing has
// changed.
RelayVM::Frame* RelayVM::enter(Stack* st, Frame* frame, const Insn& insn, bool* tail) {
  TVMFFIAny* regs = frame->regs();
  const int32_t* index = arg_index_.data() + insn.args;
  const Code* code;
  const Cell* closure = nullptr;
  *tail = insn.op == Op::kTailInvoke || insn.op == Op::kTailInvokeClosure;
  if (insn.op == Op::kInvoke || insn.op == Op::kTailInvoke) {
    code = &codes_[static_cast<size_t>(insn.value)];
  } else {
    const TVMFFIAny& value = regs[insn.a];
    if (value.type_index != relay_closure_type()) {
      fail("TypeError", "expected a closure, found %s", describe_value(value).c_str());
      return nullptr;
    }
    closure = cell_of(value);
    if (closure->program != number_) {
      fail("ValueError", "the closure belongs to another executable");
      return nullptr;
    }
    code = &codes_[static_cast<size_t>(closure->tag)];
    if (closure->n + insn.n != code->num_params) {
      arity_error(*code->function, static_cast<size_t>(closure->n + insn.n));
      return nullptr;
    }
  }
  const int32_t n_bound = closure != nullptr ? closure->n : 0;
  if (!*tail) {
    Frame* next = push(st, *code, closure != nullptr ? closure->fields : nullptr, static_cast<size_t>(n_bound));
    if (next == nullptr) return nullptr;
    next->caller = frame;
    TVMFFIAny* to = next->regs() + n_bound;
    for (int32_t i = 0; i < insn.n; ++i) {
      to[i] = regs[index[i]];
      retain(to[i]);
    }
    return next;
  }
  size_t need = Frame::words(*code);
  auto* begin = reinterpret_cast<TVMFFIAny*>(frame);
  TVMFFIAny* area = regs + frame->code->num_regs;
  const int32_t n = code->num_params;
  Chunk* chunk = frame->chunk;
  TVMFFIAny* top = frame->top;
  const bool fits = static_cast<size_t>(st->limit - begin) >= need;
  if (!fits && !st->grow(need)) {
    fail("MemoryError", "no memory for a frame of %s", code->function->name.c_str());
    return nullptr;
  }
  for (int32_t i = 0; i < n_bound; ++i) {
    area[i] = closure->fields[i];
    retain(area[i]);
  }
  for (int32_t i = 0; i < insn.n; ++i) {
    int32_t r = index[i];
    area[n_bound + i] = regs[r >= 0 ? r : ~r];
    if (r < 0) retain(area[n_bound + i]);
  }
  for (int32_t i = 0; i < insn.n; ++i) {
    if (index[i] >= 0) regs[index[i]] = TVMFFIAny{};
  }
  release_registers(regs, frame->code->num_regs);
  auto* next = fits ? frame : reinterpret_cast<Frame*>(st->top);
  st->top = reinterpret_cast<TVMFFIAny*>(next) + need;
  next->caller = frame->caller;
  next->code = code;
  next->chunk = chunk;
  next->top = top;
  TVMFFIAny* to = next->regs();
  for (int32_t i = 0; i < n; ++i) to[i] = area[i];  // the area lies behind the registers, so no argument is lost
  std::memset(static_cast<void*>(to + n), 0, static_cast<size_t>(code->num_regs - n) * sizeof(TVMFFIAny));
  return next;
}

// ---- calls from outside ---------------------------------------------------------------------------------------------

int32_t RelayVM::find(const std::string& name) const {
  auto it = program_->by_name.find(name);
  return it == program_->by_name.end() ? -1 : it->second;
}

void RelayVM::set_instrument(Any function) {
  std::lock_guard<std::mutex> lock(state_mutex);
  if (raw(&function)->type_index != kTVMFFIFunction) return instrument_.store(nullptr);
  instruments_kept_.push_back(std::move(function));
  instrument_.store(&instruments_kept_.back());
}

int RelayVM::run(int32_t func, const TVMFFIAny* first, size_t n_first, const TVMFFIAny* args, size_t num_args, TVMFFIAny* ret) {
  const Code& code = codes_[static_cast<size_t>(func)];
  if (n_first + num_args != static_cast<size_t>(code.num_params)) return arity_error(*code.function, n_first + num_args);
  Stack& st = stack();
  if (st.chunk == nullptr && !st.grow(Stack::kChunkWords)) return fail("MemoryError", "no memory for a stack");
  if (st.nested >= kMaxNested) {
    return fail("RecursionError", "%s: more than %d nested calls from primitives", code.function->name.c_str(), kMaxNested);
  }
  const int64_t depth = st.depth;
  Frame* frame = push(&st, code, first, n_first);
  if (frame == nullptr) return -1;
  const Frame bottom = *frame;
  TVMFFIAny* regs = frame->regs() + n_first;
  for (size_t i = 0; i < num_args; ++i) {
    regs[i] = args[i];
    retain(args[i]);
  }
  if (st.nested++ == 0) function_begins();
  TVMFFIAny result{};
  int rc;
  try {
    rc = loop(&st, frame, &result);
  } catch (const std::exception& e) {  // no memory for a list of arguments; what the frames hold is lost with them
    pop(&st, &bottom);
    st.depth = depth;
    rc = fail("MemoryError", "%s: %s", code.function->name.c_str(), e.what());
  }
  if (--st.nested == 0) {
    function_ends();
    if (st.chunk->next != nullptr) st.shrink();
  }
  if (rc != 0) return rc;
  if (leave_machine(&result, host_) != 0) {
    release(result);
    return -1;
  }
  *ret = result;
  return 0;
}

int RelayVM::run_from_outside(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  const RelayFunction& f = program_->functions[static_cast<size_t>(func)];
  auto n = static_cast<size_t>(num_args);
  if (n != f.params.size()) return arity_error(f, n);
  std::vector<Any> owned(n);
  for (size_t i = 0; i < n; ++i) {
    TVMFFIAny* value = raw(&owned[i]);
    if (own_argument(args[i], value) != 0) return -1;
    const DLTensor* t = f.param_devices.empty() ? nullptr : tensor_of(*value);
    if (t == nullptr) continue;
    const DLDevice& device = devices_[static_cast<size_t>(f.param_devices[i])];
    if (t->device.device_type == device.device_type && t->device.device_id == device.device_id) continue;
    TVMFFIObject* copy = tensor_empty(t->shape, t->ndim, t->dtype, device, Allocator::kPooled);
    if (copy == nullptr) return -1;
    Any before = owned[i];
    put(value, object_any(copy));
    if (tensor_copy(*tensor_of(*raw(&before)), TVMFFITensorGetDLTensorPtr(copy)) != 0) return -1;
  }
  if (guarded()) guard_tensors(&owned);
  int rc = run(func, nullptr, 0, raw(owned.data()), n, ret);
  if (guarded()) guard_give_back(owned, args);
  return rc;
}

int RelayVM::invoke_closure(const TVMFFIAny& value, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  if (value.type_index != relay_closure_type()) return fail("TypeError", "expected a closure, found %s", describe_value(value).c_str());
  const Cell* closure = cell_of(value);
  if (closure->program != number_) return fail("ValueError", "the closure belongs to another executable");
  std::vector<Any> owned(static_cast<size_t>(num_args));
  for (size_t i = 0; i < owned.size(); ++i) {
    if (own_argument(args[i], raw(&owned[i])) != 0) return -1;
  }
  return run(static_cast<int32_t>(closure->tag), closure->fields, static_cast<size_t>(closure->n), raw(owned.data()), owned.size(), ret);
}

int make_tensor(TVMFFIAny* scalar, DLDevice host) {
  bool flag = scalar->type_index == kTVMFFIBool;
  auto bits = static_cast<uint8_t>(flag ? 8 : scalar->zero_padding == kInt32 ? 32 : 64);
  DLDataType dtype{static_cast<uint8_t>(flag ? kDLBool : kDLInt), bits, 1};
  TVMFFIObject* tensor = tensor_empty(nullptr, 0, dtype, host, Allocator::kPooled);
  if (tensor == nullptr) return -1;
  std::memcpy(TVMFFITensorGetDLTensorPtr(tensor)->data, &scalar->v_int64, bits / 8);
  *scalar = object_any(tensor);
  return 0;
}

int leave_machine(TVMFFIAny* value, DLDevice host, int depth) {
  if (is_scalar(*value)) return make_tensor(value, host);
  if (value->type_index != adt_type() || cell_of(*value)->tag != 0 || depth >= kMaxTuples) return 0;
  const Cell* cell = cell_of(*value);
  tvm::ffi::Array<Any> out;
  out.reserve(cell->n);
  for (int32_t i = 0; i < cell->n; ++i) {
    Any item;
    *raw(&item) = cell->fields[i];
    retain(cell->fields[i]);
    if (leave_machine(raw(&item), host, depth + 1) != 0) return -1;
    out.push_back(std::move(item));
  }
  Any array = std::move(out);
  put(value, *raw(&array));
  *raw(&array) = TVMFFIAny{};
  return 0;
}

}  // namespace weft
