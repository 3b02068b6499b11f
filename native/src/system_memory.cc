#include "system_memory.h"

#if !defined(__wasm__)
#include <sys/mman.h>
#endif

#include <cstdlib>

#include "memory.h"

namespace weft {

std::atomic<int64_t> system_allocations{0};

#if defined(__wasm__)  // one memory that only grows: nothing to map
void* system_alloc(size_t nbytes) {
  system_allocations.fetch_add(1, std::memory_order_relaxed);
  void* data = nullptr;
  return posix_memalign(&data, kAlignment, nbytes) == 0 ? data : nullptr;
}

void system_free(void* data, size_t) { std::free(data); }
#else
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMapThreshold = size_t{1} << 20;  // from here on blocks are mapped, below they are malloc'd

void* system_alloc(size_t nbytes) {
  system_allocations.fetch_add(1, std::memory_order_relaxed);
  if (nbytes < kMapThreshold) {
    void* data = nullptr;
    return posix_memalign(&data, kAlignment, nbytes) == 0 ? data : nullptr;
  }
  if (nbytes < kHugePage) {
    void* data = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  size_t span = nbytes + kHugePage;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(raw);
  char* data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(raw) + kHugePage - 1) & ~(kHugePage - 1));
  if (data != begin) munmap(begin, static_cast<size_t>(data - begin));
  size_t tail = static_cast<size_t>(begin + span - (data + nbytes)) & ~size_t{4095};
  if (tail != 0) munmap(begin + span - tail, tail);
#ifdef MADV_HUGEPAGE
  madvise(data, nbytes, MADV_HUGEPAGE);
#endif
  return data;
}

void system_free(void* data, size_t nbytes) {
  if (nbytes < kMapThreshold) {
    std::free(data);
  } else {
    munmap(data, (nbytes + 4095) & ~size_t{4095});
  }
}
#endif

}  // namespace weft
