// Counting is a few loads and one store a call; every 16th call of a shape without a kernel of its own is timed.
#include "hot_kernel.h"

#include <tvm/ffi/container/shape.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>

#include "error.h"
#include "module.h"
#include "register.h"
#include "vm.h"

namespace weft {

namespace {

constexpr int64_t kSample = 16;        // one call in so many is timed
constexpr int64_t kTrial = 64;         // timed calls after which a kernel of its own must not be slower
constexpr int64_t kLeastShare = 16;    // a hot shape is at least one in so many of the kernel's calls
constexpr size_t kMaxRequests = 256;

struct Request {
  uint64_t kernel;
  std::vector<int64_t> key;
};

// Never destroyed: threads may wait while the process ends.
struct Queue {
  std::mutex mutex;
  std::condition_variable filled;
  std::deque<Request> requests;
  std::map<uint64_t, std::weak_ptr<HotKernel>> kernels;
  uint64_t last_number = 0;
  bool stopped = false;
};

Queue& queue() {
  static auto* made = new Queue();
  return *made;
}

void add(std::atomic<int64_t>* counter, int64_t n) {
  counter->store(counter->load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

[[gnu::cold]] std::shared_ptr<HotKernel> find_kernel(uint64_t number) {
  std::lock_guard<std::mutex> lock(queue().mutex);
  auto it = queue().kernels.find(number);
  if (it == queue().kernels.end()) return nullptr;
  auto kernel = it->second.lock();
  if (kernel == nullptr) queue().kernels.erase(it);
  return kernel;
}

}  // namespace

HotKernel::HotKernel(std::string name, Callee generic, std::vector<Place> places, int64_t min_calls, int64_t min_ns)
    : name(std::move(name)), generic_(generic), places_(std::move(places)), min_calls_(min_calls), min_ns_(min_ns) {}

bool HotKernel::read_key(const TVMFFIAny* args, int32_t n, int64_t* key) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& p = places_[i];
    if (p.arg >= n) return false;
    const TVMFFIAny& value = args[p.arg];
    if (p.dim < 0) {
      if (value.type_index != kTVMFFIInt) return false;
      key[i] = value.v_int64;
      continue;
    }
    const DLTensor* t = tensor_of(value);
    if (t == nullptr || p.dim >= t->ndim) return false;
    key[i] = t->shape[p.dim];
  }
  return true;
}

// What is known of a shape, which may be its first call; null where there is no room or another thread is at it.
HotKernel::Shape* HotKernel::find(const int64_t* key) {
  uint64_t hash = 0;
  const size_t n = places_.size();
  for (size_t i = 0; i < n; ++i) hash = (hash ^ static_cast<uint64_t>(key[i])) * 0x9E3779B97F4A7C15ULL;
  auto first = static_cast<size_t>(hash >> 58);
  for (size_t probe = 0; probe < 4; ++probe) {
    std::atomic<Shape*>& slot = slots_[(first + probe) % kSlots];
    Shape* shape = slot.load(std::memory_order_acquire);
    if (shape == nullptr) {
      std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock() || slot.load(std::memory_order_relaxed) != nullptr) return nullptr;
      shapes_.emplace_back();
      shape = &shapes_.back();
      for (size_t i = 0; i < n; ++i) shape->key[i] = key[i];
      slot.store(shape, std::memory_order_release);
      return shape;
    }
    size_t i = 0;
    while (i < n && shape->key[i] == key[i]) ++i;
    if (i == n) return shape;
  }
  return nullptr;
}

int HotKernel::run_timed(bool special, Shape* shape, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
  const Callee& callee = special ? shape->special : generic_;
  auto begin = std::chrono::steady_clock::now();
  int rc = callee.call(callee.self, args, n, ret);
  int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  std::atomic<int64_t>& best = special ? shape->special_best_ns : shape->best_ns;
  if (ns < best.load(std::memory_order_relaxed)) best.store(ns, std::memory_order_relaxed);
  if (!special) {
    add(&shape->sampled_ns, ns);
  } else if (shape->special_calls.load(std::memory_order_relaxed) > kTrial * kSample &&
             shape->special_best_ns.load(std::memory_order_relaxed) > shape->best_ns.load(std::memory_order_relaxed)) {
    shape->state.store(State::kSlower, std::memory_order_relaxed);
  }
  return rc;
}

int HotKernel::call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
  auto* kernel = static_cast<HotKernel*>(self);
  const Callee& generic = kernel->generic_;
  int64_t key[kMaxDims];
  Shape* shape = kernel->read_key(args, n, key) ? kernel->find(key) : nullptr;
  if (shape == nullptr) return generic.call(generic.self, args, n, ret);
  add(&shape->calls, 1);
  int64_t calls = shape->calls.load(std::memory_order_relaxed);
  State state = shape->state.load(std::memory_order_acquire);
  if (state == State::kSpecialised) {
    add(&shape->special_calls, 1);
    if (calls % kSample == 0) return kernel->run_timed(true, shape, args, n, ret);
    return shape->special.call(shape->special.self, args, n, ret);
  }
  if (state != State::kCounting || calls % kSample != 0) return generic.call(generic.self, args, n, ret);
  int rc = kernel->run_timed(false, shape, args, n, ret);
  if (calls >= kernel->min_calls_ && shape->sampled_ns.load(std::memory_order_relaxed) * kSample >= kernel->min_ns_) {
    kernel->ask(shape);
  }
  return rc;
}

[[gnu::cold]] void HotKernel::ask(Shape* shape) {
  int64_t total = 0;
  for (const auto& slot : slots_) {
    const Shape* other = slot.load(std::memory_order_acquire);
    if (other != nullptr) total += other->calls.load(std::memory_order_relaxed);
  }
  if (shape->calls.load(std::memory_order_relaxed) * kLeastShare < total) return;
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(q.mutex, std::try_to_lock);
  if (!lock.owns_lock() || q.stopped || q.requests.size() >= kMaxRequests) return;
  if (shape->state.load(std::memory_order_relaxed) != State::kCounting || num_special_ >= kMaxSpecial) return;
  ++num_special_;
  shape->state.store(State::kRequested, std::memory_order_relaxed);
  q.requests.push_back({number, std::vector<int64_t>(shape->key, shape->key + places_.size())});
  q.filled.notify_one();
}

[[gnu::cold]] void HotKernel::finish(const std::vector<int64_t>& key, const Any& module, const std::string& symbol) {
  if (key.size() != places_.size()) raise_error("ValueError", "%s: a shape has %zu dimensions", name.c_str(), places_.size());
  std::lock_guard<std::mutex> lock(mutex_);
  for (Shape& shape : shapes_) {
    if (!std::equal(key.begin(), key.end(), shape.key) || shape.state.load() != State::kRequested) continue;
    if (raw(&module)->type_index != kTVMFFINone) {
      shape.special = find_in_imports({module}, symbol, &kept_);
      kept_.push_back(module);
    }
    shape.state.store(shape.special.call != nullptr ? State::kSpecialised : State::kFailed, std::memory_order_release);
  }
}

[[gnu::cold]] void HotKernel::report(std::vector<Any>* rows) const {
  static const char* const kStates[] = {"counting", "requested", "specialised", "failed", "slower"};
  for (const auto& slot : slots_) {
    const Shape* s = slot.load(std::memory_order_acquire);
    if (s == nullptr) continue;
    auto least = [](const std::atomic<int64_t>& best) { return best.load() == INT64_MAX ? int64_t{-1} : best.load(); };
    rows->push_back(array_of({String(name), tvm::ffi::Shape(s->key, s->key + places_.size()),
                              String(kStates[static_cast<int>(s->state.load())]), s->calls.load(), s->special_calls.load(),
                              least(s->best_ns), least(s->special_best_ns)}));
  }
}

[[gnu::cold]] int64_t Watched::watch(int64_t index, std::vector<HotKernel::Place> places, int64_t min_calls, int64_t min_ns) {
  std::string name;
  Callee generic = watched(index, &name);
  bool readable = !places.empty() && places.size() <= HotKernel::kMaxDims;
  for (const auto& p : places) readable = readable && p.arg >= 0;
  if (generic.call == nullptr || !readable) {
    raise_error("ValueError", "function %lld cannot be watched", static_cast<long long>(index));
  }
  auto kernel = std::make_shared<HotKernel>(name, generic, std::move(places), min_calls, min_ns);
  {
    std::lock_guard<std::mutex> lock(queue().mutex);
    kernel->number = ++queue().last_number;
    queue().kernels[kernel->number] = kernel;
  }
  hot_kernels_.push_back(kernel);
  replace(index, {HotKernel::call, kernel.get()});
  return static_cast<int64_t>(kernel->number);
}

namespace {

// The next request, [kernel, dimensions...], waiting at most so long; None when there was none or no more will come.
[[gnu::cold]] Any next_request(int64_t wait_ms) {
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(q.mutex);
  q.filled.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] { return q.stopped || !q.requests.empty(); });
  if (q.stopped || q.requests.empty()) return Any();
  Request request = std::move(q.requests.front());
  q.requests.pop_front();
  lock.unlock();
  std::vector<Any> row{static_cast<int64_t>(request.kernel)};
  for (int64_t d : request.key) row.emplace_back(d);
  return array_of(row);
}

// jit_finish(kernel, dimensions, module or None, symbol)
[[gnu::cold]] void finish_request(int64_t number, const tvm::ffi::Shape& key, const Any& module, const String& symbol) {
  if (auto kernel = find_kernel(static_cast<uint64_t>(number))) {
    kernel->finish(std::vector<int64_t>(key.begin(), key.end()), module, symbol);
  }
}

[[gnu::cold]] Watched& machine_of(const tvm::ffi::Module& module) {
  auto* found = dynamic_cast<WatchedModule*>(const_cast<tvm::ffi::ModuleObj*>(module.operator->()));
  if (found == nullptr) raise_error("TypeError", "expected a virtual machine, found a module of kind %s", module->kind());
  return found->machine();
}

// jit_watch(machine, function, [argument, dimension, ...], min_calls, min_ns)
[[gnu::cold]] int64_t watch(const tvm::ffi::Module& module, int64_t index, const Any& flat, int64_t min_calls, int64_t min_ns) {
  std::vector<HotKernel::Place> places;
  std::vector<Any> numbers = list_of(flat);
  auto number = [&](size_t i) { return static_cast<int32_t>(argument<int64_t>(raw(&numbers[i]), 0)); };
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) places.push_back({number(i), number(i + 1)});
  return machine_of(module).watch(index, std::move(places), min_calls, min_ns);
}

[[gnu::cold]] Any hot_shapes(const tvm::ffi::Module& module) {
  std::vector<Any> rows;
  for (const auto& kernel : machine_of(module).hot_kernels()) kernel->report(&rows);
  return array_of(rows);
}

[[gnu::cold]] void stop_requests(bool stopped) {
  std::lock_guard<std::mutex> lock(queue().mutex);
  queue().stopped = stopped;
  queue().filled.notify_all();
}

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("weft.jit_watch", watch)
      .def("weft.jit_hot_shapes", hot_shapes)
      .def("weft.jit_next", next_request)
      .def("weft.jit_finish", finish_request)
      .def("weft.jit_stop", stop_requests);
}

}  // namespace
}  // namespace weft
