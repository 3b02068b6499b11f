// The program of a Relax executable: function table, constants, bytecode; reading, writing, verifying.
#ifndef WEFT_EXECUTABLE_H_
#define WEFT_EXECUTABLE_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bytecode.h"

namespace weft {

struct FuncInfo {
  FuncKind kind = FuncKind::kPacked;
  std::string name;
  int64_t start_instr = 0;
  int64_t end_instr = 0;
  int64_t num_args = -2;
  int64_t register_file_size = 0;
  std::vector<std::string> params;
};

struct Program {
  std::vector<FuncInfo> functions;
  std::map<std::string, int32_t> by_name;
  std::vector<std::pair<int64_t, std::string>> memory_scopes;
  std::vector<tvm::ffi::Any> constants;
  std::vector<int64_t> instr_offset;
  std::vector<int64_t> instr_data;
};

// All throw tvm::ffi::Error of kind "ExecutableError". `read` verifies what it read. The bytes stay in place as long as
// `keep`, when it is given; then tensors are used where they lie if their data are on a cache line.
std::shared_ptr<Program> read_program(const char* data, size_t size, TVMFFIObject* keep = nullptr);
std::string write_program(const Program& program);
// With `at`, the distance from a cache line to the first byte: the program with padding constants in front of large
// tensors, so that their data begin on cache lines.
constexpr int64_t kNoPadding = -1;
size_t program_size(const Program& program, int64_t at = kNoPadding);
// Writes to the end of a file, without a copy of the constants in between.
void append_program(const Program& program, const std::string& path, int64_t at = kNoPadding);

// Bytes of a tensor record in front of its data.
constexpr size_t tensor_record_bytes(int32_t ndim) { return 40 + 8 * static_cast<size_t>(ndim); }
// Text of the padding constant in front of a constant whose record would begin at `at`; empty when none is needed.
std::string padding_before(const tvm::ffi::Any& value, size_t at);
// The program's words for a file in which shift[i] padding constants are in front of constant i.
std::vector<int64_t> pad_words(const Program& program, const std::vector<int64_t>& shift);
// Takes padding constants out of a verified program.
void remove_padding(Program* program);

// After it returns normally, no instruction can read or write outside its frame, the constants or the function table,
// and no jump leaves its function. It does not promise that kernels succeed. Collects all errors, raises once.
void verify_program(Program* program);

}  // namespace weft
#endif  // WEFT_EXECUTABLE_H_
