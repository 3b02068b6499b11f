// Modules of code: functions that a compiler placed in this process, and shared libraries.
#if !defined(__wasm__)  // there, JavaScript opens files (native/wasm)
#include <dlfcn.h>
#include <sys/stat.h>
#endif
#include <tvm/ffi/cast.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "error.h"
#include "module.h"
#include "register.h"
#include "tvm_backend.h"
#include "vm.h"
#include "weft/runtime.h"

namespace weft {

using tvm::ffi::GetRef;

// The kernel itself as a Function: no wrapper in between, since kernels ignore their first argument; that argument is
// what keeps the module alive.
static Function kernel_function(ModuleObj* module, TVMFFISafeCallType address) {
  auto* self = new Module(GetRef<Module>(module));
  return make_function(self, address, [](void* p) { delete static_cast<Module*>(p); });
}

static int foreign_code(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) {
  return fail("CodegenError", "this code is for another machine: export the library (export_library) and run it there, "
              "or compile for the target \"llvm\"");
}

// Kernels that a compiler placed in this process; an address of 0 stands for code that cannot be. Keeps their engine alive and their object files for export.
class JitModuleObj final : public CodeModule {
 public:
  // `context`: where the code keeps its module, whose imports it calls; 0 where it does not.
  JitModuleObj(Array<String> names, Array<int64_t> addresses, Array<Bytes> objects, Any keep_alive, int64_t context)
      : names_(std::move(names)), objects_(std::move(objects)), keep_alive_(std::move(keep_alive)) {
    if (names_.size() != addresses.size()) raise("ValueError", "jit_module: as many names as addresses are needed");
    for (size_t i = 0; i < names_.size(); ++i) {
      auto address = static_cast<uintptr_t>(addresses[static_cast<int64_t>(i)]);
      table_[names_[static_cast<int64_t>(i)]] = address == 0 ? foreign_code : reinterpret_cast<TVMFFISafeCallType>(address);
    }
    if (context != 0) *reinterpret_cast<void**>(context) = static_cast<ModuleObj*>(this);
  }
  const char* kind() const final { return "weft.jit"; }
  int GetPropertyMask() const final { return Module::kRunnable; }
  TVMFFISafeCallType address(const std::string& name) final {
    auto it = table_.find(name);
    return it == table_.end() ? nullptr : it->second;
  }
  Optional<Function> GetFunction(const String& name) final {
    TVMFFISafeCallType found = address(name);
    if (found == nullptr) return std::nullopt;
    return kernel_function(this, found);
  }
  bool ImplementsFunction(const String& name) final { return address(name) != nullptr; }
  const Array<String>& names() const { return names_; }
  const Array<Bytes>& objects() const { return objects_; }

 private:
  std::map<std::string, TVMFFISafeCallType> table_;
  Array<String> names_;
  Array<Bytes> objects_;
  Any keep_alive_;
};

#if !defined(__wasm__)
// A name for dlopen, which returns the library that it opened before under a name although the file there may be
// another by now: each file that was met under a path has a spelling of its own.
static std::string spelling_of(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return path;
  using Identity = std::pair<dev_t, ino_t>;
  static std::mutex mutex;
  static auto* met = new std::map<std::string, std::vector<Identity>>();
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<Identity>& files = (*met)[path];
  Identity identity{info.st_dev, info.st_ino};
  size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? "./" + path : path;
  slash = slash == std::string::npos ? 1 : slash;
  for (Identity& file : files) {
    if (file == identity) return name;
    void* open = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (open == nullptr) {  // nobody uses the file that had this spelling
      file = identity;
      return name;
    }
    dlclose(open);
    name.insert(slash, "/.");
  }
  files.push_back(identity);
  return name;
}

// A shared library with functions `__tvm_ffi_<name>`.
class LibraryModuleObj final : public CodeModule {
 public:
  explicit LibraryModuleObj(const std::string& path) : path_(path) {
    handle_ = dlopen(spelling_of(path).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle_ == nullptr) raise("ExecutableError", "cannot open the library \"" + path + "\": " + dlerror());
    if (symbol("__weft_needs_tiles") != nullptr && weft_request_tiles() != 0) {
      dlclose(handle_);
      raise("ExecutableError", "the library \"" + path + "\" is compiled for a processor with matrix tiles (amx-tile), "
            "which this process may not use: the processor has none, or the operating system refuses them (Linux grants "
            "them from 5.16 on). Compile it for the target of this machine, or with \"-matrix-tiles=off\"");
    }
    context_ = reinterpret_cast<void**>(symbol("__tvm_ffi__library_ctx"));
    if (context_ != nullptr) {
      std::lock_guard<std::mutex> lock(opened_mutex());
      opened().push_back(this);
      *context_ = static_cast<ModuleObj*>(this);
    }
    Module::VisitContextSymbols([this](String name, void* value) {
      if (auto** slot = reinterpret_cast<void**>(symbol(std::string(name)))) *slot = value;
    });
    for (const BackendSymbol* s = kBackendSymbols; s->name != nullptr; ++s) {
      if (auto** slot = reinterpret_cast<void**>(symbol(s->name))) *slot = s->value;
    }
  }
  ~LibraryModuleObj() {
    if (context_ != nullptr) {  // a library opened twice is there once: it keeps the other module
      std::lock_guard<std::mutex> lock(opened_mutex());
      auto& all = opened();
      all.erase(std::find(all.begin(), all.end(), this));
      void* other = nullptr;
      for (LibraryModuleObj* m : all) {
        if (m->context_ == context_) other = static_cast<ModuleObj*>(m);
      }
      *context_ = other;
    }
    dlclose(handle_);
  }
  const char* kind() const final { return "library"; }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }
  void* symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }
  TVMFFISafeCallType address(const std::string& name) final {
    return reinterpret_cast<TVMFFISafeCallType>(symbol("__tvm_ffi_" + name));
  }
  Optional<Function> GetFunction(const String& name) final {
    TVMFFISafeCallType found = address(std::string(name));
    if (found == nullptr) return std::nullopt;
    return kernel_function(this, found);
  }
  bool ImplementsFunction(const String& name) final { return address(std::string(name)) != nullptr; }
  const std::string& path() const { return path_; }

 private:
  static std::mutex& opened_mutex() {
    static auto* mutex = new std::mutex();  // never destroyed: modules may outlive static destruction
    return *mutex;
  }
  static std::vector<LibraryModuleObj*>& opened() {
    static auto* all = new std::vector<LibraryModuleObj*>();
    return *all;
  }
  std::string path_;
  void* handle_;
  void** context_ = nullptr;
};

static Module load_library(const String& path) {
  auto library = tvm::ffi::make_object<LibraryModuleObj>(std::string(path));
  auto* blob = static_cast<const char*>(library->symbol("__tvm_ffi__library_bin"));
  Module code{library};
  if (blob == nullptr) return code;
  // Weights are used where the library is mapped, and each keeps it open.
  Any keep = code;
  return load_tree(blob, code, raw(&keep)->v_obj);
}

// CRC-32 (ISO 3309) of the next `n` bytes of a file.
static uint32_t checksum(std::FILE* file, int64_t n) {
  uint32_t table[256];
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int k = 0; k < 8; ++k) table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0xEDB88320u : 0);
  }
  uint32_t crc = ~0u;
  std::string piece(1 << 16, 0);
  for (size_t got; n > 0; n -= got) {
    got = std::fread(&piece[0], 1, std::min<int64_t>(n, piece.size()), file);
    if (got == 0) return 0;
    for (size_t i = 0; i < got; ++i) crc = table[(crc ^ piece[i]) & 255] ^ (crc >> 8);
  }
  return ~crc;
}

// Refuses a library whose bytes are not those that were sealed (weft/runtime/seal.py), before its code is mapped.
static void check_seal(const char* path) {
  constexpr char kMagic[16] = "WEFTSEAL\1";
  constexpr size_t kFooter = 96, kSum = 32, kEnd = 80;
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) return;  // the system's loader says why, or looks in other places
  std::string footer(kFooter, 0);
  bool read = std::fseek(file, -static_cast<long>(kFooter), SEEK_END) == 0;
  int64_t size = std::ftell(file);
  read = read && std::fread(&footer[0], 1, kFooter, file) == kFooter;
  bool sealed = read && footer.find("WEFTSEAL") != std::string::npos, right = false;
  uint32_t head[16]{};  // of an ELF file, whose entry point says that it was sealed
  std::rewind(file);
  if (std::fread(head, 1, sizeof head, file) == sizeof head && std::memcmp(head, "\x7f" "ELF", 4) == 0) {
    sealed |= head[6] == head[(head[1] & 255) == 1 ? 8 : 10] + 0x5EA1;
  }
  if (sealed && std::memcmp(&footer[0], kMagic, 16) == 0 && std::memcmp(&footer[kEnd], kMagic, 16) == 0) {
    uint64_t sum;
    std::memcpy(&sum, &footer[kSum], sizeof sum);
    std::rewind(file);
    right = sum == 0 || static_cast<uint32_t>(sum) == checksum(file, size);  // 0: sealed before there were sums
  }
  std::fclose(file);
  if (sealed && !right) raise("ExecutableError", std::string("this library is damaged: ") + path);
}
#endif

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def("weft.jit_module",
           [](Array<String> names, Array<int64_t> addresses, Array<Bytes> objects, Any keep_alive, int64_t context) {
             return Module(tvm::ffi::make_object<JitModuleObj>(std::move(names), std::move(addresses), std::move(objects),
                                                               std::move(keep_alive), context));
           })
      .def("weft.jit_objects", [](const Module& m) { return as<JitModuleObj>(m, "a JIT module")->objects(); })
      .def("weft.jit_names", [](const Module& m) { return as<JitModuleObj>(m, "a JIT module")->names(); })
#if !defined(__wasm__)
      .def("weft.library_path", [](const Module& m) { return String(as<LibraryModuleObj>(m, "a library")->path()); })
      .def("weft.load_library", load_library)
#endif
      ;
}

}  // namespace weft

#if !defined(__wasm__)
extern "C" int32_t weft_load_module(const char* path, TVMFFIObjectHandle* out) {
  TVM_FFI_SAFE_CALL_BEGIN();
  weft::check_seal(path);
  weft::Any module = weft::load_library(weft::String(path));
  *out = weft::raw(&module)->v_obj;
  *weft::raw(&module) = TVMFFIAny{};
  TVM_FFI_SAFE_CALL_END();
}

#endif
