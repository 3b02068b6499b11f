// What every session offers its client under TVM's names, twin of weft/rpc/functions.py and machine.py.
#include <dirent.h>
#include <sys/stat.h>
#include <tvm/ffi/cast.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "error.h"
#include "register.h"
#include "session.h"
#include "weft/runtime.h"

namespace weft::rpc {

const Session::OwnFunction Session::kOwn[] = {
    {"tvm.rpc.server.workpath", &Session::workpath},
    {"tvm.rpc.server.upload", &Session::upload},
    {"tvm.rpc.server.download", &Session::download},
    {"tvm.rpc.server.remove", &Session::remove},
    {"tvm.rpc.server.listdir", &Session::listdir},
    {"tvm.rpc.server.load_module", &Session::load_module},
    {"tvm.rpc.server.ImportModule", &Session::import_module},
    {"tvm.rpc.server.ModuleGetFunction", &Session::module_function},
    {"weft.rpc.module_kind", &Session::module_kind},
    {"runtime.RPCTimeEvaluator", &Session::time_evaluator},
};

Any Session::own_function(Own function) {
  return Function::FromPacked([this, function](PackedArgs args, Any* ret) { (this->*function)(args, ret); });
}

Any Session::global_function(const std::string& name) {
  for (const OwnFunction& own : kOwn) {
    if (name == own.name) return own_function(own.function);
  }
  auto found = Function::GetGlobal(name);
  return found.has_value() ? Any(*found) : Any();
}

// ---- files ----------------------------------------------------------------------------------------------------------

// A module, where None is none.
static Module module_argument(PackedArgs args, int32_t i) {
  auto found = argument<Any>(args, i);
  if (found == nullptr) raise_error("TypeError", "expected a module, found None");
  return argument<Module>(args, i);
}

static std::string text_argument(PackedArgs args, int32_t i) {
  auto text = argument<String>(args, i);
  return {text.data(), text.size()};
}

// The path of a file of the folder: what leads out of it is refused, as it is written.
std::string Session::path_of(const std::string& name) const {
  std::string rest = name.compare(0, folder_.size() + 1, folder_ + "/") == 0 ? name.substr(folder_.size() + 1) : name;
  if (name == folder_) rest.clear();
  bool outside = (!rest.empty() && rest[0] == '/') || rest.find('\0') != std::string::npos;
  for (size_t begin = 0; begin <= rest.size();) {
    size_t end = std::min(rest.find('/', begin), rest.size());
    outside = outside || rest.compare(begin, end - begin, "..") == 0;
    begin = end + 1;
  }
  if (outside) raise_error("InvalidArgument", "a session's files lie in its folder: found \"%.256s\"", name.c_str());
  return rest.empty() ? folder_ : folder_ + "/" + rest;
}

[[noreturn]] static void file_error(const std::string& path) {
  const char* kind = errno == ENOENT ? "FileNotFoundError" : errno == EISDIR ? "IsADirectoryError" : "OSError";
  raise_error(kind, "\"%.256s\": %s", path.substr(path.rfind('/') + 1).c_str(), std::strerror(errno));
}

void Session::workpath(PackedArgs args, Any* ret) { *ret = String(path_of(text_argument(args, 0))); }

void Session::upload(PackedArgs args, Any*) {
  std::string path = path_of(text_argument(args, 0));
  for (size_t at = path.find('/', folder_.size() + 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);
  }
  auto data = argument<Bytes>(args, 1);
  unlink(path.c_str());  // a library that is open keeps its file
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) file_error(path);
  bool written = std::fwrite(data.data(), 1, data.size(), file) == data.size();
  if (std::fclose(file) != 0 || !written) file_error(path);
}

void Session::download(PackedArgs args, Any* ret) {
  std::string path = path_of(text_argument(args, 0)), content;
  struct stat info;
  if (stat(path.c_str(), &info) != 0) file_error(path);
  if (!S_ISREG(info.st_mode)) raise_error("InvalidArgument", "only files can be read");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) file_error(path);
  content.resize(static_cast<size_t>(info.st_size));
  content.resize(std::fread(&content[0], 1, content.size(), file));
  std::fclose(file);
  *ret = Bytes(std::move(content));
}

void Session::remove(PackedArgs args, Any*) {
  std::string path = path_of(text_argument(args, 0));
  if (unlink(path.c_str()) != 0) file_error(path);
}

void Session::listdir(PackedArgs args, Any* ret) {
  std::string path = path_of(text_argument(args, 0)), out;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) file_error(path);
  std::vector<std::string> names;
  while (dirent* entry = readdir(folder)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + name;
  *ret = String(out);
}

// ---- modules --------------------------------------------------------------------------------------------------------

void Session::load_module(PackedArgs args, Any* ret) {
  std::string path = path_of(text_argument(args, 0));
  if (path.size() > 2 && (path.compare(path.size() - 2, 2, ".o") == 0 ||
                          (path.size() > 4 && path.compare(path.size() - 4, 4, ".tar") == 0))) {
    raise_error("ExecutableError", "this server has no linker: export a shared library for its processor (lib.so)");
  }
  TVMFFIObjectHandle module = nullptr;
  if (weft_load_module(path.c_str(), &module) != 0) TVM_FFI_CHECK_SAFE_CALL(-1);
  TVMFFIAny raw_module{};
  raw_module.type_index = static_cast<TVMFFIObject*>(module)->type_index;
  raw_module.v_obj = static_cast<TVMFFIObject*>(module);
  *reinterpret_cast<TVMFFIAny*>(ret) = raw_module;
}

void Session::import_module(PackedArgs args, Any*) {
  auto parent = module_argument(args, 0), child = module_argument(args, 1);
  parent->ImportModule(child);
}

void Session::module_kind(PackedArgs args, Any* ret) { *ret = String(module_argument(args, 0)->kind()); }

void Session::module_function(PackedArgs args, Any* ret) {
  bool imports = args.size() > 2 && argument<int64_t>(args, 2) != 0;
  *ret = function_of(module_argument(args, 0), text_argument(args, 1), imports);
}

// ---- virtual machines -----------------------------------------------------------------------------------------------

static Function global(const char* name) {
  auto found = Function::GetGlobal(name);
  if (!found.has_value()) raise_error("InternalError", "this runtime has no function %s", name);
  return *found;
}

static Any call_with(const Function& function, std::initializer_list<Any> first, PackedArgs args) {
  std::vector<tvm::ffi::AnyView> all(first.begin(), first.end());
  for (int32_t i = 0; i < args.size(); ++i) all.push_back(args[i]);
  Any result;
  function.CallPacked(all.data(), static_cast<int32_t>(all.size()), &result);
  return result;
}

namespace {

// A virtual machine that its client makes in two steps: this module, then with devices.
class ServedMachine final : public tvm::ffi::ModuleObj {
 public:
  explicit ServedMachine(Module executable) : executable_(std::move(executable)) {}
  const char* kind() const final { return "weft.VirtualMachine"; }
  tvm::ffi::Optional<Function> GetFunction(const String& name) final {
    auto self = tvm::ffi::GetRef<Module>(this);
    std::string wanted = name;
    if (wanted == "vm_initialization") {
      return Function::FromPacked([self, this](PackedArgs args, Any*) { initialize(args); });
    }
    if (wanted == "get_function_arity" || wanted == "get_function_param_name") {
      return Function::FromPacked([self, this, wanted](PackedArgs args, Any* ret) { *ret = describe(wanted, args); });
    }
    static const char* const kStateful[] = {"set_input", "invoke_stateful", "get_output", "get_output_arity",
                                            "invoke_closure"};
    for (const char* known : kStateful) {
      if (wanted != known) continue;
      Function function = global(("weft.vm_" + wanted).c_str());
      return Function::FromPacked(
          [self, this, function](PackedArgs args, Any* ret) { *ret = call_with(function, {machine()}, args); });
    }
    if (wanted == "save_function") {  // name, saved name, whether results are returned, arguments
      return Function::FromPacked([self, this](PackedArgs args, Any*) { save(args); });
    }
    return machine()->GetFunction(name);
  }

 private:
  Module machine() const {
    if (!machine_.has_value()) raise_error("InvalidArgument", "the virtual machine has no devices yet: call vm_initialization first");
    return *machine_;
  }
  void initialize(PackedArgs args) {
    Array<int64_t> flat;
    for (int32_t i = 0; i < args.size(); ++i) flat.push_back(argument<int64_t>(args, i));
    machine_ = global("weft.vm_create")(executable_, flat).cast<Module>();
  }
  void save(PackedArgs args) const {
    std::vector<Any> all = {machine()};
    for (int32_t i = 0; i < args.size(); ++i) all.push_back(i == 2 ? Any(argument<int64_t>(args, 2) != 0) : Any(args[i]));
    std::vector<tvm::ffi::AnyView> views(all.begin(), all.end());
    Any result;
    global("weft.vm_save_function").CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  }
  // The number of a function's parameters, or the name of one.
  Any describe(const std::string& what, PackedArgs args) const {
    std::string name = text_argument(args, 0);
    auto rows = global("weft.executable_functions")(executable_).cast<Array<Any>>();
    for (const Any& row : rows) {
      auto fields = row.cast<Array<Any>>();
      if (std::string(fields[1].cast<String>()) != name) continue;
      if (what == "get_function_arity") return fields[4];
      auto params = fields[6].cast<Array<String>>();
      auto i = argument<int64_t>(args, 1);
      if (i < 0 || i >= static_cast<int64_t>(params.size())) raise_error("IndexError", "\"%s\" has %zu parameters", name.c_str(), params.size());
      return params[i];
    }
    raise_error("InvalidArgument", "the executable has no function \"%.256s\"", name.c_str());
  }

  Module executable_;
  tvm::ffi::Optional<Module> machine_;
};

}  // namespace

Any function_of(const Module& module, const std::string& name, bool query_imports) {
  std::string kind = module->kind();
  if (name == "vm_load_executable" && (kind == "weft.Executable" || kind == "relax.VMExecutable")) {
    return Function::FromPacked(
        [module](PackedArgs, Any* ret) { *ret = Module(tvm::ffi::make_object<ServedMachine>(module)); });
  }
  auto found = module->GetFunction(name, query_imports);
  return found.has_value() ? Any(*found) : Any();
}

// ---- timing ---------------------------------------------------------------------------------------------------------

// A function that times another where it lies; it returns a double of seconds for each repeat.
void Session::time_evaluator(PackedArgs args, Any* ret) {
  std::string name = text_argument(args, 1);
  Any found = args[0] == nullptr ? global_function(name) : function_of(module_argument(args, 0), name, true);
  check_count(std::min(args.size(), 10), 10);
  if (found == nullptr) raise_error("InvalidArgument", "there is no function \"%.256s\" to time", name.c_str());
  std::string named = args.size() > 11 ? text_argument(args, 11) : "";
  Any prepare = named.empty() ? Any() : global_function(named);
  if (!named.empty() && prepare == nullptr) raise_error("InvalidArgument", "there is no function \"%.256s\" to call before", named.c_str());
  auto flushed = args.size() > 10 ? argument<int64_t>(args, 10) : 0;
  std::vector<int64_t> settings;  // number, repeat, min_repeat_ms, zero limit, cool down, repeats to it, device
  for (int32_t i : {4, 5, 6, 7, 8, 9, 2, 3}) settings.push_back(argument<int64_t>(args, i));
  *ret = Function::FromPacked([this, found, settings, prepare, flushed](PackedArgs inner, Any* result) {
    auto held = counted(static_cast<uint64_t>(flushed));
    std::vector<char> junk(static_cast<size_t>(flushed));
    auto before = [&](PackedArgs first, Any*) {
      Any ignored;
      if (first[0].cast<bool>() && prepare != nullptr) prepare.cast<Function>().CallPacked(inner.data(), inner.size(), &ignored);
      for (char& c : junk) ++c;
    };
    std::vector<Any> fixed = {found};
    fixed.insert(fixed.end(), settings.begin(), settings.end());
    fixed.push_back(prepare != nullptr || flushed != 0 ? Any(Function::FromPacked(before)) : Any());
    std::vector<tvm::ffi::AnyView> all(fixed.begin(), fixed.end());
    for (int32_t i = 0; i < inner.size(); ++i) all.push_back(inner[i]);
    Any times;
    global("weft.time_function").CallPacked(all.data(), static_cast<int32_t>(all.size()), &times);
    std::string bytes;
    for (double seconds : times.cast<Array<double>>()) bytes.append(reinterpret_cast<const char*>(&seconds), sizeof seconds);
    *result = Bytes(bytes);
  });
}

// ---- lists: what a client makes them with, and takes their elements by ----------------------------------------------

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def_packed("ffi.Array", [](PackedArgs args, Any* ret) { *ret = Array<Any>(args.data(), args.data() + args.size()); })
      .def("ffi.ArrayGetItem", [](const Array<Any>& list, int64_t i) { return list[i]; })
      .def("ffi.ArraySize", [](const Array<Any>& list) { return static_cast<int64_t>(list.size()); });
}

}  // namespace weft::rpc
