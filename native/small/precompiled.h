// What nearly every file of the runtime and of tvm-ffi includes: read once and compiled to a precompiled header, which
// saves a third of a file's time where servers (tools/rpc_server.py) and WebAssembly's runtime (tools/wasm_runtime.py)
// are built.
#include <sstream>  // before any other header asks for streams

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>
