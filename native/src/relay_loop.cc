// The loop, and what its instructions do.
#include <cstring>

#include "error.h"
#include "guard.h"
#include "relay_frame.h"

namespace weft {

using tvm::ffi::Any;

namespace {

constexpr uint32_t kSignalPeriod = 1 << 12;  // calls and backward jumps between two looks at Ctrl-C

inline int64_t floor_divide(int64_t x, int64_t y) {
  if (y == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(x));
  return x / y - (x % y != 0 && (x ^ y) < 0 ? 1 : 0);
}
inline int64_t floor_mod(int64_t x, int64_t y) {
  if (y == -1) return 0;
  int64_t r = x % y;
  return r != 0 && (r ^ y) < 0 ? r + y : r;
}

int wrong(const char* expected, const TVMFFIAny& found) {
  return fail("TypeError", "expected %s, found %s", expected, describe_value(found).c_str());
}

// The runtime's builtins that instructions are made of; their results are owned.
struct Builtins {
  TVMFFISafeCallType alloc_tensor = find_builtin("vm.builtin.alloc_tensor");
  TVMFFISafeCallType reshape = find_builtin("vm.builtin.reshape");
  TVMFFISafeCallType to_device = find_builtin("vm.builtin.to_device");
  TVMFFISafeCallType tensor_to_shape = find_builtin("vm.builtin.tensor_to_shape");
};
const Builtins& builtins() {
  static const Builtins all;
  return all;
}

// The Shape of a register that holds one or an integer vector, owned.
int shape_from(const TVMFFIAny& value, TVMFFIAny* shape) {
  if (value.type_index != kTVMFFIShape) return builtins().tensor_to_shape(nullptr, &value, 1, shape);
  *shape = value;
  retain(value);
  return 0;
}

}  // namespace

// InvokePacked packed_index, output_size, args... : primitive(args...), where a tuple is passed as its fields. What the
// primitive returns is dropped; its results are in its last arguments.
int RelayVM::run_packed(const Insn& insn, TVMFFIAny* regs, TVMFFIAny* area) {
  const Callee& callee = callees_[static_cast<size_t>(insn.value)];
  const int32_t* index = arg_index_.data() + insn.args;
  const TVMFFIAny* args = area;
  int32_t n = insn.n;
  bool plain = true;
  for (int32_t i = 0; i < n; ++i) {
    TVMFFIAny& value = regs[index[i]];
    if (value.type_index != kTVMFFITensor) {
      if (is_scalar(value)) {
        if (make_tensor(&value, host_) != 0) return -1;
      } else {
        plain = plain && !is_tuple(value, adt_type());
      }
    }
    set_any(area + i, value);
  }
  std::vector<TVMFFIAny> flat;
  std::vector<Any> owned;  // scalars in fields, as tensors
  if (__builtin_expect(!plain, 0)) {
    std::vector<TVMFFIAny> rest;
    for (int32_t i = n; i-- > 0;) rest.push_back(area[i]);
    while (!rest.empty()) {
      TVMFFIAny value = rest.back();
      rest.pop_back();
      const TVMFFIAny* fields;
      int64_t n_fields;
      if (is_tuple(value, adt_type()) && fields_of(value, adt_type(), &fields, &n_fields)) {
        while (n_fields > 0) rest.push_back(fields[--n_fields]);
        continue;
      }
      if (is_scalar(value)) {
        if (make_tensor(&value, host_) != 0) return -1;
        owned.emplace_back();
        *raw(&owned.back()) = value;
      }
      flat.push_back(value);
    }
    args = flat.data();
    n = static_cast<int32_t>(flat.size());
  }
  TVMFFIAny result{};
  int rc = __builtin_expect(instrument_.load(std::memory_order_relaxed) != nullptr || guarded(), 0)
               ? run_instrumented(insn, args, n, &result)
               : callee.call(callee.self, args, n, &result);
  if (rc == 0) release(result);
  return rc;
}

[[gnu::noinline]] int RelayVM::run_instrumented(const Insn& insn, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
  const Callee& callee = callees_[static_cast<size_t>(insn.value)];
  const Any* instrument = instrument_.load();
  auto run = [&] {
    return guard_call(program_->primitives[static_cast<size_t>(insn.value)].c_str(), callee.call, callee.self, args, n, ret);
  };
  if (instrument == nullptr) return run();
  TVMFFIObject* function = raw(instrument)->v_obj;
  TVMFFISafeCallType call = TVMFFIFunctionGetCellPtr(function)->safe_call;
  Any name = tvm::ffi::String(program_->primitives[static_cast<size_t>(insn.value)]);
  std::vector<TVMFFIAny> all(4 + static_cast<size_t>(n));
  all[0] = all[3] = TVMFFIAny{};
  all[1] = *raw(&name);
  all[2] = TVMFFIAny{};
  all[2].type_index = kTVMFFIBool;
  all[2].v_int64 = 1;
  for (int32_t i = 0; i < n; ++i) all[static_cast<size_t>(4 + i)] = args[i];
  TVMFFIAny answer{};
  if (int rc = call(function, all.data(), n + 4, &answer)) return rc;
  bool skip = (answer.type_index == kTVMFFIInt || answer.type_index == kTVMFFIBool) && answer.v_int64 == 1;
  release(answer);
  if (skip) return 0;
  if (int rc = run()) return rc;
  all[2].v_int64 = 0;
  answer = TVMFFIAny{};
  int rc = call(function, all.data(), n + 4, &answer);
  release(rc == 0 ? answer : *ret);
  return rc;
}

// Scalar operation, dst, lhs, rhs : dst := lhs operation rhs. The result is a bool for comparisons, else of the operands'
// dtype: int32 when both are, bool for bitwise operations on bools, else int64.
int RelayVM::run_scalar(const Insn& insn, TVMFFIAny* regs) const {
  TVMFFIAny lhs = regs[insn.a], rhs = regs[insn.b];
  for (const auto& [from, to] : {std::make_pair(insn.a, &lhs), std::make_pair(insn.b, &rhs)}) {
    if (__builtin_expect(is_scalar(*to), 1)) continue;
    const DLTensor* t = tensor_of(regs[from]);
    if (!read_scalar(regs[from], to) || (t != nullptr && t->dtype.bits < 32 && to->type_index != kTVMFFIBool)) {
      return wrong("a scalar int32, int64 or bool on the CPU", regs[from]);
    }
  }
  int64_t x = lhs.v_int64, y = rhs.v_int64, value = 0;
  const bool both_bool = lhs.type_index == kTVMFFIBool && rhs.type_index == kTVMFFIBool;
  const uint32_t bits = lhs.type_index == kTVMFFIInt && lhs.zero_padding == kInt32 && rhs.type_index == kTVMFFIInt &&
                                rhs.zero_padding == kInt32 ? kInt32 : 0;
  char kind = 'n';
  switch (insn.code) {
    case 3:
    case 4:
      if (y == 0) return fail("ZeroDivisionError", "division of the scalar %lld by zero", static_cast<long long>(x));
  }
  switch (insn.code) {
#define WEFT_RELAY_SCALAR(name, number, result, expression) \
  case number: value = (expression); kind = result; break;
#include "relay_scalars.def"
#undef WEFT_RELAY_SCALAR
  }
  const bool flag = kind == 'b' || (kind == 'l' && both_bool);
  if (bits == kInt32 && !flag) value = static_cast<int32_t>(value);
  put_int(regs + insn.dst, value, flag ? kTVMFFIBool : kTVMFFIInt, flag ? 0 : bits);
  return 0;
}

// Storages, tensors, shapes and copies between devices.
int RelayVM::run_memory(const Insn& insn, TVMFFIAny* regs) const {
  TVMFFIAny out{};
  switch (insn.op) {
    case Op::kAllocStorage: {
      TVMFFIAny size;
      if (!read_scalar(regs[insn.a], &size)) return wrong("a size in bytes", regs[insn.a]);
      if (size.v_int64 < 0) return fail("ValueError", "a storage of %lld bytes", static_cast<long long>(size.v_int64));
      auto device = static_cast<size_t>(insn.value);
      TVMFFIObject* storage = storage_new(size.v_int64, devices_[device], allocators_[device]);
      if (storage == nullptr) return -1;
      out = object_any(storage);
      break;
    }
    case Op::kAllocTensor:
    case Op::kAllocTensorReg: {
      TVMFFIAny args[4] = {regs[insn.a], TVMFFIAny{}, TVMFFIAny{}, TVMFFIAny{}};
      args[1].type_index = kTVMFFIInt;
      args[1].v_int64 = insn.value;
      args[3].type_index = kTVMFFIDataType;
      args[3].v_dtype = dtype_of_word(insn.n);
      Any shape;
      if (insn.op == Op::kAllocTensor) {
        args[2] = *raw(&kept_[static_cast<size_t>(insn.args)]);
      } else {
        if (shape_from(regs[insn.b], raw(&shape)) != 0) return -1;
        args[2] = *raw(&shape);
      }
      if (builtins().alloc_tensor(nullptr, args, 4, &out) != 0) return -1;
      break;
    }
    case Op::kShapeOf: {
      const DLTensor* t = tensor_of(regs[insn.a]);
      if (t == nullptr && !is_scalar(regs[insn.a])) return wrong("a tensor", regs[insn.a]);
      int64_t ndim = t == nullptr ? 0 : t->ndim;
      TVMFFIObject* shape = tensor_empty(&ndim, 1, DLDataType{kDLInt, 64, 1}, host_, Allocator::kPooled);
      if (shape == nullptr) return -1;
      if (ndim != 0) std::memcpy(TVMFFITensorGetDLTensorPtr(shape)->data, t->shape, static_cast<size_t>(ndim) * 8);
      out = object_any(shape);
      break;
    }
    default: {  // of a tensor, which a scalar becomes
      if (is_scalar(regs[insn.a]) && make_tensor(regs + insn.a, host_) != 0) return -1;
      TVMFFIAny args[3] = {regs[insn.a], TVMFFIAny{}, TVMFFIAny{}};
      if (insn.op == Op::kReshapeTensor) {
        Any shape;
        if (shape_from(regs[insn.b], raw(&shape)) != 0) return -1;
        args[1] = *raw(&shape);
        if (builtins().reshape(nullptr, args, 2, &out) != 0) return -1;
      } else {
        const DLDevice& device = devices_[static_cast<size_t>(insn.value)];
        args[1].type_index = args[2].type_index = kTVMFFIInt;
        args[1].v_int64 = device.device_type;
        args[2].v_int64 = device.device_id;
        if (builtins().to_device(nullptr, args, 3, &out) != 0) return -1;
      }
    }
  }
  put(regs + insn.dst, out);
  return 0;
}

// Data types' values, closures and cells.
int RelayVM::run_object(const Insn& insn, TVMFFIAny* regs) const {
  const TVMFFIAny& object = regs[insn.a];
  switch (insn.op) {
    case Op::kAllocADT:
    case Op::kAllocClosure: {
      bool closure = insn.op == Op::kAllocClosure;
      Cell* cell = cell_new(closure ? relay_closure_type() : adt_type(), insn.value, insn.n);
      if (cell == nullptr) return -1;
      cell->program = number_;
      const int32_t* index = arg_index_.data() + insn.args;
      for (int32_t i = 0; i < insn.n; ++i) {
        cell->fields[i] = regs[index[i]];
        retain(cell->fields[i]);
      }
      put(regs + insn.dst, object_any(&cell->object));
      return 0;
    }
    case Op::kGetField: {
      const TVMFFIAny* fields;
      int64_t n;
      if (!fields_of(object, adt_type(), &fields, &n)) return wrong("a value of a data type", object);
      if (insn.value >= n) {
        return fail("IndexError", "field %lld of a value of %lld fields", static_cast<long long>(insn.value), static_cast<long long>(n));
      }
      TVMFFIAny value = fields[insn.value];
      retain(value);
      put(regs + insn.dst, value);
      return 0;
    }
    case Op::kGetTag: {
      if (object.type_index != adt_type() && object.type_index != kTVMFFIArray) return wrong("a value of a data type", object);
      put_int(regs + insn.dst, object.type_index == kTVMFFIArray ? 0 : cell_of(object)->tag);
      return 0;
    }
    case Op::kAllocRef: {
      Cell* cell = cell_new(ref_type(), 0, 1);
      if (cell == nullptr) return -1;
      cell->fields[0] = object;
      retain(object);
      put(regs + insn.dst, object_any(&cell->object));
      return 0;
    }
    default: break;
  }
  if (object.type_index != ref_type()) return wrong("a reference", object);
  Cell* cell = cell_of(object);
  if (insn.op == Op::kReadRef) {
    Any value = read_ref(cell);
    std::swap(regs[insn.dst], *raw(&value));
  } else {
    write_ref(cell, regs[insn.b]);
  }
  return 0;
}

[[gnu::cold]] int RelayVM::fatal(const Insn& insn) const {
  std::string text;
  if (insn.value >= 0) {
    if (auto message = constants_[static_cast<size_t>(insn.value)].as<tvm::ffi::String>()) text = *message;
  }
  return fail("RuntimeError", "%s", text.empty() ? "the program stopped at a Fatal instruction" : text.c_str());
}

// Runs from `frame`, which it takes off the stack; with it all that it calls.
int RelayVM::loop(Stack* st, Frame* frame, TVMFFIAny* ret) {
  // One entry a row of the table, then those that only decoding makes.
  static const void* const kLabels[] = {
#define WEFT_RELAY_OP(name, number, operands, fields, meaning) &&on_##name,
#include "relay_ops.def"
#undef WEFT_RELAY_OP
      &&on_TailInvoke, &&on_TailInvokeClosure};
#define WEFT_DISPATCH() goto* kLabels[static_cast<size_t>(pc->op)]
#define WEFT_NEXT() \
  do {              \
    ++pc;           \
    WEFT_DISPATCH(); \
  } while (0)
#define WEFT_TICK()                                                                        \
  if (__builtin_expect(++st->ticks % kSignalPeriod == 0, 0) && interrupted()) goto failed

  TVMFFIAny* regs = frame->regs();
  const Insn* pc = insns_.data() + frame->code->begin;
  int rc = -1;
  WEFT_DISPATCH();

on_Move: {
  TVMFFIAny value = regs[pc->a];
  retain(value);
  put(regs + pc->dst, value);
  WEFT_NEXT();
}
on_Ret: {
  TVMFFIAny value = regs[pc->a];
  regs[pc->a] = TVMFFIAny{};
  for (int32_t i = 0; i < frame->code->num_regs; ++i) release(regs[i]);
  Frame* caller = frame->caller;
  pop(st, frame);
  if (caller == nullptr) {
    *ret = value;
    return 0;
  }
  frame = caller;
  regs = frame->regs();
  pc = frame->at;
  put(regs + pc->dst, value);
  WEFT_NEXT();
}
on_Invoke:
on_InvokeClosure:
on_TailInvoke:
on_TailInvokeClosure: {
  WEFT_TICK();
  frame->at = pc;
  bool tail;
  Frame* next = enter(st, frame, *pc, &tail);
  if (__builtin_expect(next == nullptr, 0)) goto failed;
  frame = next;
  regs = frame->regs();
  pc = insns_.data() + frame->code->begin;
  WEFT_DISPATCH();
}
on_InvokePacked:
  rc = run_packed(*pc, regs, regs + frame->code->num_regs);
  if (__builtin_expect(rc != 0, 0)) goto failed;
  WEFT_NEXT();
on_AllocTensor:
on_AllocTensorReg:
on_AllocStorage:
on_ShapeOf:
on_ReshapeTensor:
on_DeviceCopy:
  rc = run_memory(*pc, regs);
  if (__builtin_expect(rc != 0, 0)) goto failed;
  WEFT_NEXT();
on_AllocADT:
on_AllocClosure:
on_GetField:
on_GetTag:
on_AllocRef:
on_ReadRef:
on_WriteRef:
  rc = run_object(*pc, regs);
  if (__builtin_expect(rc != 0, 0)) goto failed;
  WEFT_NEXT();
on_If: {
  const TVMFFIAny& test = regs[pc->a];
  const TVMFFIAny& target = regs[pc->b];
  int64_t left, right;
  bool equal;
  if (__builtin_expect(quick_int(test, &left) && quick_int(target, &right), 1)) {
    equal = left == right;
  } else {
    TVMFFIAny x, y;
    if (!read_scalar(test, &x) || !read_scalar(target, &y)) {
      rc = wrong("an integer or bool of one element on the CPU", read_scalar(test, &x) ? target : test);
      goto failed;
    }
    equal = x.v_int64 == y.v_int64;
  }
  int32_t jump = equal ? pc->dst : pc->n;
  if (jump <= 0) WEFT_TICK();
  pc += jump;
  WEFT_DISPATCH();
}
on_Goto:
  if (pc->dst <= 0) WEFT_TICK();
  pc += pc->dst;
  WEFT_DISPATCH();
on_LoadConst: {
  TVMFFIAny value = *raw(&constants_[static_cast<size_t>(pc->value)]);
  retain(value);
  put(regs + pc->dst, value);
  WEFT_NEXT();
}
on_LoadConsti:
  put_int(regs + pc->dst, pc->value);
  WEFT_NEXT();
on_KillRegister:
  put(regs + pc->dst, TVMFFIAny{});
  WEFT_NEXT();
on_Fatal:
  rc = fatal(*pc);
  goto failed;
on_Scalar: {
  const TVMFFIAny& x = regs[pc->a];
  const TVMFFIAny& y = regs[pc->b];
  TVMFFIAny* to = regs + pc->dst;
  // Sums of int64 scalars into a scalar's register, the step of a counting loop.
  if (pc->code == 0 && x.type_index == kTVMFFIInt && y.type_index == kTVMFFIInt && (x.zero_padding | y.zero_padding) == 0 &&
      !is_object(*to)) {
    auto sum = static_cast<int64_t>(static_cast<uint64_t>(x.v_int64) + static_cast<uint64_t>(y.v_int64));
    put_int(to, sum);
    WEFT_NEXT();
  }
  rc = run_scalar(*pc, regs);
  if (__builtin_expect(rc != 0, 0)) goto failed;
  WEFT_NEXT();
}
failed:
  unwind(st, frame, pc, rc);
  return rc == -2 ? rc : -1;
#undef WEFT_DISPATCH
#undef WEFT_NEXT
#undef WEFT_TICK
}

}  // namespace weft
