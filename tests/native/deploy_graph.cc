// Runs what relay.build exported without Python: deploy_graph model.so. Sets input x (2x3 float32) to 0, 1, ... 5 and
// prints the sum of output 0, then the message of an input of a wrong shape.
#include <weft/graph_executor.h>

#include <cstdio>

using tvm::ffi::Shape;
using tvm::ffi::Tensor;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    weft::GraphModel model(argv[1]);
    Tensor x = weft::Model::empty(Shape({2, 3}), DLDataType{kDLFloat, 32, 1});
    for (int i = 0; i < 6; ++i) static_cast<float*>(x.data_ptr())[i] = static_cast<float>(i);
    model.set_input("x", x);
    model.run();
    model.run();
    Tensor y = model.output(0);
    float sum = 0;
    for (int64_t i = 0; i < y.numel(); ++i) sum += static_cast<const float*>(y.data_ptr())[i];
    std::printf("%lld x %lld sum %g\n", static_cast<long long>(y.size(0)), static_cast<long long>(y.size(1)), sum);
    try {
      model.set_input(0, weft::Model::empty(Shape({3, 3}), DLDataType{kDLFloat, 32, 1}));
    } catch (const tvm::ffi::Error& e) {
      std::printf("%s: %s\n", e.kind().c_str(), e.message().c_str());
    }
  } catch (const tvm::ffi::Error& e) {
    std::printf("failed: %s\n", e.message().c_str());
    return 1;
  }
  return 0;
}
