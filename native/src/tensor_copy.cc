// Sizes and strides of tensors, and copies between them.
#include <cstring>
#include <vector>

#include "device_api.h"
#include "error.h"
#include "memory.h"

namespace weft {

bool tensor_nbytes(const int64_t* shape, int64_t ndim, DLDataType dtype, int64_t* nbytes) {
  int64_t bits = static_cast<int64_t>(dtype.bits) * dtype.lanes;
  bool zero = false, overflow = false;
  for (int64_t i = 0; i < ndim; ++i) {
    if (shape[i] < 0) return false;
    zero |= shape[i] == 0;
    overflow |= __builtin_mul_overflow(bits, shape[i], &bits);
  }
  if (zero) bits = 0;  // whatever the other dimensions say
  if (!zero && (overflow || bits > INT64_MAX - 7)) return false;
  *nbytes = (bits + 7) / 8;
  return true;
}

bool is_contiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  uint64_t expected = 1;  // wraps before an empty dimension is found
  bool ok = true;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && static_cast<uint64_t>(tensor.strides[i]) != expected) ok = false;
    expected *= static_cast<uint64_t>(tensor.shape[i]);
  }
  return ok;
}

static void copy_strided(const char* from, const int64_t* from_strides, char* to, const int64_t* to_strides,
                         const int64_t* shape, int32_t ndim, int64_t item) {
  if (ndim == 0) {
    std::memcpy(to, from, static_cast<size_t>(item));
    return;
  }
  if (ndim == 1 && from_strides[0] == 1 && to_strides[0] == 1) {
    std::memcpy(to, from, static_cast<size_t>(item * shape[0]));
    return;
  }
  for (int64_t i = 0; i < shape[0]; ++i) {
    copy_strided(from + i * from_strides[0] * item, from_strides + 1, to + i * to_strides[0] * item, to_strides + 1,
                 shape + 1, ndim - 1, item);
  }
}

static void fill_strides(const DLTensor& tensor, std::vector<int64_t>* strides) {
  strides->resize(static_cast<size_t>(tensor.ndim) + 1);
  uint64_t stride = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    (*strides)[static_cast<size_t>(i)] = tensor.strides != nullptr ? tensor.strides[i] : static_cast<int64_t>(stride);
    stride *= tensor.shape[i];
  }
}

int tensor_copy(const DLTensor& from, DLTensor* to) {
  bool same = from.ndim == to->ndim && from.dtype.code == to->dtype.code && from.dtype.bits == to->dtype.bits &&
              from.dtype.lanes == to->dtype.lanes;
  for (int32_t i = 0; same && i < from.ndim; ++i) same = from.shape[i] == to->shape[i];
  if (!same) {
    return fail("ValueError", "cannot copy a tensor %s%s into a tensor %s%s", dtype_name(from.dtype).c_str(),
                shape_text(from.shape, from.ndim).c_str(), dtype_name(to->dtype).c_str(),
                shape_text(to->shape, to->ndim).c_str());
  }
  for (DLDevice device : {from.device, to->device}) {
    if (device.device_type != kDLCPU && DeviceApi::find(device.device_type) == nullptr) {
      return fail("ValueError", "cannot copy between device types %d and %d: this runtime has the CPU, CUDA and OpenCL",
                  from.device.device_type, to->device.device_type);
    }
  }
  int64_t nbytes = 0;
  if (!tensor_nbytes(from.shape, from.ndim, from.dtype, &nbytes)) return fail("ValueError", "tensor too large");
  const char* source = static_cast<const char*>(from.data) + from.byte_offset;
  char* target = static_cast<char*>(to->data) + to->byte_offset;
  if (nbytes == 0) return 0;
  if (from.device.device_type != kDLCPU || to->device.device_type != kDLCPU) {
    if (!is_contiguous(from) || !is_contiguous(*to)) {
      return fail("ValueError", "cannot copy strided tensors between devices; make them contiguous first");
    }
    return device_copy(source, from.device, target, to->device, static_cast<size_t>(nbytes));
  }
  if (is_contiguous(from) && is_contiguous(*to)) {
    std::memmove(target, source, static_cast<size_t>(nbytes));
    return 0;
  }
  int64_t bits = static_cast<int64_t>(from.dtype.bits) * from.dtype.lanes;
  if (bits % 8 != 0) return fail("ValueError", "cannot copy strided tensors of dtype %s", dtype_name(from.dtype).c_str());
  std::vector<int64_t> from_strides, to_strides;
  fill_strides(from, &from_strides);
  fill_strides(*to, &to_strides);
  copy_strided(source, from_strides.data(), target, to_strides.data(), from.shape, from.ndim, bits / 8);
  return 0;
}

}  // namespace weft
