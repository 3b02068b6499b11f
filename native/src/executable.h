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

// All throw tvm::ffi::Error of kind "ExecutableError". `read` verifies what it read.
std::shared_ptr<Program> read_program(const char* data, size_t size);
std::string write_program(const Program& program);
size_t program_size(const Program& program);
// Writes to the end of a file, without a copy of the constants in between.
void append_program(const Program& program, const std::string& path);

// After it returns normally, no instruction can read or write outside its frame, the constants or the function table,
// and no jump leaves its function. It does not promise that kernels succeed. Collects all errors, raises once.
void verify_program(Program* program);

}  // namespace weft
#endif  // WEFT_EXECUTABLE_H_
