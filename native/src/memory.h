// Memory of tensors: pooled and naive blocks, Storage objects, and tensor headers from a per-thread free list.
#ifndef WEFT_MEMORY_H_
#define WEFT_MEMORY_H_

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/object.h>

#include <cstddef>
#include <cstdint>

namespace weft {

constexpr size_t kAlignment = 64;

enum class Allocator : uint8_t { kNaive = 1, kPooled = 2 };  // TVM's AllocatorType numbers

// Raw 64-byte aligned memory. `*actual` is the block's size, which block_free needs. Null when out of memory.
void* block_alloc(size_t nbytes, Allocator kind, size_t* actual);
void block_free(void* data, size_t actual, Allocator kind);

// A block of device memory that tensors are carved from.
class StorageObj : public tvm::ffi::Object {
 public:
  void* data;
  size_t nbytes;   // as asked for
  size_t actual;   // as allocated
  DLDevice device;
  Allocator kind;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.Storage", StorageObj, tvm::ffi::Object);
};

// Each returns an owned handle, or null with the error raised.
TVMFFIObject* storage_new(int64_t nbytes, DLDevice device, Allocator kind);
// A tensor inside `owner` (any object kept alive, borrowed here), with contiguous strides. `data` points at element 0.
TVMFFIObject* tensor_new(TVMFFIObject* owner, void* data, DLDevice device, DLDataType dtype, const int64_t* shape,
                         int32_t ndim);
// The same, and with it passes the caller's reference to the owner.
TVMFFIObject* tensor_new_taking(TVMFFIObject* owner, void* data, DLDevice device, DLDataType dtype, const int64_t* shape,
                                int32_t ndim);
// What keeps a tensor's memory, borrowed; null of a tensor that was not made by these functions.
TVMFFIObject* tensor_owner(TVMFFIObject* tensor);
// A fresh contiguous tensor on the CPU.
TVMFFIObject* tensor_empty(const int64_t* shape, int32_t ndim, DLDataType dtype, DLDevice device, Allocator kind);

// Brackets the functions of the VM that run on this thread; in between, a freed tensor may keep its storage a little
// longer, at most until the next storage or workspace is allocated.
void function_begins();
void function_ends();

// A Shape with a copy of dims.
TVMFFIObject* shape_new(const int64_t* dims, int64_t n);

// Gives a reference back. The only owner of an object without weak references needs no atomic subtraction: nobody else
// can reach the object to count it up.
inline void decref(TVMFFIObject* object) {
  constexpr uint64_t kOnlyOwner = (uint64_t{1} << 32) | 1;
  if (__atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE) == kOnlyOwner && object->deleter != nullptr) {
    object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskBoth);
  } else {
    tvm::ffi::detail::ObjectUnsafe::DecRefObjectHandle(object);
  }
}

// Bytes of a contiguous tensor; false on a negative dimension or overflow.
bool tensor_nbytes(const int64_t* shape, int64_t ndim, DLDataType dtype, int64_t* nbytes);
bool is_contiguous(const DLTensor& tensor);
// Copies between CPU tensors of equal shape and dtype; any strides. 0, or -1 with the error raised.
int tensor_copy(const DLTensor& from, DLTensor* to);

struct PoolStatistics {
  int64_t live_bytes, peak_bytes, free_bytes;
  int64_t system_allocations;  // of blocks, headers and shapes that no cache had, since the process began
};
PoolStatistics pool_statistics();
void pool_trim();

}  // namespace weft
#endif  // WEFT_MEMORY_H_
