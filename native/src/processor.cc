// What this machine says of itself: its processor's features under LLVM's names, vectors, caches and cores. A client of a
// server asks for it to compile for the machine (weft/target/remote.py).
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "register.h"
#include "weft/runtime.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft {
namespace {

struct Feature {
  const char* name;
  int word;  // of a list that each architecture has
  int bit;
};

#if defined(__x86_64__)
const char kArchitecture[] = "x86_64";
// Registers of cpuid: leaf 1 ecx, leaf 7 ebx, ecx, edx, leaf 7.1 eax, leaf 0x80000001 ecx. From 8 on, what needs 256-bit
// vectors is asked in the same registers; from 16 on 512-bit vectors; 24 matrix tiles.
const Feature kFeatures[] = {
    {"sse3", 0, 0}, {"ssse3", 0, 9}, {"sse4.1", 0, 19}, {"sse4.2", 0, 20}, {"movbe", 0, 22}, {"popcnt", 0, 23},
    {"lzcnt", 5, 5}, {"bmi", 1, 3}, {"bmi2", 1, 8}, {"avx", 8, 28}, {"fma", 8, 12}, {"f16c", 8, 29}, {"avx2", 9, 5},
    {"avxvnni", 12, 4}, {"avx512f", 17, 16}, {"avx512dq", 17, 17}, {"avx512cd", 17, 28}, {"avx512bw", 17, 30},
    {"avx512vl", 17, 31}, {"avx512vnni", 18, 11}, {"avx512fp16", 19, 23}, {"avx512bf16", 20, 5}, {"amx-bf16", 27, 22},
    {"amx-tile", 27, 24}, {"amx-int8", 27, 25}};

bool has(const Feature& f) {
  unsigned r[6] = {}, eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) r[0] = ecx;
  bool saves = (r[0] >> 27 & 1) != 0;  // osxsave
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) r[1] = ebx, r[2] = ecx, r[3] = edx;
  if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) r[4] = eax;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx)) r[5] = ecx;
  unsigned low = 0, high = 0;
  if (saves) __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const unsigned needed[] = {0, 0x6, 0xe6, 0xe6};  // what the operating system has to save
  int width = f.word / 8;
  if ((low & needed[width]) != needed[width]) return false;
  if (width == 3 && weft_request_tiles() != 0) return false;
  return (r[f.word % 8] >> f.bit & 1) != 0;
}

int vector_bits() { return 0; }  // follows from the features

#elif defined(__linux__) && (defined(__aarch64__) || defined(__arm__) || (defined(__riscv) && __riscv_xlen == 64))

#if defined(__aarch64__)
const char kArchitecture[] = "aarch64";
const Feature kFeatures[] = {{"neon", 0, 1}, {"aes", 0, 3}, {"crc", 0, 7}, {"lse", 0, 8}, {"fullfp16", 0, 10}, {"rdm", 0, 12},
                             {"dotprod", 0, 20}, {"sve", 0, 22}, {"fp16fml", 0, 23}, {"sve2", 1, 1}, {"i8mm", 1, 13},
                             {"bf16", 1, 14}};
// Of scalable vectors as this process has them.
int vector_bits() {
  constexpr int kGetLength = 51;  // PR_SVE_GET_VL
  if ((getauxval(AT_HWCAP) >> 22 & 1) == 0) return 128;
  int found = prctl(kGetLength);
  return found < 0 ? 128 : 8 * (found & 0xffff);
}
#elif defined(__arm__)
const char kArchitecture[] = "armv7";
const Feature kFeatures[] = {{"neon", 0, 12}, {"vfp3", 0, 13}, {"vfp4", 0, 16}, {"hwdiv-arm", 0, 17}, {"hwdiv", 0, 18},
                             {"d32", 0, 19}};
int vector_bits() { return (getauxval(AT_HWCAP) >> 12 & 1) != 0 ? 128 : 64; }
#else
const char kArchitecture[] = "riscv64";
const Feature kFeatures[] = {{"a", 0, 0}, {"c", 0, 2}, {"d", 0, 3}, {"f", 0, 5}, {"m", 0, 12}, {"v", 0, 21}};
int vector_bits() {
  if ((getauxval(AT_HWCAP) >> 21 & 1) == 0) return 64;
  unsigned long bytes = 0;
  __asm__ volatile("csrr %0, 0xc22" : "=r"(bytes));  // vlenb
  return static_cast<int>(8 * bytes);
}
#endif

bool has(const Feature& f) { return (getauxval(f.word == 0 ? AT_HWCAP : AT_HWCAP2) >> f.bit & 1) != 0; }

#else
const char kArchitecture[] = "";
const Feature kFeatures[] = {{"", 0, 0}};
bool has(const Feature&) { return false; }
int vector_bits() { return 0; }
#endif

// One word of a file of the system's about the first core's caches; empty where it does not say.
std::string cache_word(int index, const char* name) {
  std::string path = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/" + name;
  char word[64] = "";
  if (std::FILE* file = std::fopen(path.c_str(), "r")) {
    if (std::fscanf(file, "%63s", word) != 1) word[0] = 0;
    std::fclose(file);
  }
  return word;
}

std::string cache_facts() {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    std::string level = cache_word(i, "level"), kind = cache_word(i, "type"), size = cache_word(i, "size");
    if (kind == "Instruction" || level.size() != 1 || level[0] < '1' || level[0] > '3' || size.empty() || size.back() != 'K') continue;
    out += "l" + level + "_cache_bytes=" + std::to_string(std::stoll(size) * 1024) + "\n";
    if (level != "1") continue;
    std::string ways = cache_word(i, "ways_of_associativity"), line = cache_word(i, "coherency_line_size");
    if (!ways.empty()) out += "l1_cache_ways=" + ways + "\n";
    if (!line.empty()) out += "cache_line_bytes=" + line + "\n";
  }
  return out;
}

int core_count() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// Lines of name=value.
tvm::ffi::String machine_facts() {
  std::string out = std::string("architecture=") + kArchitecture + "\nfeatures=", separator;
  for (const Feature& f : kFeatures) {
    if (!has(f)) continue;
    out += separator + f.name;
    separator = ",";
  }
  out += "\ncores=" + std::to_string(core_count()) + "\npage_bytes=" + std::to_string(sysconf(_SC_PAGESIZE)) + "\n";
  if (int bits = vector_bits()) out += "vector_bits=" + std::to_string(bits) + "\n";
  return out + cache_facts();
}

TVM_FFI_STATIC_INIT_BLOCK() { Globals().def("weft.machine_facts", machine_facts); }

}  // namespace
}  // namespace weft
