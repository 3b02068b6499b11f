/*!
 * \file weft/vm.h
 * \brief Running a compiled model from C++, without Python.
 *
 *     weft::Model model("model.so");
 *     tvm::ffi::Any y = model("main", x);            // x: tvm::ffi::Tensor, number, string, ...
 *     auto tensor = y.cast<tvm::ffi::Tensor>();
 *
 * Compile against tvm-ffi's headers and link libweft_runtime and libtvm_ffi. Errors are thrown as tvm::ffi::Error. A
 * Model may be called from several threads at once.
 */
#ifndef WEFT_VM_HEADER_H_
#define WEFT_VM_HEADER_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <utility>

#include "runtime.h"

namespace weft {

class Model {
 public:
  /*! \brief Opens a library that Weft or Apache TVM exported, and makes a virtual machine for it on a device. */
  explicit Model(const std::string& path, DLDevice device = DLDevice{kDLCPU, 0})
      : library_(open(path)), vm_(make_vm(library_, device)) {}

  /*! \brief A library as a module. */
  static tvm::ffi::Module open(const std::string& path) { return own(weft_load_module, path.c_str()); }

  /*! \brief A function of the model; keeps the model alive. */
  tvm::ffi::Function function(const std::string& name) const {
    auto found = vm_->GetFunction(tvm::ffi::String(name));
    if (!found.has_value()) throw tvm::ffi::Error("ValueError", "the model has no function \"" + name + "\"", "");
    return *found;
  }

  /*! \brief Calls a function of the model. */
  template <typename... Args>
  tvm::ffi::Any operator()(const std::string& name, Args&&... args) const {
    return function(name)(std::forward<Args>(args)...);
  }

  /*! \brief An empty tensor from the runtime's pool. */
  static tvm::ffi::Tensor empty(tvm::ffi::Shape shape, DLDataType dtype, DLDevice device = DLDevice{kDLCPU, 0}) {
    static tvm::ffi::Function make = tvm::ffi::Function::GetGlobalRequired("weft.tensor_empty");
    return make(shape, dtype, device).cast<tvm::ffi::Tensor>();
  }

  const tvm::ffi::Module& module() const { return vm_; }

 private:
  template <typename F, typename... Args>
  static tvm::ffi::Module own(F make, Args... args) {
    TVMFFIObjectHandle handle = nullptr;
    TVM_FFI_CHECK_SAFE_CALL(make(args..., &handle));
    tvm::ffi::Any any;
    auto* raw = reinterpret_cast<TVMFFIAny*>(&any);
    raw->type_index = static_cast<TVMFFIObject*>(handle)->type_index;
    raw->v_obj = static_cast<TVMFFIObject*>(handle);
    return any.cast<tvm::ffi::Module>();
  }

  static tvm::ffi::Module make_vm(const tvm::ffi::Module& library, DLDevice device) {
    tvm::ffi::AnyView view(library);
    return own(weft_vm_create, static_cast<TVMFFIObjectHandle>(reinterpret_cast<TVMFFIAny*>(&view)->v_obj), device);
  }

  tvm::ffi::Module library_;
  tvm::ffi::Module vm_;
};

}  // namespace weft
#endif  // WEFT_VM_HEADER_H_
