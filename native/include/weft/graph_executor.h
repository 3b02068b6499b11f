/*!
 * \file weft/graph_executor.h
 * \brief Running what relay.build exported, as a graph or ahead of time, from C++, without Python.
 *
 *     weft::GraphModel model("model.so");
 *     model.set_input("x", x);                       // copied; x: tvm::ffi::Tensor
 *     model.run();
 *     tvm::ffi::Tensor y = model.output(0);          // overwritten by the next run
 *
 * Compile against tvm-ffi's headers and link libweft_runtime and libtvm_ffi. Errors are thrown as tvm::ffi::Error.
 */
#ifndef WEFT_GRAPH_EXECUTOR_HEADER_H_
#define WEFT_GRAPH_EXECUTOR_HEADER_H_

#include <string>

#include "vm.h"

namespace weft {

class GraphModel {
 public:
  /*! \brief Opens a library and makes an executor on a device; `name` is relay.build's mod_name. */
  explicit GraphModel(const std::string& path, DLDevice device = DLDevice{kDLCPU, 0}, const std::string& name = "default")
      : executor_(find(Model::open(path), name)(device).cast<tvm::ffi::Module>()), run_(find(executor_, "run")),
        set_input_(find(executor_, "set_input")), get_output_(find(executor_, "get_output")) {}

  /*! \brief Copies a tensor to an input, by its name or place. */
  void set_input(const std::string& name, const tvm::ffi::Tensor& value) const { set_input_(tvm::ffi::String(name), value); }
  void set_input(int64_t index, const tvm::ffi::Tensor& value) const { set_input_(index, value); }
  void run() const { run_(); }
  tvm::ffi::Tensor output(int64_t index) const { return get_output_(index).cast<tvm::ffi::Tensor>(); }
  /*! \brief The executor, whose functions are those of TVM's: load_params, set_input_zero_copy, get_num_outputs, ... */
  const tvm::ffi::Module& module() const { return executor_; }

 private:
  static tvm::ffi::Function find(const tvm::ffi::Module& module, const std::string& name) {
    auto found = module->GetFunction(tvm::ffi::String(name));
    if (!found.has_value()) throw tvm::ffi::Error("ValueError", "the library has no function \"" + name + "\"", "");
    return *found;
  }

  tvm::ffi::Module executor_;
  tvm::ffi::Function run_, set_input_, get_output_;
};

}  // namespace weft
#endif  // WEFT_GRAPH_EXECUTOR_HEADER_H_
