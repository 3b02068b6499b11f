"""CUDA C of kernels: NVRTC takes it, and run over all blocks and threads in turn it gives NumPy's values."""

import ctypes
import itertools
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.target.cuda.stand_in import for_host
from tests.target.programs import bound, staged
from tests.threads import at_once
from weft import error, te, tir
from weft.target.cuda import Kernel, compile_cuda, emit_kernel

_AT = """
extern "C" void begin(int n) { pthread_barrier_init(&barrier, nullptr, n); }
extern "C" void at(unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f) {
  blockIdx = {a, b, c}; threadIdx = {d, e, f};
}
"""


def _kernel(schedule: Any, args: list[Any]) -> Kernel:
    ((_, func),) = weft.lower(schedule, args, name="f").items()
    return emit_kernel(func)


def _run(kernel: Kernel, folder: Path, values: dict[str, Any], grid: tuple[int, int], block: tuple[int, int]) -> None:
    """Run each block of a grid (x, y) by a thread for each of its threads, which wait for each other at barriers."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    path = folder / "kernel.cc"
    path.write_text(for_host(kernel.source) + _AT)
    subprocess.run([compiler, "-O1", "-pthread", "-shared", "-fPIC", "-o", str(folder / "k.so"), str(path)], check=True)
    library = ctypes.CDLL(str(folder / "k.so"))
    library.begin(block[0] * block[1])
    args = [
        ctypes.c_void_p(v.ctypes.data) if isinstance(v, np.ndarray) else ctypes.c_int(v)
        for v in (values[p.name] for p in kernel.params)
    ]

    def one(at: tuple[int, ...], thread: tuple[int, ...]) -> None:
        library.at(*at, 0, *thread, 0)
        library[kernel.name](*args)

    for at in itertools.product(*map(range, grid)):
        places = list(itertools.product(*map(range, block)))
        at_once(lambda i: one(at, places[i]), len(places))  # noqa: B023 - they end before the next


def _compiles(kernel: Kernel) -> None:
    with suppress(error.MissingDependency):
        assert compile_cuda(kernel.source, arch="sm_90")[:4] == b"\x7fELF"


def test_a_reduction_within_each_thread(tmp_path: Path) -> None:
    a, b = te.placeholder((7, 9), name="A"), te.placeholder((9, 5), name="B")
    k = te.reduce_axis((0, 9), name="k")
    c = te.compute((7, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    kernel = _kernel(bound(c, 8), [a, b, c])
    _compiles(kernel)
    x, y = np.random.rand(7, 9).astype("float32"), np.random.rand(9, 5).astype("float32")
    out = np.full((7, 5), np.nan, "float32")
    _run(kernel, tmp_path, {"A": x, "B": y, "C": out}, (5, 1), (8, 1))
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)


def test_prefetches_are_left_out(tmp_path: Path) -> None:
    a = te.placeholder((64, 16), name="A")
    c = te.compute((64, 16), lambda i, j: a[i, j] + 1.0, name="C")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    s[c].prefetch(a, c.op.axis[1], 2)
    kernel = _kernel(s, [a, c])
    assert "prefetch" not in kernel.source
    values = {"A": np.random.rand(64, 16).astype("float32"), "C": np.zeros((64, 16), "float32")}
    _run(kernel, tmp_path, values, (1, 1), (64, 1))
    np.testing.assert_array_equal(values["C"], values["A"] + 1)


def test_a_reduction_over_threads_that_no_tree_can_do_is_refused() -> None:
    a = te.placeholder((4, 64), "int32", name="A")
    k = te.reduce_axis((0, 64), name="k")
    xor = te.comm_reducer(lambda x, y: x ^ y, lambda dtype: tir.const(0, dtype), name="xor")
    c = te.compute((4,), lambda i: xor(a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    s[c].bind(k, te.thread_axis("threadIdx.x"))
    refuses(error.CodegenError, r"(?s)store to 'C' is not one thread's own.*threadIdx\.x", _kernel, s, [a, c])


def test_a_type_without_code_is_refused_by_name() -> None:
    a = te.placeholder((8,), "float8_e4m3fn", name="A")
    c = te.compute((8,), lambda i: a[i], name="C")
    refuses(error.CodegenError, "no code for 'float8_e4m3fn'", _kernel, bound(c), [a, c])


def test_one_axis_for_two_nested_loops_is_refused() -> None:
    a = te.placeholder((8, 8), name="A")
    c = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="C")
    s = te.create_schedule(c.op)
    for axis in c.op.axis:
        s[c].bind(axis, te.thread_axis("threadIdx.x"))
    refuses(error.CodegenError, r"two nested loops are bound to threadIdx\.x", _kernel, s, [a, c])


def test_shared_memory_and_barriers(tmp_path: Path) -> None:
    """Each block stages a tile that its threads share, in a loop over tiles."""
    n, k, tile = 32, 24, 8
    s, (a, b, c) = staged(n, k, tile)
    kernel = _kernel(s, [a, b, c])
    assert "__shared__ float" in kernel.source and kernel.source.count("__syncthreads()") == 2
    _compiles(kernel)
    rng = np.random.default_rng(0)
    values = {"A": rng.random((n, k), "float32"), "B": rng.random(k, "float32"), "C": np.zeros(n, "float32")}
    _run(kernel, tmp_path, values, (n // tile, 1), (tile, 1))
    np.testing.assert_allclose(values["C"], values["A"] @ values["B"], rtol=1e-5)


@pytest.mark.parametrize("n", [32, 20, 7])
def test_a_product_with_virtual_threads(n: int, tmp_path: Path) -> None:
    """Tiles in shared memory hold what all threads of a block read, virtual ones too; these run side by side."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[k, i] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    shared = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    local = [s.cache_read(t, "local", [c]) for t in shared]
    sums = s.cache_write(c, "local")
    threads = [te.thread_axis((0, 4), f"threadIdx.{d}") for d in "yx"]
    loops = []
    for axis, tag, thread in zip(s[c].op.axis, "yx", threads, strict=True):
        block, rest = s[c].split(axis, factor=16)
        virtual, rest = s[c].split(rest, nparts=2)
        lane, rest = s[c].split(rest, nparts=4)
        s[c].bind(block, te.thread_axis(f"blockIdx.{tag}"))
        s[c].bind(virtual, te.thread_axis((0, 2), "vthread", name=f"v{tag}"))
        s[c].bind(lane, thread)
        loops.append((block, virtual, lane, rest))
    s[c].reorder(*[loop for level in zip(*loops, strict=True) for loop in level])
    s[sums].compute_at(s[c], loops[1][2])
    outer, inner = s[sums].split(s[sums].op.reduce_axis[0], factor=4)
    s[sums].reorder(outer, inner, *s[sums].op.axis)
    for tile, register in zip(shared, local, strict=True):
        s[tile].compute_at(s[sums], outer)
        s[register].compute_at(s[sums], inner)
        for axis, thread in zip(s[tile].op.axis, threads, strict=True):
            s[tile].bind(s[tile].split(axis, nparts=4)[0], thread)
    values = {
        "A": np.random.rand(n, n).astype("float32"),
        "B": np.random.rand(n, n).astype("float32"),
        "C": np.zeros((n, n), "float32"),
    }
    direct = emit_kernel(te.schedule.schedule_to_prim_func(s, [a, b, c], "f"))
    for i, kernel in enumerate((direct, _kernel(s, [a, b, c]))):
        assert kernel.source.count("__shared__ float") == 2 and "vthread" not in kernel.source
        assert kernel.source.count("__syncthreads()") in (2, 3)
        _compiles(kernel)
        values["C"][:] = 0
        folder = tmp_path / str(i)
        folder.mkdir()
        _run(kernel, folder, values, ((n + 15) // 16,) * 2, (4, 4))
        np.testing.assert_allclose(values["C"], values["A"].T @ values["B"], rtol=1e-5)
