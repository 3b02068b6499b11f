// Packets of the protocol (weft/rpc/codec.py has their grammar): reading and writing values, and connections.
#ifndef WEFT_SERVER_WIRE_H_
#define WEFT_SERVER_WIRE_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weft::rpc {

enum class Code : int32_t {
  kShutdown = 1, kInitServer = 2, kCallFunc = 3, kReturn = 4, kException = 5, kCopyFromRemote = 6, kCopyToRemote = 7,
  kCopyAck = 8, kGetGlobalFunc = 9, kFreeHandle = 10, kDevSetDevice = 11, kDevGetAttr = 12, kDevAllocData = 13,
  kDevFreeData = 14, kDevStreamSync = 15, kCopyAmongRemote = 16, kDevAllocDataWithScope = 17, kDevCreateStream = 18,
  kDevFreeStream = 19, kDevSetStream = 20,
};

// Bytes are no packet; what follows them cannot be read either, and the session ends.
class Malformed : public std::runtime_error {
 public:
  explicit Malformed(const std::string& why)
      : std::runtime_error("RPCError: a message of the other side cannot be read: found " + why) {}
};

// The other side is gone.
class Closed : public std::runtime_error {
 public:
  Closed() : std::runtime_error("the connection is closed") {}
};

constexpr int32_t kMaxRank = 64;

// A tensor as a client names it: the handle of its memory, and how it lies there.
struct WireTensor {
  uint64_t data;
  DLDevice device;
  DLDataType dtype;
  std::vector<int64_t> shape;
  uint64_t byte_offset;
};

struct WireValue {
  int32_t kind = 0;       // tvm-ffi's type index
  int64_t number = 0;     // also handles, bool
  double real = 0;
  std::string_view text;  // in the packet
  DLDataType dtype{};
  DLDevice device{};
  WireTensor tensor{};
  uint64_t handle() const { return static_cast<uint64_t>(number); }
};

class Reader {
 public:
  explicit Reader(std::string_view data) : at_(data.data()), end_(data.data() + data.size()) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view bytes(uint64_t n) {
    if (n > left()) throw Malformed(std::to_string(n) + " bytes where " + std::to_string(left()) + " follow");
    std::string_view found(at_, static_cast<size_t>(n));
    at_ += n;
    return found;
  }
  std::string_view text() { return bytes(take<uint64_t>()); }
  WireTensor tensor();
  WireValue value();
  // Values, which end where the packet does.
  std::vector<WireValue> values();
  uint64_t left() const { return static_cast<uint64_t>(end_ - at_); }

 private:
  const char* at_;
  const char* end_;
};

// A packet that is being written; the count of values is known when it is taken.
class Writer {
 public:
  explicit Writer(Code code) { put(uint64_t{0}), put(static_cast<int32_t>(code)), put(int32_t{0}); }
  void integer(int64_t value) { tag(kTVMFFIInt), put(value); }
  void boolean(bool value) { tag(kTVMFFIBool), put(int64_t{value}); }
  void real(double value) { tag(kTVMFFIFloat), put(value); }
  void handle(uint64_t value) { tag(kTVMFFIOpaquePtr), put(value); }
  void none() { tag(kTVMFFINone); }
  void dtype(DLDataType value) { tag(kTVMFFIDataType), put(value), put(int32_t{0}); }
  void device(DLDevice value) { tag(kTVMFFIDevice), put(static_cast<int32_t>(value.device_type)), put(value.device_id); }
  void text(std::string_view value);
  void bytes(std::string_view value) { tag(kTVMFFIByteArrayPtr), put(uint64_t{value.size()}), data_.append(value); }
  void tensor(uint64_t data, const DLTensor& like);
  // The packet, with its length in front.
  std::string take();

 private:
  template <typename T>
  void put(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void tag(int32_t kind) { ++count_, put(kind); }
  std::string data_;
  int32_t count_ = 0;
};

std::string void_packet();
std::string exception_packet(const std::string& text);

// Where packets come from and answers go.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void read(char* to, size_t n) = 0;  // throws Closed
  virtual void write(std::string_view data) = 0;
};

class DescriptorConnection final : public Connection {
 public:
  DescriptorConnection(int reads, int writes) : reads_(reads), writes_(writes) {}
  void read(char* to, size_t n) final;
  void write(std::string_view data) final;

 private:
  int reads_, writes_;
};

}  // namespace weft::rpc
#endif  // WEFT_SERVER_WIRE_H_
