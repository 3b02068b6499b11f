// Layouts: System V ABI (ELF headers, dynamic section), its processor supplements (numbers of relocations), RELR.
#include "elf_library.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

#if UINTPTR_MAX > 0xffffffffu
using Header = Elf64_Ehdr;
using ProgramHeader = Elf64_Phdr;
using DynamicEntry = Elf64_Dyn;
using Symbol = Elf64_Sym;
using Rel = Elf64_Rel;
using Rela = Elf64_Rela;
constexpr int kClass = ELFCLASS64;
uint64_t symbol_of(uint64_t info) { return info >> 32; }
uint32_t kind_of(uint64_t info) { return static_cast<uint32_t>(info); }
#else
using Header = Elf32_Ehdr;
using ProgramHeader = Elf32_Phdr;
using DynamicEntry = Elf32_Dyn;
using Symbol = Elf32_Sym;
using Rel = Elf32_Rel;
using Rela = Elf32_Rela;
constexpr int kClass = ELFCLASS32;
uint64_t symbol_of(uint64_t info) { return info >> 8; }
uint32_t kind_of(uint64_t info) { return info & 0xff; }
#endif

// Relocations: a word that gets a symbol's address, one with an addend to it, one that moves with the library.
#if defined(__x86_64__)
constexpr int kMachine = 62;
constexpr uint32_t kAddress[] = {6, 7}, kSum = 1, kRelative = 8;
#elif defined(__aarch64__)
constexpr int kMachine = 183;
constexpr uint32_t kAddress[] = {1025, 1026}, kSum = 257, kRelative = 1027;
#elif defined(__arm__)
constexpr int kMachine = 40;
constexpr uint32_t kAddress[] = {21, 22}, kSum = 2, kRelative = 23;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr int kMachine = 243;
constexpr uint32_t kAddress[] = {5, 5}, kSum = 2, kRelative = 3;
#else
#error "libraries of this processor are not known"
#endif

constexpr uint64_t kMaxSpan = sizeof(void*) == 8 ? uint64_t{1} << 40 : uint64_t{1} << 30;
constexpr size_t kMaxHeaders = 64;

uint64_t page_bytes() {
  static const auto size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}
uint64_t page_down(uint64_t n) { return n & ~(page_bytes() - 1); }
uint64_t page_up(uint64_t n) { return page_down(n + page_bytes() - 1); }

struct File {
  explicit File(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      if (fd >= 0) close(fd);
      throw ElfError("there is no such file");
    }
    bytes = static_cast<uint64_t>(info.st_size);
  }
  ~File() { close(fd); }
  void read(void* to, size_t n, uint64_t offset) const {
    if (offset > bytes || n > bytes - offset || pread(fd, to, n, static_cast<off_t>(offset)) != static_cast<ssize_t>(n)) {
      throw ElfError("it is cut short");
    }
  }
  int fd;
  uint64_t bytes = 0;
};

void check_header(const Header& h) {
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) throw ElfError("it is no ELF file");
  if (h.e_ident[EI_CLASS] != kClass || h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != kMachine) {
    throw ElfError("it is made for another processor: expected ELF machine " + std::to_string(kMachine) + " of " +
                   std::to_string(8 * sizeof(void*)) + " bits, found " + std::to_string(h.e_machine) + " of " +
                   std::to_string(h.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32));
  }
  if (h.e_type != ET_DYN) throw ElfError("it is no shared library");
  if (h.e_phentsize != sizeof(ProgramHeader) || h.e_phnum == 0 || h.e_phnum > kMaxHeaders) {
    throw ElfError("its program headers are damaged");
  }
}

}  // namespace

struct ElfLibrary::Dynamic {
  uint64_t values[64] = {};
  uint64_t gnu_hash = 0, relr = 0, relr_bytes = 0;
  uint64_t operator[](size_t tag) const { return values[tag]; }
};

ElfLibrary::ElfLibrary(const std::string& path) {
  File file(path);
  Header header;
  file.read(&header, sizeof header, 0);
  check_header(header);
  std::vector<char> headers(sizeof(ProgramHeader) * header.e_phnum);
  file.read(headers.data(), headers.size(), header.e_phoff);
  try {
    map_segments(file.fd, file.bytes, headers.data(), header.e_phnum);
    Dynamic dynamic;
    for (size_t i = 0; i < header.e_phnum; ++i) {
      ProgramHeader p;
      std::memcpy(&p, headers.data() + i * sizeof p, sizeof p);
      if (p.p_type == PT_TLS) throw ElfError("it has variables of threads, which this program cannot give it");
      if (p.p_type != PT_DYNAMIC) continue;
      for (uint64_t a = p.p_vaddr, end = a + p.p_memsz; end - a >= sizeof(DynamicEntry); a += sizeof(DynamicEntry)) {
        auto entry = read<DynamicEntry>(a);
        auto tag = static_cast<uint64_t>(static_cast<int64_t>(entry.d_tag));
        if (tag == DT_NULL) break;
        if (tag == 35) dynamic.relr_bytes = entry.d_un.d_val;
        else if (tag == 36) dynamic.relr = entry.d_un.d_val;
        else if (tag == 0x6ffffef5) dynamic.gnu_hash = entry.d_un.d_val;
        else if (tag < 64) dynamic.values[tag] = entry.d_un.d_val;
      }
    }
    link(dynamic);
  } catch (...) {
    munmap(memory_, span_);
    throw;
  }
}

ElfLibrary::~ElfLibrary() {
  call_all(at_end_);
  munmap(memory_, span_);
}

void* ElfLibrary::symbol(std::string_view name) const {
  auto found = defined_.find(name);
  return found == defined_.end() ? nullptr : reinterpret_cast<void*>(found->second);
}

void ElfLibrary::map_segments(int file, uint64_t file_bytes, const char* headers, size_t count) {
  uint64_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    ProgramHeader p;
    std::memcpy(&p, headers + i * sizeof p, sizeof p);
    if (p.p_type != PT_LOAD) continue;
    if (p.p_memsz < p.p_filesz || p.p_vaddr > kMaxSpan || p.p_memsz > kMaxSpan ||
        (p.p_filesz != 0 && p.p_vaddr % page_bytes() != p.p_offset % page_bytes())) {
      throw ElfError("segment " + std::to_string(i) + " is damaged");
    }
    if (p.p_offset > file_bytes || p.p_filesz > file_bytes - p.p_offset) {
      throw ElfError("it is cut short: segment " + std::to_string(i) + " ends behind the file");
    }
    if (page_down(p.p_vaddr) < page_up(end) && !segments_.empty()) throw ElfError("its segments overlap");
    end = uint64_t{p.p_vaddr} + p.p_memsz;
    segments_.push_back({p.p_vaddr, end, p.p_flags});
  }
  if (end == 0) throw ElfError("it has no segments");
  span_ = static_cast<size_t>(page_up(end));
  void* memory = mmap(nullptr, span_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw ElfError("there is no memory for its " + std::to_string(span_) + " bytes");
  base_ = memory_ = static_cast<char*>(memory);
  for (size_t i = 0; i < count; ++i) map_one(file, headers + i * sizeof(ProgramHeader));
}

// The file's part of a segment, then zeros. It can be written until it is linked.
void ElfLibrary::map_one(int file, const char* header) {
  ProgramHeader p;
  std::memcpy(&p, header, sizeof p);
  if (p.p_type != PT_LOAD) return;
  uint64_t begin = page_down(p.p_vaddr), file_end = uint64_t{p.p_vaddr} + p.p_filesz;
  uint64_t mapped_end = p.p_filesz == 0 ? begin : page_up(file_end), end = page_up(uint64_t{p.p_vaddr} + p.p_memsz);
  if (mapped_end > begin && mmap(base_ + begin, mapped_end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
                                 static_cast<off_t>(page_down(p.p_offset))) == MAP_FAILED) {
    throw ElfError("a segment cannot be mapped");
  }
  if (p.p_filesz != 0 && p.p_memsz > p.p_filesz) std::memset(base_ + file_end, 0, mapped_end - file_end);
  if (end > mapped_end && mmap(base_ + mapped_end, end - mapped_end, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    throw ElfError("a segment cannot be mapped");
  }
}

char* ElfLibrary::at(uint64_t address, uint64_t bytes) const {
  for (const Segment& s : segments_) {
    if (address >= s.begin && address <= s.end && bytes <= s.end - address) return base_ + address;
  }
  throw ElfError("it is damaged: it names address " + std::to_string(address) + ", which no segment has");
}

template <typename T>
T ElfLibrary::read(uint64_t address) const {
  T value;
  std::memcpy(&value, at(address, sizeof value), sizeof value);
  return value;
}

std::string_view ElfLibrary::text(const Dynamic& dynamic, uint64_t offset) const {
  uint64_t size = dynamic[DT_STRSZ];
  if (offset >= size) throw ElfError("it is damaged: a name lies outside its names");
  const char* begin = at(dynamic[DT_STRTAB], size) + offset;
  return {begin, strnlen(begin, size - offset)};
}

void ElfLibrary::link(const Dynamic& d) {
  read_symbols(d);
  relocate_relative(d.relr, d.relr_bytes);
  relocate(d, d[DT_RELA], d[DT_RELASZ], true);
  relocate(d, d[DT_REL], d[DT_RELSZ], false);
  relocate(d, d[DT_JMPREL], d[DT_PLTRELSZ], d[DT_PLTREL] == DT_RELA);
  std::vector<uintptr_t> at_begin = functions_of(d[DT_INIT], d[DT_INIT_ARRAY], d[DT_INIT_ARRAYSZ]);
  at_end_ = functions_of(d[DT_FINI], d[DT_FINI_ARRAY], d[DT_FINI_ARRAYSZ]);
  std::reverse(at_end_.begin(), at_end_.end());
  protect();
  call_all(at_begin);
}

uint64_t ElfLibrary::count_symbols(const Dynamic& d) const {
  if (d[DT_HASH] != 0) return read<uint32_t>(d[DT_HASH] + 4);
  if (d.gnu_hash == 0) return 0;
  uint64_t table = d.gnu_hash, n_buckets = read<uint32_t>(table), first = read<uint32_t>(table + 4);
  uint64_t buckets = table + 16 + uint64_t{read<uint32_t>(table + 8)} * sizeof(uintptr_t), chains = buckets + 4 * n_buckets;
  uint64_t last = 0;
  at(buckets, 4 * n_buckets);
  for (uint64_t i = 0; i < n_buckets; ++i) last = std::max<uint64_t>(last, read<uint32_t>(buckets + 4 * i));
  if (last < first) return first;  // it defines nothing
  while ((read<uint32_t>(chains + 4 * (last - first)) & 1) == 0) ++last;
  return last + 1;
}

void ElfLibrary::read_symbols(const Dynamic& d) {
  uint64_t count = d[DT_SYMTAB] == 0 ? 0 : count_symbols(d);
  if (count != 0) at(d[DT_SYMTAB], count * sizeof(Symbol));
  for (uint64_t i = 1; i < count; ++i) {
    auto s = read<Symbol>(d[DT_SYMTAB] + i * sizeof(Symbol));
    if (s.st_shndx == SHN_UNDEF || (s.st_info >> 4) == STB_LOCAL || (s.st_info & 15) == STT_TLS) continue;
    if ((s.st_info & 15) == STT_GNU_IFUNC) throw ElfError("it chooses functions when it is opened (ifunc)");
    defined_.emplace(text(d, s.st_name), reinterpret_cast<uintptr_t>(base_) + s.st_value);
  }
}

uintptr_t ElfLibrary::value_of(const Dynamic& d, uint64_t index) const {
  auto s = read<Symbol>(d[DT_SYMTAB] + index * sizeof(Symbol));
  if (s.st_shndx != SHN_UNDEF) return reinterpret_cast<uintptr_t>(base_) + s.st_value;
  std::string name(text(d, s.st_name));
  void* found = host_symbol(name.c_str());
  if (found == nullptr && (s.st_info >> 4) != STB_WEAK) {
    throw ElfError("it needs \"" + name + "\", which this program does not have");
  }
  return reinterpret_cast<uintptr_t>(found);
}

void ElfLibrary::relocate(const Dynamic& d, uint64_t table, uint64_t bytes, bool addends) {
  uint64_t each = addends ? sizeof(Rela) : sizeof(Rel);
  for (uint64_t i = 0; i + each <= bytes; i += each) {
    Rela r{};
    std::memcpy(&r, at(table + i, each), each);
    uint32_t kind = kind_of(r.r_info);
    if (kind == 0) continue;
    char* place = at(r.r_offset, sizeof(uintptr_t));
    uintptr_t value;
    std::memcpy(&value, place, sizeof value);
    auto addend = addends ? static_cast<uintptr_t>(r.r_addend) : value;
    if (kind == kRelative) value = reinterpret_cast<uintptr_t>(base_) + addend;
    else if (kind == kAddress[0] || kind == kAddress[1]) value = value_of(d, symbol_of(r.r_info)) + (addends ? addend : 0);
    else if (kind == kSum) value = value_of(d, symbol_of(r.r_info)) + addend;
    else throw ElfError("it has a relocation of kind " + std::to_string(kind) + ", which is not known");
    std::memcpy(place, &value, sizeof value);
  }
}

// Addresses of words that move with the library: one as it is, then bits for the words behind it.
void ElfLibrary::relocate_relative(uint64_t table, uint64_t bytes) {
  constexpr uint64_t kWord = sizeof(uintptr_t);
  uint64_t next = 0;
  auto move = [this](uint64_t address) {
    char* place = at(address, kWord);
    uintptr_t value;
    std::memcpy(&value, place, kWord);
    value += reinterpret_cast<uintptr_t>(base_);
    std::memcpy(place, &value, kWord);
  };
  for (uint64_t i = 0; i + kWord <= bytes; i += kWord) {
    uint64_t entry = read<uintptr_t>(table + i);
    if ((entry & 1) == 0) {
      move(entry);
      next = entry + kWord;
      continue;
    }
    for (uint64_t bit = 0; (entry >>= 1) != 0; ++bit) {
      if (entry & 1) move(next + bit * kWord);
    }
    next += (8 * kWord - 1) * kWord;
  }
}

std::vector<uintptr_t> ElfLibrary::functions_of(uint64_t single, uint64_t table, uint64_t bytes) const {
  std::vector<uintptr_t> found;
  if (single != 0) found.push_back(reinterpret_cast<uintptr_t>(base_) + single);
  for (uint64_t i = 0; i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
    auto f = read<uintptr_t>(table + i);
    if (f != 0 && f != UINTPTR_MAX) found.push_back(f);
  }
  for (uintptr_t f : found) {
    uint64_t address = f - reinterpret_cast<uintptr_t>(base_);
    bool code = std::any_of(segments_.begin(), segments_.end(), [&](const Segment& s) {
      return (s.flags & PF_X) != 0 && address >= s.begin && address < s.end;
    });
    if (!code) throw ElfError("it is damaged: it begins or ends with a function that is no code");
  }
  return found;
}

void ElfLibrary::call_all(const std::vector<uintptr_t>& functions) const {
  for (uintptr_t f : functions) reinterpret_cast<void (*)()>(f)();
}

void ElfLibrary::protect() {
  for (const Segment& s : segments_) {
    char *begin = base_ + page_down(s.begin), *end = base_ + page_up(s.end);
    int rights = (s.flags & PF_R ? PROT_READ : 0) | (s.flags & PF_W ? PROT_WRITE : 0) | (s.flags & PF_X ? PROT_EXEC : 0);
    if ((s.flags & PF_X) != 0) __builtin___clear_cache(begin, end);
    if (mprotect(begin, static_cast<size_t>(end - begin), rights) != 0) {
      throw ElfError("the system does not let its code be run");
    }
  }
}

}  // namespace weft
