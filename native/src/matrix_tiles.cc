// Permission to use the processor's matrix tiles (AMX): Linux gives their 8 KiB of state to processes that ask.
#include <cstdlib>
#include <cstring>

#include "register.h"
#include "weft/runtime.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft {

static bool request_tiles() {
  if (const char* asked = std::getenv("WEFT_MATRIX_TILES")) {
    if (std::strcmp(asked, "off") == 0) return false;
    if (std::strcmp(asked, "emulated") == 0) return true;  // another program carries the instructions out
  }
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  // Fails where the processor has no tiles, on Linux before 5.16, where a filter of system calls forbids it, and where
  // a thread's alternate signal stack is too small for the state.
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace weft

extern "C" WEFT_API int32_t weft_request_tiles(void) {
  static const bool granted = weft::request_tiles();
  return granted ? 0 : -1;
}

namespace weft {

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals().def("weft.matrix_tiles_granted", [] { return weft_request_tiles() == 0; });
}

}  // namespace weft
