// Modules of graphs: what is exported (a graph, its parameters and kernels), and executors, with Apache TVM's functions.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include "error.h"
#include "graph_executor.h"
#include "module.h"
#include "register.h"
#include "serial.h"

namespace weft {

namespace {

constexpr uint64_t kFactoryMagic = 0x57454654475241ULL;
constexpr const char* kFactoryVersion = "1";  // of the file; a change of layout needs a new version and a reader for this one

using Guard = std::lock_guard<std::mutex>;

// A method of a module: `run` gets the object that has it.
template <typename T>
struct Method {
  const char* name;
  void (*run)(T* self, PackedArgs args, Any* ret);
};

template <typename T>
struct Bound {
  Module keep;
  T* self;
  const Method<T>* method;
};

template <typename T, size_t N>
Optional<Function> bind_method(T* self, const Method<T> (&methods)[N], const char* name) {
  for (const Method<T>& m : methods) {
    if (std::strcmp(name, m.name) != 0) continue;
    auto call = [](void* opaque, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
      auto* bound = static_cast<Bound<T>*>(opaque);
      TVM_FFI_SAFE_CALL_BEGIN();
      Any result;
      bound->method->run(bound->self, PackedArgs(reinterpret_cast<const tvm::ffi::AnyView*>(args), n), &result);
      std::swap(*ret, *raw(&result));
      TVM_FFI_SAFE_CALL_END();
    };
    return make_function(new Bound<T>{tvm::ffi::GetRef<Module>(self), self, &m}, call,
                         [](void* p) { delete static_cast<Bound<T>*>(p); });
  }
  return std::nullopt;
}

const TVMFFIAny* values(PackedArgs args, int32_t at_least) {
  if (args.size() < at_least) raise_error("TypeError", "expected %d arguments, found %d", at_least, args.size());
  return reinterpret_cast<const TVMFFIAny*>(args.data());
}

Any at(PackedArgs args, int32_t i) { return reinterpret_cast<const tvm::ffi::AnyView*>(values(args, i + 1))[i]; }

const DLTensor& tensor_at(PackedArgs args, int32_t i) {
  const TVMFFIAny& value = values(args, i + 1)[i];
  const DLTensor* t = tensor_of(value);
  if (t == nullptr) raise_error("TypeError", "argument %d: expected a tensor, found %s", i, describe(value).c_str());
  return *t;
}

Params params_at(PackedArgs args, int32_t i) {
  auto data = argument<Bytes>(values(args, i + 1), i);
  return read_params(data.data(), data.size());
}

Any map_of(const Params& params) {
  std::vector<Any> items;
  for (const auto& [name, value] : params) {
    items.push_back(String(name));
    items.push_back(value);
  }
  Any map;
  auto* args = reinterpret_cast<const tvm::ffi::AnyView*>(items.data());
  Function::GetGlobalRequired("ffi.Map").CallPacked(args, static_cast<int32_t>(items.size()), &map);
  return map;
}

std::vector<DLDevice> devices_from(PackedArgs args, int32_t first) {
  std::vector<DLDevice> devices;
  for (int32_t i = first; i < args.size(); ++i) devices.push_back(argument<DLDevice>(values(args, 0), i));
  return devices;
}

// ---- executors ------------------------------------------------------------------------------------------------------

class GraphExecutorObj final : public ModuleObj {
 public:
  GraphExecutorObj(std::shared_ptr<const Graph> graph, const std::vector<Any>& imports, std::vector<DLDevice> devices,
                   const Params& params)
      : executor(std::move(graph), imports, std::move(devices), params) {}
  const char* kind() const final { return "weft.GraphExecutor"; }
  int GetPropertyMask() const final { return Module::kRunnable; }
  Optional<Function> GetFunction(const String& name) final;

  GraphExecutor executor;
};

void share_params(GraphExecutorObj* self, PackedArgs args, Any*) {
  auto module = argument<Module>(values(args, 1), 0);
  auto* other = dynamic_cast<GraphExecutorObj*>(const_cast<ModuleObj*>(module.operator->()));
  if (other == nullptr) raise_error("TypeError", "expected a graph executor, found a module of kind %s", module->kind());
  Params names = params_at(args, 1);
  if (other == self) return;
  std::scoped_lock lock(self->executor.mutex, other->executor.mutex);
  self->executor.share_params(&other->executor, names);
}

// What each input is: name, dtype, shape.
void input_info(GraphExecutorObj* self, PackedArgs, Any* ret) {
  const Graph& graph = self->executor.graph();
  std::vector<Any> rows;
  for (int32_t n : graph.inputs) {
    const GraphNode& node = graph.nodes[static_cast<size_t>(n)];
    const GraphEntry& entry = graph.entries[static_cast<size_t>(node.begin)];
    rows.push_back(array_of({String(node.name), String(dtype_name(entry.dtype)), tvm::ffi::Shape(entry.shape)}));
  }
  *ret = array_of(rows);
}

void get_entry(GraphExecutor& e, int32_t entry, PackedArgs args, Any* ret) {
  Guard lock(e.mutex);
  if (args.size() > 1) e.copy_out(entry, tensor_at(args, 1));
  else *ret = e.tensor(entry);
}

void bind_entry(GraphExecutor& e, int32_t entry, PackedArgs args, bool shared) {
  Any value = at(args, 1);
  Guard lock(e.mutex);
  e.bind(entry, value, shared);
}

// Runs up to a node and copies its output.
void debug_get_output(GraphExecutorObj* self, PackedArgs args, Any*) {
  GraphExecutor& e = self->executor;
  int32_t node = e.node(at(args, 0));
  const GraphNode& found = e.graph().nodes[static_cast<size_t>(node)];
  if (found.begin == found.end) raise_error("ValueError", "node '%s' has no output", found.name.c_str());
  Guard lock(e.mutex);
  for (int32_t i = 0; i <= node; ++i) e.run_node(i);
  e.copy_out(found.begin, tensor_at(args, 1));
}

void get_nodes(GraphExecutorObj* self, PackedArgs, Any* ret) {
  std::vector<Any> rows;
  for (const GraphNode& node : self->executor.graph().nodes) rows.push_back(array_of({String(node.name), String(node.function)}));
  *ret = array_of(rows);
}

void get_input_index(GraphExecutorObj* self, PackedArgs args, Any* ret) {
  const Graph& graph = self->executor.graph();
  std::string name = argument<String>(values(args, 1), 0);
  int64_t index = -1;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.nodes[static_cast<size_t>(graph.inputs[i])].name == name) index = static_cast<int64_t>(i);
  }
  *ret = index;
}

const Method<GraphExecutorObj> kExecutorMethods[] = {
    {"run", [](GraphExecutorObj* self, PackedArgs, Any*) {
       Guard lock(self->executor.mutex);
       self->executor.run();
     }},
    {"set_input", [](GraphExecutorObj* self, PackedArgs args, Any*) {
       int32_t entry = self->executor.input(at(args, 0));
       Guard lock(self->executor.mutex);
       self->executor.set(entry, tensor_at(args, 1));
     }},
    {"set_input_zero_copy", [](GraphExecutorObj* self, PackedArgs args, Any*) {
       bind_entry(self->executor, self->executor.input(at(args, 0)), args, true);
     }},
    {"set_output_zero_copy", [](GraphExecutorObj* self, PackedArgs args, Any*) {
       bind_entry(self->executor, self->executor.head(at(args, 0)), args, false);
     }},
    {"get_input", [](GraphExecutorObj* self, PackedArgs args, Any* ret) {
       get_entry(self->executor, self->executor.input(at(args, 0)), args, ret);
     }},
    {"get_output", [](GraphExecutorObj* self, PackedArgs args, Any* ret) {
       get_entry(self->executor, self->executor.head(at(args, 0)), args, ret);
     }},
    {"get_input_index", get_input_index},
    {"get_num_inputs", [](GraphExecutorObj* self, PackedArgs, Any* ret) {
       *ret = static_cast<int64_t>(self->executor.graph().inputs.size());
     }},
    {"get_num_outputs", [](GraphExecutorObj* self, PackedArgs, Any* ret) {
       *ret = static_cast<int64_t>(self->executor.graph().heads.size());
     }},
    {"get_input_info", input_info},
    {"load_params", [](GraphExecutorObj* self, PackedArgs args, Any*) {
       Params params = params_at(args, 0);
       Guard lock(self->executor.mutex);
       self->executor.load_params(params);
     }},
    {"share_params", share_params},
    {"debug_get_output", debug_get_output},
    {"run_node", [](GraphExecutorObj* self, PackedArgs args, Any*) {
       int32_t node = self->executor.node(at(args, 0));
       Guard lock(self->executor.mutex);
       self->executor.run_node(node);
     }},
    {"get_nodes", get_nodes},
};

Optional<Function> GraphExecutorObj::GetFunction(const String& name) { return bind_method(this, kExecutorMethods, name.c_str()); }

// ---- what is exported -----------------------------------------------------------------------------------------------

class GraphFactoryObj final : public ModuleObj {
 public:
  GraphFactoryObj(std::string kind, std::string name, std::string json, Params params)
      : executor_kind(std::move(kind)), name(std::move(name)), json(std::move(json)), params(std::move(params)),
        graph(parse_graph(this->json)) {}
  const char* kind() const final { return "weft.GraphExecutorFactory"; }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }
  Bytes SaveToBytes() const final {
    std::string out;
    Writer writer(&out);
    writer.pod(kFactoryMagic);
    for (const std::string& text : {std::string(kFactoryVersion), executor_kind, name, json, write_params(params)}) writer.str(text);
    return Bytes(out);
  }
  Optional<Function> GetFunction(const String& wanted) final;

  const std::string executor_kind, name, json;
  const Params params;
  const std::shared_ptr<const Graph> graph;
};

// An executor of the graph with its parameters on the devices that are the arguments from `first` on.
void make_executor(GraphFactoryObj* self, PackedArgs args, int32_t first, Any* ret) {
  *ret = Module(tvm::ffi::make_object<GraphExecutorObj>(self->graph, list_of(Any(self->imports())), devices_from(args, first),
                                                        self->params));
}

const Method<GraphFactoryObj> kFactoryMethods[] = {
    {"create", [](GraphFactoryObj* self, PackedArgs args, Any* ret) { make_executor(self, args, 0, ret); }},
    {"debug_create",  // (name, device, ...); every executor can be watched
     [](GraphFactoryObj* self, PackedArgs args, Any* ret) { make_executor(self, args, 1, ret); }},
    {"get_graph_json", [](GraphFactoryObj* self, PackedArgs, Any* ret) { *ret = String(self->json); }},
    {"get_module_name", [](GraphFactoryObj* self, PackedArgs, Any* ret) { *ret = String(self->name); }},
    {"get_executor_kind", [](GraphFactoryObj* self, PackedArgs, Any* ret) { *ret = String(self->executor_kind); }},
    {"get_graph_params", [](GraphFactoryObj* self, PackedArgs, Any* ret) { *ret = map_of(self->params); }},
    {"remove_params",  // the same module, to which parameters are given at run time
     [](GraphFactoryObj* self, PackedArgs, Any* ret) {
       Module bare(tvm::ffi::make_object<GraphFactoryObj>(self->executor_kind, self->name, self->json, Params()));
       for (const Any& import : list_of(Any(self->imports()))) bare->ImportModule(import.cast<Module>());
       *ret = bare;
     }},
};

Optional<Function> GraphFactoryObj::GetFunction(const String& wanted) {
  return bind_method(this, kFactoryMethods, name == wanted.c_str() ? "create" : wanted.c_str());
}

Params params_of_rows(const Any& rows) {
  Params out;
  for (const Any& value : list_of(rows)) {
    std::vector<Any> row = list_of(value);
    if (row.size() != 2) raise_error("ValueError", "a row of parameters is a name and a tensor");
    out.emplace_back(argument<String>(raw(&row[0]), 0), own_constant(row[1]));
  }
  return out;
}

Module factory_create(const String& kind, const String& name, const String& json, const Any& params) {
  return Module(tvm::ffi::make_object<GraphFactoryObj>(kind, name, json, params_of_rows(params)));
}

Module factory_from_bytes(const Bytes& bytes) {
  Reader in(bytes.data(), bytes.size(), nullptr, "graph executor");
  if (in.pod<uint64_t>("magic") != kFactoryMagic) in.error("this is no graph executor: wrong magic number");
  std::string version = in.str("version");
  if (version != kFactoryVersion) in.error(message("version %s is unknown", version.c_str()));
  std::string kind = in.str("executor"), name = in.str("name"), json = in.str("graph");
  in.section("parameters");
  uint64_t n = in.count(1, "parameters");
  const char* data = in.take(n, "parameters");
  if (in.left() != 0) in.error(message("%zu bytes after the end", in.left()));
  return Module(tvm::ffi::make_object<GraphFactoryObj>(kind, name, json, read_params(data, static_cast<size_t>(n))));
}

// graph_executor(json, libraries, devices...), or one library: a client of RPC has no list to send
void executor_create(PackedArgs args, Any* ret) {
  std::string json = argument<String>(values(args, 2), 0);
  Any libraries = at(args, 1);
  std::vector<Any> imports = libraries.as<Module>() ? std::vector<Any>{libraries} : list_of(libraries);
  *ret = Module(tvm::ffi::make_object<GraphExecutorObj>(parse_graph(json), imports, devices_from(args, 2), Params()));
}

Any load_params(const Bytes& bytes) { return map_of(read_params(bytes.data(), bytes.size())); }

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("ffi.Module.load_from_bytes.weft.GraphExecutorFactory", factory_from_bytes)
      .def("weft.graph_factory", factory_create)
      .def_packed("weft.graph_executor", executor_create)
      .def("weft.save_params", [](const Any& rows) { return Bytes(write_params(params_of_rows(rows))); })
      .def("weft.load_params", load_params)
      .def("weft.load_params_at",  // of a file that is mapped
           [](void* data, int64_t size) { return map_of(read_params(static_cast<const char*>(data), static_cast<size_t>(size))); });
}

}  // namespace
}  // namespace weft
