"""Passes that narrow indices and take undefined values out."""

import numpy as np

from tests.refusals import refuses
from weft import error, ir, tir
from weft.script import tir as T


def test_indices_of_32_bits_compute_the_same():
    @T.prim_func
    def f(A: T.Buffer((T.int64(6), T.int64(5)), "float32"), B: T.Buffer((T.int64(30),), "float32"), n: T.int64):
        for i in range(T.int64(6)):
            with T.block("b"):
                vi = T.axis.spatial(T.int64(6), i)
                for j in range(n):
                    B[vi * T.int64(5) + j] = A[vi, j] + T.Cast("float32", T.Cast("int64", j) + T.int64(1))

    out = tir.transform.ForceNarrowIndexToInt32()(ir.IRModule({"f": f}))["f"]
    assert "int64" not in {n.dtype for n in ir.walk(out) if isinstance(n, tir.PrimExpr)}
    x, want, got = np.random.default_rng(0).random((6, 5), "float32"), np.zeros(30, "float32"), np.zeros(30, "float32")
    tir.interpret(f, x, want, 4)
    tir.interpret(out, x, got, 4)
    np.testing.assert_array_equal(got, want)


def test_what_32_bits_cannot_hold():
    @T.prim_func
    def wide(A: T.Buffer((4,), "int64")):
        A[0] = T.int64(1)

    @T.prim_func
    def large(A: T.Buffer((4,), "float32"), n: T.int64):
        A[n // T.int64(4294967296)] = T.float32(1)

    for f, what in ((wide, "holds int64"), (large, "does not fit")):
        refuses(error.LoweringError, what, tir.transform.ForceNarrowIndexToInt32(), ir.IRModule({"f": f}))


def test_undefined_values_are_not_stored():
    @T.prim_func
    def f(A: T.Buffer((2,), "int32")):
        A[0] = 3
        with T.LetStmt(T.undef(dtype="int32")) as x:
            A[1] = x + 1

    @T.prim_func
    def index(A: T.Buffer((2,), "int32")):
        A[T.undef(dtype="int32")] = 1

    out, got = tir.transform.RemoveStoreUndef()(ir.IRModule({"f": f}))["f"], np.zeros(2, "int32")
    tir.interpret(out, got)
    assert got.tolist() == [3, 0]
    refuses(error.LoweringError, "undefined", tir.transform.RemoveStoreUndef(), ir.IRModule({"f": index}))


def test_sides_that_read_are_guarded():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = T.Select(i > 2, T.Select(i > 0, A[i - 1], T.float32(0)), T.Select(i > 1, T.float32(1), T.float32(2)))

    mod = tir.transform.RewriteUnsafeSelect()(ir.IRModule({"f": f}))
    left = [n for n in ir.walk(mod["f"].body) if isinstance(n, tir.Select)]
    calls = [n for n in ir.walk(mod["f"].body) if isinstance(n, tir.Call)]
    assert len(left) == 2 and [c.op.name for c in calls] == ["tir.if_then_else"]


def test_older_names(capsys):
    @T.prim_func
    def f(A: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            A[i, j] = T.float32(0)

    mod = ir.IRModule({"f": f})
    flat = tir.transform.StorageFlatten(64)(mod)["f"]
    assert all(len(n.indices) == 1 for n in ir.walk(flat.body) if isinstance(n, tir.BufferStore))
    assert ir.PrintIR("heading")(mod) is mod
    assert capsys.readouterr().out.startswith("heading\n")
