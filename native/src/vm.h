// The Relax virtual machine: decoded code, frames on a per-thread stack, closures, instrumentation, stateful calls.
#ifndef WEFT_VM_H_
#define WEFT_VM_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "error.h"
#include "executable.h"
#include "hot_kernel.h"
#include "memory.h"

namespace weft {

// Modules that know the addresses of their functions; the VM then calls the kernel itself, with no wrapper between.
class CodeModule : public tvm::ffi::ModuleObj {
 public:
  virtual TVMFFISafeCallType address(const std::string& name) = 0;
};

// A function of modules or of what they import; an owner that it needs is added to `keep`. Null when there is none.
Callee find_in_imports(const std::vector<tvm::ffi::Any>& imports, const std::string& name,
                       std::vector<tvm::ffi::Any>* keep);
// The function of a name: imports first, then the runtime's own table, then the global registry.
Callee find_callee(const std::vector<tvm::ffi::Any>& imports, const std::string& name,
                   std::vector<tvm::ffi::Any>* keep);
// Throws "ExecutableError" when there are names of functions that were not found.
void raise_missing(const std::vector<std::string>& names);
// Appends "File "<weft:main>", line 3, in add4" to the raised error, so that tracebacks show the VM's frames.
int append_frame(const std::string& function, int64_t line, const std::string& callee, int rc);
// Ctrl-C and other signals of the surrounding environment; true with the error raised. The kind tells tvm-ffi that the
// exception itself is already set on the other side.
bool interrupted();
// Asked at every turn of a loop, looks at Ctrl-C some twenty times a second, however long the turns take.
class SignalWatch {
 public:
  bool interrupt() { return __builtin_expect(--left_ == 0, 0) && look(); }

 private:
  bool look();
  static constexpr uint32_t kLongest = 1 << 12;
  uint32_t left_ = 1, period_ = 1;
  std::chrono::steady_clock::time_point last_;
};

// Builtins of the runtime's own table ("vm.builtin.x"), or null.
TVMFFISafeCallType find_builtin(const std::string& name);
std::vector<std::string> builtin_names();
// vm.builtin.alloc_tensor, which on success also takes the reference to the storage from its first argument.
int alloc_tensor_taking(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);

// vm.builtin.append of two tensors, in growing.cc.
int append_row(const TVMFFIAny& rows, const TVMFFIAny& row, int64_t announced, TVMFFIAny* ret);

// A function value: a VM function or packed function with arguments bound at the end.
class ClosureObj : public tvm::ffi::Object {
 public:
  std::shared_ptr<const Program> program;
  int32_t func = -1;                    // index in the program, or
  TVMFFIObject* packed = nullptr;       // an owned ffi.Function
  std::vector<tvm::ffi::Any> captured;
  ~ClosureObj() {
    if (packed != nullptr) TVMFFIObjectDecRef(packed);
  }
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.VMClosure", ClosureObj, tvm::ffi::Object);
};

class FrameGuard;
class TailArguments;

class VM : public Watched {
 public:
  // Throws "ExecutableError" when functions are missing.
  VM(std::shared_ptr<const Program> program, std::vector<tvm::ffi::Any> imports, std::vector<DLDevice> devices,
     std::vector<Allocator> allocators);
  ~VM();

  // Runs a function of the program; ret is written on success only. Return code as safe_call.
  int run(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);
  // The same for arguments from outside: views are owned, tensors that are not contiguous or aligned are copied.
  int run_from_outside(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);
  int invoke_closure(const TVMFFIAny& closure, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);

  // The same, after the running compiled function has returned, as its result.
  int tail_call(const TVMFFIAny& closure, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);

  const Program& program() const { return *program_; }
  std::shared_ptr<const Program> shared_program() const { return program_; }
  int32_t find(const std::string& name) const;
  const DLDevice* device(int64_t index) const;
  Allocator allocator(int64_t index) const { return allocators_[static_cast<size_t>(index)]; }

  // Calls `function` before and after each call; anything but a function removes the instrument. Called by frame it
  // gets (frame, instruction, values of registers...) before, which answers 1 to skip the call, and (frame, -1,
  // ret_value) after; else (func, name, before_run, ret_value, args...) both times.
  void set_instrument(tvm::ffi::Any function, bool by_frame);
  // What the other instrument gets for an instruction: func, name, args... with None for registers, whose positions
  // are added to `registers`. Empty when there is no such Call.
  std::vector<tvm::ffi::Any> call_values(int64_t pc, std::vector<int64_t>* registers) const;

  // Stateful interface, guarded by `state_mutex`.
  std::mutex state_mutex;
  std::map<std::string, std::vector<tvm::ffi::Any>> inputs;
  std::map<std::string, tvm::ffi::Any> outputs;
  std::map<std::string, tvm::ffi::Function> saved;

 private:
  enum class Op : uint8_t { kCall, kCallVM, kTail, kTailClosure, kCarve, kMove, kKill, kRet, kGoto, kIf };
  struct Insn {
    Op op;
    int32_t dst;       // destination, result or condition register; -1: nobody reads the result
    int32_t num_args;
    int32_t args;      // first index into arg_index_
    int32_t func;      // function index, for messages and instruments
    int32_t jump;      // relative, in instructions
    TVMFFISafeCallType call;
    void* self;
  };
  struct Frame {
    int32_t num_regs = 0;
    int32_t borrowed = 0;  // registers of parameters that the caller's references keep alive: all, or none when written
    int32_t max_args = 0;
    int32_t entry = -1;    // of a compiled function: the instruction in code_ that stands for calls from outside
  };

  Callee watched(int64_t index, std::string* name) const final;
  void replace(int64_t index, const Callee& callee) final;
  void resolve_functions();
  void decode();
  void mark_tail_calls(const FuncInfo& f);
  int32_t tail_target(const Insn& insn, const TVMFFIAny* regs, TailArguments* out);
  int32_t become_target(const Insn& insn, FrameGuard* frame);
  int32_t decode_argument(int64_t word);
  int32_t pool_slot(const TVMFFIAny& owned);
  int run_instrumented(const Insn& insn, const TVMFFIAny* args, TVMFFIAny* ret);
  int call_insn(const Insn& insn, const TVMFFIAny* args, TVMFFIAny* ret);
  int run_compiled(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);
  int add_frame_to_error(int32_t func, const Insn* at, int rc);
  int add_frame_to_error(int32_t func, int64_t at, int32_t callee_index, int rc);
  int arity_error(const FuncInfo& f, int32_t num_args);

  std::shared_ptr<const Program> program_;
  std::vector<tvm::ffi::Any> imports_;
  std::vector<DLDevice> devices_;
  std::vector<Allocator> allocators_;
  std::vector<Callee> callees_;               // by function index; packed functions only
  std::vector<Callee> compiled_;              // by function index; functions of kind kVMTIR only
  std::vector<tvm::ffi::Any> compiled_kept_;  // owners of them
  std::vector<tvm::ffi::Any> function_values_;  // by function index: Function or closure, as arguments see it
  std::vector<Frame> frames_;
  std::vector<Insn> code_;                    // the program's instructions, then one for each compiled function
  std::vector<int32_t> arg_index_;            // >= 0: register; < 0: ~index into pool_
  std::vector<TVMFFIAny> pool_;               // constants, immediates, functions; borrowed from pool_owner_
  std::vector<tvm::ffi::Any> pool_owner_;
  struct Instrument {
    tvm::ffi::Any function;
    bool by_frame;
  };
  std::atomic<const Instrument*> instrument_{nullptr};
  std::deque<Instrument> instruments_kept_;  // also old ones: a running call may still use them
};

// The VM whose code is running on this thread, or null.
VM* current_vm();

inline const TVMFFIAny* raw(const tvm::ffi::Any* value) { return reinterpret_cast<const TVMFFIAny*>(value); }
inline TVMFFIAny* raw(tvm::ffi::Any* value) { return reinterpret_cast<TVMFFIAny*>(value); }
inline bool is_object(const TVMFFIAny& value) { return value.type_index >= kTVMFFIStaticObjectBegin; }
inline void retain(const TVMFFIAny& value) {
  if (is_object(value)) __atomic_fetch_add(&value.v_obj->combined_ref_count, 1, __ATOMIC_RELAXED);
}
inline void release(const TVMFFIAny& value) {
  if (is_object(value)) decref(value.v_obj);
}
inline TVMFFIAny object_any(TVMFFIObject* object) {
  TVMFFIAny out{};
  out.type_index = object->type_index;
  out.v_obj = object;
  return out;
}
// Copies word by word: a 16-byte load behind two narrower stores would wait until both have left the store buffer.
inline void set_any(TVMFFIAny* to, const TVMFFIAny& from) {
  uint64_t words[2];
  std::memcpy(words, &from, 8);
  std::memcpy(words + 1, &from.v_int64, 8);
  std::memcpy(static_cast<void*>(to), words, 8);
  std::memcpy(&to->v_int64, words + 1, 8);
}
// A tensor over some of the same memory, from an offset in bytes on, with another dtype or shape; in module.cc.
tvm::ffi::Any tensor_part(const tvm::ffi::Any& source, const int64_t* shape, int32_t rank, DLDataType dtype, uint64_t at);
// An owned value from a borrowed argument; tensors that are not contiguous or aligned are copied. 0, or -1 and raised.
int own_argument(const TVMFFIAny& value, TVMFFIAny* out);

}  // namespace weft
#endif  // WEFT_VM_H_
