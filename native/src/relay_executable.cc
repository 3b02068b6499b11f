// Sections of a Relay executable file, and the verifier.
#include "relay_executable.h"

#include <atomic>

#include "error.h"
#include "memory.h"
#include "serial.h"

namespace weft {

const RelayOpInfo kRelayOps[] = {
#define WEFT_RELAY_OP(name, number, operands, fields, meaning) {#name, number, operands, fields, meaning},
#include "relay_ops.def"
#undef WEFT_RELAY_OP
};
const int kRelayOpCount = static_cast<int>(sizeof(kRelayOps) / sizeof(kRelayOps[0]));

const RelayScalarInfo kRelayScalars[] = {
#define WEFT_RELAY_SCALAR(name, number, result, expression) {#name, number},
#include "relay_scalars.def"
#undef WEFT_RELAY_SCALAR
};
const int kRelayScalarCount = static_cast<int>(sizeof(kRelayScalars) / sizeof(kRelayScalars[0]));

int relay_op_row(int64_t opcode) {
  for (int i = 0; i < kRelayOpCount; ++i) {
    if (kRelayOps[i].number == opcode) return i;
  }
  return -1;
}

namespace {

constexpr size_t kMaxParams = 4096;

bool is_scalar_operation(int64_t code) { return code >= 0 && code < kRelayScalarCount; }

class Verifier {
 public:
  explicit Verifier(RelayProgram* program) : p_(*program) {}

  void run() {
    check_names();
    for (size_t i = 0; i < p_.constants.size(); ++i) {
      if (!uses_device(p_.constants[i].device)) {
        errors_.add("section constants: constant " + std::to_string(i) + " is on device " +
                    std::to_string(p_.constants[i].device) + " of at most " + std::to_string(kRelayMaxDevices));
      }
    }
    for (auto& f : p_.functions) split(&f);  // starts of all functions, before jumps and calls are looked at
    if (errors_.empty()) {
      for (auto& f : p_.functions) check_function(f);
    }
    errors_.raise_if_any();
  }

 private:
  static std::string many(int64_t value, const char* what, size_t of) {
    return std::string(what) + " " + std::to_string(value) + " of " + std::to_string(of);
  }

  void check_names() {
    p_.by_name.clear();
    p_.num_devices = 1;
    for (size_t i = 0; i < p_.functions.size(); ++i) {
      RelayFunction& f = p_.functions[i];
      std::string where = "section globals: function " + std::to_string(i) + " \"" + f.name + "\"";
      if (f.name.empty()) errors_.add(where + " has no name");
      if (!p_.by_name.emplace(f.name, static_cast<int32_t>(i)).second) errors_.add(where + " is defined twice");
      where = "section code: function \"" + f.name + "\": ";
      if (f.params.size() > kMaxParams) errors_.add(where + std::to_string(f.params.size()) + " parameters");
      if (!f.param_devices.empty() && f.param_devices.size() != f.params.size()) {
        errors_.add(where + std::to_string(f.params.size()) + " parameters but " +
                    std::to_string(f.param_devices.size()) + " device indexes");
      }
      for (int64_t device : f.param_devices) {
        if (!uses_device(device)) errors_.add(where + "a parameter on device " + std::to_string(device));
      }
      // Every register but the parameters' is some instruction's, so the words bound their number.
      auto least = static_cast<int64_t>(f.params.size());
      auto most = static_cast<int64_t>(f.words.size() + kMaxParams);
      if (f.registers < least || f.registers > most) {
        errors_.add(where + std::to_string(f.registers) + " registers for " + std::to_string(least) + " parameters");
      }
    }
    for (size_t i = 0; i < p_.primitives.size(); ++i) {
      if (p_.primitives[i].empty()) errors_.add("section primitive names: primitive " + std::to_string(i) + " has no name");
    }
  }

  bool uses_device(int64_t index) {
    if (index < 0 || index >= kRelayMaxDevices) return false;
    if (index >= p_.num_devices) p_.num_devices = index + 1;
    return true;
  }

  void error_here(const std::string& text) {
    errors_.add("section code: function \"" + function_->name + "\", instruction " + std::to_string(pc_) + " (word " +
                std::to_string(at_) + "): " + text);
  }

  // Finds where instructions begin, from the counts in them.
  void split(RelayFunction* f) {
    function_ = f;
    f->starts.clear();
    auto size = static_cast<int64_t>(f->words.size());
    for (at_ = 0; at_ < size;) {
      pc_ = static_cast<int64_t>(f->starts.size());
      f->starts.push_back(at_);
      int row = relay_op_row(f->words[static_cast<size_t>(at_)]);
      if (row < 0) return error_here("unknown opcode " + std::to_string(f->words[static_cast<size_t>(at_)]));
      int64_t end = at_ + 1;
      for (const char* op = kRelayOps[row].operands; *op != '\0'; ++op) {
        if (*op == 'a' || *op == 'x') continue;
        if (end >= size) return error_here("cut short");
        if (*op == 'n' || *op == 's') {
          int64_t n = f->words[static_cast<size_t>(end)];
          if (n < 0 || n > size - end - 1) {
            return error_here(std::to_string(n) + (*op == 'n' ? " registers" : " dimensions") + " in the " +
                              std::to_string(size - end - 1) + " words left");
          }
          end += n;
        }
        ++end;
      }
      at_ = end;
    }
    pc_ = at_ = 0;
    if (f->starts.empty()) error_here("the function has no instructions");
  }

  void check_function(const RelayFunction& f) {
    function_ = &f;
    auto n = static_cast<int64_t>(f.starts.size());
    for (pc_ = 0; pc_ < n; ++pc_) {
      at_ = f.starts[static_cast<size_t>(pc_)];
      check_instruction(f, f.words.data() + at_);
    }
    --pc_;
    switch (static_cast<RelayOp>(f.words[static_cast<size_t>(at_)])) {
      case RelayOp::kRet:
      case RelayOp::kGoto:
      case RelayOp::kIf:
      case RelayOp::kFatal: return;
      default: error_here("falls off the end of the function");
    }
  }

  void check_instruction(const RelayFunction& f, const int64_t* w) {
    const int64_t* word = w + 1;
    for (const char* op = kRelayOps[relay_op_row(w[0])].operands; *op != '\0'; ++op) {
      if (*op == 'a' || *op == 'x') continue;
      check_operand(f, *op, *word);
      if (*op == 'n') {
        for (int64_t i = 1; i <= *word; ++i) check_operand(f, 'r', word[i]);
        word += *word;
      } else if (*op == 's') {
        int64_t nbytes;
        if (*word > (1 << 20) || !tensor_nbytes(word + 1, *word, DLDataType{kDLUInt, 64, 1}, &nbytes)) {
          error_here("impossible shape " + shape_text(word + 1, *word < 8 ? *word : 8));
        }
        word += *word;
      }
      ++word;
    }
    switch (static_cast<RelayOp>(w[0])) {
      case RelayOp::kInvoke:
      case RelayOp::kAllocClosure: {
        if (w[1] < 0 || w[1] >= static_cast<int64_t>(p_.functions.size())) return;
        const RelayFunction& callee = p_.functions[static_cast<size_t>(w[1])];
        auto takes = static_cast<int64_t>(callee.params.size());
        bool closure = w[0] == static_cast<int64_t>(RelayOp::kAllocClosure);
        if (closure ? w[3] > takes : w[3] != takes) {
          error_here((closure ? "binds " : "passes ") + std::to_string(w[3]) + " values to \"" + callee.name +
                     "\", which takes " + std::to_string(takes));
        }
        return;
      }
      case RelayOp::kInvokePacked:
        if (w[2] > w[3]) error_here(std::to_string(w[2]) + " outputs of " + std::to_string(w[3]) + " arguments");
        return;
      default: return;
    }
  }

  void check_operand(const RelayFunction& f, char op, int64_t word) {
    auto within = [&](const char* what, size_t n) {
      if (word < 0 || word >= static_cast<int64_t>(n)) error_here(many(word, what, n));
    };
    switch (op) {
      case 'd': return within("destination register", static_cast<size_t>(f.registers));
      case 'r': return within("register", static_cast<size_t>(f.registers));
      case 'f': return within("function", p_.functions.size());
      case 'p': return within("primitive", p_.primitives.size());
      case 'k': return within("constant", p_.constants.size());
      case 'm':
        if (word != -1) within("constant", p_.constants.size());
        return;
      case 'o':
        if (word < -pc_ || word >= static_cast<int64_t>(f.starts.size()) - pc_) {
          error_here("jump by " + std::to_string(word) + " leaves the function");
        }
        return;
      case 'u':
        if (word < 0) error_here("negative number " + std::to_string(word));
        return;
      case 'v':
        if (!uses_device(word)) error_here("device " + std::to_string(word) + " of at most " + std::to_string(kRelayMaxDevices));
        return;
      case 'l':
        if (word < 1 || word > kRelayAlignment || (word & (word - 1)) != 0) {
          error_here("alignment " + std::to_string(word) + ": expected a power of 2 of at most " + std::to_string(kRelayAlignment));
        }
        return;
      case 't':
        if (word < 0 || (word >> 32) != 0 || !valid_dtype(dtype_of_word(word)) || dtype_of_word(word).bits == 0 ||
            dtype_of_word(word).lanes > INT16_MAX) {
          error_here("dtype " + std::to_string(word));
        }
        return;
      case 'c':
        if (!is_scalar_operation(word)) error_here("unknown scalar operation " + std::to_string(word));
        return;
      default: return;
    }
  }

  RelayProgram& p_;
  const RelayFunction* function_ = nullptr;
  int64_t pc_ = 0, at_ = 0;
  ErrorList errors_;
};

std::vector<std::string> read_names(Reader* in, const char* what) {
  uint64_t n = in->count(8, what);
  std::vector<std::string> out;
  for (uint64_t i = 0; i < n; ++i) out.push_back(in->str(what));
  return out;
}

void write_names(Writer* out, const std::vector<std::string>& names) {
  out->pod<uint64_t>(names.size());
  for (const auto& name : names) out->str(name);
}

}  // namespace

void verify_relay_program(RelayProgram* program) {
  static std::atomic<uint64_t> numbers{0};
  program->number = ++numbers;
  Verifier(program).run();
}

std::shared_ptr<RelayProgram> read_relay_program(const char* data, size_t size) {
  auto program = std::make_shared<RelayProgram>();
  Reader in(data, size, nullptr);
  if (in.pod<uint64_t>("magic number") != kRelayMagic) {
    in.error("not a Relay executable: expected magic number 0xD225DE2F42145752, found another");
  }
  std::string version = in.str("version");
  if (version != kRelayVersion) {
    in.error(std::string("expected version \"") + kRelayVersion + "\", found \"" + version.substr(0, 64) + "\"");
  }
  in.section("globals");
  for (auto& name : read_names(&in, "function names")) {
    program->functions.emplace_back();
    program->functions.back().name = std::move(name);
  }
  in.section("constants");
  uint64_t n = in.count(12, "constants");
  for (uint64_t i = 0; i < n; ++i) {
    RelayConstant constant;
    constant.device = in.pod<int64_t>("device index");
    constant.value = read_constant(&in);
    program->constants.push_back(std::move(constant));
  }
  in.section("primitive names");
  program->primitives = read_names(&in, "primitive names");
  in.section("code");
  n = in.count(32, "functions");
  if (n != program->functions.size()) {
    in.error("code of " + std::to_string(n) + " functions, but there are " + std::to_string(program->functions.size()) + " names");
  }
  for (auto& f : program->functions) {
    f.params = read_names(&in, "parameter names");
    f.param_devices = in.words("parameter devices");
    f.registers = in.pod<int64_t>("register file size");
    f.words = in.words("instruction words");
  }
  if (in.left() != 0) in.error(std::to_string(in.left()) + " bytes after the end");
  verify_relay_program(program.get());
  return program;
}

static void write_to(const RelayProgram& program, Writer* out) {
  out->pod(kRelayMagic);
  out->str(kRelayVersion);
  out->pod<uint64_t>(program.functions.size());
  for (const auto& f : program.functions) out->str(f.name);
  out->pod<uint64_t>(program.constants.size());
  for (const auto& constant : program.constants) {
    out->pod<int64_t>(constant.device);
    write_constant(out, constant.value);
  }
  write_names(out, program.primitives);
  out->pod<uint64_t>(program.functions.size());
  for (const auto& f : program.functions) {
    write_names(out, f.params);
    out->words(f.param_devices);
    out->pod<int64_t>(f.registers);
    out->words(f.words);
  }
}

std::string write_relay_program(const RelayProgram& program) {
  Writer count(static_cast<std::FILE*>(nullptr));
  write_to(program, &count);
  std::string text;
  text.reserve(count.size());
  Writer out(&text);
  write_to(program, &out);
  return text;
}

}  // namespace weft
