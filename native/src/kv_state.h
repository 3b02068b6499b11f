// What a decoder keeps of its sequences from step to step, whatever that is: the functions vm.builtin.kv_state_*.
#ifndef WEFT_KV_STATE_H_
#define WEFT_KV_STATE_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/optional.h>

#include <cstdint>

namespace weft {

class KVStateObj : public tvm::ffi::Object {
 public:
  virtual ~KVStateObj() = default;
  virtual void clear() = 0;
  virtual void add_sequence(int64_t id) = 0;
  virtual void remove_sequence(int64_t id) = 0;
  virtual void fork_sequence(int64_t parent, int64_t child, int64_t tokens) = 0;
  virtual void pop(int64_t id, int64_t tokens) = 0;
  // `parents` of the new tokens in their sequence's token tree.
  virtual void begin_forward(const tvm::ffi::Shape& ids, const tvm::ffi::Shape& tokens,
                             const tvm::ffi::Optional<tvm::ffi::Shape>& parents) = 0;
  virtual void end_forward() = 0;

  static constexpr bool _type_mutable = true;
  static constexpr uint32_t _type_child_slots = 4;
  TVM_FFI_DECLARE_OBJECT_INFO("relax.vm.KVState", KVStateObj, tvm::ffi::Object);
};

class KVState : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(KVState, tvm::ffi::ObjectRef, KVStateObj);
};

}  // namespace weft
#endif  // WEFT_KV_STATE_H_
