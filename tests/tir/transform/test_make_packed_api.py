"""MakePackedAPI: functions that check and bind packed arguments themselves, compiled by both generators."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, te, tir
from weft.script import tir as T
from weft.tir.transform import MakePackedAPI

RNG = np.random.default_rng(0)
TARGETS = ("llvm", "c")


def packed(func, name="f"):
    if isinstance(func, tir.PrimFunc):
        func = ir.IRModule({name: func.with_attr("global_symbol", name)})
    return MakePackedAPI()(weft.lower(func["f"], name=name) if isinstance(func["f"], tir.PrimFunc) else func)


@T.prim_func
def scale(a: T.handle, b: T.handle, alpha: T.float32, shift: T.int8):
    n = T.int32()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (m, n * 2), "float32")
    for i, j in T.grid(n, m):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vj, vi * 2] = A[vi, vj] * alpha + T.Cast("float32", shift)
            B[vj, vi * 2 + 1] = A[vi, vj]


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_and_symbolic_sizes(target):
    f = weft.build(packed(scale), target)
    for n, m in ((3, 5), (1, 1), (0, 4), (17, 2)):
        a, b = RNG.random((n, m), "float32"), np.zeros((m, 2 * n), "float32")
        f["f"](a, b, 2.5, -3)
        np.testing.assert_allclose(b[:, ::2], a.T * 2.5 - 3, rtol=1e-6)
        np.testing.assert_array_equal(b[:, 1::2], a.T)
    f["f"](a, b, 2, True)  # an int where a float is asked for


@pytest.mark.parametrize("target", TARGETS)
def test_errors_as_other_entries_give_them(target):
    a, b = np.zeros((3, 5), "float32"), np.zeros((5, 6), "float32")
    f = weft.build(packed(scale), target)["f"]
    where = r"f: argument 0 \(A: Tensor\[\[n, m\], float32\]\): "
    for args, kind, message in (
        ((a, b, 1.0), TypeError, "expected 4 arguments, found 3"),
        ((1, b, 1.0, 0), TypeError, where + "expected a tensor, found a value of type index 1"),
        ((a[0], b, 1.0, 0), ValueError, where + "expected 2 dimensions, found 1"),
        ((a.astype("float64"), b, 1.0, 0), TypeError, where + "expected dtype float32, found bits 64"),
        ((a.view("int32"), b, 1.0, 0), TypeError, where + "expected dtype float32, found type code 0"),
        ((a, b[:, :5].copy(), 1.0, 0), ValueError, r"expected shape\[1\] == 6, found 5"),
        ((a, b[:4], 1.0, 0), ValueError, r"expected shape\[0\] == 5, found 4"),
        (
            (np.zeros((3, 10), "float32")[:, ::2], b, 1.0, 0),
            ValueError,
            "expected a contiguous tensor, found stride.1. == 2",
        ),
        ((a, b, "x", 0), TypeError, "expected a float, found a value"),
        ((a, b, 1.0, 0.5), TypeError, "expected an int, found a value of type index 3"),
        ((a, b, 1.0, 128), ValueError, "expected an int that int8 can hold, found 128"),
    ):
        refuses(kind, message, f, *args)


@pytest.mark.parametrize("target", TARGETS)
def test_strides_and_sizes_inside_expressions(target):
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int32()
        s = T.int32()
        A = T.match_buffer(a, (n * 2 + 1,), "int32", strides=[s])
        B = T.match_buffer(b, (1,), "int32")
        for i in range(n):
            with T.block("last"):
                v = T.axis.spatial(n, i)
                B[0] = A[v * 2 + 1]

    call = weft.build(packed(f), target)["f"]
    out = np.zeros(1, "int32")
    call(np.arange(21, dtype="int32")[::3], out)
    assert out[0] == 15
    refuses(ValueError, r"shape\[0\] == 7, found 8", call, np.arange(8, dtype="int32"), out)


def test_what_is_left_alone_and_what_is_refused():
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1, name="b")
    mod = weft.lower(te.create_schedule(b.op), [a, b], name="f")
    once = MakePackedAPI()(mod)
    assert MakePackedAPI()(once)["f"] is once["f"]
    assert once["f"].attrs["global_symbol"] == "__tvm_ffi_f" and not once["f"].buffer_map

    @T.prim_func
    def unknown(x: T.handle):
        n = T.int32()
        m = T.int32()
        T.func_attr({"global_symbol": "unknown"})
        X = T.match_buffer(x, (n * m,), "float32")
        X[0] = T.float32(0)

    with pytest.raises(error.LoweringError, match="no argument determines the dimension"):
        MakePackedAPI()(ir.IRModule({"unknown": unknown}))


@pytest.mark.parametrize("target", TARGETS)
def test_a_parallel_schedule(target):
    n = te.var("n")
    a = te.placeholder((n, 8), name="a")
    b = te.compute((n, 8), lambda i, j: tir.exp(a[i, j]), name="b")
    s = te.create_schedule(b.op)
    s[b].parallel(b.op.axis[0])
    s[b].vectorize(b.op.axis[1])
    f = weft.build(MakePackedAPI()(weft.lower(s, [a, b], name="f")), target)
    x, y = RNG.random((33, 8), "float32"), np.zeros((33, 8), "float32")
    f(x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
