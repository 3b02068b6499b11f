// Runs a model that `weft compile model.onnx -o model.so` made: host model.so [threads].
//
// Prints what the model takes, runs it on memory of this program from several threads, and shows what an error says. A
// symbolic dimension is 3 here. Without a library's name, the model that was linked into the program is run.
#include <weft/vm.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using tvm::ffi::Any;
using tvm::ffi::Tensor;
using weft::Model;
using weft::TensorInfo;

static std::string text(const TensorInfo& info) {
  std::string out = info.name + ": " + info.dtype + " [";
  for (size_t i = 0; i < info.shape.size(); ++i) out += (i ? ", " : "") + info.shape[i];
  return out + "]";
}

static std::vector<int64_t> some_shape(const TensorInfo& info) {
  std::vector<int64_t> shape;
  for (const std::string& d : info.shape) shape.push_back(std::isdigit(d[0]) ? std::atoll(d.c_str()) : 3);
  return shape;
}

// Memory of the program's own, aligned as kernels like it; freed with the last view.
struct Memory {
  explicit Memory(const std::vector<int64_t>& shape) : shape(shape) {
    for (int64_t d : shape) count *= d;
    data = static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 64) / 64 * 64));
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 7) - 3;
  }
  ~Memory() { std::free(data); }
  Tensor view() const { return Model::view(data, shape, DLDataType{kDLFloat, 32, 1}); }

  std::vector<int64_t> shape;
  int64_t count = 1;
  float* data;
};

static double sum(const Any& result) {
  Tensor y = result.cast<Tensor>();
  double total = 0;
  for (int64_t i = 0; i < y.numel(); ++i) total += static_cast<const float*>(y.data_ptr())[i];
  return total;
}

int main(int argc, char** argv) try {
  Model model = argc > 1 ? Model(argv[1]) : Model::linked();
  int n_threads = argc > 2 ? std::atoi(argv[2]) : 2;
  std::vector<TensorInfo> inputs = model.inputs();
  for (const TensorInfo& info : inputs) std::printf("input %s\n", text(info).c_str());
  for (const TensorInfo& info : model.outputs()) std::printf("output %s\n", text(info).c_str());
  if (inputs.size() != 1 || inputs[0].dtype != "float32") {
    std::printf("this example runs models with one input of float32\n");
    return 2;
  }

  std::vector<double> sums(static_cast<size_t>(n_threads));
  std::vector<std::thread> threads;
  for (double& slot : sums) {
    threads.emplace_back([&model, &inputs, &slot] {
      Memory memory(some_shape(inputs[0]));
      for (int i = 0; i < 100; ++i) slot = sum(model("main", memory.view()));
    });
  }
  for (std::thread& t : threads) t.join();
  for (double s : sums) std::printf("sum %.4f\n", s);

  std::vector<int64_t> wrong = some_shape(inputs[0]);
  wrong.push_back(1);
  try {
    model("main", Memory(wrong).view());
  } catch (const tvm::ffi::Error& e) {
    std::printf("%s: %s\n", e.kind().c_str(), e.message().c_str());
  }
  return 0;
} catch (const tvm::ffi::Error& e) {
  std::printf("%s: %s\n", e.kind().c_str(), e.message().c_str());
  return 1;
}
