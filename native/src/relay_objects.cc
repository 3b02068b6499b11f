// Values of data types, closures and cells. A list of a million nodes is freed without recursion: a cell that dies while
// another is being freed waits in a list, which is linked through the dead cells themselves.
#include "error.h"
#include "relay_vm.h"

#include <cstdlib>

namespace weft {

namespace {

thread_local bool freeing __attribute__((tls_model("initial-exec"))) = false;
thread_local Cell* waiting __attribute__((tls_model("initial-exec"))) = nullptr;

// A cell's field may be used by several threads; the object itself is kept alive by the caller.
struct CellLock {
  explicit CellLock(Cell* cell) : cell(cell) {
    while (__atomic_exchange_n(&cell->lock, 1, __ATOMIC_ACQUIRE) != 0) {
    }
  }
  ~CellLock() { __atomic_store_n(&cell->lock, 0, __ATOMIC_RELEASE); }
  Cell* cell;
};

void release_fields(Cell* cell) {
  for (int32_t i = 0; i < cell->n; ++i) release(cell->fields[i]);
}

void cell_delete(void* self, int flags) {
  auto* cell = static_cast<Cell*>(self);
  if (flags != kTVMFFIObjectDeleterFlagBitMaskBoth) {  // there is a weak reference, so the memory is not ours alone
    if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) != 0) release_fields(cell);
    if ((flags & kTVMFFIObjectDeleterFlagBitMaskWeak) != 0) std::free(self);
    return;
  }
  if (freeing) {
    cell->program = reinterpret_cast<uint64_t>(waiting);
    waiting = cell;
    return;
  }
  freeing = true;
  while (cell != nullptr) {
    release_fields(cell);
    std::free(cell);
    cell = waiting;
    if (cell != nullptr) waiting = reinterpret_cast<Cell*>(cell->program);
  }
  freeing = false;
}

}  // namespace

Cell* cell_new(int32_t type, int64_t tag, int64_t n) {
  auto* cell = static_cast<Cell*>(std::malloc(sizeof(Cell) + static_cast<size_t>(n) * sizeof(TVMFFIAny)));
  if (cell == nullptr) {
    fail("MemoryError", "no memory for an object of %lld fields", static_cast<long long>(n));
    return nullptr;
  }
  cell->object.combined_ref_count = (uint64_t{1} << 32) | 1;
  cell->object.type_index = type;
  cell->object.__padding = 0;
  cell->object.deleter = cell_delete;
  cell->tag = tag;
  cell->program = 0;
  cell->n = static_cast<int32_t>(n);
  cell->lock = 0;
  return cell;
}

tvm::ffi::Any read_ref(Cell* cell) {
  tvm::ffi::Any out;
  CellLock lock(cell);
  *raw(&out) = cell->fields[0];
  retain(cell->fields[0]);
  return out;
}

void write_ref(Cell* cell, const TVMFFIAny& value) {
  retain(value);
  TVMFFIAny old;
  {
    CellLock lock(cell);
    old = cell->fields[0];
    cell->fields[0] = value;
  }
  release(old);
}

}  // namespace weft
