"""Calls between functions of a module and of external functions; vectors as elements; names of functions."""

import numpy as np
import pytest

import weft
from weft import te
from weft.error import CodegenError, InternalError
from weft.script import ir as I
from weft.script import tir as T


@I.ir_module
class Doubling:
    @T.prim_func
    def main(A: T.Buffer(4, "float32"), n: T.int32) -> T.int32:
        A[0] = T.float32(1)
        return T.Call("int32", Doubling.write, [A.data, n]) + 1

    @T.prim_func
    def write(p: T.handle("float32"), n: T.int32) -> T.int32:
        A = T.decl_buffer(4, dtype="float32", data=p)
        A[n] = T.float32(7)
        return n * 2


def test_a_function_calls_another():
    built, data = weft.compile(Doubling), np.zeros(4, "float32")
    assert built["main"](data, 3) == 7
    np.testing.assert_array_equal(data, [1, 0, 0, 7])


def test_external_functions():
    @T.prim_func
    def absent(v: T.float32) -> T.float32:
        return T.call_extern("float32", "weft_test_absent", v)

    @T.prim_func
    def sine(v: T.float64) -> T.float64:
        return T.call_extern("float64", "sin", v)

    with pytest.raises(RuntimeError, match="no external function 'weft_test_absent'"):
        weft.build(absent)(3.0)
    assert weft.build(sine)(3.0) == np.sin(3.0)


def test_calls_by_operator():
    @T.prim_func
    def hint(A: T.Buffer(4, "float32")):
        T.evaluate(T.Call("tirx.prefetch", [T.address_of(A[0]), 0, 3, 1], ret_ty="void"))
        T.call_llvm_intrin("", "llvm.assume", T.bool(True))
        A[0] = T.float32(2)

    data = np.zeros(4, "float32")
    weft.build(hint)(data)
    assert data[0] == 2


def test_elements_that_are_vectors():
    @T.prim_func
    def pair(x: T.int32, y: T.int32, out: T.Buffer((1,), "int32x2")):
        out[0] = T.Shuffle([x, y], [0, 1])

    out = weft.runtime.empty((1,), "int32x2")
    weft.build(pair)(3, 4, out)
    np.testing.assert_array_equal(out.numpy(), [[3, 4]])
    a = te.placeholder((8,), name="A", dtype="float32x2")
    b = te.compute((8,), lambda i: a[i] + weft.tir.const(1, a.dtype), name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], 4)[1])
    x, y = weft.runtime.empty((8,), "float32x2"), weft.runtime.empty((8,), "float32x2")
    x.copyfrom(np.arange(16.0).reshape(8, 2))
    weft.build(s, [a, b])(x, y)
    np.testing.assert_array_equal(y.numpy(), np.arange(1.0, 17.0).reshape(8, 2))
    assert x.nbytes == 64


def test_functions_of_one_name():
    @T.prim_func
    def f(A: T.Buffer(1, "float32")):
        T.func_attr({"global_symbol": "same"})
        A[0] = T.float32(1)

    with pytest.raises(InternalError, match=r"Duplicate PrimFunc global_symbol 'same'\n.*first, second") as caught:
        weft.build(weft.IRModule({"first": f, "second": f}))
    assert isinstance(caught.value, CodegenError) and isinstance(caught.value, RuntimeError)


def test_source_is_in_the_order_of_names():
    @T.prim_func
    def body(A: T.Buffer(1, "float32")):
        A[0] = T.float32(1)

    text = weft.build(
        weft.IRModule({n: body.with_attr("global_symbol", n) for n in ("zeta", "alpha", "mu")})
    ).get_source("ll")
    places = [text.index(f"@{n}_impl(") for n in ("alpha", "mu", "zeta")]
    assert places == sorted(places)


def test_an_input_that_nothing_reads():
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: te.max(i, 2), name="B")
    built, out = weft.build(te.create_schedule(b.op), [a, b]), np.zeros(4, "int32")
    built(np.zeros(4, "float32"), out)
    np.testing.assert_array_equal(out, [2, 2, 2, 3])
