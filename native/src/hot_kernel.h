// Kernels of symbolic shapes: counts calls by shape, asks for a kernel of the shapes that stay hot, and calls it.
//
// Nobody waits: counters may lose a call to another thread's, and a request is put off while the queue is locked. Who
// compiles takes requests from the queue (weft.jit_next) and answers them (weft.jit_finish) from a thread of its own.
#ifndef WEFT_HOT_KERNEL_H_
#define WEFT_HOT_KERNEL_H_

#include <tvm/ffi/any.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tvm/ffi/c_api.h>

namespace weft {

// A native function as the machines call it.
struct Callee {
  TVMFFISafeCallType call = nullptr;
  void* self = nullptr;
};

class HotKernel {
 public:
  static constexpr int kMaxDims = 4;
  static constexpr int kSlots = 64;    // shapes that are counted; others run as they always did
  static constexpr int kMaxSpecial = 8;

  // Where a dimension is read: of the tensor that is argument `arg`, or with dim -1 that argument itself.
  struct Place {
    int32_t arg, dim;
  };
  enum class State : int32_t { kCounting, kRequested, kSpecialised, kFailed, kSlower };

  // A shape is asked for after `min_calls` calls that took `min_ns` together.
  HotKernel(std::string name, Callee generic, std::vector<Place> places, int64_t min_calls, int64_t min_ns);

  // In the place of the generic kernel; self is the HotKernel.
  static int call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);
  // Installs what a module has under a name for a shape; without one, it stays as it is.
  void finish(const std::vector<int64_t>& key, const tvm::ffi::Any& module, const std::string& symbol);
  // Appends a row for each shape: name, shape, state, calls, calls of its own kernel, least ns of either.
  void report(std::vector<tvm::ffi::Any>* rows) const;

  const std::string name;
  uint64_t number = 0;  // in requests

 private:
  struct Shape {
    int64_t key[kMaxDims];
    std::atomic<State> state{State::kCounting};
    Callee special;  // written before the state says so
    std::atomic<int64_t> calls{0}, special_calls{0}, sampled_ns{0}, best_ns{INT64_MAX}, special_best_ns{INT64_MAX};
  };

  bool read_key(const TVMFFIAny* args, int32_t n, int64_t* key) const;
  Shape* find(const int64_t* key);
  int run_timed(bool special, Shape* shape, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret);
  void ask(Shape* shape);

  const Callee generic_;
  const std::vector<Place> places_;
  const int64_t min_calls_, min_ns_;
  std::atomic<int32_t> num_special_{0};
  std::atomic<Shape*> slots_[kSlots] = {};
  std::mutex mutex_;  // of what follows; calls only try it
  std::deque<Shape> shapes_;
  std::vector<tvm::ffi::Any> kept_;
};

// A machine whose kernels can be watched; before its first call only.
class Watched {
 public:
  // Counts the calls of a kernel by shape from now on. Returns the number of requests for it.
  int64_t watch(int64_t index, std::vector<HotKernel::Place> places, int64_t min_calls, int64_t min_ns);
  const std::vector<std::shared_ptr<HotKernel>>& hot_kernels() const { return hot_kernels_; }

 protected:
  virtual ~Watched() = default;
  // A function that the machine calls, with its name; null where the index means none.
  virtual Callee watched(int64_t index, std::string* name) const = 0;
  virtual void replace(int64_t index, const Callee& callee) = 0;

 private:
  std::vector<std::shared_ptr<HotKernel>> hot_kernels_;
};

// The module of such a machine.
class WatchedModule {
 public:
  virtual ~WatchedModule() = default;
  virtual Watched& machine() = 0;
};

}  // namespace weft
#endif  // WEFT_HOT_KERNEL_H_
