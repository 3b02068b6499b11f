"""Entry points: every check with its error, symbolic dimensions, strides, offsets, numbers."""

import ctypes

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.target.programs import N, elementwise, function, load, loop, store
from weft import error, tir
from weft.ir import SizeVar, Var, const, int64
from weft.target import build
from weft.tir import ForKind, decl_buffer


def add_func(n=N, dtype="float32"):
    return elementwise(lambda a, b: a + b, [dtype, dtype], dtype, n)


def f32(*shape):
    return np.zeros(shape, np.float32)


@pytest.fixture(scope="module")
def add():
    return build(add_func(), "llvm")["main"]


@pytest.fixture(scope="module")
def fixed():
    x, y = decl_buffer((int64(3), int64(4)), "float32", "x"), decl_buffer((int64(3), int64(4)), "float32", "y")
    body = loop(3, lambda i: loop(4, lambda j: store(y, (i, j), load(x, i, j) * const(2.0, "float32")), name="j"))
    return build(function([x, y], body, "double"), "llvm")["double"]


def test_tensors_that_are_refused(add, fixed):
    """Their number, kind, data type and rank, then dimensions of known size, of one name, and strides."""
    refuses(TypeError, r"main\(.*3.*2|expected 3|3 arguments", add, f32(4), f32(4))
    refuses(TypeError, "#1|x1|tensor", add, f32(4), 3, f32(4))
    refuses(TypeError, "float32.*float64|float64.*float32", add, f32(4), np.zeros(4), f32(4))
    refuses((TypeError, ValueError), "dimension|ndim|rank", fixed, f32(12), f32(3, 4))
    refuses(ValueError, r"4.*5|5.*4", fixed, f32(3, 5), f32(3, 4))
    refuses(ValueError, r"4.*5|5.*4", add, f32(4), f32(5), f32(4))
    refuses(ValueError, "contiguous|stride|compact", fixed, f32(4, 3).T, f32(3, 4))


def test_strides_of_unit_and_empty_dimensions_do_not_matter(add):
    whole = np.arange(8, dtype=np.float32)
    out = f32(1)
    add(whole[::8], whole[::8], out)
    add(whole[:0:2], whole[:0:2], f32(0))
    assert out[0] == 0


def test_extents_whose_product_wraps_to_zero_are_not_empty():
    """What is not compact is refused, however large it says that it is."""
    x, y = decl_buffer((N, N), "float32", "x"), decl_buffer((int64(1),), "float32", "y")
    first = build(function([x, y], store(y, (0,), load(x, 0, 1)), "first"), "llvm")["first"]
    tensor = weft.runtime.tensor(f32(2, 2))
    shape, strides = (ctypes.c_void_p.from_address(_dltensor(tensor) + at).value for at in (24, 32))
    for place, values in ((shape, (1 << 32, 1 << 32)), (strides, (0, 1))):
        (ctypes.c_int64 * 2).from_address(place)[:] = values
    refuses(ValueError, "compact", first, tensor, f32(1))


def test_device(fixed):
    tensor = weft.runtime.tensor(f32(3, 4))
    handle = ctypes.c_int32.from_address(_dltensor(tensor) + 8)
    saved, handle.value = handle.value, 2
    try:
        refuses((ValueError, TypeError), "device|cuda|cpu", fixed, tensor, f32(3, 4))
    finally:
        handle.value = saved


def _dltensor(tensor):
    """Address of the DLTensor inside a runtime tensor."""
    import tvm_ffi

    inner = getattr(tensor, "handle", tensor)
    assert isinstance(inner, tvm_ffi.Tensor)
    return inner.__chandle__() + 24


def test_numbers():
    a, b, n = Var("a", "int32"), Var("b", "float32"), Var("n", "int64")
    flag = Var("flag", "bool")
    y = decl_buffer((n,), "float32", "y")
    body = loop(n, lambda i: store(y, i, tir.select(flag, tir.cast("float32", a) + b, const(-1.0, "float32"))))
    f = build(function([a, b, flag, n, y], body), "llvm")["main"]
    out = f32(3)
    f(2, 0.5, True, 3, out)
    assert out.tolist() == [2.5] * 3
    f(-7, 2, False, 3, out)
    assert out.tolist() == [-1.0] * 3
    refuses(TypeError, "int", f, 2.5, 0.5, True, 3, out)
    refuses(TypeError, "float|number", f, 2, "x", True, 3, out)
    refuses(ValueError, "3", f, 2, 0.5, True, 4, out)


def test_dimensions_inside_expressions_are_solved():
    n = SizeVar("n", "int64")
    x, y = decl_buffer((n * 2 + 1,), "int32", "x"), decl_buffer((n,), "int32", "y")
    f = build(function([x, y], loop(n, lambda i: store(y, i, load(x, i * 2 + 1)))), "llvm")["main"]
    out = np.zeros(3, np.int32)
    f(np.arange(7, dtype=np.int32), out)
    assert out.tolist() == [1, 3, 5]
    only = function([x], loop(n, lambda i: store(x, i, const(0, "int32"))), "clear")
    values = np.ones(7, np.int32)
    build(only, "llvm")["clear"](values)
    assert values.tolist() == [0, 0, 0, 1, 1, 1, 1]
    refuses(ValueError, "8|9", build(only, "llvm")["clear"], np.ones(8, np.int32))


def test_a_dimension_that_nothing_determines():
    n, m = SizeVar("n", "int64"), SizeVar("m", "int64")
    x = decl_buffer((n * m,), "int32", "x")
    with pytest.raises((error.CodegenError, RuntimeError), match="determines"):
        build(function([x], loop(n, lambda i: store(x, i, const(0, "int32")))), "llvm")


def test_declared_strides_and_offset():
    n, m, row = SizeVar("n", "int64"), SizeVar("m", "int64"), SizeVar("row", "int64")
    x = decl_buffer((n, m), "float32", "x", strides=(row, int64(1)))
    y = decl_buffer((n, m), "float32", "y")
    body = loop(n, lambda i: loop(m, lambda j: store(y, (i, j), load(x, i, j)), name="j"))
    f = build(function([x, y], body), "llvm")["main"]
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = f32(4, 3)
    f(whole[:, 2:5], out)
    np.testing.assert_array_equal(out, whole[:, 2:5])
    f(np.ascontiguousarray(whole[:, :3]), out)
    np.testing.assert_array_equal(out, whole[:, :3])
    refuses(ValueError, "stride|contiguous", f, whole[:, ::2], out)


def test_a_message_of_a_failed_assertion():
    x = decl_buffer((N,), "float32", "x")
    body = tir.AssertStmt(
        N < int64(5), tir.StringImm("at most four"), store(x, int64(0), const(1.0, "float32")), "ValueError"
    )
    f = build(function([x], body), "llvm")["main"]
    f(f32(4))
    refuses(ValueError, "at most four", f, f32(9))


def test_an_error_inside_a_parallel_loop_with_workspace():
    """Scratch memory is given back on the way out, and the error of the task arrives."""
    x = decl_buffer((N,), "float32", "x")
    scratch = decl_buffer((N,), "float32", "scratch")

    def body(i):
        check = tir.AssertStmt(
            load(x, i) >= const(0.0, "float32"), tir.StringImm("negative"), store(scratch, i, load(x, i))
        )
        return tir.seq(check, store(x, i, load(scratch, i) + const(1.0, "float32")))

    f = build(function([x], tir.AllocBuffer(scratch, loop(N, body, ForKind.PARALLEL))), "llvm")["main"]
    values = np.arange(50000, dtype=np.float32)
    f(values)
    np.testing.assert_array_equal(values, np.arange(1, 50001, dtype=np.float32))
    values[777] = -1
    for _ in range(3):
        refuses(RuntimeError, "negative", f, values)


def test_packed_calls():
    @weft.register_func("test.codegen.scale", override=True)
    def scale(x, factor, name):
        x = np.from_dlpack(x)
        assert name == "text"
        return float(x.sum()) * factor

    x, y = decl_buffer((N, int64(2)), "float32", "x"), decl_buffer((int64(1),), "float32", "y")
    call = tir.Call(
        "float32",
        tir.Op.get("tir.tvm_call_packed"),
        (tir.StringImm("test.codegen.scale"), x, const(3, "int32"), tir.StringImm("text")),
    )
    f = build(function([x, y], store(y, int64(0), call)), "llvm")["main"]
    out = f32(1)
    f(np.ones((5, 2), np.float32), out)
    assert out[0] == 30
    missing = tir.Evaluate(tir.call_packed("test.codegen.nowhere", x))
    with pytest.raises(ValueError, match=r"test\.codegen\.nowhere"):
        build(function([x], missing), "llvm")["main"](np.ones((5, 2), np.float32))


def test_an_error_of_a_packed_function_passes_through():
    @weft.register_func("test.codegen.fails", override=True)
    def fails(x):
        raise ValueError("from inside")

    x = decl_buffer((N,), "float32", "x")
    f = build(function([x], tir.Evaluate(tir.call_packed("test.codegen.fails", x))), "llvm")["main"]
    refuses(ValueError, "from inside", f, f32(2))


def test_extern_calls():
    y = decl_buffer((int64(2),), "float64", "y")
    body = tir.seq(
        store(y, int64(0), tir.call_extern("float64", "cbrt", const(27.0, "float64"))),
        store(
            y,
            int64(1),
            tir.call_llvm_pure_intrin("float64", "llvm.fma", *(const(v, "float64") for v in (2.0, 3.0, 4.0))),
        ),
    )
    out = np.zeros(2)
    build(function([y], body), "llvm")["main"](out)
    np.testing.assert_allclose(out, [3, 10])
    absent = build(function([y], store(y, int64(0), tir.call_extern("float64", "no_such_function_anywhere"))), "llvm")
    refuses(RuntimeError, "no external function 'no_such_function_anywhere'", absent["main"], out)


def test_empty_tensors_and_unit_extents(add):
    add(f32(0), f32(0), f32(0))
    out = f32(1)
    add(np.ones(1, np.float32), np.ones(1, np.float32), out)
    assert out[0] == 2
