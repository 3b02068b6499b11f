// Registers of the running frames of one thread, in chunks that never move.
#ifndef WEFT_REGISTER_STACK_H_
#define WEFT_REGISTER_STACK_H_

#include <tvm/ffi/c_api.h>

#include <cstdlib>

namespace weft {

struct Chunk {
  Chunk* previous;
  Chunk* next;
  size_t size;
  TVMFFIAny words[1];
};

struct RegisterStack {
  static constexpr size_t kChunkWords = size_t{1} << 14;

  Chunk* chunk = nullptr;
  TVMFFIAny* top = nullptr;
  TVMFFIAny* limit = nullptr;

  ~RegisterStack() {
    while (chunk != nullptr && chunk->next != nullptr) chunk = chunk->next;
    while (chunk != nullptr) {
      Chunk* previous = chunk->previous;
      std::free(chunk);
      chunk = previous;
    }
  }

  // Makes `chunk` one with room for n words; false when out of memory.
  bool grow(size_t n) {
    Chunk* next = chunk != nullptr ? chunk->next : nullptr;
    if (next != nullptr && next->size < n) {
      Chunk* rest = next->next;
      std::free(next);
      next = nullptr;
      chunk->next = nullptr;
      while (rest != nullptr) {
        Chunk* after = rest->next;
        std::free(rest);
        rest = after;
      }
    }
    if (next == nullptr) {
      size_t size = n > kChunkWords ? n : kChunkWords;
      next = static_cast<Chunk*>(std::malloc(sizeof(Chunk) + size * sizeof(TVMFFIAny)));
      if (next == nullptr) return false;
      next->previous = chunk;
      next->next = nullptr;
      next->size = size;
      if (chunk != nullptr) chunk->next = next;
    }
    chunk = next;
    top = chunk->words;
    limit = chunk->words + chunk->size;
    return true;
  }
};

}  // namespace weft
#endif  // WEFT_REGISTER_STACK_H_
