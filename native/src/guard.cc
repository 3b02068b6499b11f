// Each block is [guard | filling, data, filling | guard], where a guard is 64 KiB that nobody may touch. Data end at the
// guard behind them, up to their alignment, or begin at the one before. Freed blocks stay for a while, all guard.
#include "guard.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "memory.h"
#include "vm.h"

namespace weft {

Guard guard = Guard::kOff;
std::atomic<const char*> guard_kernel{nullptr};

namespace {

constexpr size_t kGuardBytes = size_t{64} << 10;  // a multiple of every page size
constexpr size_t kQuarantine = 4096;              // freed blocks
// A signalling NaN as float64; as float32, float16 and bfloat16 all NaNs; integers that no index or size is.
constexpr uint64_t kFilling = 0x7FF47FF47FA57FA5;

struct Block {
  size_t span, nbytes;  // with both guards; as asked for
  char* data;
  const char* what;
  bool freed;
};

struct Blocks {
  std::mutex mutex;
  std::map<uintptr_t, Block> by_begin;
  std::deque<uintptr_t> quarantine;

  std::map<uintptr_t, Block>::iterator find(const void* address) {
    auto at = reinterpret_cast<uintptr_t>(address);
    auto it = by_begin.upper_bound(at);
    if (it == by_begin.begin()) return by_begin.end();
    --it;
    return at < it->first + it->second.span ? it : by_begin.end();
  }
};

Blocks* blocks = nullptr;  // never destroyed: tensors may outlive static destruction
struct sigaction before[2];

template <typename... Args>
void say(const char* format, Args... args) {
  char text[512];
  int n = std::snprintf(text, sizeof(text), format, args...);
  const char* kernel = guard_kernel.load();
  if (kernel != nullptr) n += std::snprintf(text + n, sizeof(text) - static_cast<size_t>(n), "; running: %.200s", kernel);
  text[n] = '\n';
  if (write(2, text, static_cast<size_t>(n) + 1) < 0) return;
}

void check(const Block& block, uintptr_t begin) {
  auto* at = reinterpret_cast<const unsigned char*>(begin + kGuardBytes);
  auto* end = reinterpret_cast<const unsigned char*>(begin + block.span - kGuardBytes);
  for (; at != end; ++at) {
    auto offset = reinterpret_cast<const char*>(at) - block.data;
    if (offset == 0) at += block.nbytes;
    if (at == end) break;
    if (*at == static_cast<unsigned char>(kFilling >> (reinterpret_cast<uintptr_t>(at) % 8 * 8))) continue;
    offset = reinterpret_cast<const char*>(at) - block.data;
    say("guard: byte %td of a %s of %zu bytes, outside of it, was written", offset, block.what, block.nbytes);
    std::abort();
  }
}

void on_fault(int signal, siginfo_t* info, [[maybe_unused]] void* context) {
  const char* access = "access to";
#if defined(__linux__) && defined(__x86_64__)
  access = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "write to" : "read of";
#endif
  if (info->si_code > 0 && blocks->mutex.try_lock()) {
    auto found = blocks->find(info->si_addr);
    if (found != blocks->by_begin.end()) {
      const Block& b = found->second;
      const char* fault = b.freed ? "after it was freed" : "outside of it";
      auto offset = static_cast<char*>(info->si_addr) - b.data;
      say("guard: %s byte %td of a %s of %zu bytes, %s", access, offset, b.what, b.nbytes, fault);
    }
    blocks->mutex.unlock();
  }
  sigaction(signal, &before[signal == SIGBUS], nullptr);  // for the same access, which is repeated now
  if (info->si_code <= 0) raise(signal);
}

__attribute__((constructor(101))) void decide() {
  const char* asked = std::getenv("WEFT_GUARD");
  if (asked == nullptr || *asked == 0 || std::strcmp(asked, "0") == 0) return;
  guard = std::strcmp(asked, "start") == 0 ? Guard::kStart : std::strcmp(asked, "1") == 0 ? Guard::kEnd : Guard::kOff;
  if (guard == Guard::kOff) {
    say("weft: WEFT_GUARD: expected 0, 1 or start, found '%.100s'", asked);
    _exit(2);
  }
  blocks = new Blocks();
  pthread_atfork([] { blocks->mutex.lock(); }, [] { blocks->mutex.unlock(); }, [] { blocks->mutex.unlock(); });
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before[0]);
  sigaction(SIGBUS, &action, &before[1]);
}

// Blocks that live until the process ends.
__attribute__((destructor)) void check_all() {
  if (blocks == nullptr) return;
  std::lock_guard<std::mutex> lock(blocks->mutex);
  for (const auto& [begin, block] : blocks->by_begin) {
    if (!block.freed) check(block, begin);
  }
}

}  // namespace

void* guard_alloc(size_t nbytes, const char* what) {
  auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t padded = (nbytes + kAlignment - 1) / kAlignment * kAlignment, inner = (padded + page - 1) / page * page;
  size_t span = inner + 2 * kGuardBytes;
  void* raw = mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(raw) + kGuardBytes;
  if (inner != 0 && mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(raw, span);
    return nullptr;
  }
  for (size_t i = 0; i < inner; i += 8) std::memcpy(begin + i, &kFilling, 8);
  char* data = guard == Guard::kStart ? begin : begin + inner - padded;
  std::lock_guard<std::mutex> lock(blocks->mutex);
  blocks->by_begin[reinterpret_cast<uintptr_t>(raw)] = Block{span, nbytes, data, what, false};
  return data;
}

void guard_free(void* data) {
  std::lock_guard<std::mutex> lock(blocks->mutex);
  auto found = blocks->find(data);
  if (found == blocks->by_begin.end() || found->second.data != data || found->second.freed) {
    say("guard: %p is freed and is no block, or was freed before", data);
    std::abort();
  }
  auto& [begin, block] = *found;
  check(block, begin);
  block.freed = true;  // mapped anew: the memory goes back to the system
  mmap(reinterpret_cast<void*>(begin), block.span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  blocks->quarantine.push_back(begin);
  if (blocks->quarantine.size() <= kQuarantine) return;
  auto oldest = blocks->by_begin.find(blocks->quarantine.front());
  munmap(reinterpret_cast<void*>(oldest->first), oldest->second.span);
  blocks->by_begin.erase(oldest);
  blocks->quarantine.pop_front();
}

void guard_tensors(std::vector<tvm::ffi::Any>* values) {
  for (tvm::ffi::Any& value : *values) {
    const DLTensor* t = tensor_of(*raw(&value));
    if (t == nullptr || t->device.device_type != kDLCPU) continue;
    {
      std::lock_guard<std::mutex> lock(blocks->mutex);
      if (blocks->find(t->data) != blocks->by_begin.end()) continue;
    }
    TVMFFIObject* copy = tensor_empty(t->shape, t->ndim, t->dtype, t->device, Allocator::kNaive);
    if (copy == nullptr || tensor_copy(*t, TVMFFITensorGetDLTensorPtr(copy)) != 0) TVM_FFI_CHECK_SAFE_CALL(-1);
    release(*raw(&value));
    *raw(&value) = object_any(copy);
  }
}

void guard_give_back(const std::vector<tvm::ffi::Any>& values, const TVMFFIAny* args) {
  for (size_t i = 0; i < values.size(); ++i) {
    const DLTensor* from = tensor_of(*raw(&values[i]));
    const DLTensor* to = args[i].type_index == kTVMFFITensor ? tensor_of(args[i]) : nullptr;
    int64_t nbytes = 0;
    if (from == nullptr || to == nullptr || from->device.device_type != kDLCPU || to->device.device_type != kDLCPU) continue;
    if (from->data == to->data || !is_contiguous(*to) || !tensor_nbytes(to->shape, to->ndim, to->dtype, &nbytes)) continue;
    void* target = static_cast<char*>(to->data) + to->byte_offset;
    if (nbytes != 0 && std::memcmp(target, from->data, static_cast<size_t>(nbytes)) != 0) {
      std::memcpy(target, from->data, static_cast<size_t>(nbytes));
    }
  }
}

int guard_call(const char* name, TVMFFISafeCallType call, void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
  const char* outer = guard_kernel.exchange(name);
  int rc = call(self, args, n, ret);
  guard_kernel.store(outer);
  return rc;
}

}  // namespace weft
