"""NarrowDataType and ConvertSSA: the same values in fewer bits, and one definition for each variable."""

import numpy as np
import pytest

from weft import tir
from weft.ir import IRModule, structural_equal, walk
from weft.script import tir as T
from weft.tir import transform


@T.prim_func
def triangle(A: T.Buffer((T.int64(7), T.int64(5)), "float32"), B: T.Buffer((T.int64(40),), "float32"), n: T.int64):
    for i in range(T.int64(7)):
        for j in range(T.int64(5)):
            with T.LetStmt(i * T.int64(5) + j) as k:
                if k - T.int64(3) < T.int64(30) and j < n:
                    B[T.truncdiv(k - T.int64(20), T.int64(3)) + T.int64(8)] = A[i, j] + T.Cast("float32", k)


@pytest.mark.parametrize("bits", [16, 32])
def test_narrow_programs_compute_the_same(bits):
    out = transform.NarrowDataType(bits)(IRModule({"f": triangle}))["f"]
    loops = [n for n in walk(out) if isinstance(n, tir.For)]
    assert {str(f.loop_var.dtype) for f in loops} == {f"int{bits}"}
    assert {str(p.dtype) for p in out.params[2:]} == {"int64"}
    x = np.random.default_rng(1).random((7, 5), "float32")
    for n in (0, 3, 9):
        want, got = np.zeros(40, "float32"), np.zeros(40, "float32")
        tir.interpret(triangle, x, want, n)
        tir.interpret(out, x, got, n)
        np.testing.assert_array_equal(got, want)


def test_what_may_be_too_large_keeps_its_type():
    @T.prim_func
    def large(A: T.Buffer((T.int64(1 << 40),), "int8"), n: T.int64):
        for i in range(T.int64(1 << 20)):
            A[i * T.int64(1 << 20)] = T.int8(1)
        for i in range(n):
            A[i] = T.int8(2)

    mod = IRModule({"f": large})
    assert {str(f.loop_var.dtype) for f in walk(transform.NarrowDataType(32)(mod)["f"]) if isinstance(f, tir.For)} == {
        "int64"
    }


def test_variables_defined_again_are_others():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.LetStmt(i * 2) as k:
                A[i] = k

    twice = f.replace(body=tir.SeqStmt((f.body, f.body)))
    mod = IRModule({"f": twice, "g": f})
    out = transform.ConvertSSA()(mod)
    defined = [
        n.loop_var if isinstance(n, tir.For) else n.var
        for v in ("f", "g")
        for n in walk(out[v].body)
        if isinstance(n, (tir.For, tir.LetStmt))
    ]
    assert len(defined) == len(set(defined)) == 6
    assert {b for _, b in out["f"].buffer_map}.isdisjoint(b for _, b in out["g"].buffer_map)
    assert structural_equal(out, mod) and transform.ConvertSSA()(out).same_as(out)
    got = np.zeros(4, "int32")
    tir.interpret(out["f"], got)
    assert got.tolist() == [0, 2, 4, 6]
