"""A GPU for tests: kernels in CUDA C run on the host, launched through the stand-in for the driver.

A program runs in its own process, because a process opens one driver.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_BEFORE = """
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
#define __launch_bounds__(n)
struct dim { unsigned x, y, z; };
static thread_local dim blockIdx, threadIdx;
static pthread_barrier_t barrier;
static void __syncthreads() { pthread_barrier_wait(&barrier); }
static float __int_as_float(int b) { float f; std::memcpy(&f, &b, 4); return f; }
"""
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
    return out


def host_compile(source: str) -> bytes:
    """Compile CUDA C for the host; return an image that the stand-in loads."""
    folder = Path(tempfile.mkdtemp(dir=os.environ["WEFT_STAND_IN"]))
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(', source)
    together = "true" if "__syncthreads" in source else "false"
    entries = [
        f'extern "C" int stub_{n}(const unsigned* g, const unsigned* b, unsigned, void** a) '
        f"{{ return run({n}, g, b, a, {together}); }}"
        for n in names
    ]
    (folder / "kernels.cc").write_text("\n".join([_BEFORE, source, _AFTER, *entries]))
    library = folder / "kernels.so"
    command = [compiler(("g++", "clang++")), "-O1", "-w", "-pthread", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(folder / "kernels.cc")], check=True)
    return b"STUB" + str(library).encode() + b"\0"


def log() -> list[str]:
    """What the driver was asked for so far."""
    stub = ctypes.CDLL(os.environ["WEFT_CUDA_DRIVER"])
    stub.stub_log.restype = ctypes.c_char_p
    return stub.stub_log().decode().split()


def run(program: str, driver: Path, folder: Path) -> None:
    """Run a program against a driver."""
    env = {**os.environ, "WEFT_CUDA_DRIVER": str(driver), "WEFT_STAND_IN": str(folder)}
    command = [sys.executable, "-c", _HEAD + program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, cwd=_ROOT)
    assert done.returncode == 0, done.stderr
