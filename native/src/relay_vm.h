// The Relay virtual machine: decoded code, frames on a per-thread stack, data types' values, closures, cells.
//
// A register holds nothing, an object (tensor, storage, ADT, closure, cell, array, ...) or a scalar: an int32, int64 or
// bool of rank 0 that has no tensor yet. Nobody outside sees the last kind: it becomes a tensor where it leaves for a
// primitive, a result or a constructor's field that is read from outside.
#ifndef WEFT_RELAY_VM_H_
#define WEFT_RELAY_VM_H_

#include <tvm/ffi/any.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hot_kernel.h"
#include "memory.h"
#include "relay_executable.h"
#include "vm.h"

namespace weft {

// The value of a data type ("weft.ADT"), a closure ("weft.RelayClosure") or a cell ("weft.Ref"): one layout.
struct Cell {
  TVMFFIObject object;
  int64_t tag;       // of a data type's value; of a closure the function's index
  uint64_t program;  // of a closure: the number of the program that the index is for
  int32_t n;         // fields, or free variables
  int32_t lock;      // of a "weft.Ref", while its field is read or written
  TVMFFIAny fields[1];
};

struct AdtObj : tvm::ffi::Object {
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.ADT", AdtObj, tvm::ffi::Object);
};
struct RelayClosureObj : tvm::ffi::Object {
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.RelayClosure", RelayClosureObj, tvm::ffi::Object);
};
struct RefObj : tvm::ffi::Object {
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.Ref", RefObj, tvm::ffi::Object);
};
inline int32_t adt_type() { return AdtObj::RuntimeTypeIndex(); }
inline int32_t relay_closure_type() { return RelayClosureObj::RuntimeTypeIndex(); }
inline int32_t ref_type() { return RefObj::RuntimeTypeIndex(); }
// A cell whose fields are yet to be set; null with the error raised.
Cell* cell_new(int32_t type, int64_t tag, int64_t n);
// The field of a "weft.Ref", which several threads may use at once; the caller keeps the cell alive.
tvm::ffi::Any read_ref(Cell* cell);
void write_ref(Cell* cell, const TVMFFIAny& value);
inline Cell* cell_of(const TVMFFIAny& value) { return reinterpret_cast<Cell*>(value.v_obj); }

// A scalar as a tensor, in place. 0, or -1 with the error raised.
int make_tensor(TVMFFIAny* scalar, DLDevice host);
// A value as the outside sees it, in place: scalars are tensors, tuples are arrays. 0, or -1 with the error raised.
int leave_machine(TVMFFIAny* value, DLDevice host, int depth = 0);

class RelayVM : public Watched {
 public:
  // Throws "ExecutableError" when primitives are missing or the program names more devices.
  RelayVM(std::shared_ptr<const RelayProgram> program, std::vector<tvm::ffi::Any> imports,
          std::vector<DLDevice> devices, std::vector<Allocator> allocators);

  // Runs a function on arguments from outside; ret is written on success only. Return code as safe_call.
  int run_from_outside(int32_t func, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);
  int invoke_closure(const TVMFFIAny& closure, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret);

  const RelayProgram& program() const { return *program_; }
  int32_t find(const std::string& name) const;
  // Calls function(None, name, before_run, ret_value, args...) before and after each primitive; an answer of 1 before
  // leaves it out. Anything but a function removes the instrument.
  void set_instrument(tvm::ffi::Any function);

  // Stateful interface, guarded by `state_mutex`.
  std::mutex state_mutex;
  std::map<std::string, std::vector<tvm::ffi::Any>> inputs;
  std::map<std::string, tvm::ffi::Any> outputs;

 private:
  enum class Op : uint8_t {
#define WEFT_RELAY_OP(name, number, operands, fields, meaning) k##name,
#include "relay_ops.def"
#undef WEFT_RELAY_OP
    kTailInvoke,
    kTailInvokeClosure,
  };
  struct Insn {
    Op op;
    uint8_t code;   // of a scalar operation
    int32_t dst;
    int32_t a, b;   // source registers, or jumps
    int32_t args;   // first index into arg_index_
    int32_t n;
    int64_t value;  // function, primitive or constant index, tag, field index, offset, number, ...
  };
  struct Code {
    const RelayFunction* function;
    int32_t begin;     // first instruction in insns_
    int32_t num_regs;
    int32_t area;      // words behind the registers, for the arguments of one call
    int32_t num_params;
  };
  struct Frame;
  struct Stack;

  Callee watched(int64_t index, std::string* name) const final;
  void replace(int64_t index, const Callee& callee) final { callees_[static_cast<size_t>(index)] = callee; }
  static Stack& stack();
  void decode();
  void decode_function(const RelayFunction& f, int32_t max_params);
  bool is_tail_call(const RelayFunction& f, size_t at, int64_t dst) const;
  Frame* push(Stack* st, const Code& code, const TVMFFIAny* first, size_t n_first) const;
  static void pop(Stack* st, const Frame* frame);
  int run(int32_t func, const TVMFFIAny* first, size_t n_first, const TVMFFIAny* args, size_t num_args, TVMFFIAny* ret);
  int loop(Stack* st, Frame* frame, TVMFFIAny* ret);
  Frame* enter(Stack* st, Frame* frame, const Insn& insn, bool* tail);
  void unwind(Stack* st, Frame* frame, const Insn* at, int rc) const;
  std::string callee_name(const Insn& insn) const;
  int run_packed(const Insn& insn, TVMFFIAny* regs, TVMFFIAny* area);
  int run_instrumented(const Insn& insn, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);
  int run_scalar(const Insn& insn, TVMFFIAny* regs) const;
  int run_memory(const Insn& insn, TVMFFIAny* regs) const;
  int run_object(const Insn& insn, TVMFFIAny* regs) const;
  int fatal(const Insn& insn) const;
  int arity_error(const RelayFunction& f, size_t found) const;

  std::shared_ptr<const RelayProgram> program_;
  uint64_t number_;                        // of the program in this process
  std::vector<tvm::ffi::Any> imports_;
  std::vector<DLDevice> devices_;
  std::vector<Allocator> allocators_;
  DLDevice host_{kDLCPU, 0};
  std::vector<tvm::ffi::Any> constants_;
  std::vector<Callee> callees_;
  std::vector<tvm::ffi::Any> kept_;        // owners of callees, shapes of AllocTensor
  std::vector<Code> codes_;
  std::vector<Insn> insns_;
  std::vector<int32_t> arg_index_;         // registers; ~register in a tail call: another argument has its reference
  std::atomic<const tvm::ffi::Any*> instrument_{nullptr};
  std::deque<tvm::ffi::Any> instruments_kept_;  // also old ones: a running call may still use them
};

}  // namespace weft
#endif  // WEFT_RELAY_VM_H_
