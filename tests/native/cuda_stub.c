/* A stand-in for NVIDIA's driver library: two devices whose memory is host memory at addresses with the top bit set, so
 * that code which reads device memory without a copy crashes. The log of calls is read with stub_log. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;
#define TAG (1ull << 63)
#define HOST(a) ((void*)((a) & ~TAG))

static char calls[1 << 16];
static int current = -1;

static void note(const char* what) {
  if (strlen(calls) + strlen(what) + 2 < sizeof(calls)) strcat(strcat(calls, what), " ");
}
const char* stub_log(void) { return calls; }

int cuInit(unsigned flags) { return flags; }
int cuGetErrorString(int status, const char** out) {
  *out = status == 2     ? "out of memory"
         : status == 201 ? "invalid device context"
         : status == 209 ? "no kernel image is available for execution on the device"
         : status == 500 ? "named symbol not found"
                         : "invalid argument";
  return 0;
}
int cuDeviceGetCount(int* out) { return *out = 2, 0; }
int cuDeviceGet(int* out, int i) { return *out = i, 0; }
int cuDeviceGetName(char* out, int n, int device) { return snprintf(out, n, "Stand-in %d", device), 0; }
int cuDeviceGetAttribute(int* out, int what, int device) {
  switch (what) {
    case 1: *out = 1024; return 0;       /* threads per block */
    case 8: *out = 49152; return 0;      /* shared memory per block */
    case 10: *out = 32; return 0;        /* warp size */
    case 13: *out = 1500000; return 0;   /* clock in kHz */
    case 16: *out = 4 + device; return 0; /* multiprocessors */
    case 75: *out = 9; return 0;
    case 76: *out = 0; return 0;
    default: return 1;
  }
}
int cuDeviceTotalMem_v2(size_t* out, int device) { return *out = (size_t)(device + 1) << 30, 0; }
int cuDevicePrimaryCtxRetain(void** out, int device) {
  note("retain");
  return *out = (void*)(size_t)(device + 1), 0;
}
int cuCtxSetCurrent(void* context) { return current = (int)(size_t)context - 1, 0; }
int cuCtxSynchronize(void) { return note("sync"), current < 0 ? 201 : 0; }
int cuMemAlloc_v2(address* out, size_t n) {
  if (n > (size_t)1 << 30) return 2;
  void* p = malloc(n);
  note("alloc");
  return p == NULL ? 2 : (*out = (address)(size_t)p | TAG, 0);
}
int cuMemFree_v2(address a) {
  if (!(a & TAG)) return 1;
  note("free");
  return free(HOST(a)), 0;
}
int cuMemcpyHtoDAsync_v2(address to, const void* from, size_t n, void* stream) {
  note(stream ? "h2d@stream" : "h2d");
  return to & TAG ? (memcpy(HOST(to), from, n), 0) : 1;
}
int cuMemcpyDtoHAsync_v2(void* to, address from, size_t n, void* stream) {
  note(stream ? "d2h@stream" : "d2h");
  return from & TAG ? (memcpy(to, HOST(from), n), 0) : 1;
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t n, void* stream) {
  note(stream ? "d2d@stream" : "d2d");
  return to & from & TAG ? (memmove(HOST(to), HOST(from), n), 0) : 1;
}
int cuMemcpyPeerAsync(address to, void* a, address from, void* b, size_t n, void* stream) {
  (void)stream;
  note("peer");
  return a != b && (to & from & TAG) ? (memmove(HOST(to), HOST(from), n), 0) : 1;
}
int cuStreamCreate(void** out, unsigned flags) {
  (void)flags;
  note("stream");
  return (*out = malloc(1)) == NULL ? 2 : 0;
}
int cuStreamDestroy_v2(void* stream) { return note("unstream"), free(stream), 0; }
int cuStreamSynchronize(void* stream) {
  (void)stream;
  note("wait");
  return 0;
}

/* Events: numbers of a clock that each record advances by a millisecond. */
static float now = 0;
int cuEventCreate(void** out, unsigned flags) {
  note(flags == 2 ? "event" : "timing-event");
  return (*out = calloc(1, sizeof(float))) ? 0 : 2;
}
int cuEventRecord(void* event, void* stream) {
  note(stream ? "record@stream" : "record");
  return *(float*)event = now += 1, 0;
}
int cuEventSynchronize(void* event) { return event ? 0 : 1; }
int cuEventElapsedTime(float* out, void* a, void* b) { return *out = *(float*)b - *(float*)a, 0; }
int cuEventDestroy_v2(void* event) { return note("unevent"), free(event), 0; }
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  (void)stream;
  return note("await"), event && !flags ? 0 : 1;
}

/* Modules: the image "STUB<path>" stands for a host library where kernel k is stub_k(grid, block, shared, arguments). */
#include <dlfcn.h>
typedef int (*kernel)(const unsigned* grid, const unsigned* block, unsigned shared, void** args);
int cuModuleLoadData(void** out, const void* image) {
  note("load");
  if (strncmp(image, "STUB", 4) != 0) return 209;
  return (*out = dlopen((const char*)image + 4, RTLD_NOW | RTLD_LOCAL)) ? 0 : 200;
}
int cuModuleUnload(void* module) { return note("unload"), dlclose(module); }
int cuModuleGetFunction(void** out, void* module, const char* name) {
  char symbol[256];
  snprintf(symbol, sizeof(symbol), "stub_%s", name);
  return (*out = dlsym(module, symbol)) ? 0 : 500;
}
int cuFuncSetAttribute(void* function, int what, int value) {
  note("shared");
  return function && what == 8 && value <= 232448 ? 0 : 1;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** args, void** extra) {
  unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  char text[128];
  snprintf(text, sizeof(text), "launch%s:%u,%u,%u:%u,%u,%u:%u:%d", stream ? "@stream" : "", gx, gy, gz, bx, by, bz,
           shared, current);
  note(text);
  if (extra || bx * by * bz > 1024 || bx * by * bz == 0 || gx * gy * gz == 0) return 1;
  return ((kernel)function)(grid, block, shared, args);
}
