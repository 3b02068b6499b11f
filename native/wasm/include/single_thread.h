// What the standard library leaves out where there is one thread; included before every file.
#ifndef WEFT_WASM_SINGLE_THREAD_H_
#define WEFT_WASM_SINGLE_THREAD_H_

#ifdef __cplusplus
#include <sstream>  // before any other header asks for streams

#include <mutex>

namespace std {

struct mutex {
  void lock() {}
  void unlock() {}
  bool try_lock() { return true; }
};
struct recursive_mutex : mutex {};
template <typename... Mutexes>
struct scoped_lock {
  explicit scoped_lock(Mutexes&...) {}
  ~scoped_lock() {}  // not trivial: an unused lock is none that was forgotten
};

}  // namespace std

inline int pthread_atfork(void (*)(), void (*)(), void (*)()) { return 0; }
#endif

#endif  // WEFT_WASM_SINGLE_THREAD_H_
