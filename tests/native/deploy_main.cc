// Runs a model without Python: deploy_main model.so. Prints the sum of main(x) for x = 0, 1, ... 11 as 3x4 float32,
// then the message of a call with a wrong dtype.
#include <weft/vm.h>

#include <cstdio>

using tvm::ffi::Shape;
using tvm::ffi::Tensor;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    weft::Model model(argv[1]);
    Tensor x = weft::Model::empty(Shape({3, 4}), DLDataType{kDLFloat, 32, 1});
    auto* data = static_cast<float*>(x.data_ptr());
    for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
    Tensor y = model("main", x).cast<Tensor>();
    float sum = 0;
    for (int64_t i = 0; i < y.numel(); ++i) sum += static_cast<const float*>(y.data_ptr())[i];
    std::printf("%lld x %lld sum %g\n", static_cast<long long>(y.size(0)), static_cast<long long>(y.size(1)), sum);
    Tensor wrong = weft::Model::empty(Shape({3, 4}), DLDataType{kDLInt, 8, 1});
    try {
      model("main", wrong);
    } catch (const tvm::ffi::Error& e) {
      std::printf("%s: %s\n", e.kind().c_str(), e.message().c_str());
    }
  } catch (const tvm::ffi::Error& e) {
    std::printf("failed: %s\n", e.message().c_str());
    return 1;
  }
  return 0;
}
