// Padding constants: unused strings in front of large tensors, which put the tensors' data on cache lines of the file.
//
// A tensor record has no room for padding, so a library in which weights are to be used where they lie has strings
// "weft.pad....." between its constants. They are ordinary constants to any reader; ours takes them out again.
#include <tvm/ffi/string.h>

#include "executable.h"
#include "memory.h"

namespace weft {
namespace {

constexpr int64_t kSmallestAligned = 1024;  // bytes of a tensor; smaller ones are copied
constexpr const char* kPrefix = "weft.pad";
constexpr size_t kStringRecord = sizeof(int32_t) + sizeof(uint64_t);

const DLTensor* tensor_in(const tvm::ffi::Any& value) {
  const auto& raw = *reinterpret_cast<const TVMFFIAny*>(&value);
  return raw.type_index == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(raw.v_obj) : nullptr;
}

bool is_padding(const tvm::ffi::Any& value) {
  auto text = value.as<tvm::ffi::String>();
  if (!text.has_value()) return false;
  std::string s = *text;
  return s.rfind(kPrefix, 0) == 0 && s.find_first_not_of('.', std::string(kPrefix).size()) == std::string::npos;
}

// Calls f(word&) for the arguments of all calls that are constants. The program is verified.
template <typename F>
void each_constant_word(const std::vector<int64_t>& offsets, std::vector<int64_t>* words, F f) {
  for (int64_t at : offsets) {
    int64_t* w = words->data() + at;
    if (static_cast<Opcode>(w[0]) != Opcode::kCall) continue;
    for (int64_t k = 0; k < w[3]; ++k) {
      if (arg_kind(w[4 + k]) == ArgKind::kConstant) f(w + 4 + k);
    }
  }
}

int64_t constant_word(int64_t index) { return static_cast<int64_t>(ArgKind::kConstant) << 56 | index; }

}  // namespace

std::string padding_before(const tvm::ffi::Any& value, size_t at) {
  const DLTensor* t = tensor_in(value);
  int64_t nbytes = 0;
  if (t == nullptr || !tensor_nbytes(t->shape, t->ndim, t->dtype, &nbytes) || nbytes < kSmallestAligned) return "";
  size_t header = sizeof(int32_t) + tensor_record_bytes(t->ndim);
  if ((at + header) % kAlignment == 0) return "";
  std::string text = kPrefix;
  size_t data = at + kStringRecord + text.size() + header;
  return text.append((kAlignment - data % kAlignment) % kAlignment, '.');
}

std::vector<int64_t> pad_words(const Program& program, const std::vector<int64_t>& shift) {
  std::vector<int64_t> words = program.instr_data;
  each_constant_word(program.instr_offset, &words, [&shift](int64_t* word) {
    int64_t index = arg_value(*word);
    *word = constant_word(index + shift[static_cast<size_t>(index)]);
  });
  return words;
}

void remove_padding(Program* program) {
  size_t n = program->constants.size();
  std::vector<char> drop(n);
  bool any = false;
  for (size_t i = 0; i < n; ++i) any |= (drop[i] = is_padding(program->constants[i])) != 0;
  if (!any) return;
  each_constant_word(program->instr_offset, &program->instr_data,
                     [&drop](int64_t* word) { drop[static_cast<size_t>(arg_value(*word))] = 0; });
  for (const auto& scope : program->memory_scopes) drop[static_cast<size_t>(scope.first)] = 0;
  std::vector<int64_t> place(n);
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    place[i] = static_cast<int64_t>(kept);
    if (drop[i]) continue;
    if (kept != i) program->constants[kept] = std::move(program->constants[i]);
    ++kept;
  }
  program->constants.resize(kept);
  each_constant_word(program->instr_offset, &program->instr_data,
                     [&place](int64_t* word) { *word = constant_word(place[static_cast<size_t>(arg_value(*word))]); });
  for (auto& scope : program->memory_scopes) scope.first = place[static_cast<size_t>(scope.first)];
}

}  // namespace weft
