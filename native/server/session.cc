#include "session.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <algorithm>

#include "error.h"
#include "memory.h"
#include "vm.h"

namespace weft::rpc {

using tvm::ffi::Any;
using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::String;

namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kHeadBytes = 4096;  // enough for the head of any copy
const char kProtocolVersion[] = "0.8.0";

uint64_t element_bytes(DLDataType dtype, uint64_t count) {
  uint64_t bits = uint64_t{dtype.bits} * dtype.lanes, total = 0;
  if (__builtin_mul_overflow(count, bits, &total) || total > UINT64_MAX - 7) raise_error("ValueError", "the tensor is too large");
  return (total + 7) / 8;
}

uint64_t count_of(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (int64_t d : shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n)) raise_error("ValueError", "the tensor is too large");
  }
  return n;
}

const DLTensor* tensor_in(const Any& value) {
  return value.type_index() == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(raw(&value)->v_obj) : nullptr;
}

void check_cpu(DLDevice device) {
  if (device.device_type == kDLCPU && device.device_id == 0) return;
  raise_error("InvalidArgument", "this machine has no device of type %d with the number %d; it serves its CPU",
              static_cast<int>(device.device_type), device.device_id);
}

const WireValue& expect(const std::vector<WireValue>& values, size_t i, std::initializer_list<int32_t> kinds) {
  if (i < values.size() && std::find(kinds.begin(), kinds.end(), values[i].kind) != kinds.end()) return values[i];
  raise_error("InvalidArgument", "a packet has the wrong values: value %zu of %zu", i, values.size());
}

std::string with_handle(int32_t kind, uint64_t handle) {
  Writer w(Code::kReturn);
  w.integer(kind);
  w.handle(handle);
  return w.take();
}

Any make_tensor(const DLTensor& like) {
  TVMFFIObject* made = tensor_empty(like.shape, like.ndim, like.dtype, like.device, Allocator::kPooled);
  if (made == nullptr) TVM_FFI_CHECK_SAFE_CALL(-1);
  Any out;
  *raw(&out) = object_any(made);
  return out;
}

}  // namespace

uint64_t Limits::memory() const {
  if (memory_bytes != 0) return memory_bytes;
  return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) * static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) / 4 * 3;
}

Session::Session(Connection* link, std::string folder, Limits limits)
    : link_(link), folder_(std::move(folder)), limits_(limits), memory_left_(limits.memory()) {}

void Session::run() {
  try {
    while (answer_next()) {
    }
  } catch (const Closed&) {
  } catch (const Malformed& e) {
    try {
      link_->write(exception_packet(e.what()));
    } catch (const Closed&) {
    }
  }
  objects_.clear();
}

// Memory is taken as bytes come: a packet's length alone costs nothing.
void Session::read_rest(std::string* to, uint64_t n) {
  while (n != 0) {
    size_t begin = to->size(), piece = static_cast<size_t>(std::min<uint64_t>(n, std::max<uint64_t>(kPieceBytes, begin)));
    to->resize(begin + piece);
    link_->read(&(*to)[begin], piece);
    n -= piece;
  }
}

void Session::skip(uint64_t n) {
  std::string piece(static_cast<size_t>(std::min(n, kPieceBytes)), 0);
  for (; n != 0; n -= std::min<uint64_t>(n, piece.size())) {
    link_->read(&piece[0], static_cast<size_t>(std::min<uint64_t>(n, piece.size())));
  }
}

bool Session::answer_next() {
  uint64_t size = 0;
  while (size == 0) link_->read(reinterpret_cast<char*>(&size), sizeof size);  // empty ones keep a connection alive
  if (size < 4 || size > limits_.message_bytes) {
    throw Malformed("a packet of " + std::to_string(size) + " bytes, where 4 to " + std::to_string(limits_.message_bytes) +
                    " are read");
  }
  int32_t code;
  link_->read(reinterpret_cast<char*>(&code), sizeof code);
  size -= sizeof code;
  if (code == static_cast<int32_t>(Code::kShutdown)) return false;
  bool copies = code == static_cast<int32_t>(Code::kCopyToRemote);
  if (!ready_ && code != static_cast<int32_t>(Code::kInitServer)) {
    throw Malformed("a packet of code " + std::to_string(code) + ", where a session begins with its constructor");
  }
  std::string body;
  read_rest(&body, copies ? std::min(size, kHeadBytes) : size);
  try {
    link_->write(copies ? copy_in(Reader(body), size - body.size()) : answer(static_cast<Code>(code), Reader(body)));
  } catch (const tvm::ffi::Error& e) {
    link_->write(exception_packet(std::string(e.kind()) + ": " + std::string(e.message())));
  } catch (const std::bad_alloc&) {
    link_->write(exception_packet("OutOfMemory: this machine has no memory for that"));
  }
  return true;
}

std::string Session::answer(Code code, Reader body) {
  switch (code) {
    case Code::kInitServer: return initialize(body);
    case Code::kCallFunc: return call(body);
    case Code::kCopyFromRemote: return copy_out(body);
    case Code::kGetGlobalFunc: case Code::kFreeHandle: case Code::kDevSetDevice: case Code::kDevGetAttr:
    case Code::kDevAllocData: case Code::kDevFreeData: case Code::kDevStreamSync: case Code::kCopyAmongRemote:
    case Code::kDevAllocDataWithScope: case Code::kDevCreateStream: case Code::kDevFreeStream: case Code::kDevSetStream:
      return system(code, body.values());
    default: throw Malformed("a packet of code " + std::to_string(static_cast<int32_t>(code)));
  }
}

std::string Session::initialize(Reader body) {
  std::string version(body.text());
  std::vector<WireValue> values = body.values();
  if (ready_) raise_error("RPCError", "the session has begun already");
  if (version != kProtocolVersion) {
    raise_error("RPCError", "the client speaks another version of the protocol: expected %s, found %.64s", kProtocolVersion,
                version.c_str());
  }
  if (!values.empty() && (values[0].kind != kTVMFFIRawStr || values[0].text != "rpc.LocalSession")) {
    raise_error("RPCError", "this server has no session constructors: expected rpc.LocalSession");
  }
  ready_ = true;
  return void_packet();
}

// ---- calls ----------------------------------------------------------------------------------------------------------

std::string Session::call(Reader body) {
  auto handle = body.take<uint64_t>();
  std::vector<WireValue> values = body.values();
  Any found = held(handle);
  auto function = found.type_index() == kTVMFFIFunction ? found.as<Function>() : std::nullopt;
  if (!function.has_value()) raise_error("InvalidArgument", "there is no function of handle %llu", static_cast<unsigned long long>(handle));
  std::vector<Any> owned;
  for (const WireValue& v : values) owned.push_back(native(v));
  std::vector<tvm::ffi::AnyView> views(owned.begin(), owned.end());
  Any result;
  function->CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  return outgoing(result);
}

Any Session::native(const WireValue& v) {
  switch (v.kind) {
    case kTVMFFIInt: return v.number;
    case kTVMFFIBool: return v.number != 0;
    case kTVMFFIFloat: return v.real;
    case kTVMFFIDataType: return v.dtype;
    case kTVMFFIDevice: return v.device;
    case kTVMFFIRawStr: return String(v.text.data(), v.text.size());
    case kTVMFFIByteArrayPtr: return Bytes(v.text.data(), v.text.size());
    case kTVMFFIDLTensorPtr: return view(v.tensor);
    case kTVMFFIOpaquePtr:
    case kTVMFFIModule: return v.number == 0 ? Any() : held(v.handle());
    case kTVMFFIFunction:
      if (v.handle() >> 63) raise_error("InvalidArgument", "this server calls no functions of its clients");
      return held(v.handle());
    default: return Any();
  }
}

std::string Session::outgoing(const Any& value) {
  Writer w(Code::kReturn);
  int32_t kind = value.type_index();
  if (const DLTensor* t = tensor_in(value)) {
    Any whole = value;
    if (!is_contiguous(*t) || t->byte_offset != 0) {
      whole = make_tensor(*t);
      if (tensor_copy(*t, TVMFFITensorGetDLTensorPtr(raw(&whole)->v_obj)) != 0) TVM_FFI_CHECK_SAFE_CALL(-1);
    }
    uint64_t handle = keep(whole);
    w.integer(kTVMFFITensor), w.tensor(handle, *tensor_in(whole)), w.handle(handle);
    return w.take();
  }
  if (auto text = value.as<String>()) {
    w.integer(kTVMFFIStr), w.text({text->data(), text->size()});
    return w.take();
  }
  if (auto bytes = value.as<Bytes>()) {
    w.integer(kTVMFFIBytes), w.bytes({bytes->data(), bytes->size()});
    return w.take();
  }
  if (kind >= kTVMFFIStaticObjectBegin) {
    bool known = kind == kTVMFFIFunction || kind == kTVMFFIModule;
    return with_handle(known ? kind : value.as<Module>().has_value() ? kTVMFFIModule : kTVMFFIObject, keep(value));
  }
  w.integer(kind);
  if (kind == kTVMFFIInt) w.integer(value.cast<int64_t>());
  else if (kind == kTVMFFIBool) w.boolean(value.cast<bool>());
  else if (kind == kTVMFFIFloat) w.real(value.cast<double>());
  else if (kind == kTVMFFIDataType) w.dtype(value.cast<DLDataType>());
  else if (kind == kTVMFFIDevice) w.device(value.cast<DLDevice>());
  else if (kind == kTVMFFINone) w.none();
  else raise_error("TypeError", "a function returned a value of type %d, which cannot be sent", kind);
  return w.take();
}

// ---- what a client holds --------------------------------------------------------------------------------------------

uint64_t Session::keep(Any value, std::shared_ptr<void> counted) {
  if (objects_.size() >= kMaxHandles) raise_error("OutOfMemory", "the session holds too many objects: at most %zu", kMaxHandles);
  uint64_t handle = next_handle_++;
  objects_.emplace(handle, Held{std::move(value), std::move(counted)});
  return handle;
}

const Any& Session::held(uint64_t handle) const {
  auto found = objects_.find(handle);
  if (found != objects_.end()) return found->second.value;
  raise_error("InvalidArgument", "there is nothing with the handle %llu", static_cast<unsigned long long>(handle));
}

void Session::release(uint64_t handle) {
  auto found = objects_.find(handle);
  if (found == objects_.end()) return;
  Held gone = std::move(found->second);
  objects_.erase(found);
}

std::shared_ptr<void> Session::counted(uint64_t bytes) {
  if (bytes > memory_left_ || bytes > static_cast<uint64_t>(PTRDIFF_MAX)) {
    raise_error("OutOfMemory", "the session may not allocate that much: expected 0 to %llu bytes, found %llu",
                static_cast<unsigned long long>(memory_left_), static_cast<unsigned long long>(bytes));
  }
  memory_left_ -= bytes;
  return {nullptr, [this, bytes](void*) { memory_left_ += bytes; }};
}

uint64_t Session::allocate(DLDevice device, uint64_t bytes) {
  check_cpu(device);
  auto held = counted(bytes);
  auto n = static_cast<int64_t>(bytes);
  DLTensor like{nullptr, device, 1, DLDataType{kDLUInt, 8, 1}, &n, nullptr, 0};
  return keep(make_tensor(like), std::move(held));
}

char* Session::bytes_of(const WireTensor& wire, uint64_t bytes, Any* owner) const {
  const Any& found = held(wire.data);
  const DLTensor* t = tensor_in(found);
  if (t == nullptr) raise_error("InvalidArgument", "there is no memory with the handle %llu", static_cast<unsigned long long>(wire.data));
  check_cpu(wire.device);
  uint64_t size = element_bytes(t->dtype, count_of(std::vector<int64_t>(t->shape, t->shape + t->ndim)));
  if (wire.byte_offset > size || bytes > size - wire.byte_offset) {
    raise_error("InvalidArgument", "a tensor reaches beyond its memory: expected %llu bytes, found %llu at %llu",
                static_cast<unsigned long long>(size), static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(wire.byte_offset));
  }
  *owner = found;
  return static_cast<char*>(t->data) + t->byte_offset + wire.byte_offset;
}

Any Session::view(const WireTensor& wire) {
  Any owner;
  char* data = bytes_of(wire, element_bytes(wire.dtype, count_of(wire.shape)), &owner);
  TVMFFIObject* made = tensor_new(raw(&owner)->v_obj, data, wire.device, wire.dtype, wire.shape.data(),
                                  static_cast<int32_t>(wire.shape.size()));
  if (made == nullptr) TVM_FFI_CHECK_SAFE_CALL(-1);
  Any out;
  *raw(&out) = object_any(made);
  return out;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// Takes what the client sends into memory; the elements are read, or dropped, whatever happens.
std::string Session::copy_in(Reader head, uint64_t rest) {
  WireTensor wire = head.tensor();
  auto size = head.take<uint64_t>();
  std::string_view begin = head.bytes(head.left());
  if (size < begin.size() || size - begin.size() != rest) {
    throw Malformed("a copy of " + std::to_string(size) + " bytes has " + std::to_string(begin.size() + rest));
  }
  Any owner;
  char* data = nullptr;
  try {
    data = bytes_of(wire, size, &owner);
  } catch (const tvm::ffi::Error&) {
    skip(rest);
    throw;
  }
  if (!begin.empty()) std::memcpy(data, begin.data(), begin.size());
  link_->read(data + begin.size(), static_cast<size_t>(rest));
  return void_packet();
}

std::string Session::copy_out(Reader body) {
  WireTensor wire = body.tensor();
  auto size = body.take<uint64_t>();
  if (body.left() != 0) throw Malformed("bytes behind a copy");
  Any owner;
  char* data = bytes_of(wire, size, &owner);
  uint64_t length = size + sizeof(int32_t);
  auto code = static_cast<int32_t>(Code::kCopyAck);
  std::string head(reinterpret_cast<const char*>(&length), sizeof length);
  head.append(reinterpret_cast<const char*>(&code), sizeof code);
  if (size <= kHeadBytes) return head.append(data, static_cast<size_t>(size));
  link_->write(head);
  link_->write({data, static_cast<size_t>(size)});
  return {};
}

// ---- system calls ---------------------------------------------------------------------------------------------------

std::string Session::system(Code code, const std::vector<WireValue>& values) {
  Writer w(Code::kReturn);
  auto device = [&](size_t i) { return expect(values, i, {kTVMFFIDevice}).device; };
  auto handle = [&](size_t i) { return expect(values, i, {kTVMFFIOpaquePtr, kTVMFFIInt, kTVMFFIFunction, kTVMFFIModule}).handle(); };
  switch (code) {
    case Code::kGetGlobalFunc: {
      Any found = global_function(std::string(expect(values, 0, {kTVMFFIRawStr}).text));
      w.handle(found == nullptr ? 0 : keep(found));
      return w.take();
    }
    case Code::kFreeHandle: release(handle(0)); return void_packet();
    case Code::kDevFreeData: device(0), release(handle(1)); return void_packet();
    case Code::kDevAllocData: w.handle(allocate(device(0), expect(values, 1, {kTVMFFIInt}).handle())); return w.take();
    case Code::kDevAllocDataWithScope: {
      const WireTensor& like = expect(values, 0, {kTVMFFIDLTensorPtr}).tensor;
      const WireValue& scope = expect(values, 1, {kTVMFFINone, kTVMFFIRawStr});
      if (!scope.text.empty() && scope.text != "global") raise_error("InvalidArgument", "unknown memory scope: expected 'global'");
      w.handle(allocate(like.device, element_bytes(like.dtype, count_of(like.shape))));
      return w.take();
    }
    case Code::kDevGetAttr: {
      Any found = attribute(device(0), expect(values, 1, {kTVMFFIInt}).number);
      if (found == nullptr) w.none();
      else w.integer(found.cast<int64_t>());
      return w.take();
    }
    case Code::kCopyAmongRemote: {
      Any from = view(expect(values, 0, {kTVMFFIDLTensorPtr}).tensor), to = view(expect(values, 1, {kTVMFFIDLTensorPtr}).tensor);
      if (tensor_copy(*tensor_in(from), TVMFFITensorGetDLTensorPtr(raw(&to)->v_obj)) != 0) TVM_FFI_CHECK_SAFE_CALL(-1);
      return void_packet();
    }
    case Code::kDevCreateStream: check_cpu(device(0)), w.handle(0); return w.take();
    default: check_cpu(device(0)); return void_packet();  // a CPU has one stream, which is in order
  }
}

Any Session::attribute(DLDevice device, int64_t kind) const {
  bool exists = device.device_type == kDLCPU && device.device_id == 0;
  if (kind == 0) return int64_t{exists};
  return Any();
}

}  // namespace weft::rpc
