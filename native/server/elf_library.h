// Shared libraries in a process without a dynamic linker: a static program has none.
#ifndef WEFT_SERVER_ELF_LIBRARY_H_
#define WEFT_SERVER_ELF_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft {

// The address of what this program offers to libraries under a name, or null.
void* host_symbol(const char* name);

class ElfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A position-independent ELF library of this processor. Its segments are mapped from the file, so that weights are read
// when they are used. What it leaves undefined comes from this program; libraries that it names are not looked for.
//
// Whatever the file says of itself is compared with its length and its segments first, so that a damaged file is an
// ElfError. What its code does is not looked at.
class ElfLibrary {
 public:
  explicit ElfLibrary(const std::string& path);
  ~ElfLibrary();
  ElfLibrary(const ElfLibrary&) = delete;
  ElfLibrary& operator=(const ElfLibrary&) = delete;
  void* symbol(std::string_view name) const;

 private:
  struct Segment {
    uint64_t begin, end;  // as the file counts addresses
    uint32_t flags;
  };
  struct Dynamic;
  void map_segments(int file, uint64_t file_bytes, const char* headers, size_t count);
  void map_one(int file, const char* header);
  void link(const Dynamic& dynamic);
  void read_symbols(const Dynamic& dynamic);
  uint64_t count_symbols(const Dynamic& dynamic) const;
  void relocate(const Dynamic& dynamic, uint64_t table, uint64_t bytes, bool addends);
  void relocate_relative(uint64_t table, uint64_t bytes);
  uintptr_t value_of(const Dynamic& dynamic, uint64_t index) const;
  void protect();
  void call_all(const std::vector<uintptr_t>& functions) const;
  std::vector<uintptr_t> functions_of(uint64_t single, uint64_t table, uint64_t bytes) const;
  char* at(uint64_t address, uint64_t bytes) const;
  template <typename T>
  T read(uint64_t address) const;
  std::string_view text(const Dynamic& dynamic, uint64_t offset) const;

  char* base_ = nullptr;  // of address 0 of the file
  char* memory_ = nullptr;
  size_t span_ = 0;
  std::vector<Segment> segments_;
  std::unordered_map<std::string_view, uintptr_t> defined_;
  std::vector<uintptr_t> at_end_;
};

}  // namespace weft
#endif  // WEFT_SERVER_ELF_LIBRARY_H_
