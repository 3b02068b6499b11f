// The program of a Relay executable: functions, constants, primitive names, code; reading, writing, verifying.
// docs/reference/relay-executable.md has the file's layout. An instruction is a row of words: the opcode's number, then
// its operands as relay_ops.def lists them. Jumps count instructions. Version policy: "1" is the only version read and
// written; a change of layout or meaning needs a new version and a reader for the old one.
#ifndef WEFT_RELAY_EXECUTABLE_H_
#define WEFT_RELAY_EXECUTABLE_H_

#include <tvm/ffi/any.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {

constexpr uint64_t kRelayMagic = 0xD225DE2F42145752ULL;
constexpr const char* kRelayVersion = "1";
constexpr int64_t kRelayAlignment = 64;   // of every storage; larger ones are refused
constexpr int64_t kRelayMaxDevices = 64;

enum class RelayOp : int64_t {
#define WEFT_RELAY_OP(name, number, operands, fields, meaning) k##name = number,
#include "relay_ops.def"
#undef WEFT_RELAY_OP
};

// One row of the table; the row's place is the number of the decoded instruction.
struct RelayOpInfo {
  const char* name;
  int64_t number;
  const char* operands;
  const char* fields;
  const char* meaning;
};
struct RelayScalarInfo {
  const char* name;
  int64_t number;
};
extern const RelayOpInfo kRelayOps[];
extern const int kRelayOpCount;
extern const RelayScalarInfo kRelayScalars[];
extern const int kRelayScalarCount;
// The row of an opcode, or -1.
int relay_op_row(int64_t opcode);

struct RelayFunction {
  std::string name;
  std::vector<std::string> params;
  std::vector<int64_t> param_devices;  // one a parameter, or none: then they stay where they are
  int64_t registers = 0;
  std::vector<int64_t> words;
  std::vector<int64_t> starts;         // where each instruction begins in `words`; filled by the verifier
};

struct RelayConstant {
  tvm::ffi::Any value;
  int64_t device = 0;
};

struct RelayProgram {
  std::vector<RelayFunction> functions;
  std::vector<RelayConstant> constants;
  std::vector<std::string> primitives;
  std::map<std::string, int32_t> by_name;  // filled by the verifier
  int64_t num_devices = 1;                 // that the program names; filled by the verifier
  uint64_t number = 0;                     // of this program in the process, from 1; filled by the verifier
};

// All throw tvm::ffi::Error of kind "ExecutableError". `read` verifies what it read.
std::shared_ptr<RelayProgram> read_relay_program(const char* data, size_t size);
std::string write_relay_program(const RelayProgram& program);

// After it returns normally, no instruction can read or write outside its frame, the constants, the primitives or the
// functions, no jump leaves its function, control cannot fall off its end, and functions get as many arguments as they
// take. It does not promise that kernels succeed, nor that values have the right type: the loop checks these.
// Collects all errors, raises once.
void verify_relay_program(RelayProgram* program);

// An operand word of kind t.
inline DLDataType dtype_of_word(int64_t word) {
  return DLDataType{static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8), static_cast<uint16_t>(word >> 16)};
}

}  // namespace weft
#endif  // WEFT_RELAY_EXECUTABLE_H_
