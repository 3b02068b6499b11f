// Remote calls without Python in between, while arguments and results are plain numbers; a server takes tensors of its
// CPU, too. What is anything else goes to Python as it came: weft/rpc/codec.py has the grammar of packets.
#include <sys/socket.h>
#include <tvm/ffi/container/list.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cerrno>
#include <cstring>

#include "memory.h"
#include "register.h"
#include "vm.h"

namespace weft {
namespace {

constexpr int32_t kCall = 3, kReturn = 4, kMaxValues = 16;
constexpr int32_t kMaxNumbers = 1000;  // that a packet has room for
constexpr size_t kHead = 8, kBufferBytes = 1 << 16;  // a packet's length; as many bytes as a channel reads at once

// A short packet, and where it is read or written: an answer where the question was, as memory that was just used is near.
struct Packet {
  char data[kBufferBytes];
  size_t at = kHead, size = 0;
  template <typename T>
  bool take(T* to) {
    return take_bytes(to, sizeof *to);
  }
  [[gnu::noinline]] bool take_bytes(void* to, size_t n) {
    if (n > size - at) return false;
    std::memcpy(to, data + at, n);
    at += n;
    return true;
  }
  template <typename T>
  void put(T value) {
    std::memcpy(data + at, &value, sizeof value);
    at += sizeof value;
  }
  void put_plain(const TVMFFIAny& value) {
    put(value.type_index);
    if (value.type_index != kTVMFFINone) put(value.v_int64);
  }
  bool take_plain(int32_t kind, TVMFFIAny* value) {
    value->type_index = kind;
    if (kind == kTVMFFINone) return true;
    return kind > 0 && kind <= kTVMFFIFloat && take(&value->v_int64) && (kind != kTVMFFIBool || value->v_uint64 <= 1);
  }
  // What was read, for Python.
  [[gnu::noinline]] void leave(Any* result) const { *result = Bytes(data, size); }
  // Whether it is one packet of a code.
  bool is(int32_t code) {
    uint64_t rest = 0;
    int32_t found = 0;
    at = 0;
    return take(&rest) && rest == size - kHead && take(&found) && found == code;
  }
};

bool interrupted() {  // a signal of Python's may raise
  if (errno != EINTR) return false;
  if (TVMFFIEnvCheckSignals() != 0) throw tvm::ffi::EnvErrorAlreadySet();
  return true;
}

// Sends bytes and receives what comes next: nothing where the connection is closed.
void exchange(int descriptor, const char* data, size_t size, Packet* in) {
  in->size = 0;
  while (size != 0) {
    ssize_t sent = send(descriptor, data, size, MSG_NOSIGNAL);
    if (sent < 0 && !interrupted()) return;
    if (sent > 0) data += sent, size -= static_cast<size_t>(sent);
  }
  for (;;) {
    ssize_t got = recv(descriptor, in->data, sizeof in->data, 0);
    if (got < 0 && interrupted()) continue;
    in->size = got < 0 ? 0 : static_cast<size_t>(got);
    return;
  }
}

void exchange(int descriptor, Packet* packet) {
  uint64_t rest = packet->at - kHead;
  std::memcpy(packet->data, &rest, sizeof rest);
  exchange(descriptor, packet->data, packet->at, packet);
}

// rpc_call(descriptor, handle, plain numbers...) -> the result; of anything else than one number, the bytes received
void rpc_call(PackedArgs args, Any* result) {
  Packet packet;
  if (args.size() > kMaxNumbers + 2) wrong_argument(reinterpret_cast<const TVMFFIAny*>(args.data()), kMaxNumbers + 2, "no more numbers");
  packet.put(kCall), packet.put(argument<int64_t>(args, 1)), packet.put(args.size() - 2);
  for (int32_t i = 2; i < args.size(); ++i) {
    const auto* values = reinterpret_cast<const TVMFFIAny*>(args.data());
    if (values[i].type_index > kTVMFFIFloat) wrong_argument(values, i, "a number");
    packet.put_plain(values[i]);
  }
  exchange(argument<int>(args, 0), &packet);
  int32_t count = 0, tag = 0, kind = 0;
  TVMFFIAny named{}, value{};
  if (packet.is(kReturn) && packet.take(&count) && count == 2 && packet.take(&tag) && packet.take_plain(tag, &named) && packet.take(&kind) &&
      packet.take_plain(kind, &value) && packet.at == packet.size) {
    *raw(result) = value;
  } else {
    packet.leave(result);
  }
}

// What a session holds under a handle, of what it may call or pass here; null of anything else.
const Any* held(const tvm::ffi::ListObj& slots, uint64_t handle) {
  if (slots.empty()) return nullptr;
  size_t i = handle % (slots.size() / 2) * 2;
  const Any& named = slots.begin()[i];
  return named.type_index() == kTVMFFIInt && raw(&named)->v_uint64 == handle ? slots.begin() + i + 1 : nullptr;
}

// A tensor that a client says lies in memory of the CPU that it holds.
bool take_tensor(Packet* in, const tvm::ffi::ListObj& slots, Any* made) {
  uint64_t handle = 0, offset = 0;
  DLDevice device{};
  DLDataType dtype{};
  int32_t rank = 0;
  int64_t shape[kMaxValues];
  if (!(in->take(&handle) && in->take(&device) && in->take(&rank) && in->take(&dtype)) || rank < 0 || rank > kMaxValues) return false;
  for (int32_t i = 0; i < rank; ++i) {
    if (!in->take(&shape[i]) || shape[i] < 0) return false;
  }
  const Any* memory = held(slots, handle);
  if (!in->take(&offset) || memory == nullptr || memory->type_index() != kTVMFFITensor || device.device_type != kDLCPU || device.device_id != 0) return false;
  if (TVMFFITensorGetDLTensorPtr(raw(memory)->v_obj)->device.device_type != kDLCPU) return false;
  *made = tensor_part(*memory, shape, rank, dtype, offset);
  return true;
}

// Calls what a packet asks for; false where that is not for here.
bool answered(Packet* in, const tvm::ffi::ListObj& slots, Any* result) {
  uint64_t handle = 0;
  int32_t count = 0, tag = 0;
  if (!in->is(kCall) || !in->take(&handle) || !in->take(&count) || count < 0 || count > kMaxValues) return false;
  Any values[kMaxValues];
  for (int32_t i = 0; i < count; ++i) {
    if (!in->take(&tag)) return false;
    if (tag == kTVMFFIDLTensorPtr ? !take_tensor(in, slots, &values[i]) : !in->take_plain(tag, raw(&values[i]))) return false;
  }
  const Any* function = held(slots, handle);
  if (in->at != in->size || function == nullptr || function->type_index() != kTVMFFIFunction) return false;
  Any called = *function;  // which the call may let go of
  auto* f = raw(&called)->v_obj;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIFunctionGetCellPtr(f)->safe_call(f, reinterpret_cast<TVMFFIAny*>(values), count, raw(result)));
  return true;
}

// rpc_serve(descriptor, slots, answer) -> bytes of packets that are not for here, or [result] of a call, not sent yet
// `slots` are handles, each before what it stands for, at the place of its remainder. An error is that of a call.
void rpc_serve(PackedArgs args, Any* result) {
  int descriptor = argument<int>(args, 0);
  const auto* values = reinterpret_cast<const TVMFFIAny*>(args.data());
  if (args.size() != 3 || values[1].type_index != kTVMFFIList || values[2].type_index != kTVMFFIBytes) {
    wrong_argument(values, 0, "a list and a packet behind it");
  }
  const auto& slots = *reinterpret_cast<const tvm::ffi::ListObj*>(values[1].v_obj);
  const TVMFFIByteArray* first = TVMFFIBytesGetByteArrayPtr(values[2].v_obj);
  Packet packet;
  exchange(descriptor, first->data, first->size, &packet);
  for (;;) {
    Any found;
    if (!answered(&packet, slots, &found)) return packet.leave(result);
    if (found.type_index() > kTVMFFIFloat) {
      *result = tvm::ffi::Array<Any>{found};
      return;
    }
    packet.at = kHead;
    packet.put(kReturn), packet.put(int32_t{2});
    packet.put(int32_t{kTVMFFIInt}), packet.put(int64_t{found.type_index()}), packet.put_plain(*raw(&found));
    exchange(descriptor, &packet);
  }
}

TVM_FFI_STATIC_INIT_BLOCK() { Globals().def_packed("weft.rpc_call", rpc_call).def_packed("weft.rpc_serve", rpc_serve); }

}  // namespace
}  // namespace weft
