"""Functions of kernels that call each other, return numbers and recur."""

import numpy as np
import pytest

from weft import ir, target, tir
from weft.error import CodegenError
from weft.script import from_source
from weft.script import ir as I  # noqa: N812
from weft.script import tir as T


@I.ir_module
class Parity:
    @T.prim_func(private=True)
    def even(n: T.int32) -> T.bool:
        if n == 0:
            T.ret(T.bool(True))
        T.ret(Parity.odd(n - 1))

    @T.prim_func(private=True)
    def odd(n: T.int32) -> T.bool:
        if n == 0:
            T.ret(T.bool(False))
        T.ret(Parity.even(n - 1))

    @T.prim_func
    def main(a: T.Buffer((64,), "float32"), out: T.Buffer((2,), "float64")):
        for i in range(2):
            out[i] = T.Cast("float64", Parity.even(i + 40))


@I.ir_module
class Quicksort:
    @T.prim_func(private=True)
    def swap(a: T.Buffer((64,), "float32"), i: T.int32, j: T.int32):
        t: T.float32 = a[i]
        a[i] = a[j]
        a[j] = t

    @T.prim_func(private=True)
    def pivot(a: T.Buffer((64,), "float32"), lo: T.int32, hi: T.int32) -> T.int32:
        k = T.alloc_buffer((1,), "int32")
        k[0] = lo
        for i in range(lo, hi):
            if a[i] < a[hi]:
                Quicksort.swap(a.data, i, k[0])
                k[0] = k[0] + 1
        Quicksort.swap(a.data, k[0], hi)
        return k[0]

    @T.prim_func(private=True)
    def sort(a: T.Buffer((64,), "float32"), lo: T.int32, hi: T.int32):
        if lo < hi:
            p: T.int32 = Quicksort.pivot(a.data, lo, hi)
            Quicksort.sort(a.data, lo, p - 1)
            Quicksort.sort(a.data, p + 1, hi)

    @T.prim_func(private=True)
    def mean(a: T.Buffer((64,), "float32"), n: T.int32) -> T.float64:
        s = T.alloc_buffer((1,), "float64")
        s[0] = T.float64(0)
        for i in range(n):
            s[0] += T.Cast("float64", a[i])
        return s[0] / T.Cast("float64", n)

    @T.prim_func
    def main(a: T.Buffer((64,), "float32"), out: T.Buffer((2,), "float64")):
        Quicksort.sort(a.data, 0, 63)
        out[0] = Quicksort.mean(a.data, 32) + 1.0
        out[1] = Quicksort.mean(a.data, 64)


def run(mod, kind):
    a, out = np.random.default_rng(0).standard_normal(64, np.float32), np.zeros(2)
    target.build(mod, target=kind)["main"](a, out)
    return a, out


@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_functions_return_numbers_and_call_themselves(kind):
    expected = np.sort(np.random.default_rng(0).standard_normal(64, np.float32))
    a, out = run(Quicksort, kind)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_allclose(out, [expected[:32].mean(dtype=float) + 1, expected.mean(dtype=float)])
    np.testing.assert_array_equal(run(Parity, kind)[1], [1, 0])


@pytest.mark.parametrize("mod", [Parity, Quicksort])
def test_calls_are_written_as_they_were_read(mod):
    read = from_source(mod.script())
    assert ir.structural_equal(read, mod)
    assert "T.Call(" not in read.script() == mod.script()


@pytest.mark.parametrize("kind", ["llvm", "c"])
@pytest.mark.parametrize(
    ("name", "dtype", "words"),
    [
        ("nowhere", "int32", "no function 'nowhere'"),
        ("main", "int32", "'main' takes 1 arguments"),
        ("nothing", "int32", "'nothing' returns nothing"),
        ("open", "void", "'open' has symbolic dimensions"),
    ],
)
def test_calls_that_do_not_fit_are_refused(name, dtype, words, kind):
    x = tir.decl_buffer((ir.Var("n", "int32"),), "float32", "x")
    handle, number, nothing = ir.Var("x_handle", "handle"), ir.Var("n", "int32"), tir.Evaluate(ir.const(0))
    args = (tir.reinterpret("handle", ir.int64(0)),) if name == "open" else ()
    body = tir.Evaluate(ir.CallIntrin(dtype, ir.GlobalVar(name), args))
    functions = {
        "main": tir.PrimFunc((number,), body, attrs={"global_symbol": "main"}),
        "nothing": tir.PrimFunc((), nothing, attrs={"global_symbol": "nothing"}),
        "open": tir.PrimFunc((handle,), nothing, None, ((handle, x),), {"global_symbol": "open"}),
    }
    with pytest.raises(CodegenError, match=words):
        target.build(ir.IRModule(functions), target=kind)


@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_a_path_that_returns_nothing_gives_zero(kind):
    @I.ir_module
    class Halves:
        @T.prim_func(private=True)
        def half(n: T.int32) -> T.int32:
            if n % 2 == 0:
                T.ret(n // 2)

        @T.prim_func
        def main(a: T.Buffer((64,), "float32"), out: T.Buffer((2,), "float64")):
            for i in range(2):
                out[i] = T.Cast("float64", Halves.half(i + 8))

    np.testing.assert_array_equal(run(Halves, kind)[1], [4, 0])
