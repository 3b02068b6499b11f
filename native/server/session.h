// One session on the serving side: what a client keeps here, and the answer to each packet. See weft/rpc/service.py,
// whose twin this is: the same packets, names and bounds.
#ifndef WEFT_SERVER_SESSION_H_
#define WEFT_SERVER_SESSION_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "wire.h"

namespace weft::rpc {

struct Limits {
  uint64_t message_bytes = sizeof(void*) == 8 ? uint64_t{8} << 30 : uint64_t{1} << 30;
  uint64_t memory_bytes = 0;  // 0: three quarters of the machine's
  uint64_t memory() const;
};

constexpr size_t kMaxHandles = size_t{1} << 20;

class Session {
 public:
  // `folder` is an absolute path, where the session's files are.
  Session(Connection* link, std::string folder, Limits limits);
  // Answers packets until the client closes, or sends what is no packet.
  void run();

 private:
  using Any = tvm::ffi::Any;
  using Arguments = tvm::ffi::PackedArgs;
  using Own = void (Session::*)(Arguments, Any*);
  struct Held {
    Any value;
    std::shared_ptr<void> counted;  // of its bytes, where it has some
  };

  bool answer_next();  // false where the client is done
  std::string answer(Code code, Reader body);
  std::string initialize(Reader body);
  std::string call(Reader body);
  std::string system(Code code, const std::vector<WireValue>& values);
  std::string copy_in(Reader head, uint64_t rest);
  std::string copy_out(Reader body);
  void read_rest(std::string* to, uint64_t n);
  void skip(uint64_t n);

  // Values of the wire as functions take them, and results as clients take them.
  Any native(const WireValue& value);
  std::string outgoing(const Any& value);
  uint64_t keep(Any value, std::shared_ptr<void> counted = nullptr);
  const Any& held(uint64_t handle) const;
  void release(uint64_t handle);
  uint64_t allocate(DLDevice device, uint64_t bytes);
  // Bytes that count against what the session may allocate until this goes; refused where they are too many.
  std::shared_ptr<void> counted(uint64_t bytes);
  Any attribute(DLDevice device, int64_t kind) const;
  // The bytes of a tensor that a client says lies in memory that it holds.
  char* bytes_of(const WireTensor& wire, uint64_t bytes, Any* owner) const;
  Any view(const WireTensor& wire);

  // What every session offers: files of its folder, modules, timing; under TVM's names.
  struct OwnFunction {
    const char* name;
    Own function;
  };
  static const OwnFunction kOwn[];
  Any global_function(const std::string& name);
  Any own_function(Own function);
  std::string path_of(const std::string& name) const;
  void workpath(Arguments args, Any* ret);
  void upload(Arguments args, Any* ret);
  void download(Arguments args, Any* ret);
  void remove(Arguments args, Any* ret);
  void listdir(Arguments args, Any* ret);
  void load_module(Arguments args, Any* ret);
  void import_module(Arguments args, Any* ret);
  void module_function(Arguments args, Any* ret);
  void module_kind(Arguments args, Any* ret);
  void time_evaluator(Arguments args, Any* ret);

  Connection* link_;
  std::string folder_;
  Limits limits_;
  uint64_t memory_left_;
  uint64_t next_handle_ = uint64_t{1} << 12;
  bool ready_ = false;
  std::unordered_map<uint64_t, Held> objects_;
};

// A function of a module, or of the virtual machine of an executable; None where there is none.
tvm::ffi::Any function_of(const tvm::ffi::Module& module, const std::string& name, bool query_imports);

}  // namespace weft::rpc
#endif  // WEFT_SERVER_SESSION_H_
