// Pointer variables of libraries that Apache TVM compiled, and what Weft's loader puts there.
#ifndef WEFT_TVM_BACKEND_H_
#define WEFT_TVM_BACKEND_H_

namespace weft {

struct BackendSymbol {
  const char* name;
  void* value;
};
extern const BackendSymbol kBackendSymbols[];  // ends with a null name

}  // namespace weft
#endif  // WEFT_TVM_BACKEND_H_
