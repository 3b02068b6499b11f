// Tensors that grow by rows. A version is an ordinary tensor, a view of the front of a buffer with room behind it; only
// the longest one is followed by free room, so that appending to it writes in place and the older ones stay what they
// were. Appending to an older one copies it into a buffer of its own.
#include <atomic>
#include <algorithm>
#include <cstring>
#include <vector>

#include "error.h"
#include "vm.h"

namespace weft {

namespace {

constexpr int64_t kLeastBytes = 256;
constexpr int64_t kMostAhead = int64_t{1} << 30;  // bytes taken at once for rows that are only announced

class GrowingObj : public tvm::ffi::Object {
 public:
  TVMFFIObject* storage;
  char* data;
  int64_t capacity;
  std::atomic<int64_t> used;  // bytes of the longest version
  ~GrowingObj() { decref(storage); }
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("weft.Growing", GrowingObj, tvm::ffi::Object);
};

// The buffer that a tensor of so many bytes is the longest version in, or null.
GrowingObj* buffer_of(const TVMFFIAny& tensor) {
  TVMFFIObject* owner = tensor_owner(tensor.v_obj);
  if (owner == nullptr || owner->type_index != GrowingObj::RuntimeTypeIndex()) return nullptr;
  auto* buffer = reinterpret_cast<GrowingObj*>(owner);
  const DLTensor& t = *tensor_of(tensor);
  return t.data == buffer->data && t.byte_offset == 0 && is_contiguous(t) ? buffer : nullptr;
}

bool same_kind(const DLTensor& rows, const DLTensor& row) {
  return rows.ndim == row.ndim + 1 && rows.dtype.code == row.dtype.code && rows.dtype.bits == row.dtype.bits &&
         rows.dtype.lanes == row.dtype.lanes && rows.device.device_type == kDLCPU && row.device.device_type == kDLCPU;
}

int copy_to(const DLTensor& from, char* data) {
  DLTensor to = from;
  to.data = data;
  to.byte_offset = 0;
  to.strides = nullptr;
  return tensor_copy(from, &to);
}

}  // namespace

// rows is (n, d...) and row (d...), or rows is empty and row of any shape of its rank: (n + 1, d...). There may be up to
// `announced` rows in the end.
int append_row(const TVMFFIAny& rows_value, const TVMFFIAny& row_value, int64_t announced, TVMFFIAny* ret) {
  const DLTensor &rows = *tensor_of(rows_value), &row = *tensor_of(row_value);
  if (!same_kind(rows, row)) {
    return fail("TypeError", "vm.builtin.append: cannot append %s to %s", describe(row_value).c_str(),
                describe(rows_value).c_str());
  }
  const int64_t n = rows.shape[0];
  if (n != 0 && !std::equal(row.shape, row.shape + row.ndim, rows.shape + 1)) {
    return fail("ValueError", "an iteration gave an output of shape %s, the ones before it %s",
                shape_text(row.shape, row.ndim).c_str(), shape_text(rows.shape + 1, row.ndim).c_str());
  }
  std::vector<int64_t> shape(row.shape, row.shape + row.ndim);
  shape.insert(shape.begin(), n + 1);
  int64_t row_bytes, bytes;
  if (!tensor_nbytes(shape.data(), rows.ndim, row.dtype, &bytes) ||
      !tensor_nbytes(row.shape, row.ndim, row.dtype, &row_bytes) || bytes != (n + 1) * row_bytes) {
    return fail("ValueError", "cannot make a tensor of shape %s and dtype %s", shape_text(shape.data(), rows.ndim).c_str(),
                dtype_name(row.dtype).c_str());
  }
  int64_t used = bytes - row_bytes;
  GrowingObj* buffer = n == 0 ? nullptr : buffer_of(rows_value);
  tvm::ffi::ObjectPtr<GrowingObj> fresh;
  if (buffer == nullptr || bytes > buffer->capacity || !buffer->used.compare_exchange_strong(used, bytes)) {
    const bool ahead = announced > n && row_bytes <= kMostAhead / announced;
    const int64_t capacity = ahead ? announced * row_bytes : std::max(kLeastBytes, 2 * bytes);
    TVMFFIObject* storage = storage_new(capacity, rows.device, Allocator::kPooled);
    if (storage == nullptr) return -1;
    fresh = tvm::ffi::make_object<GrowingObj>();
    fresh->storage = storage;
    fresh->data = static_cast<char*>(reinterpret_cast<StorageObj*>(storage)->data);
    fresh->capacity = capacity;
    fresh->used = bytes;
    buffer = fresh.get();
    if (n != 0 && copy_to(rows, buffer->data) != 0) return -1;
  }
  char* to = buffer->data + (bytes - row_bytes);
  if (is_contiguous(row)) {
    std::memcpy(to, static_cast<const char*>(row.data) + row.byte_offset, static_cast<size_t>(row_bytes));
  } else if (copy_to(row, to) != 0) {
    return -1;
  }
  auto* owner = reinterpret_cast<TVMFFIObject*>(static_cast<tvm::ffi::Object*>(buffer));
  TVMFFIObject* longer = tensor_new(owner, buffer->data, rows.device, row.dtype, shape.data(), rows.ndim);
  if (longer == nullptr) return -1;
  *ret = object_any(longer);
  return 0;
}

}  // namespace weft
