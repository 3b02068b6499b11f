// What sanitizers watch: a model called from many threads at changing shapes, the thread pool, instruments, stateful
// calls, errors, memory that another thread frees, and a fork. Usage: weft_stress model.so calls [break]
//
// The model's main(x: (n, 4) float32) gives 4 x and refuses other widths. With `break` the program makes mistakes that a
// sanitizer must see.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weft/vm.h"

namespace {

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::Tensor;

constexpr int kThreads = 8;
const DLDataType kFloat{kDLFloat, 32, 1};

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "stress: %s\n", what);
  std::abort();
}

void in_threads(int n, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < n; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
}

float* data_of(const Tensor& t) { return static_cast<float*>(t.data_ptr()); }

Tensor filled(int64_t rows, float value) {
  Tensor x = weft::Model::empty({rows, 4}, kFloat);
  for (int64_t i = 0; i < rows * 4; ++i) data_of(x)[i] = value;
  return x;
}

void check_result(const Any& result, int64_t rows, float value) {
  auto y = result.cast<Tensor>();
  require(y.ndim() == 2 && y.size(0) == rows, "a result of another shape");
  for (int64_t i = 0; i < rows * 4; ++i) require(data_of(y)[i] == 4 * value, "a wrong result");
}

int64_t rows_of(int i, int thread) { return i % 50 == 49 ? 20000 + thread : 1 + (i * 7 + thread) % 40; }

void calls(const std::string& path, int n, bool shared) {
  weft::Model one(path);
  in_threads(kThreads, [&](int thread) {
    weft::Model own = shared ? one : weft::Model(path);
    Function main = own.function("main");
    for (int i = 0; i < n; ++i) {
      auto value = static_cast<float>(thread * n + i);
      check_result(main(filled(rows_of(i, thread), value)), rows_of(i, thread), value);
    }
  });
}

// Results that the next thread reads and frees.
void handed_on(const weft::Model& model, int n) {
  std::mutex mutex;
  std::vector<Any> slots(kThreads);
  in_threads(kThreads, [&](int thread) {
    for (int i = 0; i < n; ++i) {
      Any result = model("main", filled(1 + i % 9, 1));
      std::lock_guard<std::mutex> lock(mutex);
      std::swap(result, slots[static_cast<size_t>((thread + i) % kThreads)]);
    }
  });
}

void errors(const weft::Model& model, int n) {
  in_threads(kThreads, [&](int) {
    for (int i = 0; i < n / 10; ++i) {
      try {
        model("main", weft::Model::empty({3, 5}, kFloat));
        require(false, "a tensor of 5 columns was taken");
      } catch (const tvm::ffi::Error& e) {
        require(e.kind() == "ShapeMismatch", "an error of another kind");
      }
    }
  });
}

// One thread sets and removes instruments while the others call.
void instruments(const weft::Model& model, int n) {
  Function set = Function::GetGlobalRequired("weft.vm_set_instrument");
  std::atomic<int> seen{0};
  std::atomic<bool> done{false};
  std::thread setter([&] {
    while (!done.load()) {
      set(model.module(), Function::FromPacked([&](tvm::ffi::PackedArgs, Any* ret) {
            ++seen;
            *ret = int64_t{0};
          }), false);
      std::this_thread::yield();
      set(model.module(), nullptr, false);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  in_threads(4, [&](int thread) {
    for (int i = 0; i < n; ++i) check_result(model("main", filled(2 + thread, 3)), 2 + thread, 3);
  });
  done = true;
  setter.join();
  require(n < 50 || seen > 0, "no instrument saw a call");
}

void stateful(const weft::Model& model, int n) {
  Function set_input = Function::GetGlobalRequired("weft.vm_set_input");
  Function invoke = Function::GetGlobalRequired("weft.vm_invoke_stateful");
  Function get_output = Function::GetGlobalRequired("weft.vm_get_output");
  set_input(model.module(), "main", filled(5, 2));
  in_threads(4, [&](int) {
    for (int i = 0; i < n / 10; ++i) {
      set_input(model.module(), "main", filled(5, 2));
      invoke(model.module(), "main");
      check_result(get_output(model.module(), "main"), 5, 2);
    }
  });
}

int32_t add_to(int64_t begin, int64_t end, void* context) {
  auto* sums = static_cast<int64_t*>(context);
  for (int64_t i = begin; i < end; ++i) {
    sums[i] += i;
    void* scratch = weft_workspace_alloc(1000 + i);
    if (scratch == nullptr) return -1;
    static_cast<char*>(scratch)[0] = 1;
    weft_workspace_free(scratch);
  }
  return 0;
}

int32_t nested(int64_t begin, int64_t end, void* context) {
  for (int64_t i = begin; i < end; ++i) {
    int rc = weft_parallel_for(add_to, static_cast<int64_t*>(context) + 64 * i, 64, 1);
    if (rc != 0) return rc;
  }
  return 0;
}

void loops(int n) {
  in_threads(4, [&](int thread) {
    std::vector<int64_t> sums(64 * 16);
    for (int i = 0; i < n / 10; ++i) {
      if (thread == 0) weft_set_num_threads(1 + i % 4);
      require(weft_parallel_for(nested, sums.data(), 16, 1) == 0, "a parallel loop failed");
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      require(sums[i] == static_cast<int64_t>(i % 64) * (n / 10), "a parallel loop missed an iteration");
    }
  });
  weft_set_num_threads(0);
}

void forked(const weft::Model& model) {
  check_result(model("main", filled(20000, 1)), 20000, 1);
  pid_t child = fork();
  if (child == 0) {
    check_result(model("main", filled(20000, 2)), 20000, 2);
    std::_Exit(0);
  }
  int status = -1;
  require(waitpid(child, &status, 0) == child && status == 0, "the forked process failed");
  check_result(model("main", filled(20000, 3)), 20000, 3);
}

// A data race and a write behind the end of a block.
void make_mistakes() {
  Function copy = Function::GetGlobalRequired("weft.tensor_copy");
  Tensor target = filled(100, 0);
  in_threads(4, [&](int thread) {
    for (int i = 0; i < 100; ++i) copy(filled(100, static_cast<float>(thread)), target);
  });
  Tensor small = filled(4, 0);
  static_cast<volatile float*>(data_of(small))[16] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: %s model.so calls [break]\n", argv[0]);
    return 2;
  }
  if (argc == 4) {
    make_mistakes();
    return 0;
  }
  std::string path = argv[1];
  int n = std::atoi(argv[2]);
  calls(path, n, true);
  calls(path, n, false);
  weft::Model model(path);
  handed_on(model, n);
  errors(model, n);
  instruments(model, n);
  stateful(model, n);
  loops(n);
  forked(model);
  Function::GetGlobalRequired("weft.pool_trim")();
  std::puts("stress: done");
  return 0;
}
