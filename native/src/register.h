// Registering functions under global names with little code for each: one entry a signature, one conversion a type.
// tvm-ffi's own reflection makes both anew for every function, with a schema that nobody reads.
#ifndef WEFT_REGISTER_H_
#define WEFT_REGISTER_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <string>
#include <type_traits>
#include <utility>

namespace weft {

// What the files that register functions call by tvm-ffi's names.
using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::ModuleObj;
using tvm::ffi::Optional;
using tvm::ffi::PackedArgs;
using tvm::ffi::String;

void check_count(int32_t found, int32_t expected);  // raises "TypeError"
[[noreturn]] [[gnu::cold]] void wrong_argument(const TVMFFIAny* args, int32_t i, const std::string& expected);

// An argument as a C++ value; one of another type, or None in the place of an object, raises "TypeError".
template <typename T>
[[gnu::noinline]] T argument(const TVMFFIAny* args, int32_t i) {
  const auto& view = reinterpret_cast<const tvm::ffi::AnyView*>(args)[i];
  if constexpr (std::is_same_v<T, tvm::ffi::Any>) {
    return view;
  } else {
    constexpr bool object = std::is_base_of_v<tvm::ffi::ObjectRef, T> && !tvm::ffi::is_optional_type_v<T>;
    auto value = object && view.type_index() == kTVMFFINone ? std::nullopt : view.try_cast<T>();
    if (value) return *std::move(value);
    wrong_argument(args, i, tvm::ffi::TypeTraits<T>::TypeStr());
  }
}

// Of a function of all arguments; one that is missing raises, too.
template <typename T>
[[gnu::noinline]] T argument(tvm::ffi::PackedArgs args, int32_t i) {
  if (i >= args.size()) check_count(args.size(), i + 1);
  return argument<T>(reinterpret_cast<const TVMFFIAny*>(args.data()), i);
}

// Converts arguments, calls `function` and leaves its result. Errors are exceptions: one function behind all names
// passes them on, instead of handlers in each.
using Invoke = void (*)(void* function, const TVMFFIAny* args, int32_t n, tvm::ffi::Any* result);
void register_call(const char* name, void* function, Invoke invoke);

// A function of C++ values.
template <typename R, typename... P, size_t... I>
void call_typed(void* self, const TVMFFIAny* args, int32_t n, tvm::ffi::Any* result, std::index_sequence<I...>) {
  check_count(n, sizeof...(P));
  auto function = reinterpret_cast<R (*)(P...)>(self);
  if constexpr (std::is_void_v<R>) {
    function(argument<std::decay_t<P>>(args, static_cast<int32_t>(I))...);
  } else {
    *result = function(argument<std::decay_t<P>>(args, static_cast<int32_t>(I))...);
  }
}

struct Globals {
  template <typename R, typename... P>
  const Globals& def(const char* name, R (*function)(P...)) const {
    register_call(name, reinterpret_cast<void*>(function), [](void* self, const TVMFFIAny* args, int32_t n, Any* out) {
      call_typed<R, P...>(self, args, n, out, std::index_sequence_for<P...>());
    });
    return *this;
  }
  // A lambda without captures.
  template <typename F>
  auto def(const char* name, F function) const -> decltype(def(name, +function)) {
    return def(name, +function);
  }
  // A function of all arguments.
  const Globals& def_packed(const char* name, void (*function)(tvm::ffi::PackedArgs, tvm::ffi::Any*)) const;
};

}  // namespace weft
#endif  // WEFT_REGISTER_H_
