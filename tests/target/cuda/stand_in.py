"""A GPU for tests: kernels in CUDA C run on the host, launched through the stand-in for the driver.

A program runs in its own process, because a process opens one driver.
"""

import ctypes
import hashlib
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import clock

_FLAGS = ("-O0", "-w", "-pthread", "-fPIC")
_ROOT = Path(__file__).parents[3]
BEFORE = """
#include <cmath>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
struct dim { unsigned x, y, z; };
static thread_local dim blockIdx, threadIdx;
static pthread_barrier_t barrier;
static void __syncthreads() { pthread_barrier_wait(&barrier); }
static float __int_as_float(int b) { float f; std::memcpy(&f, &b, 4); return f; }
static int __float_as_int(float f) { int b; std::memcpy(&b, &f, 4); return b; }
static float rsqrtf(float v) { return 1 / std::sqrt(v); }
static double rsqrt(double v) { return 1 / std::sqrt(v); }
static int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static int __clzll(unsigned long long v) { return v ? __builtin_clzll(v) : 64; }
alignas(16) static unsigned char weft_shared[232448];
static float half_to_float(unsigned short h) {
  unsigned e = h >> 10 & 31, m = h & 1023;
  float v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(float(m | 1024), int(e) - 25) : std::ldexp(float(m), -24);
  return h >> 15 ? -v : v;
}
static unsigned short float_to_half(float f) {
  unsigned short s = std::signbit(f) ? 0x8000 : 0;
  float v = std::fabs(f);
  if (v != v) return 0x7fff;
  if (v >= 65520) return s | 0x7c00;
  if (v < 0x1p-14f) return s | (unsigned short)std::nearbyint(v * 0x1p24f);
  int e;
  float m = std::nearbyint(std::frexp(v, &e) * 2048);  // 1024 to 2048
  return s | (unsigned short)(((e + 14) << 10) + (int)m - 1024);
}
"""
# What only a device understands, and its meaning on the host.
_DEVICE_ONLY = {
    "  extern __shared__ __align__(16) unsigned char weft_shared[];": "",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));': "bits = float_to_half(v);",
    'asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));': "v = half_to_float(bits);",
}
_AFTER = """
template <class P> struct argument { static P of(void* p) { return *(P*)p; } };
template <class P> struct argument<P*> {  // the stand-in tags addresses of the device
  static P* of(void* p) { return (P*)(*(size_t*)p & ~(size_t(1) << 63)); }
};
template <class... P, size_t... I>
static void call(void (*kernel)(P...), void** args, std::index_sequence<I...>) {
  kernel(argument<P>::of(args[I])...);
}
template <class... P>
static int run(void (*kernel)(P...), const unsigned* g, const unsigned* b, void** args, bool together) {
  auto one = [=](dim block, dim thread) {
    blockIdx = block, threadIdx = thread;
    call(kernel, args, std::index_sequence_for<P...>{});
  };
  pthread_barrier_init(&barrier, nullptr, b[0] * b[1] * b[2]);
  for (unsigned i = 0; i < g[0] * g[1] * g[2]; ++i) {
    dim block{i % g[0], i / g[0] % g[1], i / g[0] / g[1]};
    std::vector<std::thread> team;
    for (unsigned j = 0; j < b[0] * b[1] * b[2]; ++j) {
      dim thread{j % b[0], j / b[0] % b[1], j / b[0] / b[1]};
      if (together) team.emplace_back(one, block, thread);
      else one(block, thread);
    }
    for (auto& t : team) t.join();
  }
  return 0;
}
"""
_HEAD = """
import ctypes, os, re
import numpy as np
import pytest
import weft
from weft import runtime as rt, te, tir
from weft.script import tir as T
from tests.target.cuda.stand_in import host_compile, log
weft.register_global_func("tvm_callback_cuda_compile", lambda text, target: host_compile(text), override=True)
dev = rt.cuda(0)
def put(*arrays):
    return [rt.tensor(np.asarray(a), device=dev) for a in arrays]
"""


def compiler(names: Sequence[str]) -> str:
    """The first of some compilers that the machine has; without one the test is skipped."""
    found = next((c for c in names if shutil.which(c)), None)
    if found is None:
        pytest.skip("no C compiler")
    return found


def build_stub(folder: Path) -> Path:
    """Compile the stand-in for the driver."""
    out = folder / "libcuda_stub.so"
    source = _ROOT / "tests" / "native" / "cuda_stub.c"
    subprocess.run([compiler(("gcc", "cc", "clang")), "-shared", "-fPIC", "-o", str(out), str(source)], check=True)
    header = folder / "stand_in.h"  # what every kernel includes is compiled once
    header.write_text(BEFORE + _AFTER)
    subprocess.run([compiler(("g++", "clang++")), *_FLAGS, "-x", "c++-header", str(header)], check=True)
    return out


def for_host(source: str) -> str:
    """CUDA C as C++ of the host: one thread at a time has its indices, or many wait at one barrier."""
    for device, host in _DEVICE_ONLY.items():
        source = source.replace(device, host)
    return BEFORE + source


def host_compile(source: str) -> bytes:
    """Compile CUDA C for the host, each text once; return an image that the stand-in loads."""
    header = Path(os.environ["WEFT_CUDA_DRIVER"]).parent
    folder = header / hashlib.sha256(source.encode()).hexdigest()
    library = folder / "kernels.so"
    image = b"STUB" + str(library).encode() + b"\0"
    if library.exists():
        return image
    folder.mkdir(exist_ok=True)
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(', source)
    together = "true" if "__syncthreads" in source else "false"
    entries = [
        f'extern "C" int stub_{n}(const unsigned* g, const unsigned* b, unsigned, void** a) '
        f"{{ return run({n}, g, b, a, {together}); }}"
        for n in names
    ]
    for device, host in _DEVICE_ONLY.items():
        source = source.replace(device, host)
    (folder / "kernels.cc").write_text("\n".join(['#include "stand_in.h"', source, *entries]))
    command = [compiler(("g++", "clang++")), *_FLAGS, f"-I{header}", "-shared", "-o", str(library)]
    subprocess.run([*command, str(folder / "kernels.cc")], check=True)
    return image


def log() -> list[str]:
    """What the driver was asked for so far."""
    stub = ctypes.CDLL(os.environ["WEFT_CUDA_DRIVER"])
    stub.stub_log.restype = ctypes.c_char_p
    return stub.stub_log().decode().split()


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", "weft", "tests.target.programs", "tests.target.cuda.stand_in"])


def _execute(file: Path, settings: dict[str, str], said: Path) -> None:
    os.environ.update(settings)
    with said.open("w") as out:
        for stream in (1, 2):
            os.dup2(out.fileno(), stream)
        runpy.run_path(str(file), run_name="__main__")


def run(program: str, driver: Path, folder: Path) -> None:
    """Run a program against a driver, in a process of its own that has Weft imported and no driver open."""
    settings = {**os.environ, "WEFT_CUDA_DRIVER": str(driver)}
    file, said = folder / "program.py", folder / "said"  # a file: functions of TVMScript are read from their source
    file.write_text(_HEAD + program)
    process = _FORKS.Process(target=_execute, args=(file, settings, said))
    process.start()
    clock.ended(process)
    assert process.exitcode == 0, said.read_text()
