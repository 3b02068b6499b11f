// What builtins share: their arguments, and what is said of wrong ones.
#ifndef WEFT_BUILTIN_H_
#define WEFT_BUILTIN_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>

#include <string>

#include "error.h"
#include "vm.h"

namespace weft {

[[gnu::cold]] int wrong_argument(const char* name, int32_t i, const char* expected, const TVMFFIAny& found);
[[gnu::cold]] int too_few_arguments(const char* name, int32_t expected, int32_t found);

// One builtin's arguments and result. Members pass values on, not `this`, so that a call stays in registers.
struct Call {
  const char* name;
  const TVMFFIAny* args;
  int32_t n;
  TVMFFIAny* ret;

  void give(TVMFFIObject* owned) const { set_any(ret, object_any(owned)); }
  void give(tvm::ffi::Any value) const {
    *ret = *raw(&value);
    *raw(&value) = TVMFFIAny{};
  }
  void give_int(int64_t value, int32_t type_index = kTVMFFIInt) const {
    ret->type_index = type_index;
    ret->v_int64 = value;
  }
  int wrong(int32_t i, const char* expected) const { return wrong_argument(name, i, expected, args[i]); }
  int wrong_count(int32_t expected) const { return too_few_arguments(name, expected, n); }
};

inline bool int_at(const Call& c, int32_t i, int64_t* out) {
  if (c.args[i].type_index != kTVMFFIInt && c.args[i].type_index != kTVMFFIBool) return false;
  *out = c.args[i].v_int64;
  return true;
}

inline VM* vm_at(const Call& c) {
  // Only the VM puts its own pointer into an argument; a pointer that is not the running VM is refused.
  VM* vm = current_vm();
  return c.n > 0 && c.args[0].type_index == kTVMFFIOpaquePtr && c.args[0].v_ptr == vm ? vm : nullptr;
}

// The shape heap: an int64 vector on the CPU. Null when the argument is not one.
inline int64_t* heap_at(const Call& c, int32_t i, int64_t* size) {
  const DLTensor* t = tensor_of(c.args[i]);
  if (t == nullptr || t->ndim != 1 || t->dtype.code != kDLInt || t->dtype.bits != 64 || t->dtype.lanes != 1 ||
      t->device.device_type != kDLCPU) {
    return nullptr;
  }
  *size = t->shape[0];
  return reinterpret_cast<int64_t*>(static_cast<char*>(t->data) + t->byte_offset);
}

// A tensor argument whose elements the host reads: what lies on a device, or with gaps, is copied into `copy`. Null
// when it is none.
const DLTensor* host_tensor(const Call& c, int32_t i, tvm::ffi::Any* copy);

// The dimensions of a Shape argument.
inline const TVMFFIShapeCell* shape_at(const Call& c, int32_t i) {
  return c.args[i].type_index == kTVMFFIShape ? TVMFFIShapeGetCellPtr(c.args[i].v_obj) : nullptr;
}

inline int give_shape(const Call& c, const int64_t* dims, int64_t n) {
  TVMFFIObject* shape = shape_new(dims, n);
  if (shape == nullptr) return -1;
  c.give(shape);
  return 0;
}

inline const TVMFFISeqCell* tuple_at(const Call& c, int32_t i) {
  return c.args[i].type_index == kTVMFFIArray ? reinterpret_cast<TVMFFISeqCell*>(c.args[i].v_obj + 1) : nullptr;
}

// The first four are TVM's. A number that is stored, or loaded to be compared with, is named by its slot.
enum MatchCode : int64_t {
  kAssertEqualToImm, kStoreToHeap, kNoOp, kAssertEqualToLoad, kAtLeastImm, kAtLeastLoad, kAtMostImm, kAtMostLoad
};

// A value that is not what its code demands: raises "ShapeMismatch", or the class that the context names.
[[gnu::cold]] int mismatch(const Call& c, int64_t code, int64_t dim, int64_t expected, int64_t found,
                           const std::string* shape);
// The string of an argument, whatever its representation.
std::string text_of(const TVMFFIAny& value);
// What codegen says about a value: "ErrorContext(fn=main, loc=param[0], param=x, annotation=...)" becomes
// "main: argument 'x' (annotation)"; any other text is used as it stands.
std::string where_of(const TVMFFIAny& context);

int unique(const Call& c);  // unique.cc

// Checks of values against their annotations (builtin_checks.cc).
#define WEFT_CHECKS(X) \
  X(check_tensor_info) X(check_shape_info) X(check_prim_value_info) X(check_tuple_info) X(check_func_info)
#define WEFT_DECLARE(name) int entry_##name(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);
WEFT_CHECKS(WEFT_DECLARE)
#undef WEFT_DECLARE

// The safe-call face of each builtin: no exception leaves it.
#define WEFT_WRAP(name)                                                                                       \
  int entry_##name(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {                                 \
    try {                                                                                                     \
      return name(Call{#name, args, n, ret});                                                                 \
    } catch (const std::exception& e) {                                                                       \
      return fail("MemoryError", "vm.builtin." #name ": %s", e.what());                                       \
    }                                                                                                         \
  }

}  // namespace weft
#endif  // WEFT_BUILTIN_H_
