// Words of the Relax VM's bytecode. See docs/reference/executable.md for the file around them.
//
//   argument word    63      56 55                                   0
//                   +----------+--------------------------------------+
//                   |   kind   |   value, 56 bits, sign-extended      |
//                   +----------+--------------------------------------+
//   kind 0 register, 1 immediate, 2 constant, 3 function. Register words in `dst`, `result`, `cond` have kind 0.
//   Special registers: void 2^54 (a result nobody reads), VM context 2^54 + 1 (the machine itself, as an argument).
//
// Version policy: "0.14" is the only version read and written; a file of another version is refused by name. A change
// of layout or meaning needs a new version string and a reader for the old one.
#ifndef WEFT_BYTECODE_H_
#define WEFT_BYTECODE_H_

#include <cstdint>

namespace weft {

enum class Opcode : int64_t {
#define WEFT_RELAX_OP(name, number, operands, meaning) k##name = number,
#include "relax_ops.def"
#undef WEFT_RELAX_OP
};

enum class ArgKind : int64_t { kRegister = 0, kImmediate = 1, kConstant = 2, kFunction = 3 };

constexpr int64_t kVoidRegister = int64_t{1} << 54;
constexpr int64_t kVMRegister = kVoidRegister + 1;

constexpr ArgKind arg_kind(int64_t word) { return static_cast<ArgKind>((word >> 56) & 0xFF); }
constexpr int64_t arg_value(int64_t word) {
  return static_cast<int64_t>(static_cast<uint64_t>(word) << 8) >> 8;
}

enum class FuncKind : int32_t { kPacked = 0, kVM = 1, kVMTIR = 2 };

constexpr uint64_t kExecutableMagic = 0xD225DE2F4214151EULL;
constexpr uint64_t kExecutableMagicOld = 0xD225DE2F4214151DULL;  // without the memory-scope section
constexpr const char* kExecutableVersion = "0.14";
constexpr uint64_t kTensorMagic = 0xDD5E40F096B4A13FULL;

}  // namespace weft
#endif  // WEFT_BYTECODE_H_
