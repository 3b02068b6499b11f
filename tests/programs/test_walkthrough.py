"""The program of the codebase walkthrough, and scheduled variants of it, run natively through ``weft`` as ``tvm``."""

import numpy as np
import pytest

import weft as tvm
from tests.refusals import refuses
from weft import te

rng = np.random.default_rng(1)


def test_vector_add_as_the_walkthrough_has_it():
    n = 1024
    A = tvm.te.placeholder((n,), name="A")
    B = tvm.te.placeholder((n,), name="B")
    C = tvm.te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = tvm.te.create_schedule(C.op)
    target = "llvm"
    fadd = tvm.build(s, [A, B, C], target)
    dev = tvm.device(target, 0)
    a = tvm.nd.array(np.random.uniform(size=n).astype(A.dtype), dev)
    b = tvm.nd.array(np.random.uniform(size=n).astype(B.dtype), dev)
    c = tvm.nd.array(np.zeros(n, dtype=C.dtype), dev)
    fadd(a, b, c)
    np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())


def matmul(n, m, k_extent, dtype="float32"):
    A = te.placeholder((n, k_extent), name="A", dtype=dtype)
    B = te.placeholder((k_extent, m), name="B", dtype=dtype)
    k = te.reduce_axis((0, k_extent), "k")
    return A, B, te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C"), k


def check_matmul(f, n, m, k_extent):
    a, b = rng.standard_normal((n, k_extent)).astype("float32"), rng.standard_normal((k_extent, m)).astype("float32")
    c = tvm.nd.array(np.zeros((n, m), "float32"))
    f(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "m", "k_extent"), [(32, 64, 16), (33, 65, 17), (1, 1, 1), (7, 100, 3)])
def test_scheduled_matmul(n, m, k_extent):
    A, B, C, k = matmul(n, m, k_extent)
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 16)
    s[C].vectorize(yi)
    s[C].parallel(xo)
    s[CC].compute_at(s[C], yo)
    ko, ki = s[CC].split(s[CC].op.reduce_axis[0], factor=4)
    xc, yc = s[CC].op.axis
    s[CC].reorder(ko, ki, xc, yc)
    s[CC].unroll(ki)
    s[CC].vectorize(yc)
    check_matmul(tvm.build(s, [A, B, C], "llvm", name="mm"), n, m, k_extent)


def test_symbolic_sizes_run_at_every_size():
    n, m = te.size_var("n"), te.size_var("m")
    A, B, C, k = matmul(n, m, 24)
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 8)
    ko, ki = s[C].split(k, factor=5)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].vectorize(yi)
    f = tvm.build(s, [A, B, C], "llvm")
    for size in ((1, 1), (8, 8), (13, 9), (40, 33)):
        check_matmul(f, *size, 24)


@pytest.mark.parametrize("n", [5, 64, 1001])
def test_stencil_computed_where_it_is_used(n):
    A = te.placeholder((n + 2,), name="A")
    B = te.compute((n + 2,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    s = te.create_schedule(C.op)
    o, i = s[C].split(C.op.axis[0], factor=16)
    s[C].parallel(o)
    s[C].vectorize(i)
    s[B].compute_at(s[C], o)
    f = tvm.build(s, [A, C], "llvm")
    a = rng.standard_normal(n + 2).astype("float32")
    c = tvm.nd.array(np.zeros(n, "float32"))
    f(tvm.nd.array(a), c)
    np.testing.assert_allclose(c.numpy(), 2 * (a[:-2] + a[1:-1] + a[2:]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("extent", [7, 128, 1000])
def test_factored_sum(extent):
    A = te.placeholder((4, extent), name="A")
    k = te.reduce_axis((0, extent), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(k, factor=8)
    BF = s.rfactor(B, ki, factor_axis=-1)
    s[BF].compute_at(s[B], B.op.axis[0])
    s[BF].reorder(*s[BF].op.reduce_axis, *s[BF].op.axis)
    s[BF].vectorize(s[BF].op.axis[1])
    f = tvm.build(s, [A, B], "llvm")
    a = rng.standard_normal((4, extent)).astype("float32")
    b = tvm.nd.array(np.zeros(4, "float32"))
    f(tvm.nd.array(a), b)
    np.testing.assert_allclose(b.numpy(), a.sum(1), rtol=1e-4, atol=1e-4)


def test_several_functions_in_one_module():
    functions = []
    for name, factor in (("double", 2.0), ("triple", 3.0)):
        A = te.placeholder((6,), name="A")
        B = te.compute((6,), lambda i, A=A, factor=factor: A[i] * factor, name="B")
        functions.append(tvm.lower(te.create_schedule(B.op), [A, B], name=name))
    mod = tvm.build(functions, target="llvm")
    a = rng.standard_normal(6).astype("float32")
    for name, factor in (("double", 2), ("triple", 3)):
        b = tvm.nd.array(np.zeros(6, "float32"))
        mod[name](tvm.nd.array(a), b)
        np.testing.assert_array_equal(b.numpy(), a * np.float32(factor))
    refuses(tvm.TVMError, "two functions are called", tvm.build, [functions[0], functions[0]], target="llvm")


def test_other_inputs_of_build():
    A = te.placeholder((3,), name="A", dtype="int64")
    B = te.compute((3,), lambda i: A[i] * 2 + 1, name="B")
    func = te.create_prim_func([A, B])
    a = np.arange(3)
    for mod in (tvm.build(func, target="llvm"), tvm.build(tvm.ir.IRModule({"main": func})), tvm.build({"llvm": func})):
        b = tvm.nd.array(np.zeros(3, "int64"))
        mod["main"](tvm.nd.array(a), b)
        np.testing.assert_array_equal(b.numpy(), a * 2 + 1)
    refuses(tvm.TVMError, "needs args", tvm.build, te.create_schedule(B.op))
    refuses(tvm.TVMError, "not among the arguments", tvm.lower, te.create_schedule(B.op), [B])
    assert "For" in type(tvm.lower(te.create_schedule(B.op), [A, B], simple_mode=True)["main"].body).__name__
