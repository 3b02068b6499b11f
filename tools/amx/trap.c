/* Runs AMX instructions on machines without them: each raises SIGILL, is decoded, carried out on memory, and skipped.
 *
 * Everything else of a kernel runs on the processor itself, on as many threads as it likes, so whole compiled models
 * are checked. Semantics follow the instruction set reference: 8 tiles of 16 rows of 64 bytes, palette 1; products of
 * bfloat16 add up in float32, even and odd terms apart, rounded to nearest, denormals taken and given as zeros,
 * without regard to MXCSR. Whatever the processor would refuse ends the process with a line that says why.
 *
 *     cc -O2 -mavx2 -mfma -ffp-contract=off -shared -fPIC -o trap.so trap.c      # then dlopen and amx_trap_install()
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { kTiles = 8, kRows = 16, kRowBytes = 64 };

typedef struct {
  int configured;
  uint8_t config[64];
  uint8_t tile[kTiles][kRows][kRowBytes];
} State;

typedef struct {
  int reg, rm, vvvv, prefix, opcode, length;
  int is_memory, has_sib;
  uint64_t address, stride;
} Instruction;

static __thread State* state __attribute__((tls_model("initial-exec")));
static long counts[4]; /* configurations, loads, stores, products */

static void refuse(const char* why) {
  char line[200];
  int n = snprintf(line, sizeof line, "amx trap: the processor would refuse: %s\n", why);
  if (write(2, line, n) < 0) _exit(127);
  signal(SIGABRT, SIG_DFL);
  abort();
}

static int rows_of(int t) { return state->config[48 + t]; }
static int bytes_of(int t) { return state->config[16 + 2 * t] | state->config[17 + 2 * t] << 8; }

static void check_tile(int t) {
  if (t >= kTiles) refuse("a tile past tmm7");
  if (!state->configured) refuse("a tile before LDTILECFG");
  if (!rows_of(t) || !bytes_of(t)) refuse("a tile that is not configured");
}

static void load_config(const uint8_t* from) {
  if (from[0] > 1) refuse("LDTILECFG: unknown palette");
  for (int i = 1; i < 16; ++i)
    if (from[i]) refuse("LDTILECFG: reserved byte or start row set");
  for (int t = 0; t < 16; ++t) {
    int bytes = from[16 + 2 * t] | from[17 + 2 * t] << 8, rows = from[48 + t];
    if (t >= kTiles && (bytes || rows)) refuse("LDTILECFG: more tiles than there are");
    if (bytes > kRowBytes || rows > kRows) refuse("LDTILECFG: tile too large");
    if (!bytes != !rows) refuse("LDTILECFG: rows without bytes or bytes without rows");
  }
  memset(state->tile, 0, sizeof state->tile);
  state->configured = from[0] == 1;
  memset(state->config, 0, 64);
  if (state->configured) memcpy(state->config, from, 64);
}

static float bf16(const uint8_t* at) {
  uint32_t bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static void dot_bf16(int d, int a, int b) {
  unsigned saved = _mm_getcsr();
  _mm_setcsr(0x9fc0); /* all masked, round to nearest, flush to zero, denormals are zeros */
  int terms = bytes_of(a) / 4, columns = bytes_of(d) / 4;
  for (int m = 0; m < rows_of(d); ++m) {
    float even[16] = {0}, odd[16] = {0};
    for (int k = 0; k < terms; ++k) {
      float x = bf16(&state->tile[a][m][4 * k]), y = bf16(&state->tile[a][m][4 * k + 2]);
      for (int n = 0; n < columns; ++n) {
        even[n] = fmaf(x, bf16(&state->tile[b][k][4 * n]), even[n]);
        odd[n] = fmaf(y, bf16(&state->tile[b][k][4 * n + 2]), odd[n]);
      }
    }
    for (int n = 0; n < columns; ++n) {
      volatile float pair = even[n] + odd[n];
      float old;
      memcpy(&old, &state->tile[d][m][4 * n], 4);
      volatile float sum = old + pair;
      float value = sum;
      memcpy(&state->tile[d][m][4 * n], &value, 4);
    }
  }
  _mm_setcsr(saved);
}

static int32_t byte_of(const uint8_t* at, int is_signed) { return is_signed ? (int8_t)*at : *at; }

static void dot_int8(int d, int a, int b, int a_signed, int b_signed) {
  for (int m = 0; m < rows_of(d); ++m)
    for (int k = 0; k < bytes_of(a) / 4; ++k)
      for (int n = 0; n < bytes_of(d) / 4; ++n) {
        uint32_t sum;
        memcpy(&sum, &state->tile[d][m][4 * n], 4);
        for (int i = 0; i < 4; ++i)
          sum += (uint32_t)(byte_of(&state->tile[a][m][4 * k + i], a_signed) *
                            byte_of(&state->tile[b][k][4 * n + i], b_signed));
        memcpy(&state->tile[d][m][4 * n], &sum, 4);
      }
}

static void product(const Instruction* i) {
  int d = i->reg, a = i->rm, b = i->vvvv;
  check_tile(d), check_tile(a), check_tile(b);
  if (d == a || d == b || a == b) refuse("a product of one tile with itself");
  if (rows_of(d) != rows_of(a) || bytes_of(d) != bytes_of(b) || bytes_of(a) / 4 != rows_of(b) || bytes_of(a) % 4 ||
      bytes_of(d) % 4)
    refuse("a product of tiles whose shapes do not fit");
  if (i->opcode == 0x5c && i->prefix == 2) {
    dot_bf16(d, a, b);
  } else if (i->opcode == 0x5e) { /* none: unsigned both, 66: u8 x s8, F3: s8 x u8, F2: signed both */
    dot_int8(d, a, b, i->prefix >= 2, i->prefix & 1);
  } else {
    refuse("a product this program does not know");
  }
  for (int m = rows_of(d); m < kRows; ++m) memset(state->tile[d][m], 0, kRowBytes);
  __atomic_fetch_add(&counts[3], 1, __ATOMIC_RELAXED);
}

static void move(const Instruction* i) {
  int t = i->reg, n = bytes_of(t);
  check_tile(t);
  for (int r = 0; r < rows_of(t); ++r) {
    uint8_t* at = (uint8_t*)(i->address + i->stride * (uint64_t)r);
    if (i->prefix == 2) {
      memcpy(at, state->tile[t][r], n);
    } else {
      memcpy(state->tile[t][r], at, n);
      memset(state->tile[t][r] + n, 0, kRowBytes - n);
    }
  }
  if (i->prefix != 2)
    for (int r = rows_of(t); r < kRows; ++r) memset(state->tile[t][r], 0, kRowBytes);
  __atomic_fetch_add(&counts[i->prefix == 2 ? 2 : 1], 1, __ATOMIC_RELAXED);
}

static const int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

/* Decodes VEX.128.0F38.W0; returns 0 for anything else. */
static int decode(const uint8_t* p, const greg_t* g, Instruction* i) {
  if (p[0] != 0xc4 || (p[1] & 0x1f) != 2 || (p[2] & 0x84)) return 0;
  int r = !(p[1] & 0x80), x = !(p[1] & 0x40), b = !(p[1] & 0x20);
  const uint8_t* q = p + 4;
  int modrm = *q++, mod = modrm >> 6, rm = modrm & 7;
  memset(i, 0, sizeof *i);
  i->vvvv = ~(p[2] >> 3) & 15;
  i->prefix = p[2] & 3;
  i->opcode = p[3];
  i->reg = (modrm >> 3 & 7) | r << 3;
  i->rm = rm | b << 3;
  i->is_memory = mod != 3;
  if (i->is_memory) {
    int64_t displacement = 0;
    int no_base = 0;
    if (rm == 4) {
      int sib = *q++, index = (sib >> 3 & 7) | x << 3, base = sib & 7;
      i->has_sib = 1;
      if (index != 4) i->stride = (uint64_t)g[kRegisters[index]] << (sib >> 6);
      no_base = base == 5 && mod == 0;
      if (!no_base) i->address = g[kRegisters[base | b << 3]];
    } else if (rm == 5 && mod == 0) {
      no_base = 2;
    } else {
      i->address = g[kRegisters[i->rm]];
    }
    if (mod == 1) {
      displacement = (int8_t)*q++;
    } else if (mod == 2 || no_base) {
      int32_t wide;
      memcpy(&wide, q, 4);
      displacement = wide;
      q += 4;
    }
    if (no_base == 2) i->address = (uint64_t)q; /* relative to the next instruction */
    i->address += displacement;
  }
  i->length = (int)(q - p);
  return 1;
}

static int carry_out(const Instruction* i) {
  if (i->opcode == 0x49 && i->prefix == 0 && i->is_memory && i->reg == 0) {
    load_config((const uint8_t*)i->address);
    __atomic_fetch_add(&counts[0], 1, __ATOMIC_RELAXED);
  } else if (i->opcode == 0x49 && i->prefix == 1 && i->is_memory && i->reg == 0) {
    memcpy((void*)i->address, state->config, 64);
  } else if (i->opcode == 0x49 && i->prefix == 0 && !i->is_memory && i->reg == 0 && i->rm == 0) {
    memset(state, 0, sizeof *state); /* TILERELEASE */
  } else if (i->opcode == 0x49 && i->prefix == 3 && !i->is_memory && i->rm == 0) {
    check_tile(i->reg);
    memset(state->tile[i->reg], 0, sizeof state->tile[0]);
  } else if (i->opcode == 0x4b && i->prefix != 0 && i->has_sib) {
    move(i);
  } else if ((i->opcode == 0x5c || i->opcode == 0x5e) && !i->is_memory) {
    product(i);
  } else {
    return 0;
  }
  return 1;
}

static void on_illegal(int number, siginfo_t* info, void* context) {
  (void)info;
  ucontext_t* c = context;
  Instruction i;
  if (!state) {
    state = mmap(0, sizeof(State), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) refuse("out of memory");
  }
  if (!decode((const uint8_t*)c->uc_mcontext.gregs[REG_RIP], c->uc_mcontext.gregs, &i) || !carry_out(&i)) {
    signal(number, SIG_DFL); /* not ours: the instruction runs again and ends the process as it should */
    return;
  }
  c->uc_mcontext.gregs[REG_RIP] += i.length;
}

int amx_trap_install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_illegal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  return sigaction(SIGILL, &action, 0);
}

/* What this thread's state is after the last kernel: 0 where tiles were released, as they must be. */
int amx_trap_is_configured(void) { return state && state->configured; }

/* How often configurations, loads, stores and products were carried out, in all threads. */
long amx_trap_count(int what) { return counts[what]; }
