// The least and the greatest of a tensor's integers.
#ifndef WEFT_INDEX_BOUNDS_H_
#define WEFT_INDEX_BOUNDS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace weft {

// The least and the greatest of every n-th of `size` integers from the first on, of which there is one.
template <typename Read>
void bounds_of(Read read, int64_t width, const char* data, int64_t size, int64_t n, int64_t* bounds) {
  int64_t least = read(data), greatest = least;
  for (int64_t i = n; i < size; i += n) {
    int64_t v = read(data + i * width);
    least = std::min(least, v);
    greatest = std::max(greatest, v);
  }
  bounds[0] = least, bounds[1] = greatest;
}

#if defined(__x86_64__) && defined(__GNUC__)
// Whether the machine has vectors of four words, and the operating system saves them.
inline bool has_four_words() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0, low = 0, high = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx >> 27 & 1) == 0) return false;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 6) == 6 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx >> 5 & 1) != 0;
}

// The least and the greatest of every eighth of `size` words that lie together, which are at least eight.
__attribute__((target("avx2"))) inline void bounds_of_eighths(const char* data, int64_t size, int64_t* bounds) {
  typedef int64_t Words __attribute__((vector_size(32)));
  Words least[2], greatest[2], v;
  std::memcpy(least, data, sizeof(least));
  std::memcpy(greatest, data, sizeof(least));
  for (int64_t i = 8; i < size; i += 8) {
    for (int half = 0; half < 2; ++half) {
      std::memcpy(&v, data + 8 * (std::min(i, size - 8) + 4 * half), sizeof(Words));  // the last ones overlap
      least[half] = v < least[half] ? v : least[half];
      greatest[half] = v > greatest[half] ? v : greatest[half];
    }
  }
  std::memcpy(bounds, least, sizeof(least));
  std::memcpy(bounds + 8, greatest, sizeof(least));
}

const bool kByEight = has_four_words();
#else
const bool kByEight = false;
inline void bounds_of_eighths(const char*, int64_t, int64_t*) {}
#endif

}  // namespace weft

#endif  // WEFT_INDEX_BOUNDS_H_
