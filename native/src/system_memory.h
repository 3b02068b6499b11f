// Memory from the operating system, which the pools of memory.cc divide.
#ifndef WEFT_SYSTEM_MEMORY_H_
#define WEFT_SYSTEM_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

extern std::atomic<int64_t> system_allocations;  // since the process began

// Memory for tensors: from a megabyte on mapped, from two on in huge pages; system_free wants the same size.
void* system_alloc(size_t nbytes);
void system_free(void* data, size_t nbytes);

}  // namespace weft
#endif  // WEFT_SYSTEM_MEMORY_H_
