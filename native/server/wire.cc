#include "wire.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace weft::rpc {

WireTensor Reader::tensor() {
  WireTensor t;
  t.data = take<uint64_t>();
  t.device.device_type = static_cast<DLDeviceType>(take<int32_t>());
  t.device.device_id = take<int32_t>();
  auto rank = take<int32_t>();
  t.dtype = take<DLDataType>();
  if (rank < 0 || rank > kMaxRank) throw Malformed("a tensor of rank " + std::to_string(rank));
  for (int32_t i = 0; i < rank; ++i) {
    t.shape.push_back(take<int64_t>());
    if (t.shape.back() < 0) throw Malformed("a tensor with a dimension of " + std::to_string(t.shape.back()));
  }
  t.byte_offset = take<uint64_t>();
  return t;
}

WireValue Reader::value() {
  WireValue v;
  v.kind = take<int32_t>();
  switch (v.kind) {
    case kTVMFFINone: return v;
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIOpaquePtr:
    case kTVMFFIFunction:
    case kTVMFFIModule: v.number = take<int64_t>(); return v;
    case kTVMFFIFloat: v.real = take<double>(); return v;
    case kTVMFFIDataType: v.dtype = take<DLDataType>(), take<int32_t>(); return v;
    case kTVMFFIDevice:
      v.device.device_type = static_cast<DLDeviceType>(take<int32_t>());
      v.device.device_id = take<int32_t>();
      return v;
    case kTVMFFIDLTensorPtr: v.tensor = tensor(); return v;
    case kTVMFFIRawStr:
    case kTVMFFIByteArrayPtr: v.text = text(); return v;
    default: break;
  }
  if (v.kind < kTVMFFIStaticObjectBegin && v.kind != kTVMFFISmallStr && v.kind != kTVMFFISmallBytes) {
    throw Malformed("a value of type " + std::to_string(v.kind));
  }
  constexpr int32_t kRPCObject = 115;
  auto kind = take<int32_t>();
  if (kind == kRPCObject) {
    v.kind = kTVMFFIOpaquePtr;
    v.number = take<int64_t>();
  } else if (kind == kTVMFFIStr || kind == kTVMFFIBytes) {
    v.kind = kind == kTVMFFIStr ? kTVMFFIRawStr : kTVMFFIByteArrayPtr;
    v.text = text();
  } else {
    throw Malformed("an object of type " + std::to_string(kind));
  }
  return v;
}

std::vector<WireValue> Reader::values() {
  auto count = take<int32_t>();
  if (count < 0 || static_cast<uint64_t>(count) > left() / 4) {
    throw Malformed(std::to_string(count) + " values in " + std::to_string(left()) + " bytes");
  }
  std::vector<WireValue> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(value());
  if (left() != 0) throw Malformed(std::to_string(left()) + " bytes too many");
  return out;
}

void Writer::text(std::string_view value) {
  bool ends_early = value.find('\0') != std::string_view::npos;  // as a C string
  tag(ends_early ? kTVMFFIStr : kTVMFFIRawStr);
  if (ends_early) put(int32_t{kTVMFFIStr});
  put(uint64_t{value.size()});
  data_.append(value);
}

void Writer::tensor(uint64_t data, const DLTensor& like) {
  tag(kTVMFFIDLTensorPtr);
  put(data);
  put(static_cast<int32_t>(like.device.device_type)), put(like.device.device_id), put(like.ndim), put(like.dtype);
  for (int32_t i = 0; i < like.ndim; ++i) put(like.shape[i]);
  put(uint64_t{0});
}

std::string Writer::take() {
  uint64_t size = data_.size() - sizeof size;
  std::memcpy(&data_[0], &size, sizeof size);
  std::memcpy(&data_[sizeof size + 4], &count_, sizeof count_);
  return std::move(data_);
}

std::string void_packet() {
  Writer w(Code::kReturn);
  w.none();
  return w.take();
}

std::string exception_packet(const std::string& text) {
  Writer w(Code::kException);
  w.text(text);
  return w.take();
}

void DescriptorConnection::read(char* to, size_t n) {
  while (n != 0) {
    ssize_t got = ::read(reads_, to, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Closed();
    to += got;
    n -= static_cast<size_t>(got);
  }
}

void DescriptorConnection::write(std::string_view data) {
  while (!data.empty()) {
    ssize_t sent = ::write(writes_, data.data(), data.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw Closed();
    data.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace weft::rpc
