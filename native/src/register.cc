#include "register.h"

#include <cstring>
#include <utility>

#include "error.h"
#include "module.h"
#include "vm.h"

namespace weft {

void check_count(int32_t found, int32_t expected) {
  if (found != expected) raise_error("TypeError", "expected %d arguments, found %d", expected, found);
}

void wrong_argument(const TVMFFIAny* args, int32_t i, const std::string& expected) {
  raise_error("TypeError", "argument %d: expected %s, found %s", i, expected.c_str(),
              reinterpret_cast<const tvm::ffi::AnyView*>(args)[i].GetTypeKey().c_str());
}

namespace {

struct Registered {
  void* function;
  Invoke invoke;
};

int call_registered(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
  TVM_FFI_SAFE_CALL_BEGIN();
  Any result;
  auto* registered = static_cast<Registered*>(self);
  registered->invoke(registered->function, args, n, &result);
  std::swap(*ret, *raw(&result));
  TVM_FFI_SAFE_CALL_END();
}

}  // namespace

void register_call(const char* name, void* function, Invoke invoke) {
  // Never freed: names stay registered until the process ends.
  Any callee = make_function(new Registered{function, invoke}, call_registered, nullptr);
  TVMFFIByteArray text{name, std::strlen(name)};
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIFunctionSetGlobal(&text, raw(&callee)->v_obj, 0));
}

const Globals& Globals::def_packed(const char* name, void (*function)(tvm::ffi::PackedArgs, Any*)) const {
  register_call(name, reinterpret_cast<void*>(function), [](void* self, const TVMFFIAny* args, int32_t n, Any* result) {
    auto call = reinterpret_cast<void (*)(tvm::ffi::PackedArgs, Any*)>(self);
    call(tvm::ffi::PackedArgs(reinterpret_cast<const tvm::ffi::AnyView*>(args), n), result);
  });
  return *this;
}

}  // namespace weft
