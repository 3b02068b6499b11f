/*!
 * \file weft/vm.h
 * \brief Running a compiled model from C++, without Python.
 *
 *     weft::Model model("model.so");
 *     tvm::ffi::Any y = model("main", x);            // x: tvm::ffi::Tensor, number, string, ...
 *     auto tensor = y.cast<tvm::ffi::Tensor>();
 *     for (const weft::TensorInfo& input : model.inputs()) ...  // name, dtype, shape
 *
 * Compile against tvm-ffi's headers and link libweft_runtime and libtvm_ffi. Errors are thrown as tvm::ffi::Error. A
 * Model may be called from several threads at once.
 */
#ifndef WEFT_VM_HEADER_H_
#define WEFT_VM_HEADER_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime.h"

namespace weft {

/*! \brief What a model says of an input or output. */
struct TensorInfo {
  std::string name;
  std::string dtype;              /*!< "float32"; empty where the model does not say */
  std::vector<std::string> shape; /*!< numbers, or names of symbolic dimensions */
  bool has_shape;                 /*!< false where the rank is unknown */
};

class Model {
 public:
  /*! \brief Opens a library that Weft or Apache TVM exported, and makes a virtual machine for it on a device. */
  explicit Model(const std::string& path, DLDevice device = DLDevice{kDLCPU, 0})
      : Model(open(path), device) {}

  /*!
   * \brief The model that was linked into this program (weft compile --system-lib).
   * \param prefix What the object was made with; it tells several models apart.
   */
  static Model linked(const std::string& prefix = "", DLDevice device = DLDevice{kDLCPU, 0}) {
    auto find = tvm::ffi::Function::GetGlobalRequired("ffi.SystemLib");
    return Model(find(tvm::ffi::String(prefix)).cast<tvm::ffi::Module>(), device);
  }

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

  /*! \brief Inputs of the function main, in the order in which it takes them. */
  std::vector<TensorInfo> inputs() const {
    std::vector<TensorInfo> out = described("inputs");
    if (out.empty()) {
      for (const std::string& name : parameters()) out.push_back(TensorInfo{name, "", {}, false});
    }
    return out;
  }

  /*! \brief Outputs of the function main; empty where the model does not say. */
  std::vector<TensorInfo> outputs() const { return described("outputs"); }

  /*!
   * \brief A tensor over memory of the caller's, which is not copied and must outlive what uses it.
   * \param data Contiguous elements; at a multiple of 64 bytes, kernels use it in place.
   */
  static tvm::ffi::Tensor view(void* data, std::vector<int64_t> shape, DLDataType dtype,
                               DLDevice device = DLDevice{kDLCPU, 0}) {
    struct Owner {
      std::vector<int64_t> shape;
      DLManagedTensor managed;
    };
    auto* owner = new Owner{std::move(shape), {}};
    owner->managed.dl_tensor = DLTensor{data, device, static_cast<int32_t>(owner->shape.size()), dtype,
                                        owner->shape.data(), nullptr, 0};
    owner->managed.manager_ctx = owner;
    owner->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Owner*>(self->manager_ctx); };
    return tvm::ffi::Tensor::FromDLPack(&owner->managed);
  }

  /*! \brief An empty tensor from the runtime's pool. */
  static tvm::ffi::Tensor empty(tvm::ffi::Shape shape, DLDataType dtype, DLDevice device = DLDevice{kDLCPU, 0}) {
    static tvm::ffi::Function make = tvm::ffi::Function::GetGlobalRequired("weft.tensor_empty");
    return make(shape, dtype, device).cast<tvm::ffi::Tensor>();
  }

  const tvm::ffi::Module& module() const { return vm_; }

 private:
  Model(tvm::ffi::Module library, DLDevice device) : library_(std::move(library)), vm_(make_vm(library_, device)) {}

  std::vector<TensorInfo> described(const char* which) const {
    namespace ffi = tvm::ffi;
    auto metadata = vm_->GetFunction("weft.metadata");
    if (!metadata.has_value()) return {};
    auto about = ffi::json::Parse((*metadata)().cast<ffi::String>()).cast<ffi::json::Object>();
    std::vector<TensorInfo> out;
    for (const ffi::Any& entry : about.at(ffi::String(which)).cast<ffi::json::Array>()) {
      auto tensor = entry.cast<ffi::json::Object>();
      auto shape = tensor.at(ffi::String("shape")).as<ffi::json::Array>();
      auto dtype = tensor.at(ffi::String("dtype")).as<ffi::String>();
      TensorInfo info{tensor.at(ffi::String("name")).cast<ffi::String>(), dtype ? std::string(*dtype) : "", {},
                      shape.has_value()};
      for (size_t i = 0; shape.has_value() && i < shape->size(); ++i) {
        ffi::Any size = (*shape)[static_cast<int64_t>(i)];
        auto number = size.as<int64_t>();
        info.shape.push_back(number ? std::to_string(*number) : std::string(size.cast<ffi::String>()));
      }
      out.push_back(std::move(info));
    }
    return out;
  }

  std::vector<std::string> parameters() const {
    namespace ffi = tvm::ffi;
    auto rows = ffi::Function::GetGlobalRequired("weft.executable_functions")(library_).cast<ffi::Array<ffi::Any>>();
    for (const ffi::Any& any : rows) {
      auto row = any.cast<ffi::Array<ffi::Any>>();
      if (row[1].cast<ffi::String>() != "main") continue;
      auto names = row[6].cast<ffi::Array<ffi::String>>();
      return std::vector<std::string>(names.begin(), names.end());
    }
    return {};
  }

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
