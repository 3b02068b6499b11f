// The loop, without index checks: the verifier has bounded every index before. vm_decode.cc is what happens once.
#include "vm.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "error.h"
#include "guard.h"
#include "register_stack.h"
#include "relax_frame.h"

#if defined(__linux__) && !defined(__EMSCRIPTEN__)
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft {

using tvm::ffi::Any;

namespace {

constexpr int kMaxDepth = 1000;  // on stacks that are not the thread's own
constexpr int kWatchedDepth = 100;  // instruments are told of tail calls as of others down to this depth

thread_local RelaxStack* stack_ptr __attribute__((tls_model("initial-exec"))) = nullptr;

[[gnu::cold, gnu::noinline]] RelaxStack& make_stack() {
  static thread_local RelaxStack stack;
  stack_ptr = &stack;
  return stack;
}

inline RelaxStack& stack() { return __builtin_expect(stack_ptr != nullptr, 1) ? *stack_ptr : make_stack(); }

[[gnu::cold, gnu::noinline]] int no_memory(const FuncInfo& f) {
  return fail("MemoryError", "no memory for a frame of %s", f.name.c_str());
}

inline bool truthy(const TVMFFIAny& value, bool* ok) {
  *ok = value.type_index == kTVMFFIInt || value.type_index == kTVMFFIBool;
  return value.v_int64 != 0;
}

}  // namespace

[[gnu::cold]] RelaxStack::RelaxStack() {
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
  constexpr size_t kReserve = size_t{1} << 19;  // bytes, half of a small stack
  size_t size = 0;
#if !defined(__GLIBC__)
  // musl looks for the end of the first thread's stack page by page, and under an emulator without end.
  rlimit limit;
  if (getpid() == syscall(SYS_gettid) && getrlimit(RLIMIT_STACK, &limit) == 0) {
    end_ = reinterpret_cast<const char*>(getauxval(AT_EXECFN));  // the name of the program lies above all frames
    size = static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{8} << 20));
  }
#endif
  pthread_attr_t attributes;
  void* begin = nullptr;
  if (size == 0) {
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
    end_ = static_cast<const char*>(begin) + size;
  }
  begin_ = end_ - size;
  floor_ = begin_ + std::min(size / 2, kReserve);
#endif
}

// Raises the error of a call that its stack has no room for; 0 where it has.
[[gnu::cold]] int RelaxStack::no_room(const FuncInfo& f) const {
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  if (depth < kMaxDepth && (here < begin_ || here >= end_)) return 0;
  return fail("RecursionError", "%s: more than %d nested calls fill this thread's stack", f.name.c_str(), depth);
}

[[gnu::cold, gnu::noinline]] bool interrupted() {
  if (TVMFFIEnvCheckSignals() == 0) return false;
  fail("EnvErrorAlreadySet", "interrupted");
  return true;
}

[[gnu::cold, gnu::noinline]] bool SignalWatch::look() {
  constexpr std::chrono::milliseconds kInterval(50);
  auto now = std::chrono::steady_clock::now();
  auto passed = now - last_;
  last_ = now;
  period_ = passed < kInterval ? std::min(2 * period_, kLongest)
                               : std::max<uint32_t>(static_cast<uint32_t>(period_ * (kInterval.count() * 1e6 / passed.count())), 1);
  left_ = period_;
  return interrupted();
}

VM* current_vm() { return stack_ptr != nullptr ? stack_ptr->vm : nullptr; }

// Whether kernels take a tensor as it is: contiguous, and on the CPU at a multiple of its elements' alignment.
static bool is_in_order(const DLTensor& tensor) {
  uint64_t size = std::max<uint64_t>((static_cast<uint64_t>(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8, 1);
  uint64_t at = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  return is_contiguous(tensor) && (tensor.device.device_type != kDLCPU || (at & ((size & -size) - 1)) == 0);
}

int own_argument(const TVMFFIAny& value, TVMFFIAny* out) {
  const DLTensor* tensor = tensor_of(value);
  if (tensor != nullptr && (value.type_index == kTVMFFIDLTensorPtr || !is_in_order(*tensor))) {
    TVMFFIObject* copy = tensor_empty(tensor->shape, tensor->ndim, tensor->dtype, tensor->device, Allocator::kPooled);
    if (copy == nullptr) return -1;
    if (tensor_copy(*tensor, TVMFFITensorGetDLTensorPtr(copy)) != 0) {
      TVMFFIObjectDecRef(copy);
      return -1;
    }
    *out = object_any(copy);
    return 0;
  }
  if (value.type_index < kTVMFFIRawStr || value.type_index == kTVMFFISmallStr || is_object(value)) {
    *out = value;
    retain(value);
    return 0;
  }
  return TVMFFIAnyViewToOwnedAny(&value, out);
}

const DLDevice* VM::device(int64_t index) const {
  if (index < 0 || index >= static_cast<int64_t>(devices_.size())) return nullptr;
  return &devices_[static_cast<size_t>(index)];
}

// The arguments of a tail call and the function that gets them: -1 where the value is no bytecode of this
// machine, which an ordinary call deals with, and -2 with an error raised.
int32_t VM::tail_target(const Insn& insn, const TVMFFIAny* regs, TailArguments* out) {
  const int32_t* index = arg_index_.data() + insn.args;
  auto value = [&](int32_t i) -> const TVMFFIAny& { return index[i] >= 0 ? regs[index[i]] : pool_[static_cast<size_t>(~index[i])]; };
  int32_t func = insn.func;
  if (insn.op == Op::kTail) {
    for (int32_t i = 0; i < insn.num_args; ++i) out->add(value(i));
  } else {
    if (value(1).type_index != ClosureObj::RuntimeTypeIndex()) return -1;
    auto* closure = reinterpret_cast<ClosureObj*>(value(1).v_obj);
    func = closure->func;
    if (closure->packed != nullptr || closure->program != program_ ||
        program_->functions[static_cast<size_t>(func)].kind != FuncKind::kVM) {
      return -1;
    }
    for (int32_t i = 2; i < insn.num_args; ++i) {
      if (!out->add_owned(value(i))) return -2;
    }
    for (const Any& captured : closure->captured) out->add(*raw(&captured));
  }
  const FuncInfo& f = program_->functions[static_cast<size_t>(func)];
  if (static_cast<int64_t>(out->size()) == f.num_args) return func;
  arity_error(f, static_cast<int32_t>(out->size()));
  return -2;
}

// Makes the frame that of the function which a tail call is of. Returns that function; -1 and -2 as above, and -3 with an
// error raised that is not the call's. (Not inline: the arguments would make each frame of the loop larger.)
[[gnu::noinline]] int32_t VM::become_target(const Insn& insn, FrameGuard* frame) {
  TailArguments next;
  const int32_t target = tail_target(insn, frame->regs(), &next);
  if (target < 0) return target;
  if (stack().signals.interrupt()) return -3;
  const Frame& shape = frames_[static_cast<size_t>(target)];
  if (frame->become(static_cast<size_t>(shape.num_regs), static_cast<size_t>(shape.max_args), &next)) return target;
  no_memory(program_->functions[static_cast<size_t>(target)]);
  return -3;
}

[[gnu::cold]] int VM::arity_error(const FuncInfo& f, int32_t num_args) {
  std::string names;
  for (const auto& p : f.params) names += (names.empty() ? "" : ", ") + p;
  return fail("TypeError", "%s(%s): expected %lld arguments, found %d", f.name.c_str(), names.c_str(),
              static_cast<long long>(f.num_args), num_args);
}

int VM::call_insn(const Insn& insn, const TVMFFIAny* args, TVMFFIAny* ret) {
  if (insn.op == Op::kCallVM || insn.op == Op::kTail) {
    // A compiled function tells instruments of itself.
    const bool compiled = compiled_[static_cast<size_t>(insn.func)].call != nullptr;
    return compiled ? run_compiled(insn.func, args, insn.num_args, ret) : run(insn.func, args, insn.num_args, ret);
  }
  if (!guarded()) return insn.call(insn.self, args, insn.num_args, ret);
  return guard_call(program_->functions[static_cast<size_t>(insn.func)].name.c_str(), insn.call, insn.self, args, insn.num_args, ret);
}

[[gnu::cold, gnu::noinline]] int VM::run_instrumented(const Insn& insn, const TVMFFIAny* args, TVMFFIAny* ret) {
  const Instrument* instrument = instrument_.load();
  if (instrument == nullptr) return call_insn(insn, args, ret);
  std::vector<TVMFFIAny> call;
  auto put = [&call](int32_t type_index, int64_t value) {
    call.emplace_back();
    call.back().type_index = type_index;
    call.back().v_int64 = value;
  };
  if (instrument->by_frame) {
    put(kTVMFFIInt, static_cast<int64_t>(reinterpret_cast<uintptr_t>(args)));
    put(kTVMFFIInt, &insn - code_.data());
    for (int32_t i = 0; i < insn.num_args; ++i) {
      if (arg_index_[static_cast<size_t>(insn.args + i)] >= 0) call.push_back(args[i]);
    }
  } else {
    const std::string& name = program_->functions[static_cast<size_t>(insn.func)].name;
    call.push_back(*raw(&function_values_[static_cast<size_t>(insn.func)]));
    put(kTVMFFIRawStr, static_cast<int64_t>(reinterpret_cast<uintptr_t>(name.c_str())));
    put(kTVMFFIBool, 1);
    put(kTVMFFINone, 0);
    call.insert(call.end(), args, args + insn.num_args);
  }
  TVMFFIObject* function = raw(&instrument->function)->v_obj;
  TVMFFISafeCallType f = TVMFFIFunctionGetCellPtr(function)->safe_call;
  TVMFFIAny answer{};
  if (int rc = f(function, call.data(), static_cast<int32_t>(call.size()), &answer)) return rc;
  bool skip = (answer.type_index == kTVMFFIInt || answer.type_index == kTVMFFIBool) && answer.v_int64 == 1;
  release(answer);
  if (skip) return 0;
  if (int rc = call_insn(insn, args, ret)) return rc;
  if (instrument->by_frame) {
    call.resize(3);
    call[1].v_int64 = -1;
    call[2] = *ret;
  } else {
    call[2].v_int64 = 0;
    call[3] = *ret;
  }
  answer = TVMFFIAny{};
  int rc = f(function, call.data(), static_cast<int32_t>(call.size()), &answer);
  release(answer);
  if (rc != 0) {
    release(*ret);
    *ret = TVMFFIAny{};
  }
  return rc;
}

int VM::run(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  const FuncInfo& f = program_->functions[static_cast<size_t>(func)];
  if (__builtin_expect(num_args != f.num_args, 0)) return arity_error(f, num_args);
  if (f.kind == FuncKind::kVMTIR) {
    if (__builtin_expect(instrument_.load(std::memory_order_relaxed) == nullptr, 1)) {
      return run_compiled(func, args, num_args, ret);
    }
    FrameGuard none(&stack(), this, 0, 0, 0, 0);  // says which machine runs here
    return run_instrumented(code_[static_cast<size_t>(frames_[static_cast<size_t>(func)].entry)], args, ret);
  }
  RelaxStack& st = stack();
  if (__builtin_expect(st.counts(), 0) && st.no_room(f) != 0) return -1;
  const Frame* shape = &frames_[static_cast<size_t>(func)];
  FrameGuard frame(&st, this, static_cast<size_t>(num_args), static_cast<size_t>(shape->num_regs),
                   static_cast<size_t>(shape->borrowed), static_cast<size_t>(shape->max_args));
  TVMFFIAny* regs = frame.regs();
  if (__builtin_expect(regs == nullptr, 0)) return no_memory(f);
  for (int32_t i = 0; i < num_args; ++i) {
    set_any(regs + i, args[i]);
    if (shape->borrowed == 0) retain(args[i]);
  }
  TVMFFIAny* area = regs + shape->num_regs;
  const TVMFFIAny* pool = pool_.data();
  const int32_t* arg_index = arg_index_.data();
  const Insn* pc = code_.data() + f.start_instr;
  bool instrumented = instrument_.load(std::memory_order_relaxed) != nullptr || guarded();

  while (true) {
    const Insn& insn = *pc;
    switch (insn.op) {
      // Call dst, func, args... : dst := func(args...). Arguments are borrowed bit copies of registers.
      case Op::kCall:
      case Op::kCallVM: {
      generic_call:
        const int32_t* index = arg_index + insn.args;
        for (int32_t i = 0; i < insn.num_args; ++i) {
          int32_t k = index[i];
          set_any(area + i, k >= 0 ? regs[k] : pool[~k]);
        }
        TVMFFIAny result{};
        int rc;
        if (__builtin_expect(instrumented, 0)) {
          rc = run_instrumented(insn, area, &result);
        } else if (insn.op == Op::kCallVM) {
          rc = run(insn.func, area, insn.num_args, &result);
        } else {
          rc = insn.call(insn.self, area, insn.num_args, &result);
        }
        if (__builtin_expect(rc != 0, 0)) return add_frame_to_error(func, pc, rc);
        if (insn.dst >= 0) {
          TVMFFIAny old = regs[insn.dst];
          set_any(regs + insn.dst, result);
          release(old);
        } else {
          release(result);
        }
        ++pc;
        break;
      }
      // Call dst, func, args...; Ret dst : func(args...) in this frame.
      case Op::kTail:
      case Op::kTailClosure: {
        if (__builtin_expect(instrumented, 0) && st.depth < kWatchedDepth) goto generic_call;
        const int32_t target = become_target(insn, &frame);
        if (target == -1) goto generic_call;
        if (__builtin_expect(target < 0, 0)) return target == -2 ? add_frame_to_error(func, pc, -1) : -1;
        func = target;
        shape = &frames_[static_cast<size_t>(func)];
        regs = frame.regs();
        area = regs + shape->num_regs;
        pc = code_.data() + program_->functions[static_cast<size_t>(func)].start_instr;
        break;
      }
      // Call dst, vm.builtin.alloc_tensor, storage, ... : the same, and storage := None
      case Op::kCarve: {
        if (__builtin_expect(instrumented, 0)) goto generic_call;
        const int32_t* index = arg_index + insn.args;
        for (int32_t i = 0; i < 4; ++i) set_any(area + i, index[i] >= 0 ? regs[index[i]] : pool[~index[i]]);
        TVMFFIAny result{};
        int rc = alloc_tensor_taking(nullptr, area, 4, &result);
        if (__builtin_expect(rc != 0, 0)) return add_frame_to_error(func, pc, rc);
        regs[index[0]] = TVMFFIAny{};
        TVMFFIAny old = regs[insn.dst];
        set_any(regs + insn.dst, result);
        release(old);
        ++pc;
        break;
      }
      // Call dst, vm.builtin.copy, value : dst := value
      case Op::kMove: {
        if (__builtin_expect(instrumented, 0)) goto generic_call;
        int32_t k = arg_index[insn.args];
        TVMFFIAny value = k >= 0 ? regs[k] : pool[~k];
        retain(value);
        TVMFFIAny old = regs[insn.dst];
        regs[insn.dst] = value;
        release(old);
        ++pc;
        break;
      }
      // Call dst, vm.builtin.null_value : dst := None, which frees what it held
      case Op::kKill: {
        if (__builtin_expect(instrumented, 0)) goto generic_call;
        if (insn.dst >= 0) {
          TVMFFIAny old = regs[insn.dst];
          regs[insn.dst] = TVMFFIAny{};
          release(old);
        }
        ++pc;
        break;
      }
      // Ret result : the caller gets the register's value
      case Op::kRet:
        set_any(ret, regs[insn.dst]);
        if (insn.dst < static_cast<int32_t>(frame.borrowed())) {
          retain(*ret);
        } else {
          regs[insn.dst] = TVMFFIAny{};
        }
        return 0;
      // Goto offset : pc := pc + offset
      case Op::kGoto:
        if (insn.jump <= 0 && st.signals.interrupt()) return -1;
        pc += insn.jump;
        break;
      // If cond, false_offset : pc := pc + (cond != 0 ? 1 : false_offset)
      case Op::kIf: {
        bool ok;
        bool taken = truthy(regs[insn.dst], &ok);
        if (__builtin_expect(!ok, 0)) {
          fail("TypeError", "the condition of an If must be an int or bool, found %s", describe(regs[insn.dst]).c_str());
          return add_frame_to_error(func, pc, -1);
        }
        if (!taken && insn.jump <= 0 && st.signals.interrupt()) return -1;
        pc += taken ? 1 : insn.jump;
        break;
      }
    }
  }
}

// A function compiled to native code: __vmtir__name(machine, registers, constants, functions), which leaves its result
// in the register after the parameters. A failed call is told in that register, which is None then: its number in the low
// half of the payload, counting from 1, and the callee's place in the function table in the high half; 0 if not known.
int VM::run_compiled(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  const FuncInfo* f = &program_->functions[static_cast<size_t>(func)];
  if (__builtin_expect(num_args != f->num_args, 0)) return arity_error(*f, num_args);
  RelaxStack& st = stack();
  if (__builtin_expect(st.counts(), 0) && st.no_room(*f) != 0) return -1;
  auto registers = [&f] { return static_cast<size_t>(std::max(f->register_file_size, f->num_args + 1)); };
  TailCall tail;
  FrameGuard frame(&st, this, static_cast<size_t>(num_args), registers(), 0, 0, &tail);
  TVMFFIAny* regs = frame.regs();
  if (__builtin_expect(regs == nullptr, 0)) return no_memory(*f);
  for (int32_t i = 0; i < num_args; ++i) {
    regs[i] = args[i];
    retain(args[i]);
  }
  while (true) {
    const void* lists[] = {this, regs, pool_owner_.data(), function_values_.data()};
    TVMFFIAny call[4];
    for (size_t i = 0; i < 4; ++i) {
      call[i] = TVMFFIAny{};
      call[i].type_index = kTVMFFIOpaquePtr;
      call[i].v_ptr = const_cast<void*>(lists[i]);
    }
    const Callee& callee = compiled_[static_cast<size_t>(func)];
    TVMFFIAny result{};
    int rc = guarded() ? guard_call(f->name.c_str(), callee.call, callee.self, call, 4, &result)
                       : callee.call(callee.self, call, 4, &result);
    TVMFFIAny& out = regs[f->num_args];
    if (rc != 0) {
      const bool known = out.type_index == kTVMFFINone && out.v_int64 != 0;
      auto index = static_cast<int32_t>(out.v_int64 >> 32);
      const bool valid = known && index >= 0 && index < static_cast<int32_t>(program_->functions.size());
      return add_frame_to_error(func, known ? (out.v_int64 & 0xFFFFFFFF) - 1 : 0, valid ? index : -1, rc);
    }
    release(result);
    if (tail.func < 0) {
      *ret = out;
      out = TVMFFIAny{};
      return 0;
    }
    if (st.signals.interrupt()) return -1;
    func = tail.func;
    f = &program_->functions[static_cast<size_t>(func)];
    if (!frame.become(registers(), 0, &tail.args)) return no_memory(*f);
    regs = frame.regs();
    tail.func = -1;
  }
}

// Leaves a call to the frame of the compiled function that makes it last; other calls are made here and now.
int VM::tail_call(const TVMFFIAny& closure, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  TailCall* tail = stack().tail;
  if (instrument_.load(std::memory_order_relaxed) != nullptr && stack().depth < kWatchedDepth) tail = nullptr;
  auto* c = closure.type_index == ClosureObj::RuntimeTypeIndex() ? reinterpret_cast<ClosureObj*>(closure.v_obj) : nullptr;
  if (tail == nullptr || tail->func >= 0 || c == nullptr || c->packed != nullptr || c->program != program_ ||
      program_->functions[static_cast<size_t>(c->func)].kind != FuncKind::kVMTIR) {
    return invoke_closure(closure, args, num_args, ret);
  }
  const FuncInfo& f = program_->functions[static_cast<size_t>(c->func)];
  const auto total = static_cast<int64_t>(c->captured.size()) + num_args;
  if (total != f.num_args) return arity_error(f, static_cast<int32_t>(total));
  for (int32_t i = 0; i < num_args; ++i) {
    if (!tail->args.add_owned(args[i])) return -1;
  }
  for (const Any& value : c->captured) tail->args.add(*raw(&value));
  tail->func = c->func;
  return 0;
}

int VM::run_from_outside(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  bool plain = true;
  for (int32_t i = 0; i < num_args && plain; ++i) {
    int32_t t = args[i].type_index;
    plain = t == kTVMFFITensor ? is_in_order(*TVMFFITensorGetDLTensorPtr(args[i].v_obj))
                               : (t < kTVMFFIDLTensorPtr || t == kTVMFFISmallStr || t >= kTVMFFIStaticObjectBegin);
  }
  if (plain && !guarded()) return run(func, args, num_args, ret);
  std::vector<Any> owned(static_cast<size_t>(num_args));
  for (int32_t i = 0; i < num_args; ++i) {
    if (own_argument(args[i], raw(&owned[static_cast<size_t>(i)])) != 0) return -1;
  }
  if (guarded()) guard_tensors(&owned);
  int rc = run(func, raw(owned.data()), num_args, ret);
  if (guarded()) guard_give_back(owned, args);
  return rc;
}

int VM::invoke_closure(const TVMFFIAny& closure, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {
  if (closure.type_index == kTVMFFIFunction) {
    return TVMFFIFunctionGetCellPtr(closure.v_obj)->safe_call(closure.v_obj, args, num_args, ret);
  }
  if (closure.type_index != ClosureObj::RuntimeTypeIndex()) {
    return fail("TypeError", "expected a function or closure, found %s", describe(closure).c_str());
  }
  auto* c = reinterpret_cast<ClosureObj*>(closure.v_obj);
  if (c->packed == nullptr && c->program != program_) {
    return fail("ValueError", "the closure belongs to another executable");
  }
  std::vector<TVMFFIAny> bound;
  if (!c->captured.empty()) {
    bound.assign(args, args + num_args);
    for (const Any& value : c->captured) bound.push_back(*raw(&value));
    args = bound.data();
    num_args = static_cast<int32_t>(bound.size());
  }
  if (c->packed != nullptr) return TVMFFIFunctionGetCellPtr(c->packed)->safe_call(c->packed, args, num_args, ret);
  return run_from_outside(c->func, args, num_args, ret);
}

}  // namespace weft
