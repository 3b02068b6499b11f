// dlopen and its kin for a program without a dynamic linker; the runtime's modules call them as everywhere else.
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "elf_library.h"

namespace {

struct Opened {
  std::unique_ptr<weft::ElfLibrary> library;
  int count;
};

std::mutex& lock_of_libraries() {
  static auto* mutex = new std::mutex();  // never destroyed: modules may outlive static destruction
  return *mutex;
}

std::map<std::string, Opened>& libraries() {
  static auto* all = new std::map<std::string, Opened>();
  return *all;
}

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

}  // namespace

extern "C" {

void* dlopen(const char* name, int mode) {
  if (name == nullptr) {
    last_error() = "this program has no dynamic linker";
    return nullptr;
  }
  std::lock_guard<std::mutex> guard(lock_of_libraries());
  auto found = libraries().find(name);
  if (found == libraries().end()) {
    if (mode & RTLD_NOLOAD) return nullptr;
    try {
      auto library = std::make_unique<weft::ElfLibrary>(name);
      found = libraries().emplace(name, Opened{std::move(library), 0}).first;
    } catch (const std::exception& e) {
      last_error() = e.what();
      return nullptr;
    }
  }
  ++found->second.count;
  return found->second.library.get();
}

void* dlsym(void* library, const char* name) { return static_cast<weft::ElfLibrary*>(library)->symbol(name); }

int dlclose(void* library) {
  std::lock_guard<std::mutex> guard(lock_of_libraries());
  for (auto it = libraries().begin(); it != libraries().end(); ++it) {
    if (it->second.library.get() != library) continue;
    if (--it->second.count == 0) libraries().erase(it);
    return 0;
  }
  return -1;
}

char* dlerror() { return &last_error()[0]; }

}  // extern "C"
