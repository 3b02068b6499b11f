// Frames of the Relay virtual machine and values in registers, for the files that it is made of.
#ifndef WEFT_RELAY_FRAME_H_
#define WEFT_RELAY_FRAME_H_

#include "register_stack.h"
#include "relay_vm.h"

namespace weft {

constexpr uint32_t kInt32 = 32;  // zero_padding of an int32 scalar; an int64 has 0

inline bool is_scalar(const TVMFFIAny& value) {
  return value.type_index == kTVMFFIInt || value.type_index == kTVMFFIBool;
}

inline void put(TVMFFIAny* reg, const TVMFFIAny& owned) {
  TVMFFIAny old = *reg;
  set_any(reg, owned);
  release(old);
}

inline void put_int(TVMFFIAny* reg, int64_t value, int32_t type_index = kTVMFFIInt, uint32_t bits = 0) {
  TVMFFIAny old = *reg;
  reg->type_index = type_index;
  reg->zero_padding = bits;
  reg->v_int64 = value;
  release(old);
}

// The fields of a data type's value or of a tuple that came as an array; false when it is neither.
inline bool fields_of(const TVMFFIAny& value, int32_t adt, const TVMFFIAny** fields, int64_t* n) {
  if (value.type_index == adt) {
    *fields = cell_of(value)->fields;
    *n = cell_of(value)->n;
    return true;
  }
  if (value.type_index != kTVMFFIArray) return false;
  auto* cell = reinterpret_cast<TVMFFISeqCell*>(value.v_obj + 1);
  *fields = static_cast<const TVMFFIAny*>(cell->data);
  *n = cell->size;
  return true;
}

inline bool is_tuple(const TVMFFIAny& value, int32_t adt) {
  return value.type_index == kTVMFFIArray || (value.type_index == adt && cell_of(value)->tag == 0);
}

// The number in a scalar or in an int64 or int32 tensor of rank 0 on the CPU; false for others.
inline bool quick_int(const TVMFFIAny& value, int64_t* number) {
  if (is_scalar(value)) {
    *number = value.v_int64;
    return true;
  }
  if (value.type_index != kTVMFFITensor) return false;
  const DLTensor* t = TVMFFITensorGetDLTensorPtr(value.v_obj);
  if (t->ndim != 0 || t->dtype.code != kDLInt || t->dtype.lanes != 1 || t->device.device_type != kDLCPU) return false;
  const char* data = static_cast<const char*>(t->data) + t->byte_offset;
  if (t->dtype.bits == 64) {
    *number = *reinterpret_cast<const int64_t*>(data);
    return true;
  }
  if (t->dtype.bits != 32) return false;
  *number = *reinterpret_cast<const int32_t*>(data);
  return true;
}

// What a value is, for messages: scalars are tensors there too.
std::string describe_value(const TVMFFIAny& value);
// Reads an integer or bool of one element; `as` gets the register form of its dtype. False when it is none.
bool read_scalar(const TVMFFIAny& value, TVMFFIAny* as);

// In front of its registers, on the stack of its thread.
struct RelayVM::Frame {
  Frame* caller;     // null: the caller is outside
  const Code* code;
  const Insn* at;    // the call that this frame waits for
  Chunk* chunk;      // where the stack was before
  TVMFFIAny* top;
  TVMFFIAny* regs() { return reinterpret_cast<TVMFFIAny*>(this) + own_words(); }
  static constexpr size_t own_words() { return (sizeof(Frame) + sizeof(TVMFFIAny) - 1) / sizeof(TVMFFIAny); }
  static size_t words(const Code& code) { return own_words() + static_cast<size_t>(code.num_regs + code.area); }
};

struct RelayVM::Stack : RegisterStack {
  int64_t depth = 0;
  int nested = 0;
  uint32_t ticks = 0;

  // Forgets what a deep recursion took.
  void shrink() {
    while (chunk != nullptr && chunk->next != nullptr) {
      Chunk* next = chunk->next;
      chunk->next = next->next;
      std::free(next);
    }
  }
};

}  // namespace weft
#endif  // WEFT_RELAY_FRAME_H_
