// Blocks come in size classes (four per power of two, at most 25 % waste). Small blocks and the headers of tensors,
// storages and shapes live in per-thread caches, and what those do not hold in a pool behind a mutex, one for blocks
// and one for headers; what a pool keeps is bounded by what was live at the peak.
#include "memory.h"

#if !defined(__wasm__)
#include <pthread.h>
#endif

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "device_api.h"
#include "error.h"
#include "guard.h"
#include "system_memory.h"
#include "weft/runtime.h"

namespace weft {
namespace {

constexpr int kMaxLog = sizeof(size_t) == 8 ? 46 : 31;
constexpr size_t kMaxBytes = size_t{1} << kMaxLog;
constexpr int kClasses = (kMaxLog - 6) * 4 + 1;
constexpr int kSmallClasses = 10 * 4 + 1;            // up to 64 KiB
constexpr int kSlots = 8;                            // cached blocks per small class and thread
constexpr size_t kKeepAlways = size_t{64} << 20;     // free bytes that the pool may always keep

// Class c holds blocks of class_bytes(c) = 2^(6 + c / 4) * (1 + (c % 4) / 4).
inline size_t class_bytes(int c) { return (size_t{64} << (c / 4)) / 4 * (4 + static_cast<size_t>(c % 4)); }

inline int class_of(size_t nbytes) {
  if (nbytes <= 64) return 0;
  int log = 63 - __builtin_clzll(static_cast<unsigned long long>(nbytes - 1));  // 2^log < nbytes <= 2^(log+1)
  size_t base = size_t{1} << log;
  size_t quarter = (nbytes - base + base / 4 - 1) / (base / 4);
  return (log - 6) * 4 + static_cast<int>(quarter);
}

// ---- the shared pools -----------------------------------------------------------------------------------------------

struct Pool {
  std::mutex mutex;
  std::vector<void*> free[kClasses];
  size_t free_bytes = 0, live_bytes = 0, peak_bytes = 0;

  void count(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    live_bytes += static_cast<size_t>(bytes);
    if (live_bytes > peak_bytes) peak_bytes = live_bytes;
  }

  [[gnu::noinline]] void* alloc(int c) noexcept {
    size_t bytes = class_bytes(c);
    {
      std::lock_guard<std::mutex> lock(mutex);
      live_bytes += bytes;
      if (live_bytes > peak_bytes) peak_bytes = live_bytes;
      if (!free[c].empty()) {
        void* data = free[c].back();
        free[c].pop_back();
        free_bytes -= bytes;
        return data;
      }
    }
    void* data = system_alloc(bytes);
    if (data == nullptr) {
      trim(0);
      data = system_alloc(bytes);
    }
    if (data == nullptr) {
      std::lock_guard<std::mutex> lock(mutex);
      live_bytes -= bytes;
    }
    return data;
  }

  [[gnu::noinline]] void release(void* data, int c) noexcept {
    size_t bytes = class_bytes(c);
    size_t keep;
    {
      std::lock_guard<std::mutex> lock(mutex);
      live_bytes -= bytes;
      free[c].push_back(data);
      free_bytes += bytes;
      keep = peak_bytes > kKeepAlways ? peak_bytes : kKeepAlways;
      if (free_bytes + live_bytes <= keep + keep / 2) return;
      // Forget old peaks slowly, so that one large call does not pin its memory for ever.
      peak_bytes -= (peak_bytes - live_bytes) / 8;
    }
    trim(keep / 2);
  }

  // Gives free blocks back to the system, largest first, until at most `keep` free bytes are left.
  void trim(size_t keep) {
    std::vector<std::pair<void*, size_t>> out;
    {
      std::lock_guard<std::mutex> lock(mutex);
      for (int c = kClasses - 1; c >= 0 && free_bytes > keep; --c) {
        size_t bytes = class_bytes(c);
        while (!free[c].empty() && free_bytes > keep) {
          out.emplace_back(free[c].back(), bytes);
          free[c].pop_back();
          free_bytes -= bytes;
        }
      }
    }
    for (auto& [data, bytes] : out) system_free(data, bytes);
  }
};

struct Pools {
  Pool blocks, headers;

  [[gnu::noinline]] static Pools& get() {
    static Pools* pools = [] {
      instance = new Pools();  // never destroyed: tensors may outlive static destruction
      pthread_atfork([] { instance->lock(); }, [] { instance->unlock(); }, [] { instance->unlock(); });
      return instance;
    }();
    return *pools;
  }

 private:
  static Pools* instance;
  void lock() {
    blocks.mutex.lock();
    headers.mutex.lock();
  }
  void unlock() {
    headers.mutex.unlock();
    blocks.mutex.unlock();
  }
};

Pools* Pools::instance = nullptr;

// A header on its own cache lines, since headers are written by the thread that made them. Null when out of memory.
[[gnu::noinline]] void* header_alloc(size_t nbytes) noexcept { return Pools::get().headers.alloc(class_of(nbytes)); }
[[gnu::noinline]] void header_free(void* header, size_t nbytes) noexcept {
  Pools::get().headers.release(header, class_of(nbytes));
}

// ---- per-thread caches ----------------------------------------------------------------------------------------------

constexpr int kInlineDims = 8;
constexpr int kMaxHeaders = 512;

struct TensorHeader {  // layout of TensorObj, then ours
  TVMFFIObject object;
  DLTensor tensor;
  TVMFFIObject* owner;
  int64_t dims[2 * kInlineDims];  // shape, then strides; longer ones follow the header
};

struct ShapeHeader {  // layout of ShapeObj, then the dimensions
  TVMFFIObject object;
  TVMFFIShapeCell cell;
  int64_t dims[kInlineDims];
};

size_t header_bytes(int32_t ndim) {
  return sizeof(TensorHeader) + sizeof(int64_t) * 2 * static_cast<size_t>(ndim > kInlineDims ? ndim - kInlineDims : 0);
}
size_t shape_bytes(size_t n) { return sizeof(ShapeHeader) + sizeof(int64_t) * (n > kInlineDims ? n - kInlineDims : 0); }

// Free headers of one size, each with the next in its first word.
struct Free {
  void* first = nullptr;
  int n = 0;

  bool push(void* header) {
    if (n == kMaxHeaders) return false;
    *static_cast<void**>(header) = first;
    first = header;
    ++n;
    return true;
  }
  void* pop() {
    void* header = first;
    if (header != nullptr) {
      first = *static_cast<void**>(header);
      --n;
    }
    return header;
  }
  void clear(size_t nbytes) {
    while (void* header = pop()) header_free(header, nbytes);
  }
};

struct Cache {
  void* blocks[kSmallClasses][kSlots];
  uint8_t count[kSmallClasses] = {0};
  Free headers, storages, shapes;
  // While functions of the VM run on this thread: the header freed last, still holding a reference to its owner. The
  // next tensor is often in the same storage, and then neither gives the reference back nor takes one.
  TensorHeader* warm = nullptr;
  bool in_function = false;

  void push(TensorHeader* header) {
    if (!headers.push(header)) header_free(header, sizeof(TensorHeader));
  }
  void cool() {
    if (warm != nullptr) cool_all();
  }
  [[gnu::noinline]] void cool_all() noexcept {
    while (warm != nullptr) {  // the owner of a view is a tensor, which may become the next one
      TensorHeader* header = warm;
      warm = nullptr;
      decref(header->owner);
      push(header);
    }
  }

  ~Cache() {
    cool();
    for (int c = 0; c < kSmallClasses; ++c) {
      while (count[c] != 0) Pools::get().blocks.release(blocks[c][--count[c]], c);
    }
    headers.clear(sizeof(TensorHeader));
    storages.clear(sizeof(StorageObj));
    shapes.clear(sizeof(ShapeHeader));
  }
};

#define WEFT_TLS __attribute__((tls_model("initial-exec")))
thread_local Cache* cache_ptr WEFT_TLS = nullptr;
thread_local bool cache_dead WEFT_TLS = false;

struct CacheOwner {
  ~CacheOwner() {
    delete cache_ptr;
    cache_ptr = nullptr;
    cache_dead = true;  // blocks freed by later destructors of this thread go straight to the pool
  }
};

[[gnu::noinline]] Cache* make_cache() {
  if (cache_dead) return nullptr;
  static thread_local CacheOwner owner;
  (void)owner;
  cache_ptr = new Cache();
  return cache_ptr;
}

inline Cache* cache() { return __builtin_expect(cache_ptr != nullptr, 1) ? cache_ptr : make_cache(); }

}  // namespace

void* block_alloc(size_t nbytes, Allocator kind, size_t* actual) {
  if (nbytes > kMaxBytes) return nullptr;
  if (guarded()) {
    void* data = guard_alloc(*actual = nbytes, "tensor");
    if (data != nullptr) Pools::get().blocks.count(static_cast<int64_t>(nbytes));
    return data;
  }
  if (kind == Allocator::kNaive) {
    *actual = (nbytes + kAlignment - 1) / kAlignment * kAlignment;
    if (*actual == 0) *actual = kAlignment;
    return system_alloc(*actual);
  }
  int c = class_of(nbytes);
  *actual = class_bytes(c);
  if (c < kSmallClasses) {
    Cache* local = cache();
    if (local != nullptr && local->count[c] != 0) return local->blocks[c][--local->count[c]];
  }
  return Pools::get().blocks.alloc(c);
}

void block_free(void* data, size_t actual, Allocator kind) {
  if (guarded()) {
    guard_free(data);
    return Pools::get().blocks.count(-static_cast<int64_t>(actual));
  }
  if (kind == Allocator::kNaive) return system_free(data, actual);
  int c = class_of(actual);
  if (c < kSmallClasses) {
    Cache* local = cache();
    if (local != nullptr && local->count[c] < kSlots) {
      local->blocks[c][local->count[c]++] = data;
      return;
    }
  }
  Pools::get().blocks.release(data, c);
}

PoolStatistics pool_statistics() {
  Pool& pool = Pools::get().blocks;
  std::lock_guard<std::mutex> lock(pool.mutex);
  return {static_cast<int64_t>(pool.live_bytes), static_cast<int64_t>(pool.peak_bytes),
          static_cast<int64_t>(pool.free_bytes), system_allocations.load(std::memory_order_relaxed)};
}

void pool_trim() { Pools::get().blocks.trim(0); }

// ---- storage --------------------------------------------------------------------------------------------------------

static void storage_release(void* data, size_t actual, DLDevice device, Allocator kind) {
  if (device.device_type != kDLCPU) {
    if (kind == Allocator::kNaive || !pooled_free(data)) DeviceApi::find(device.device_type)->free(device.device_id, data);
  } else {
    block_free(data, actual, kind);
  }
}

static void storage_delete(void* self, int flags) {
  auto* storage = static_cast<StorageObj*>(self);
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) != 0) {
    storage_release(storage->data, storage->actual, storage->device, storage->kind);
  }
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0) {
    Cache* local = cache();
    if (local == nullptr || !local->storages.push(self)) header_free(self, sizeof(StorageObj));
  }
}

static void init_header(TVMFFIObject* object, int32_t type_index, void (*deleter)(void*, int)) {
  object->combined_ref_count = (uint64_t{1} << 32) | 1;
  object->type_index = type_index;
  object->__padding = 0;
  object->deleter = deleter;
}

TVMFFIObject* storage_new(int64_t nbytes, DLDevice device, Allocator kind) {
  DeviceApi* api = device.device_type == kDLCPU ? nullptr : DeviceApi::find(device.device_type);
  if (device.device_type != kDLCPU && api == nullptr) {
    fail("ValueError", "cannot allocate on device type %d: this runtime has the CPU, CUDA and OpenCL",
         device.device_type);
    return nullptr;
  }
  Cache* local = cache();
  if (local != nullptr) local->cool();  // its block may be the one to take
  size_t actual = 0;
  void* data = nullptr;
  if (api != nullptr && nbytes >= 0) {
    auto size = static_cast<size_t>(nbytes);
    int status = kind == Allocator::kPooled ? pooled_alloc(device, size, &data) : api->alloc(device.device_id, size, &data);
    if (status != 0) return nullptr;
  } else if (nbytes >= 0 && static_cast<uint64_t>(nbytes) <= kMaxBytes) {
    data = block_alloc(static_cast<size_t>(nbytes), kind, &actual);
  }
  if (data == nullptr) {
    fail("MemoryError", "cannot allocate %lld bytes", static_cast<long long>(nbytes));
    return nullptr;
  }
  void* memory = local != nullptr ? local->storages.pop() : nullptr;
  if (memory == nullptr) memory = header_alloc(sizeof(StorageObj));
  if (memory == nullptr) {
    storage_release(data, actual, device, kind);
    fail("MemoryError", "cannot allocate a storage object");
    return nullptr;
  }
  static const int32_t type_index = StorageObj::RuntimeTypeIndex();
  auto* storage = static_cast<StorageObj*>(memory);
  auto* object = static_cast<TVMFFIObject*>(memory);
  init_header(object, type_index, storage_delete);
  storage->data = data;
  storage->nbytes = static_cast<size_t>(nbytes);
  storage->actual = actual;
  storage->device = device;
  storage->kind = kind;
  return object;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

static void tensor_delete(void* self, int flags) {
  auto* header = static_cast<TensorHeader*>(self);
  Cache* local = (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0 && header->tensor.ndim <= kInlineDims ? cache() : nullptr;
  if (flags == kTVMFFIObjectDeleterFlagBitMaskBoth && local != nullptr && local->in_function) {
    TensorHeader* before = local->warm;
    local->warm = header;
    if (before != nullptr) {
      decref(before->owner);
      local->push(before);
    }
    return;
  }
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) != 0) decref(header->owner);
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) == 0) return;
  if (local != nullptr) {
    local->push(header);
  } else {
    header_free(self, header_bytes(header->tensor.ndim));
  }
}

void function_begins() {
  if (guarded()) return;  // what is freed, is freed
  if (Cache* local = cache()) local->in_function = true;
}

void function_ends() {
  if (cache_ptr == nullptr) return;
  cache_ptr->in_function = false;
  cache_ptr->cool();
}

template <bool kTake>
static inline TVMFFIObject* make_tensor(TVMFFIObject* owner, void* data, DLDevice device, DLDataType dtype,
                                        const int64_t* shape, int32_t ndim) {
  Cache* local = ndim <= kInlineDims ? cache() : nullptr;
  TensorHeader* header;
  if (local != nullptr && local->warm != nullptr && local->warm->owner == owner) {
    header = local->warm;
    local->warm = nullptr;
    if (kTake) decref(owner);
  } else {
    void* memory = local != nullptr ? local->headers.pop() : nullptr;
    if (memory == nullptr) memory = header_alloc(header_bytes(ndim));
    if (memory == nullptr) {
      fail("MemoryError", "cannot allocate a tensor header");
      return nullptr;
    }
    header = static_cast<TensorHeader*>(memory);
    header->owner = owner;
    if (!kTake) __atomic_fetch_add(&owner->combined_ref_count, 1, __ATOMIC_RELAXED);
  }
  init_header(&header->object, kTVMFFITensor, tensor_delete);
  header->tensor = DLTensor{data, device, ndim, dtype, header->dims, header->dims + ndim, 0};
  uint64_t stride = 1;  // wraps where a tensor is empty and its other dimensions are huge
  for (int32_t i = ndim - 1; i >= 0; --i) {
    header->dims[i] = shape[i];
    header->dims[ndim + i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(shape[i]);
  }
  return &header->object;
}

TVMFFIObject* tensor_new(TVMFFIObject* owner, void* data, DLDevice device, DLDataType dtype, const int64_t* shape,
                         int32_t ndim) {
  return make_tensor<false>(owner, data, device, dtype, shape, ndim);
}

TVMFFIObject* tensor_new_taking(TVMFFIObject* owner, void* data, DLDevice device, DLDataType dtype, const int64_t* shape,
                                int32_t ndim) {
  return make_tensor<true>(owner, data, device, dtype, shape, ndim);
}

TVMFFIObject* tensor_owner(TVMFFIObject* tensor) {
  return tensor->deleter == tensor_delete ? reinterpret_cast<TensorHeader*>(tensor)->owner : nullptr;
}

TVMFFIObject* tensor_empty(const int64_t* shape, int32_t ndim, DLDataType dtype, DLDevice device, Allocator kind) {
  int64_t nbytes = 0;
  if (!tensor_nbytes(shape, ndim, dtype, &nbytes)) {
    fail("ValueError", "cannot make a tensor of shape %s and dtype %s", shape_text(shape, ndim).c_str(),
         dtype_name(dtype).c_str());
    return nullptr;
  }
  TVMFFIObject* storage = storage_new(nbytes, device, kind);
  if (storage == nullptr) return nullptr;
  TVMFFIObject* tensor =
      tensor_new_taking(storage, reinterpret_cast<StorageObj*>(storage)->data, device, dtype, shape, ndim);
  if (tensor == nullptr) decref(storage);
  return tensor;
}

static void shape_delete(void* self, int flags) {
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) == 0) return;
  size_t n = static_cast<ShapeHeader*>(self)->cell.size;
  Cache* local = n <= kInlineDims ? cache() : nullptr;
  if (local == nullptr || !local->shapes.push(self)) header_free(self, shape_bytes(n));
}

TVMFFIObject* shape_new(const int64_t* dims, int64_t n) {
  Cache* local = n <= kInlineDims ? cache() : nullptr;
  void* memory = local != nullptr ? local->shapes.pop() : nullptr;
  if (memory == nullptr) memory = header_alloc(shape_bytes(static_cast<size_t>(n)));
  if (memory == nullptr) {
    fail("MemoryError", "cannot allocate a shape of %lld dimensions", static_cast<long long>(n));
    return nullptr;
  }
  auto* header = static_cast<ShapeHeader*>(memory);
  init_header(&header->object, kTVMFFIShape, shape_delete);
  header->cell = TVMFFIShapeCell{header->dims, static_cast<size_t>(n)};
  for (int64_t i = 0; i < n; ++i) header->dims[i] = dims[i];
  return &header->object;
}

// ---- workspace ------------------------------------------------------------------------------------------------------

namespace {

constexpr int kMaxWorkspaces = 8;
constexpr size_t kMaxCachedWorkspace = size_t{256} << 20;

struct alignas(64) WorkspaceHeader {
  size_t actual;
};

// Free scratch blocks of one thread. A kernel takes and gives back in stack order, so a handful of slots is enough.
struct Workspaces {
  WorkspaceHeader* free[kMaxWorkspaces];
  int count = 0;
  size_t bytes = 0;
  ~Workspaces() {
    while (count != 0) {
      WorkspaceHeader* block = free[--count];
      block_free(block, block->actual, Allocator::kPooled);
    }
  }
};

thread_local Workspaces workspaces;

}  // namespace
}  // namespace weft

extern "C" void* weft_workspace_alloc(int64_t nbytes) {
  using namespace weft;
  Workspaces& local = workspaces;
  bool possible = nbytes >= 0 && static_cast<uint64_t>(nbytes) <= kMaxBytes;
  size_t total = possible ? static_cast<size_t>(nbytes) + sizeof(WorkspaceHeader) : SIZE_MAX;
  if (guarded() && total <= kMaxBytes) return guard_alloc(static_cast<size_t>(nbytes), "workspace");
  int best = -1;
  for (int i = local.count - 1; i >= 0; --i) {
    size_t size = local.free[i]->actual;
    if (size >= total && (best < 0 || size < local.free[best]->actual)) best = i;
  }
  if (best >= 0 && local.free[best]->actual / 4 <= total + (size_t{1} << 16)) {
    WorkspaceHeader* block = local.free[best];
    local.free[best] = local.free[--local.count];
    local.bytes -= block->actual;
    return block + 1;
  }
  if (cache_ptr != nullptr) cache_ptr->cool();
  size_t actual = 0;
  auto* block = static_cast<WorkspaceHeader*>(block_alloc(total, Allocator::kPooled, &actual));
  if (block == nullptr) {
    fail("MemoryError", "cannot allocate %lld bytes of scratch memory", static_cast<long long>(nbytes));
    return nullptr;
  }
  block->actual = actual;
  return block + 1;
}

extern "C" void weft_workspace_free(void* ptr) {
  using namespace weft;
  if (ptr == nullptr) return;
  if (guarded()) return guard_free(ptr);
  WorkspaceHeader* block = static_cast<WorkspaceHeader*>(ptr) - 1;
  Workspaces& local = workspaces;
  if (local.count < kMaxWorkspaces && local.bytes + block->actual <= kMaxCachedWorkspace) {
    local.free[local.count++] = block;
    local.bytes += block->actual;
  } else {
    block_free(block, block->actual, Allocator::kPooled);
  }
}
