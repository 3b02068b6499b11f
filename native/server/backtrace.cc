// What a stripped static program has nothing to say to: where an error was made (tvm-ffi asks), and what a type is called.
#include <tvm/ffi/c_api.h>

#include <cstddef>

extern "C" {

const TVMFFIByteArray* TVMFFIBacktrace(const char*, int, const char*, int) {
  static const TVMFFIByteArray empty{"", 0};
  return &empty;
}

#ifndef __SANITIZE_ADDRESS__  // whose reports have names
// An exception that nobody catches ends its session; the C++ library would spell out its type, with a parser of names
// that is a twentieth of the program.
char* __cxa_demangle(const char*, char*, size_t*, int* status) {
  if (status != nullptr) *status = -2;  // not a name that can be read: it is shown as it is
  return nullptr;
}
#endif

}  // extern "C"
