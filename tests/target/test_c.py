"""Target c: results against NumPy, the interpreter and target llvm; its text; its errors; users' generators."""

import shutil

import numpy as np
import pytest

import weft
from tests.arrays import floats
from tests.refusals import refuses
from tests.target.programs import N, assert_same, check_native, elementwise, function, load, loop, sample, store
from weft import error, te, tir, topi
from weft.ir import Let, Select, Var, cast, const, floordiv, floormod, int64, truncdiv, truncmod
from weft.target import Target, get_source

RNG = np.random.default_rng(7)
f32 = floats(RNG)
pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")


def check_te(tensors, inputs, shape, dtype="float32", **close):
    """Build a program of tensor expressions for c and llvm, and compare."""
    func = te.create_prim_func(tensors)
    found, expected = np.full(shape, 3, dtype), np.full(shape, 4, dtype)
    weft.build(func, target="c")(*inputs, found)
    weft.build(func, target="llvm")(*inputs, expected)
    np.testing.assert_allclose(found, expected, **close or {"rtol": 1e-5, "atol": 1e-6})
    return found


@pytest.fixture(scope="module")
def add():
    return weft.build(elementwise(lambda a, b: a + b, ["float32", "float32"], "float32", N, 16, "add"), target="c")


@pytest.mark.parametrize("n", [0, 1, 15, 16, 37])
def test_add_of_any_size(add, n):
    a, b, out = f32(n), f32(n), np.zeros(n, np.float32)
    add(a, b, out)
    np.testing.assert_array_equal(out, a + b)


@pytest.mark.parametrize("shape", [(5, 7, 3), (16, 16, 16), (1, 9, 1), (4, 0, 3)])
def test_matmul(shape):
    n, k, m = shape
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    x, y = f32(n, k), f32(k, m)
    found = check_te([a, b, topi.matmul(a, b)], [x, y], (n, m), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("reduce", "reference"), [(topi.sum, np.sum), (topi.max, np.max), (topi.min, np.min)])
def test_reductions(reduce, reference):
    a, x = te.placeholder((6, 11), name="a"), f32(6, 11)
    found = check_te([a, reduce(a, axis=1)], [x], (6,))
    np.testing.assert_allclose(found, reference(x, axis=1), rtol=1e-5, atol=1e-6)


def test_softmax():
    a, x = te.placeholder((5, 33), name="a"), f32(5, 33)
    found = check_te([a, topi.nn.softmax(a, axis=-1)], [x], (5, 33))
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_symbolic_matmul():
    n, m = te.var("n", "int64"), te.var("m", "int64")
    a, b = te.placeholder((n, m), name="a"), te.placeholder((m, n), name="b")
    module = weft.build(te.create_prim_func([a, b, topi.matmul(a, b)]), target="c")
    for rows, depth in ((3, 5), (1, 1), (0, 4), (4, 0)):
        x, y, out = f32(rows, depth), f32(depth, rows), np.ones((rows, rows), np.float32)
        module(x, y, out)
        np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)


DIVISIONS = {"floordiv": floordiv, "floormod": floormod, "truncdiv": truncdiv, "truncmod": truncmod}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integer_division(name, dtype):
    """Negatives, division by zero, the least integer by -1."""
    func = elementwise(DIVISIONS[name], [dtype, dtype], dtype, 200)
    check_native(func, [sample(dtype, 200, RNG), sample(dtype, 200, RNG)], np.zeros(200, dtype), target="c")


@pytest.mark.parametrize("name", ["floordiv", "floormod"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_division(name, dtype):
    func = elementwise(DIVISIONS[name], [dtype, dtype], dtype, 64)
    a, b = (RNG.normal(size=64).astype(dtype) * 9 for _ in range(2))
    check_native(func, [a, b], np.zeros(64, dtype), target="c")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "float32", "float64"])
def test_arithmetic(dtype):
    def body(a, b):
        return tir.Max(a * b + a, tir.Min(a - b, b))

    check_native(
        elementwise(body, [dtype, dtype], dtype, 101),
        [sample(dtype, 101, RNG), sample(dtype, 101, RNG)],
        np.zeros(101, dtype),
        target="c",
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("float32", "int8"),
        ("float64", "int64"),
        ("float32", "uint8"),
        ("float32", "bool"),
        ("int32", "int8"),
        ("int64", "float32"),
        ("bool", "float64"),
        ("uint64", "float64"),
        ("int32", "bool"),
        ("int8", "uint64"),
    ],
)
def test_casts_agree_with_llvm(source, result):
    func = elementwise(lambda a: cast(result, a), [source], result, 60)
    x = sample(source, 60, RNG)
    found, expected = (np.zeros(60, result) for _ in range(2))
    weft.build(func, target="c")(x, found)
    weft.build(func, target="llvm")(x, expected)
    assert_same(found, expected)


@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt", "rsqrt", "sigmoid", "erf", "floor", "round", "fabs"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(name, dtype):
    x = np.abs(RNG.normal(size=40)).astype(dtype) + 0.1
    func = elementwise(lambda a: getattr(tir, name)(a), [dtype], dtype, 40)
    check_native(func, [x], np.zeros(40, dtype), target="c", rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64"])
def test_bits(dtype):
    def body(a, b):
        return tir.bitwise_xor(tir.shift_left(a, b), tir.shift_right(a, const(3, dtype))) + tir.popcount(a)

    amounts = RNG.integers(0, np.iinfo(dtype).bits, 50).astype(dtype)
    check_native(
        elementwise(body, [dtype, dtype], dtype, 50), [sample(dtype, 50, RNG), amounts], np.zeros(50, dtype), target="c"
    )


def test_if_else_and_select():
    x, y = tir.decl_buffer((N,), "float32", "x"), tir.decl_buffer((N,), "float32", "y")
    v = Var("v", "float32")

    def body(i):
        low = store(y, i, Let(v, load(x, i) * const(2.0, "float32"), v + v))
        high = store(y, i, Select(load(x, i) > const(0.0, "float32"), load(x, i), const(-1.0, "float32")))
        return tir.IfThenElse(i < floordiv(N, int64(2)), low, high)

    a, out = f32(31), np.zeros(31, np.float32)
    weft.build(function([x, y], loop(N, body, tir.ForKind.PARALLEL)), target="c")(a, out)
    expected = np.where(np.arange(31) < 15, a * 4, np.where(a > 0, a, -1))
    np.testing.assert_allclose(out, expected)


def test_if_then_else_guards_a_load():
    x, y = tir.decl_buffer((int64(4),), "float32", "x"), tir.decl_buffer((int64(9),), "float32", "y")
    func = function(
        [x, y], loop(9, lambda i: store(y, i, tir.if_then_else(i < int64(4), load(x, i), const(7.0, "float32"))))
    )
    a, out = f32(4), np.zeros(9, np.float32)
    weft.build(func, target="c")(a, out)
    np.testing.assert_array_equal(out, [*a, *[7] * 5])


@pytest.mark.parametrize("n", [3, 5000])
def test_workspace_on_the_stack_and_off(n):
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((n,), lambda i: b[n - 1 - i] * b[i], name="c")
    x = f32(n)
    np.testing.assert_allclose(check_te([a, c], [x], (n,)), (x[::-1] + 1) * (x + 1), rtol=1e-5)
    assert ("weft_alloc(((int64_t)" in get_source(te.create_prim_func([a, c]), "c", "c")) == (n > 4096)


def test_scalars_and_expressions_of_dimensions():
    """An extent 2 * n + 1 alone gives n."""
    x, y = tir.decl_buffer((N * 2 + 1,), "float32", "x"), tir.decl_buffer((N,), "float32", "y")
    k = Var("k", "int32")
    module = weft.build(
        function([x, k, y], loop(N, lambda i: store(y, i, load(x, i * 2 + 1) + cast("float32", k)))), target="c"
    )
    a, out = f32(11), np.zeros(5, np.float32)
    module(a, 3, out)
    np.testing.assert_allclose(out, a[1::2] + 3)
    refuses(TypeError, "expected int", module, a, 3.5, out)
    refuses(ValueError, "shape", module, f32(10), 3, out)


def test_assertion():
    x = tir.decl_buffer((N,), "float32", "x")
    body = tir.AssertStmt(N < int64(8), tir.StringImm('at most 7, "please" %d'), store(x, 0, const(1.0, "float32")))
    module = weft.build(function([x], body), target="c")
    out = f32(3)
    module(out)
    assert out[0] == 1
    refuses(Exception, 'at most 7, "please" %d', module, f32(8))


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        ((4, 4), TypeError, "(?s)Expected 3 arguments .*found 2"),
        ((4, 4, None), TypeError, "(?s)argument #2 .*Tensor"),
        ((4, 5, 4), ValueError, r"(?s)shape\[0\] on argument #1 .*to match .*shape\[0\] == 4, found 5"),
        (((2, 2), 4, 4), ValueError, "(?s)ndim on argument #0 .*expected 1, found 2"),
    ],
)
def test_wrong_arguments(add, args, kind, message):
    values = [a if a is None else f32(*(a if isinstance(a, tuple) else (a,))) for a in args]
    refuses(kind, message, add, *values)


def test_wrong_dtype_and_strides(add):
    refuses(TypeError, "expected float32, found float64", add, f32(4), f32(4).astype(np.float64), f32(4))
    refuses(ValueError, "compact array", add, f32(8)[::2], f32(4), f32(4))


def test_several_functions_and_source():
    functions = [elementwise(lambda a: a + a, ["int32"], "int32", 4, name=n) for n in ("one", "two")]
    module = weft.build(functions, target=Target("c -march=native"))
    for name in ("one", "two"):
        out = np.zeros(4, np.int32)
        module[name](np.arange(4, dtype=np.int32), out)
        assert out.tolist() == [0, 2, 4, 6]
    text = get_source(functions[0], "c", "c")
    assert "int __tvm_ffi_one(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret)" in text
    refuses(error.CodegenError, "no source of kind 'asm'", get_source, functions[0], "c", "asm")


def test_exported_library(tmp_path):
    module = weft.build(elementwise(lambda a: tir.exp(a), ["float32"], "float32", 4, name="grow"), target="c")
    loaded = weft.runtime.load_module(module.export_library(tmp_path / "grow.so"))
    x, out = f32(4), np.zeros(4, np.float32)
    loaded["grow"](x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)


def test_what_c_does_not_express():
    refuses(error.CodegenError, "float16", weft.build, elementwise(lambda a: a, ["float16"], "float16", 4), target="c")
    with pytest.raises(error.CodegenError, match="no name of a C function"):
        weft.build(elementwise(lambda a: a, ["int32"], "int32", 4, name="a.b"), target="c")


def test_missing_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(error.MissingDependency, match="C compiler"):
        weft.build(elementwise(lambda a: a, ["int32"], "int32", 4), target="c")


def test_users_generator():
    """A generator of a kind that nothing here knows is found by its name."""
    seen = []

    def generate(mod, target):
        seen.append((sorted(v.name_hint for v, _ in mod.items()), target.kind.name, target.attrs))
        return weft.build(mod, target="c")

    refuses(error.InvalidArgument, "unknown target kind 'toy'", Target, "toy")
    weft.register_global_func("target.build.toy", generate, override=True)
    module = weft.build(elementwise(lambda a: a + a, ["int32"], "int32", 3, name="twice"), target="toy -speed=9")
    out = np.zeros(3, np.int32)
    module["twice"](np.arange(3, dtype=np.int32), out)
    assert out.tolist() == [0, 2, 4]
    assert seen == [(["twice"], "toy", {"speed": "9"})]


def test_packed_functions_take_numbers_and_strings():
    seen = []

    def note(*args):
        seen.append(args)
        return args[0] * 2

    weft.register_global_func("test.c_note", note, override=True)
    out = tir.decl_buffer((3,), "float64", name="out")
    n = Var("n", "int32")
    call = tir.call_packed("test.c_note", n, 2.5, "text", tir.const(1, "bool"))
    half = tir.Call("float64", call.op, (tir.StringImm("test.c_note"), const(0.75, "float64")))
    stores = tir.SeqStmt(
        (
            tir.BufferStore(out, cast("float64", call), (const(0, "int32"),)),
            tir.BufferStore(out, half, (const(1, "int32"),)),
            tir.Evaluate(call),
        )
    )
    handle = Var("out_handle", "handle")
    f = weft.build(
        tir.PrimFunc((n, handle), stores, None, ((handle, out),)).with_attr("global_symbol", "f"), target="c"
    )
    found = np.zeros(3)
    f(21, found)
    assert found.tolist() == [42, 1.5, 0] and seen[0] == (21, 2.5, "text", True) and len(seen) == 3
    missing = tir.PrimFunc((), tir.Evaluate(tir.call_packed("test.c_missing"))).with_attr("global_symbol", "g")
    refuses(ValueError, "no global function 'test.c_missing'", weft.build(missing, target="c"))
