// Fork-join loops on a small pool: spin briefly, then sleep; safe under nesting, several callers and fork.
//
// One job is open at a time. `state_` packs it: [generation:32 | open:1 | workers inside:31]. A worker joins by adding
// one to `inside` while `open` is set, so the caller only waits for workers that really came; a worker that wakes
// late finds the job closed and goes back to sleep. The job lives in the pool, never on a caller's stack.
//
// A loop is cut into one part for each thread. A thread takes pieces of its own part first, so that what the same
// iterations of loop after loop read stays in its cache, and then of what others have left. Loops run forwards and
// backwards in turn: the next one begins with what the last one has just used. Those that ask for what comes next only
// run forwards.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#else
#include <condition_variable>
#include <mutex>
#endif

#include "weft/runtime.h"

namespace weft {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kChunksPerThread = 16;
constexpr int kSpinRounds = 2000;  // about 40 us of `pause` on current x86

// Light loops, a microsecond or two of work, are shared with workers that are awake, which costs 0.3 us. To wake one
// costs more than it gives, unless such loops keep coming while it would be spinning anyway.
constexpr int64_t kLightGapNs = 20000;  // light loops further apart do not keep coming
constexpr int kLightStreak = 32;        // after so many that do, sleeping workers are woken
constexpr int kHeldUp = 64;             // light loops on one thread after one that waited for a worker without a CPU,
constexpr int kHeldUpMost = 1 << 16;    // four times as many each time, up to this,
constexpr int kCalm = 1 << 13;          // unless so many were shared in between

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#if defined(__linux__)
void futex_wait(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}
#else
std::mutex sleep_mutex;
std::condition_variable sleep_condition;
void futex_wait(std::atomic<uint32_t>* word, uint32_t value) {
  std::unique_lock<std::mutex> lock(sleep_mutex);
  while (word->load() == value) sleep_condition.wait(lock);
}
void futex_wake(std::atomic<uint32_t>*, int) {
  std::lock_guard<std::mutex> lock(sleep_mutex);
  sleep_condition.notify_all();
}
#endif

// CPUs granted by a cgroup quota, rounded up; 0 when there is none.
int quota_of(const std::string& dir) {
  long long quota = 0, period = 0;
  char text[64] = {0};
  if (FILE* f = std::fopen((dir + "/cpu.max").c_str(), "r")) {
    if (std::fscanf(f, "%63s %lld", text, &period) == 2 && std::strcmp(text, "max") != 0) quota = std::atoll(text);
    std::fclose(f);
  } else if (FILE* g = std::fopen((dir + "/cpu.cfs_quota_us").c_str(), "r")) {
    if (std::fscanf(g, "%lld", &quota) != 1) quota = 0;
    std::fclose(g);
    if (FILE* h = std::fopen((dir + "/cpu.cfs_period_us").c_str(), "r")) {
      if (std::fscanf(h, "%lld", &period) != 1) period = 0;
      std::fclose(h);
    }
  }
  return quota > 0 && period > 0 ? static_cast<int>((quota + period - 1) / period) : 0;
}

int cgroup_quota() {
  int best = 0;
  auto consider = [&best](const std::string& dir) {
    int n = quota_of(dir);
    if (n > 0 && (best == 0 || n < best)) best = n;
  };
  consider("/sys/fs/cgroup");
  consider("/sys/fs/cgroup/cpu");
  if (FILE* f = std::fopen("/proc/self/cgroup", "r")) {
    char line[4096];
    while (std::fgets(line, sizeof(line), f) != nullptr) {
      std::string text(line);
      while (!text.empty() && (text.back() == '\n' || text.back() == '/')) text.pop_back();
      size_t first = text.find(':'), second = text.find(':', first + 1);
      if (second == std::string::npos) continue;
      std::string controllers = text.substr(first + 1, second - first - 1), path = text.substr(second + 1);
      std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
      if (!controllers.empty() && controllers.find("cpu") == std::string::npos) continue;
      for (; !path.empty(); path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'))) consider(root + path);
    }
    std::fclose(f);
  }
  return best;
}

int default_threads() {
  if (const char* text = std::getenv("WEFT_NUM_THREADS")) {
    int n = std::atoi(text);
    if (n > 0) return n < kMaxThreads ? n : kMaxThreads;
  }
  int n = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0 && CPU_COUNT(&set) < n) n = CPU_COUNT(&set);
  int quota = cgroup_quota();
  if (quota > 0 && quota < n) n = quota;
#endif
  return n < 1 ? 1 : n < kMaxThreads ? n : kMaxThreads;
}

thread_local bool in_parallel = false;

class ThreadPool {
 public:
  static ThreadPool& get() {
    static ThreadPool* pool = [] {
      auto* p = new ThreadPool();
      instance_ = p;
      pthread_atfork(nullptr, nullptr, [] { instance_->reset_in_child(); });
      return p;
    }();
    return *pool;
  }

  int size() const { return size_.load(std::memory_order_relaxed); }
  void resize(int n) { size_.store(n > 0 ? (n < kMaxThreads ? n : kMaxThreads) : default_threads()); }

  int32_t run(weft_parallel_body body, void* ctx, int64_t extent, int64_t grain, bool forwards) {
    int threads = size();
    bool light = grain < 0;
    grain = light ? -grain : grain < 1 ? 1 : grain;
    bool free = false;
    if (extent < 2 * grain || threads <= 1 || in_parallel || !busy_.compare_exchange_strong(free, true)) {
      return body(0, extent, ctx);
    }
    bool wake = !light;
    if (light && !worth_sharing(&wake)) {
      busy_.store(false, std::memory_order_release);
      return body(0, extent, ctx);
    }
    int parts = job_.cut(body, ctx, extent, grain, threads);
    start_workers(threads - 1);
    make_room();
    job_.seats.store(parts - 1, std::memory_order_relaxed);
    uint64_t generation = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    job_.backwards = !forwards && (generation & 1) != 0;
    state_.store(generation << 32 | kOpen, std::memory_order_seq_cst);
    signal_.fetch_add(1, std::memory_order_seq_cst);
    if (wake && sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake(&signal_, parts - 1);

    in_parallel = true;
    work(0);
    in_parallel = false;

    uint64_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    for (int spin = 0; (state & kInside) != 0; ++spin) {
      if (light && spin == kSpinRounds) back_off();
      if (spin < kSpinRounds * 8) {
        cpu_relax();
      } else {
        sched_yield();
      }
      state = state_.load(std::memory_order_acquire);
    }
    int32_t rc = job_.rc.load(std::memory_order_acquire);
    TVMFFIObjectHandle error = job_.error;
    busy_.store(false, std::memory_order_release);
    if (rc != 0 && error != nullptr) {
      TVMFFIErrorSetRaised(error);
      TVMFFIObjectDecRef(error);
    }
    return rc;
  }

 private:
  static constexpr uint64_t kOpen = uint64_t{1} << 31;
  static constexpr uint64_t kInside = kOpen - 1;

  // What is left of a part, as [end:32 | begin:32] in units of `Job::unit` iterations, in a cache line of its own.
  struct alignas(64) Part {
    std::atomic<uint64_t> left{0};

    // Take a piece off the front or the back; what would remain is not shorter than `least`.
    bool take(bool back, uint32_t piece, uint32_t least, uint32_t* begin, uint32_t* end) {
      uint64_t old = left.load(std::memory_order_relaxed), rest;
      do {
        *begin = static_cast<uint32_t>(old), *end = static_cast<uint32_t>(old >> 32);
        uint32_t length = *end - *begin;
        if (length == 0) return false;
        if (length < uint64_t{piece} + least) piece = length;
        if (back) {
          *begin = *end - piece;
          rest = (old & UINT32_MAX) | uint64_t{*begin} << 32;
        } else {
          *end = *begin + piece;
          rest = (old & ~uint64_t{UINT32_MAX}) | *end;
        }
      } while (!left.compare_exchange_weak(old, rest, std::memory_order_relaxed));
      return true;
    }
  };

  struct Job {
    weft_parallel_body body = nullptr;
    void* ctx = nullptr;
    int64_t extent = 0;
    int64_t unit = 1;  // 1 but for loops of more than 2^31 iterations
    uint32_t least = 1;  // units of the shortest piece
    uint32_t piece = 1;
    int parts = 0;
    bool backwards = false;
    std::atomic<int32_t> rc{0};
    std::atomic<int> seats{0};
    TVMFFIObjectHandle error = nullptr;
    Part part[kMaxThreads];

    // Set a loop up, and return the number of its parts.
    int cut(weft_parallel_body loop, void* context, int64_t iterations, int64_t grain, int threads) {
      body = loop, ctx = context, extent = iterations;
      unit = 1 + (extent >> 31);
      int64_t units = (extent + unit - 1) / unit, shortest = (grain + unit - 1) / unit;
      parts = static_cast<int>(units / shortest < threads ? units / shortest : threads);
      if (parts < 1) parts = 1;
      int64_t chunk = (units + parts * kChunksPerThread - 1) / (parts * kChunksPerThread);
      least = static_cast<uint32_t>(shortest), piece = chunk < shortest ? least : static_cast<uint32_t>(chunk);
      for (int64_t i = 0; i < parts; ++i) {
        uint64_t begin = static_cast<uint64_t>(i * units / parts), end = static_cast<uint64_t>((i + 1) * units / parts);
        part[i].left.store(end << 32 | begin, std::memory_order_relaxed);
      }
      rc.store(0, std::memory_order_relaxed);
      error = nullptr;
      return parts;
    }
  };

  ThreadPool() : size_(default_threads()) {}

  // Whether to share a light loop, and in `wake` whether to wake workers for it.
  bool worth_sharing(bool* wake) {
    if (held_up_ > 0) {
      --held_up_;
      return false;
    }
    if (started_ > sleepers_.load(std::memory_order_relaxed)) {
      if (shared_ < kCalm) ++shared_;
      return true;
    }
    int64_t now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    streak_ = now - last_light_ < kLightGapNs ? streak_ + 1 : 0;
    last_light_ = now;
    if (streak_ < kLightStreak) return false;
    streak_ = 0;
    return *wake = true;
  }

  void back_off() {
    pause_ = shared_ == kCalm ? kHeldUp : pause_ < kHeldUpMost ? 4 * pause_ : kHeldUpMost;
    held_up_ = pause_;
    shared_ = 0;
  }

  void start_workers(int wanted) {
    while (started_ < wanted) {
      pthread_t thread;
      pthread_attr_t attr;
      pthread_attr_init(&attr);
      pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
      pthread_attr_setstacksize(&attr, size_t{8} << 20);
      start_elsewhere(&attr);
      workers_[started_].pool = this;
      int rc = pthread_create(&thread, &attr, &ThreadPool::worker_main, &workers_[started_]);
      pthread_attr_destroy(&attr);
      if (rc != 0) return;  // fewer workers, same result
      ++started_;
    }
  }

  struct Worker {
    ThreadPool* pool = nullptr;
    std::atomic<int> cpu{-1};  // on which it last looked for work
    std::atomic<int> id{0};    // the kernel's number of the thread
  };

  static void* worker_main(void* self) {
    in_parallel = true;
    auto* worker = static_cast<Worker*>(self);
    worker->pool->worker_loop(*worker);
    return nullptr;
  }

#if defined(__linux__)
  static int current_cpu() { return sched_getcpu(); }
  static int current_id() { return static_cast<int>(syscall(SYS_gettid)); }

  // Every CPU that the process may use but one; false when that is none.
  static bool all_but(int cpu, cpu_set_t* set) {
    if (sched_getaffinity(getpid(), sizeof(*set), set) != 0) return false;
    CPU_CLR(cpu, set);
    return CPU_COUNT(set) != 0;
  }

  // A worker that the system left on the caller's CPU, behind the caller, would come when all is done: move it away.
  void make_room() {
    int here = current_cpu();
    for (int i = 0; i < started_; ++i) {
      Worker& worker = workers_[i];
      int id = worker.id.load(std::memory_order_relaxed);
      if (id == 0 || worker.cpu.load(std::memory_order_relaxed) != here) continue;
      cpu_set_t set;
      if (!all_but(here, &set) || sched_setaffinity(id, sizeof(set), &set) != 0) return;
      worker.cpu.store(-1, std::memory_order_relaxed);
    }
  }
  static void start_elsewhere(pthread_attr_t* attr) {
    cpu_set_t set;
#if defined(__GLIBC__)  // other C libraries have no such attribute
    if (all_but(current_cpu(), &set)) pthread_attr_setaffinity_np(attr, sizeof(set), &set);
#endif
  }
#else
  static int current_cpu() { return -1; }
  static int current_id() { return 0; }
  void make_room() {}
  static void start_elsewhere(pthread_attr_t*) {}
#endif

  void worker_loop(Worker& self) {
    uint64_t done = 0;  // generation of the last job seen
    self.id.store(current_id(), std::memory_order_relaxed);
    while (true) {
      uint32_t ticket = signal_.load(std::memory_order_seq_cst);
      uint64_t state = state_.load(std::memory_order_seq_cst);
      if ((state >> 32) != done) {
        done = state >> 32;
        if (join(state)) {
          work(static_cast<int>(&self - workers_) + 1);
          state_.fetch_sub(1, std::memory_order_acq_rel);
        }
        continue;
      }
      self.cpu.store(current_cpu(), std::memory_order_relaxed);
      int spin = 0;
      while (spin < kSpinRounds && signal_.load(std::memory_order_relaxed) == ticket) {
        cpu_relax();
        ++spin;
      }
      if (spin < kSpinRounds) continue;
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      if (signal_.load(std::memory_order_seq_cst) == ticket) futex_wait(&signal_, ticket);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  bool join(uint64_t state) {
    uint64_t generation = state >> 32;
    while ((state & kOpen) != 0 && (state >> 32) == generation) {
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      if (job_.seats.fetch_sub(1, std::memory_order_relaxed) > 0) return true;
      state_.fetch_sub(1, std::memory_order_acq_rel);
      return false;
    }
    return false;
  }

  // Do the part of thread `index`, then pieces from the far ends of the others'.
  void work(int index) {
    int first = index == 0 ? 0 : 1 + (index - 1) % (job_.parts - 1);  // who comes has a seat: there are two parts
    for (int i = 0; i < job_.parts; ++i) {
      Part& part = job_.part[(first + i) % job_.parts];
      uint32_t begin, end;
      while (part.take(job_.backwards == (i == 0), job_.piece, job_.least, &begin, &end)) {
        int64_t last = end * job_.unit;
        int32_t rc = job_.body(begin * job_.unit, last < job_.extent ? last : job_.extent, job_.ctx);
        if (rc != 0) return fail(rc);
      }
    }
  }

  // The raised error is per thread: carry the first one to the caller, drop the others. Nobody begins a piece any more.
  void fail(int32_t rc) {
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    int32_t none = 0;
    if (job_.rc.compare_exchange_strong(none, rc, std::memory_order_acq_rel)) {
      job_.error = error;
    } else if (error != nullptr) {
      TVMFFIObjectDecRef(error);
    }
    for (int i = 0; i < job_.parts; ++i) job_.part[i].left.store(0, std::memory_order_relaxed);
  }

  // The child of a fork has none of the workers: forget them; the next loop starts its own.
  void reset_in_child() {
    for (int i = 0; i < started_; ++i) workers_[i].id.store(0), workers_[i].cpu.store(-1);
    started_ = 0;
    sleepers_.store(0);
    state_.store(state_.load() & ~(kOpen | kInside));
    busy_.store(false);
  }

  static ThreadPool* instance_;
  std::atomic<int> size_;
  std::atomic<bool> busy_{false};
  int started_ = 0;  // this and the next five guarded by busy_
  int held_up_ = 0;  // light loops to run on one thread
  int pause_ = kHeldUp;
  int shared_ = kCalm;  // light loops that were shared since one waited
  int streak_ = 0;   // of light loops while workers slept
  int64_t last_light_ = 0;
  Worker workers_[kMaxThreads];
  Job job_;
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint32_t> signal_{0};
  std::atomic<uint32_t> sleepers_{0};
};

ThreadPool* ThreadPool::instance_ = nullptr;

}  // namespace
}  // namespace weft

extern "C" int32_t weft_parallel_for(weft_parallel_body body, void* ctx, int64_t extent, int64_t grain) {
  if (extent <= 0) return 0;
  return weft::ThreadPool::get().run(body, ctx, extent, grain, false);
}

extern "C" int32_t weft_parallel_forwards(weft_parallel_body body, void* ctx, int64_t extent, int64_t grain) {
  if (extent <= 0) return 0;
  return weft::ThreadPool::get().run(body, ctx, extent, grain, true);
}

extern "C" int32_t weft_num_threads(void) { return weft::ThreadPool::get().size(); }

extern "C" void weft_set_num_threads(int32_t n) { weft::ThreadPool::get().resize(n); }
