// What dlopen and its kin are in programs that are linked statically (static.cmake): each call is refused with a reason.
#include <dlfcn.h>

extern "C" {

void* dlopen(const char*, int) noexcept { return nullptr; }
void* dlsym(void*, const char*) noexcept { return nullptr; }
int dlclose(void*) noexcept { return -1; }
char* dlerror() noexcept {
  static char reason[] = "this program is linked statically and opens no libraries; link the model into it as an object "
                         "(weft compile --system-lib) and find it with weft::Model::linked";
  return reason;
}

}  // extern "C"
