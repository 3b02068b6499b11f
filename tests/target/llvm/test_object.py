"""Objects: other machines, files that run without the runtime, threads, facts of the assembly."""

import re
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests import clock
from tests.refusals import refuses
from tests.target.programs import N, elementwise, function, load, loop, store
from tests.tir.schedule.test_assembly import hot_loop
from weft import error, ir, tir
from weft.ir import Broadcast, Ramp, const, int64
from weft.target import Target, build, compile_func, get_source, load_objects, services

ZMM = Target("llvm -mcpu=x86-64-v4 -mtriple=x86_64-unknown-linux-gnu")


def add(name="main", **attrs):
    return elementwise(lambda a, b: a + b, ["float32", "float32"], "float32", N, 16, name)


def microkernel(rows, columns, depth, lanes=16):
    """One tile of a product: `rows` x `columns` accumulators in a local buffer."""
    a = tir.decl_buffer((int64(depth), int64(rows)), "float32", "a")
    b = tir.decl_buffer((int64(depth), int64(columns)), "float32", "b")
    c = tir.decl_buffer((int64(rows), int64(columns)), "float32", "c")
    acc = tir.decl_buffer((int64(rows), int64(columns)), "float32", "acc", scope="local")

    def tile(body):
        def vectors(i):
            return loop(
                columns // lanes,
                lambda v: loop(lanes, lambda j: body(i, v * lanes + j), tir.ForKind.VECTORIZED, "j"),
                tir.ForKind.UNROLLED,
                "v",
            )

        return loop(rows, vectors, tir.ForKind.UNROLLED, "i")

    zero = tile(lambda i, j: store(acc, (i, j), const(0.0, "float32")))
    step = loop(
        depth,
        lambda k: tile(lambda i, j: store(acc, (i, j), load(acc, i, j) + load(a, k, i) * load(b, k, j))),
        name="k",
    )
    out = tile(lambda i, j: store(c, (i, j), load(acc, i, j)))
    return function([a, b, c], tir.AllocBuffer(acc, tir.seq(zero, step, out)))


def test_a_gemm_tile_stays_in_registers():
    body = hot_loop(get_source(microkernel(8, 48, 256), ZMM, "asm"))
    fused = [x for x in body if "vfmadd" in x]
    assert len(fused) % 24 == 0
    assert fused
    assert all("zmm" in x for x in fused)
    assert not [x for x in body if "rsp" in x or "rbp" in x or "call" in x]


def test_a_gemm_tile_is_right():
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(np.float32) for s in ((64, 8), (64, 48), (8, 48)))
    for target in ("llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"):
        build(microkernel(8, 48, 64), target)["main"](a, b, c)
        np.testing.assert_allclose(c, a.T @ b, rtol=1e-4, atol=1e-5)


def test_a_reduction_into_vectors_needs_no_scalar_code():
    text = get_source(microkernel(4, 32, 64), ZMM, "ll")
    assert "fmul contract <16 x float>" in text
    assert "alloca [128 x float], align 64" in text


def test_scalar_loops_are_vectorised_by_llvm():
    text = get_source(elementwise(lambda a, b: a * b + a, ["float32", "float32"], "float32", N), ZMM, "asm")
    assert "zmm" in text


@pytest.mark.parametrize(
    ("triple", "machine"), [("aarch64-linux-gnu", 183), ("riscv64-linux-gnu", 243), ("x86_64-linux-gnu", 62)]
)
def test_other_machines(triple, machine):
    data = compile_func(add(), Target(f"llvm -mtriple={triple}"))
    assert data[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", data, 18)[0] == machine
    assert b"__tvm_ffi_main" in data


def test_an_object_for_another_machine_is_kept_and_not_called():
    data = compile_func(add(), Target("llvm -mtriple=aarch64-linux-gnu"))
    module = load_objects([data], ["main"])
    refuses(error.CodegenError, r"for another machine: export the library", module["main"])


def test_an_unknown_machine():
    refuses(error.CodegenError, "no code generator", compile_func, add(), Target("llvm -mtriple=nonsense-unknown-none"))


@pytest.mark.parametrize(("zero", "read"), [(0.0, False), (-0.0, False), (0.0, True)])
def test_nested_tests_of_a_load_choose_an_address(zero, read):
    x, y = tir.decl_buffer((40,), "float32", "x"), tir.decl_buffer((40,), "float32", "y")
    other = const(zero, "float32")
    end = ir.cast("int64", load(x, 29)) if read else int64(30)  # what is read is read where the outer test holds only
    value = lambda i: tir.if_then_else(i >= 5, tir.if_then_else(i < end, load(x, i - 5), other), other)  # noqa: E731
    func = function([x, y], loop(40, lambda i: store(y, i, value(i))))
    assert (" phi float" in get_source(func, "llvm", "ll")) == (read or str(zero) == "-0.0")
    given, out = np.arange(1, 41, dtype="float32"), np.ones(40, "float32")
    build(func, "llvm")(given, out)
    np.testing.assert_array_equal(out, np.pad(given[:25], (5, 10)))


def test_many_objects_on_many_threads():
    target = Target("llvm")
    with ThreadPoolExecutor(4) as pool:
        objects = list(pool.map(lambda i: compile_func(add(f"f{i}"), target), range(12)))
    module = load_objects(objects, [f"f{i}" for i in range(12)])
    x, out = np.ones(9, np.float32), np.zeros(9, np.float32)
    for i in range(12):
        module[f"f{i}"](x, x * i, out)
        np.testing.assert_array_equal(out, x + x * i)


def test_a_module_of_several_functions():
    mod = tir.IRModule(
        {"f": add("f"), "g": elementwise(lambda a: a * const(2.0, "float32"), ["float32"], "float32", N, 8, "g")}
    )
    built = build(mod, "llvm")
    out = np.zeros(3, np.float32)
    built["g"](np.ones(3, np.float32), out)
    assert out.tolist() == [2.0] * 3
    refuses(AttributeError, "", lambda: built["h"])


RUN_ALONE = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]
class Any(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("pad", ctypes.c_int32), ("pointer", ctypes.c_void_p)]
n = 40000
data = (ctypes.c_float * n)(*range(n))
shape = (ctypes.c_int64 * 1)(n)
t = DLTensor(ctypes.addressof(data), (ctypes.c_int32 * 2)(1, 0), 1, 2, 32, 1, ctypes.addressof(shape), None, 0)
args = (Any * 1)(Any(7, 0, ctypes.addressof(t)))
ret = Any()
assert lib.__tvm_ffi_main(None, args, 1, ctypes.byref(ret)) == 0
assert data[17] == 18.0 and data[n - 1] == float(n), data[17]
assert lib.__tvm_ffi_main(None, args, 2, ctypes.byref(ret)) == -1
print("fine")
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a linker")
def test_a_library_runs_without_the_runtime(tmp_path):
    """Parallel loops, scratch memory and failed checks fall back where libweft_runtime is not loaded."""
    x, scratch = tir.decl_buffer((N,), "float32", "x"), tir.decl_buffer((N,), "float32", "scratch")
    body = tir.seq(
        loop(N, lambda i: store(scratch, i, load(x, i)), tir.ForKind.PARALLEL),
        loop(N, lambda i: store(x, i, load(scratch, i) + const(1.0, "float32")), tir.ForKind.PARALLEL),
    )
    (tmp_path / "f.o").write_bytes(compile_func(function([x], tir.AllocBuffer(scratch, body)), Target("llvm")))
    subprocess.run(["cc", "-shared", "-o", tmp_path / "f.so", tmp_path / "f.o"], check=True)
    done = clock.run([sys.executable, "-S", "-c", RUN_ALONE, tmp_path / "f.so"])
    assert done.stdout == "fine\n", done.stderr


def test_parallel_loops_use_the_pool():
    x = tir.decl_buffer((N,), "int64", "x")
    body = loop(N, lambda i: store(x, i, tir.call_extern("int64", "weft_test_thread", i)), tir.ForKind.PARALLEL)
    text = get_source(function([x], body), Target("llvm"), "ll")
    assert "@weft.parallel_for(ptr @main_impl.par" in text
    assert "ptr noalias" in text


def test_work_that_is_not_worth_a_thread():
    """The grain grows with cheap bodies; an annotation decides."""
    x = tir.decl_buffer((N,), "float32", "x")

    def grain(**notes):
        body = loop(N, lambda i: store(x, i, load(x, i) + const(1.0, "float32")), tir.ForKind.PARALLEL, **notes)
        text = get_source(function([x], body), "llvm", "ll")
        return int(re.search(r"weft.parallel_for\(ptr @main_impl.*, i64 (-?\d+)\)\n", text)[1])

    assert grain() > 1000
    assert grain(pragma_grain=7) == 7
    assert grain(pragma_grain=-7) == -7  # a light loop


def test_a_loop_that_asks_for_what_comes_next_runs_forwards():
    x = tir.decl_buffer((N,), "float32", "x")

    def source(ahead):
        def body(i):
            address = tir.call_intrin("handle", "tir.address_of", load(x, i + const(64, "int64")))
            asked = tir.Evaluate(tir.call_intrin("void", "tir.prefetch", address, 0, 3, 1))
            return tir.SeqStmt([*([asked] if ahead else []), store(x, i, load(x, i) + const(1.0, "float32"))])

        return get_source(function([x], loop(N, body, tir.ForKind.PARALLEL, pragma_grain=7)), Target("llvm"), "ll")

    assert re.search(r"call i32 @weft.parallel_forwards\(ptr @main_impl.*, i64 7\)", source(True))
    assert re.search(r"call i32 @weft.parallel_for\(ptr @main_impl.*, i64 7\)", source(False))


def test_masks_of_constant_vectors():
    x = tir.decl_buffer((int64(20),), "float32", "x")
    mask = Ramp(int64(0), int64(1), 16) < Broadcast(int64(5), 16)
    body = tir.BufferStore(x, Broadcast(const(3.0, "float32"), 16), (Ramp(int64(2), int64(1), 16),), mask)
    out = np.zeros(20, np.float32)
    build(function([x], body), "llvm")["main"](out)
    assert out.tolist() == [0.0] * 2 + [3.0] * 5 + [0.0] * 13


def test_kernels_of_a_library_share_what_checks_arguments():
    alone = compile_func(add(), ZMM)
    assert len(compile_func(add(), ZMM, beside=True)) < 0.8 * len(alone)
    host, names = Target("llvm"), ["one", "two", "three"]
    objects = [compile_func(add(name), host, beside=True) for name in names]
    several = load_objects([*objects, *services(host) * 2], names)  # as of two libraries in one program
    x, y = np.arange(40, dtype="float32"), np.ones(40, "float32")
    for name in names:
        out = np.zeros(40, "float32")
        several[name](x, y, out)
        np.testing.assert_array_equal(out, x + y)
        refuses(ValueError, rf"(?s){name}\(.*== 3, found 40", several[name], x[:3], y, out)
