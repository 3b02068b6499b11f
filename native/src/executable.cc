// Sections of an executable file, bounds-checked reading, writing, and the verifier.
#include "executable.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/string.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "error.h"
#include "memory.h"
#include "serial.h"

namespace weft {

using tvm::ffi::Any;

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    auto c = static_cast<unsigned char>(text[i]);
    size_t n = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (n == 0 || i + n > text.size()) return false;
    for (size_t k = 1; k < n; ++k) {
      auto d = static_cast<unsigned char>(text[i + k]);
      if ((d & 0xC0) != 0x80) return false;
      // Overlong forms, surrogates and values past U+10FFFF show in the second byte.
      if (k == 1 && ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F))) {
        return false;
      }
    }
    i += n;
  }
  return true;
}

bool valid_dtype(DLDataType dtype) {
  if (dtype.bits == 0 && dtype.lanes == 0 && dtype.code == kDLOpaqueHandle) return true;  // void
  return dtype.bits > 0 && dtype.bits <= 128 && dtype.lanes >= 1 && dtype.code <= 20;
}

void ErrorList::raise_if_any(const char* what) const {
  if (empty()) return;
  std::string text = std::string(what) + ": " + std::to_string(total_) + (total_ == 1 ? " error" : " errors") + " in verification";
  for (const auto& e : errors_) text += "\n- " + e;
  if (total_ > errors_.size()) text += "\n- ...";
  raise_executable_error(text);
}

namespace {

Any own(TVMFFIObject* object) {
  Any out;
  reinterpret_cast<TVMFFIAny*>(&out)->type_index = object->type_index;
  reinterpret_cast<TVMFFIAny*>(&out)->v_obj = object;
  return out;
}

}  // namespace

Any read_tensor(Reader* in) {
  if (in->pod<uint64_t>("tensor magic") != kTensorMagic) in->error("tensor record has a wrong magic number");
  in->pod<uint64_t>("tensor reserved word");
  DLDevice device{static_cast<DLDeviceType>(in->pod<int32_t>("device type")), in->pod<int32_t>("device id")};
  auto ndim = in->pod<int32_t>("ndim");
  auto dtype = in->pod<DLDataType>("dtype");
  if (!valid_dtype(dtype) || dtype.bits == 0) in->error("tensor of an unknown dtype");
  if (ndim < 0 || static_cast<uint64_t>(ndim) > in->left() / 8) in->error("tensor of " + std::to_string(ndim) + " dimensions");
  std::vector<int64_t> shape(static_cast<size_t>(ndim));
  for (auto& d : shape) d = in->pod<int64_t>("shape");
  auto nbytes = in->pod<int64_t>("byte size");
  int64_t expected = 0;
  if (!tensor_nbytes(shape.data(), ndim, dtype, &expected)) in->error("tensor of shape " + shape_text(shape.data(), ndim));
  if (nbytes != expected) {
    in->error("tensor " + dtype_name(dtype) + shape_text(shape.data(), ndim) + " must have " +
              std::to_string(expected) + " bytes, found " + std::to_string(nbytes));
  }
  const char* data = in->take(static_cast<uint64_t>(nbytes), "tensor data");
  (void)device;  // constants are stored as host data; the VM moves them to its device
  if (in->keep() != nullptr && nbytes != 0 && reinterpret_cast<uintptr_t>(data) % kAlignment == 0) {
    TVMFFIObject* view =
        tensor_new(in->keep(), const_cast<char*>(data), DLDevice{kDLCPU, 0}, dtype, shape.data(), ndim);
    if (view == nullptr) in->error("no memory for a tensor");
    return own(view);
  }
  TVMFFIObject* tensor = tensor_empty(shape.data(), ndim, dtype, DLDevice{kDLCPU, 0}, Allocator::kNaive);
  if (tensor == nullptr) in->error("no memory for a tensor of " + std::to_string(nbytes) + " bytes");
  if (nbytes != 0) std::memcpy(TVMFFITensorGetDLTensorPtr(tensor)->data, data, static_cast<size_t>(nbytes));
  return own(tensor);
}

Any read_constant(Reader* in) {
  auto tag = in->pod<int32_t>("constant tag");
  switch (tag) {
    case kTVMFFITensor: return read_tensor(in);
    case kTVMFFIShape: {
      std::vector<int64_t> dims = in->words("shape");
      return Any(tvm::ffi::Shape(dims.begin(), dims.end()));
    }
    case kTVMFFIStr: {
      std::string text = in->str("string");
      return Any(tvm::ffi::String(text));
    }
    case kTVMFFIInt: return Any(in->pod<int64_t>("int"));
    case kTVMFFIFloat: return Any(in->pod<double>("float"));
    case kTVMFFIDataType: {
      auto dtype = in->pod<DLDataType>("dtype");
      if (!valid_dtype(dtype)) in->error("unknown dtype");
      return Any(dtype);
    }
    default: in->error("unknown constant tag " + std::to_string(tag));
  }
}

void write_tensor(Writer* out, const DLTensor& tensor) {
  int64_t nbytes = 0;
  if (!tensor_nbytes(tensor.shape, tensor.ndim, tensor.dtype, &nbytes)) raise_executable_error("executable: constant tensor is too large");
  if (tensor.device.device_type != kDLCPU || !is_contiguous(tensor)) {
    raise_executable_error("executable: constant tensors must be contiguous and on the CPU");
  }
  out->pod<uint64_t>(kTensorMagic);
  out->pod<uint64_t>(0);
  out->pod<int32_t>(kDLCPU);
  out->pod<int32_t>(0);
  out->pod<int32_t>(tensor.ndim);
  out->pod(tensor.dtype);
  out->bytes(tensor.shape, sizeof(int64_t) * static_cast<size_t>(tensor.ndim));
  out->pod<int64_t>(nbytes);
  out->bytes(static_cast<const char*>(tensor.data) + tensor.byte_offset, static_cast<size_t>(nbytes));
}

void write_constant(Writer* out, const Any& value) {
  const auto& raw = *reinterpret_cast<const TVMFFIAny*>(&value);
  switch (raw.type_index) {
    case kTVMFFITensor:
      out->pod<int32_t>(kTVMFFITensor);
      return write_tensor(out, *TVMFFITensorGetDLTensorPtr(raw.v_obj));
    case kTVMFFIShape: {
      TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(raw.v_obj);
      out->pod<int32_t>(kTVMFFIShape);
      out->pod<uint64_t>(cell->size);
      return out->bytes(cell->data, cell->size * 8);
    }
    case kTVMFFISmallStr:
    case kTVMFFIStr: {
      tvm::ffi::String text = value.cast<tvm::ffi::String>();
      out->pod<int32_t>(kTVMFFIStr);
      return out->str(text.data(), text.size());
    }
    case kTVMFFIBool:
    case kTVMFFIInt:
      out->pod<int32_t>(kTVMFFIInt);
      return out->pod<int64_t>(raw.v_int64);
    case kTVMFFIFloat:
      out->pod<int32_t>(kTVMFFIFloat);
      return out->pod<double>(raw.v_float64);
    case kTVMFFIDataType:
      out->pod<int32_t>(kTVMFFIDataType);
      return out->pod(raw.v_dtype);
    default: raise_executable_error("executable: a constant cannot be " + describe(raw));
  }
}

namespace {

// ---- verifier -------------------------------------------------------------------------------------------------------

class Verifier {
 public:
  explicit Verifier(Program* program) : p_(*program) {}

  void run() {
    check_tables();
    if (errors_.empty()) {
      for (size_t i = 0; i < p_.functions.size(); ++i) {
        if (p_.functions[i].kind == FuncKind::kVM) check_function(p_.functions[i]);
      }
    }
    errors_.raise_if_any();
  }

 private:
  void error(const std::string& text) { errors_.add(text); }

  void check_tables() {
    p_.by_name.clear();
    size_t n_instr = p_.instr_offset.size();
    for (size_t i = 0; i < n_instr; ++i) {
      int64_t end = i + 1 < n_instr ? p_.instr_offset[i + 1] : static_cast<int64_t>(p_.instr_data.size());
      if (p_.instr_offset[i] < 0 || p_.instr_offset[i] >= end || end > static_cast<int64_t>(p_.instr_data.size())) {
        error("section code: instruction " + std::to_string(i) + " has words [" + std::to_string(p_.instr_offset[i]) +
              ", " + std::to_string(end) + ") of " + std::to_string(p_.instr_data.size()));
        if (errors_.full()) break;
      }
    }
    if (n_instr != 0 && p_.instr_offset[0] != 0) error("section code: the first instruction is not at word 0");
    if (n_instr == 0 && !p_.instr_data.empty()) error("section code: words without instructions");
    for (size_t i = 0; i < p_.functions.size(); ++i) check_entry(i);
    for (auto& [index, scope] : p_.memory_scopes) {
      if (index < 0 || index >= static_cast<int64_t>(p_.constants.size())) {
        error("section memory scopes: constant " + std::to_string(index) + " does not exist");
      }
    }
  }

  void check_entry(size_t i) {
    FuncInfo& f = p_.functions[i];
    std::string where = "section globals: function " + std::to_string(i) + " \"" + f.name + "\": ";
    if (f.name.empty()) error(where + "has no name");
    if (!p_.by_name.emplace(f.name, static_cast<int32_t>(i)).second) error(where + "defined twice");
    if (f.kind == FuncKind::kPacked) return;
    auto limit = static_cast<int64_t>(f.params.size() > 4096 ? f.params.size() : 4096);
    if (f.num_args < 0 || f.num_args > limit) error(where + std::to_string(f.num_args) + " arguments");
    if (!f.params.empty() && f.num_args != static_cast<int64_t>(f.params.size())) {
      error(where + std::to_string(f.num_args) + " arguments but " + std::to_string(f.params.size()) + " names");
    }
    int64_t words = static_cast<int64_t>(p_.instr_data.size()) + limit;
    if (f.register_file_size < f.num_args || f.register_file_size > words) {
      error(where + std::to_string(f.register_file_size) + " registers for " + std::to_string(f.num_args) + " arguments");
    }
    auto n_instr = static_cast<int64_t>(p_.instr_offset.size());
    if (f.kind == FuncKind::kVM && (f.start_instr < 0 || f.start_instr >= f.end_instr || f.end_instr > n_instr)) {
      error(where + "instructions [" + std::to_string(f.start_instr) + ", " + std::to_string(f.end_instr) + ") of " +
            std::to_string(n_instr));
    }
  }

  void check_function(const FuncInfo& f) {
    bool terminated = false;
    function_ = &f;
    for (pc_ = f.start_instr; pc_ < f.end_instr; ++pc_) terminated = check_instruction(f, pc_);
    pc_ = f.end_instr - 1;
    if (!terminated) error_here("falls off the end of the function");
  }

  // An error in the instruction that is being checked.
  void error_here(const std::string& text) {
    error("section code: function \"" + function_->name + "\", instruction " +
          std::to_string(pc_ - function_->start_instr) + " (word " +
          std::to_string(p_.instr_offset[static_cast<size_t>(pc_)]) + "): " + text);
  }

  // True when control never passes to the next instruction.
  bool check_instruction(const FuncInfo& f, int64_t pc) {
    const int64_t* w = p_.instr_data.data() + p_.instr_offset[static_cast<size_t>(pc)];
    int64_t n_instr = static_cast<int64_t>(p_.instr_offset.size());
    int64_t end = pc + 1 < n_instr ? p_.instr_offset[static_cast<size_t>(pc) + 1] : static_cast<int64_t>(p_.instr_data.size());
    int64_t n = end - p_.instr_offset[static_cast<size_t>(pc)];
    const char* operands = nullptr;
    switch (w[0]) {
#define WEFT_RELAX_OP(name, number, ops, meaning) \
  case number: operands = ops; break;
#include "relax_ops.def"
#undef WEFT_RELAX_OP
      default: error_here("unknown opcode " + std::to_string(w[0])); return false;
    }
    int64_t i = 1;
    for (const char* op = operands; *op != '\0'; ++op) {
      if (*op == 'a') continue;
      if (i >= n) return error_here("cut short"), false;
      check_operand(f, pc, *op, w[i]);
      if (*op == 'n') {
        if (w[i] < 0 || w[i] != n - i - 1) {
          return error_here(std::to_string(w[i]) + " arguments in " + std::to_string(n - i - 1) + " words"), false;
        }
        for (int64_t k = i + 1; k < n; ++k) check_argument(f, w[k]);
        if (f.kind == FuncKind::kVM && w[2] >= 0 && w[2] < static_cast<int64_t>(p_.functions.size())) {
          const FuncInfo& callee = p_.functions[static_cast<size_t>(w[2])];
          if (callee.kind != FuncKind::kPacked && callee.num_args != w[i]) {
            error_here("calls \"" + callee.name + "\" with " + std::to_string(w[i]) + " arguments, it takes " +
                  std::to_string(callee.num_args));
          }
        }
        i = n;
        break;
      }
      ++i;
    }
    if (i != n) error_here(std::to_string(n) + " words, expected " + std::to_string(i));
    return w[0] == static_cast<int64_t>(Opcode::kRet) || w[0] == static_cast<int64_t>(Opcode::kGoto);
  }

  void check_operand(const FuncInfo& f, int64_t pc, char op, int64_t word) {
    switch (op) {
      case 'd':
        if (word != kVoidRegister && (word < 0 || word >= f.register_file_size)) error_here("destination register " + std::to_string(word) + " of " + std::to_string(f.register_file_size));
        break;
      case 'r':
        if (word < 0 || word >= f.register_file_size) error_here("register " + std::to_string(word) + " of " + std::to_string(f.register_file_size));
        break;
      case 'f':
        if (word < 0 || word >= static_cast<int64_t>(p_.functions.size())) error_here("function " + std::to_string(word) + " of " + std::to_string(p_.functions.size()));
        break;
      case 'o':
        if (word < f.start_instr - pc || word >= f.end_instr - pc) error_here("jump by " + std::to_string(word) + " leaves the function");
        break;
      default: break;
    }
  }

  void check_argument(const FuncInfo& f, int64_t word) {
    int64_t value = arg_value(word);
    switch (arg_kind(word)) {
      case ArgKind::kRegister:
        if (value != kVMRegister && value != kVoidRegister && (value < 0 || value >= f.register_file_size)) error_here("register " + std::to_string(value) + " of " + std::to_string(f.register_file_size));
        return;
      case ArgKind::kImmediate: return;
      case ArgKind::kConstant:
        if (value < 0 || value >= static_cast<int64_t>(p_.constants.size())) error_here("constant " + std::to_string(value) + " of " + std::to_string(p_.constants.size()));
        return;
      case ArgKind::kFunction:
        if (value < 0 || value >= static_cast<int64_t>(p_.functions.size())) error_here("function " + std::to_string(value) + " of " + std::to_string(p_.functions.size()));
        return;
    }
    error_here("unknown argument kind " + std::to_string(static_cast<int64_t>(arg_kind(word))));
  }

  Program& p_;
  const FuncInfo* function_ = nullptr;
  int64_t pc_ = 0;
  ErrorList errors_;
};

}  // namespace

void verify_program(Program* program) { Verifier(program).run(); }

std::shared_ptr<Program> read_program(const char* data, size_t size, TVMFFIObject* keep) {
  auto program = std::make_shared<Program>();
  Reader in(data, size, keep);
  auto magic = in.pod<uint64_t>("magic number");
  if (magic != kExecutableMagic && magic != kExecutableMagicOld) {
    char found[32];
    std::snprintf(found, sizeof(found), "0x%016llX", static_cast<unsigned long long>(magic));
    in.error(std::string("not an executable: expected magic number 0xD225DE2F4214151E, found ") + found);
  }
  std::string version = in.str("version");
  if (version != kExecutableVersion) in.error("expected version \"0.14\", found \"" + version.substr(0, 64) + "\"; compile the model again");

  in.section("globals");
  uint64_t n = in.count(52, "functions");
  program->functions.reserve(static_cast<size_t>(n));
  for (uint64_t i = 0; i < n; ++i) {
    FuncInfo f;
    auto kind = in.pod<int32_t>("function kind");
    if (kind < 0 || kind > 2) in.error("function " + std::to_string(i) + " is of unknown kind " + std::to_string(kind));
    f.kind = static_cast<FuncKind>(kind);
    f.name = in.str("function name");
    f.start_instr = in.pod<int64_t>("start_instr");
    f.end_instr = in.pod<int64_t>("end_instr");
    f.num_args = in.pod<int64_t>("num_args");
    f.register_file_size = in.pod<int64_t>("register_file_size");
    uint64_t k = in.count(8, "parameter names");
    for (uint64_t j = 0; j < k; ++j) f.params.push_back(in.str("parameter name"));
    program->functions.push_back(std::move(f));
  }

  if (magic == kExecutableMagic) {
    in.section("memory scopes");
    n = in.count(16, "memory scopes");
    for (uint64_t i = 0; i < n; ++i) {
      auto index = in.pod<int64_t>("constant index");
      program->memory_scopes.emplace_back(index, in.str("memory scope"));
    }
  }

  in.section("constants");
  n = in.count(8, "constants");
  program->constants.reserve(static_cast<size_t>(n));
  for (uint64_t i = 0; i < n; ++i) program->constants.push_back(read_constant(&in));

  in.section("code");
  program->instr_offset = in.words("instruction offsets");
  program->instr_data = in.words("instruction words");
  if (in.left() != 0) in.error(std::to_string(in.left()) + " bytes after the end");
  verify_program(program.get());
  remove_padding(program.get());
  return program;
}

static void write_to(const Program& program, Writer* out, int64_t at) {
  out->pod(kExecutableMagic);
  out->str(kExecutableVersion);
  out->pod<uint64_t>(program.functions.size());
  for (const auto& f : program.functions) {
    out->pod<int32_t>(static_cast<int32_t>(f.kind));
    out->str(f.name);
    out->pod(f.start_instr);
    out->pod(f.end_instr);
    out->pod(f.num_args);
    out->pod(f.register_file_size);
    out->pod<uint64_t>(f.params.size());
    for (const auto& p : f.params) out->str(p);
  }
  // Each section before the code says how many constants there are, so the padding is found first.
  std::vector<std::string> padding(program.constants.size());
  std::vector<int64_t> shift(program.constants.size());
  int64_t pads = 0;
  if (at != kNoPadding) {
    Writer count(static_cast<std::FILE*>(nullptr));
    count.pod<uint64_t>(program.memory_scopes.size());
    for (const auto& scope : program.memory_scopes) {
      count.pod(scope.first);
      count.str(scope.second);
    }
    count.pod<uint64_t>(0);
    size_t begin = static_cast<size_t>(at) + out->size();
    for (size_t i = 0; i < program.constants.size(); ++i) {
      padding[i] = padding_before(program.constants[i], begin + count.size());
      if (!padding[i].empty()) {
        write_constant(&count, Any(tvm::ffi::String(padding[i])));
        ++pads;
      }
      shift[i] = pads;
      write_constant(&count, program.constants[i]);
    }
  }
  out->pod<uint64_t>(program.memory_scopes.size());
  for (const auto& [index, scope] : program.memory_scopes) {
    out->pod<int64_t>(index + shift[static_cast<size_t>(index)]);
    out->str(scope);
  }
  out->pod<uint64_t>(program.constants.size() + static_cast<uint64_t>(pads));
  for (size_t i = 0; i < program.constants.size(); ++i) {
    if (!padding[i].empty()) write_constant(out, Any(tvm::ffi::String(padding[i])));
    write_constant(out, program.constants[i]);
  }
  out->words(program.instr_offset);
  out->words(pads == 0 ? program.instr_data : pad_words(program, shift));
}

size_t program_size(const Program& program, int64_t at) {
  Writer count(static_cast<std::FILE*>(nullptr));
  write_to(program, &count, at);
  return count.size();
}

std::string write_program(const Program& program) {
  std::string text;
  text.reserve(program_size(program));
  Writer out(&text);
  write_to(program, &out, kNoPadding);
  return text;
}

void append_program(const Program& program, const std::string& path, int64_t at) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) throw tvm::ffi::Error("OSError", "cannot open \"" + path + "\": " + std::strerror(errno), "");
  try {
    Writer out(file);
    write_to(program, &out, at);
  } catch (...) {
    std::fclose(file);
    throw;
  }
  if (std::fclose(file) != 0) throw tvm::ffi::Error("OSError", "cannot write \"" + path + "\": " + std::strerror(errno), "");
}

}  // namespace weft
