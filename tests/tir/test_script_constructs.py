"""Every construct of TIR scripts: read, printed, read again, the same."""

import importlib

import numpy as np
import pytest

from tests import texts
from tests.refusals import refuses
from weft import ir, tir
from weft.error import InvalidArgument, ParseError
from weft.script import from_source

FUNCTIONS = """
def strides(a: T.handle):
    n = T.int32()
    s = T.int32()
    A = T.match_buffer(a, (n, 4), "float32", strides=(s, 1), elem_offset=0, align=64, offset_factor=1)
    A[0, 0] = T.float32(1)
def elem_offset(a: T.handle):
    o = T.int32()
    A = T.match_buffer(a, (16,), "float16", elem_offset=o, scope="shared", buffer_type="auto")
    A[0] = T.float16(1)
def axis_separators(a: T.handle):
    A = T.match_buffer(a, (16, 16), "int8", axis_separators=[1])
    A[0, 0] = T.int8(1)
def buffer_annotation(A: T.Buffer((4, 4), "float32", strides=[8, 1], elem_offset=2),
      B: T.Buffer((4,), scope="local"), C: T.Buffer(4, "int32")):
    A[0, 1] = B[2]
    C[3] = 5
def alloc_old(A: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,), "float32", scope="shared", strides=[1])
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            T.reads(A[vi])
            T.writes(B[vi])
            T.block_attr({"pragma": 1, "s": "x", "l": [1, 2], "f": 0.5})
            B[vi] = A[vi]
def where(A: T.Buffer((15,), "float32")):
    for i, j in T.grid(4, 4):
        with T.block():
            T.where(i * 4 + j < 15)
            v = T.axis.S(15, i * 4 + j)
            A[v] = T.float32(1)
def init(A: T.Buffer((4, 5), "float32"), C: T.Buffer((4,), "float32")):
    for i, j in T.grid(4, 5):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.reduce(5, j)
            with T.init():
                C[vi] = T.float32(0)
            C[vi] += A[vi, vj]
def LetStmt(A: T.Buffer((4,), "int32")):
    y: T.int32 = A[0] * 2
    with T.LetStmt(y + 1) as z:
        A[1] = z
    w: T.let[T.int32] = A[2]
    A[3] = w
def Let(A: T.Buffer((4,), "int32")):
    x = T.int32()
    A[0] = T.Let(x + 1, where={x: A[1]})
def attr(A: T.Buffer((4,), "int32")):
    with T.attr(A.data, "storage_alignment", 64):
        A[0] = 1
    T.attr(0, "pragma_x", "text")
    A[1] = 2
def launch(A: T.Buffer((128,), "int32")):
    bx = T.launch_thread("blockIdx.x", 4)
    with T.launch_thread("threadIdx.x", 32) as tx:
        A[bx * 32 + tx] = 1
def env_thread(A: T.Buffer((128,), "int32")):
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 128)
    A[tx] = 1
def thread_loops(A: T.Buffer((128,), "int32")):
    for i in T.thread_binding(4, thread="blockIdx.x", annotations={"k": 1}):
        for j in T.thread_binding(0, 32, thread="threadIdx.x"):
            A[i * 32 + j] = 1
def loops(A: T.Buffer((128,), "int32")):
    for i in T.serial(0, 4, annotations={"a": "b"}):
        for j in T.parallel(2):
            for k in T.unroll(2):
                for l in T.vectorized(8):
                    A[i * 32 + j*16 + k*8 + l] = 1
    for i in range(2, 6):
        A[i] = 3
    for i in T.serial(10, step=2):
        A[i] = 3
def assert_(A: T.Buffer((4,), "int32")):
    assert A[0] > 0, "positive"
    with T.Assert(A[1] > 0, "also"):
        A[2] = 1
    T.Assert(A[3] == 1, "x")
def while_(A: T.Buffer((4,), "int32")):
    while A[0] < 10:
        A[0] = A[0] + 1
    with T.While(A[1] < 3):
        A[1] = A[1] + 1
def calls(A: T.Buffer((4,), "float32"), h: T.handle):
    T.evaluate(T.call_packed("foo", A.data, 1, T.float32(2), "text"))
    T.call_packed("bar")
    T.call_extern("int32", "ext", A.data, 3)
    T.call_extern("void", "ext2", A.access_ptr("r"))
    A[0] = T.call_pure_extern("float32", "sinf", A[1])
    A[1] = T.call_llvm_pure_intrin("float32", "llvm.fabs", T.uint32(1), A[0])
    A[2] = T.call_llvm_intrin("float32", "llvm.sqrt", A[0])
    T.tvm_call_packed("p", 1, 2)
    T.evaluate(0)
def tvm(A: T.Buffer((4,), "float32"), h: T.handle):
    sh = T.tvm_stack_make_shape(4, 5)
    T.evaluate(T.tvm_stack_make_array(A.data, sh, 0, 1, T.float32(0), 0, dtype="handle"))
    st = T.tvm_stack_alloca("array", 2)
    T.evaluate(T.tvm_struct_get(st, 0, 1, dtype="handle"))
    T.tvm_struct_set(st, 0, 1, T.int32(3))
    T.evaluate(T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 4, 1))
    T.tvm_storage_sync("shared")
    T.evaluate(T.tvm_throw_last_error())
    T.evaluate(T.isnullptr(h))
    T.evaluate(T.tvm_thread_allreduce(T.uint32(1), A[0], T.bool(True), A.data, 0, dtype="handle"))
    T.evaluate(T.tvm_warp_shuffle(T.uint32(1), A[0], 0, 32, 32))
def ptr(p: T.handle("float32"), q: T.handle("int8", "shared"), r: T.handle):
    A = T.Buffer((16,), "float32", data=p)
    B = T.decl_buffer((4,), "int8", data=q, scope="shared")
    A[0] = T.Cast("float32", B[0])
    T.evaluate(T.address_of(A[3]))
def dtypes(a: T.Buffer((1,), "int8"), b: T.Buffer((1,), "uint16"), c: T.Buffer((1,), "bfloat16"),
      d: T.Buffer((1,), "float8_e4m3fn"), e: T.Buffer((1,), "bool"), g: T.Buffer((1,), "float64"),
      h: T.Buffer((1,), "uint64"), i: T.Buffer((1,), "float8_e5m2"), j: T.Buffer((1,), "int4")):
    a[0] = T.int8(-3)
    b[0] = T.uint16(7)
    c[0] = T.bfloat16(1.5)
    d[0] = T.float8_e4m3fn(0.5)
    e[0] = T.bool(True)
    g[0] = T.float64(1e300) + T.float64("inf") + T.float64("-inf") + T.float64("nan")
    h[0] = T.uint64(18446744073709551615)
    i[0] = T.float8_e5m2(2)
    j[0] = T.Cast("int4", 3)
def vectors(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "int32")):
    A[0:4] = T.Broadcast(T.float32(1), 4)
    A[T.Ramp(0, 2, 8)] = T.broadcast(T.float32(2), 8)
    B[T.ramp(0, 1, 4)] = T.Shuffle([B[0:2], B[2:4]], [3, 2, 1, 0])
    B[0] = T.Shuffle([B[0:4]], [2])
    A[0:8:2] = A[8:16:2]
    B[0:4] = T.Select(B[4:8] > T.Broadcast(0, 4), B[4:8], T.Broadcast(1, 4))
    A[0:4] = T.Cast("float32x4", B[0:4])
def scalars(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "int32")):
    A[0] = T.Select(B[0] > 0, A[1], A[2])
    A[1] = T.if_then_else(B[0] > 0 and not B[1] == 2 or B[2] != 1, A[1], T.float32(0))
    B[0] = T.truncdiv(B[1], 3) + T.truncmod(B[1], 3)
    B[7] = B[1] // 3 + B[1] % 3 + T.floordiv(B[1], 2) + T.floormod(B[1], 2)
    A[2] = A[0] / A[1] + T.max(A[0], A[1]) * T.min(A[0], T.float32(0.5)) - (-A[0])
    B[1] = (B[0] << 2) >> 1 | B[2] & B[3] ^ ~B[4]
    B[2] = T.shift_left(B[0], 1) + T.bitwise_and(B[0], 3)
    A[3] = T.exp(A[0]) + T.sqrt(A[0]) + T.tanh(A[1]) + T.sigmoid(A[0])
    A[6] = T.erf(A[0]) + T.pow(A[0], A[1]) + T.rsqrt(A[0]) + T.atan2(A[0], A[1])
    A[7] = T.floor(A[0]) + T.ceil(A[0]) + T.round(A[0]) + T.trunc(A[0]) + T.fabs(A[0])
    A[8] = T.log2(A[0]) + T.log1p(A[0]) + T.cosh(A[0])
    A[9] = T.hypot(A[0], A[1]) + T.copysign(A[0], A[1])
    A[10] = T.nextafter(A[0], A[1]) + T.fmod(A[0], A[1]) + T.ldexp(A[0], B[1])
    B[3] = T.Cast("int32", A[0]) + T.cast(A[1], "int32") + A[2].astype("int32")
    B[8] = T.reinterpret("int32", A[0]) + T.abs(B[0])
    B[4] = T.ceildiv(B[0], 4) + T.popcount(B[0]) + T.clz(B[0])
    B[6] = T.likely(B[0] > 1).astype("int32") + T.min_value("int32") + T.max_value("int32")
    T.evaluate(T.isnan(A[0]))
    T.evaluate(T.isinf(A[0]) or T.isfinite(A[1]))
    B[5] = T.q_multiply_shift(B[0], B[1], 31, 0)
    T.assume(B[0] > 0)
    T.ret(0)
def func_attr(A: T.Buffer((4,), "int32")) -> T.int32:
    T.func_attr({"global_symbol": "g", "tir.noalias": True, "n": 3, "list": ["a", "b"], "d": {"x": 1}})
    return A[0]
def target(A: T.Buffer((4,), "int32")):
    T.func_attr({"target": T.target("llvm"), "calling_conv": 2})
    A[0] = 1
def match_inside(A: T.Buffer((16, 16), "float32")):
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            T.reads(A[v * 4:v * 4 + 4, 0:16])
            T.writes(A[v * 4:v * 4 + 4, 0:16])
            s0 = T.int32()
            s1 = T.int32()
            W = T.match_buffer(A[v * 4:v * 4 + 4, 0:16], (4, 16), strides=[s0, s1], offset_factor=1)
            W[0, 0] = W[1, 1]
def axes(A: T.Buffer((16, 16), "float32")):
    for i, j, k, l, m in T.grid(4, 4, 4, 4, 4):
        with T.block("b"):
            v = T.axis.spatial((0, 4), i)
            w = T.axis.reduce(4, j)
            x = T.axis.scan(4, k)
            y = T.axis.opaque(4, l)
            z, = T.axis.remap("S", [m])
            T.reads()
            T.writes(A[v, 0:16])
            A[v, z] = T.float32(1)
def nested_block(A: T.Buffer((16,), "float32")):
    with T.block("root"):
        T.reads(A[0:16])
        T.writes(A[0:16])
        T.block_attr({"x": 1})
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("o"):
                v = T.axis.spatial(4, i)
                for j in range(4):
                    with T.block("i"):
                        w = T.axis.spatial(4, j)
                        A[v * 4 + w] = B[w]
def allocate(A: T.Buffer((4,), "int32")):
    d = T.allocate([16], "int32", "global", annotations={"k": 1})
    B = T.decl_buffer((16,), "int32", data=d)
    B[0] = A[0]
    with T.allocate((4,), "float32", "local") as p:
        C = T.Buffer((4,), "float32", data=p)
        C[0] = T.float32(1)
    A[0] = B[0]
def if_(A: T.Buffer((4,), "int32"), n: T.int32):
    if n > 3:
        A[0] = 1
    elif n > 2:
        A[1] = 2
    else:
        A[2] = 3
    if n == 0:
        pass
    with T.If(n < 9):
        with T.Then():
            A[3] = 4
        with T.Else():
            A[0] = 4
def scalar_args(x: T.int64, y: T.float32, z: T.bool, h: T.handle, A: T.Buffer((1,), "float32")):
    A[0] = T.Select(z, y, T.Cast("float32", x))
def realize(A: T.Buffer((4,), "int32")):
    with T.realize(A[0:4], "global", True):
        A[0] = 1
def prefetch(A: T.Buffer((4,), "int32")):
    T.buffer_store(A, 1, [0])
def meta(A: T.Buffer((16,), "int32")):
    n = T.meta_var(4)
    for i in T.unroll(n):
        A[i + n] = 1
def comment_var_ops(A: T.Buffer((16,), "int32")):
    '''A doc string.'''
    A[1] = T.Add(A[0], 2)
    A[2] = T.Mul(T.Sub(A[0], 1), T.FloorMod(A[1], 3)) + T.Div(A[0], 2) + T.Mod(A[0], 2)
    T.evaluate(T.And(T.LT(A[0], 1), T.Or(T.GE(A[1], 2), T.Not(T.EQ(A[2], 3)))))
    T.evaluate(T.NE(A[0], 1) and T.LE(A[0], 2) and T.GT(A[0], 1))
"""
CASES = {name: "@T.prim_func\n" + text for name, text in texts.named(FUNCTIONS, texts.FUNCTIONS).items()} | {
    "module": """
@I.ir_module
class M:
    I.module_attrs({"a": 1})
    @T.prim_func(private=True)
    def helper(A: T.Buffer((4,), "int32")):
        A[0] = 1
    @T.prim_func
    def main(A: T.Buffer((4,), "int32")):
        M.helper(A.data)
        T.evaluate(M.helper(A.data))
"""
}


@pytest.mark.parametrize("name", CASES)
def test_reads_as_printed(name):
    first = from_source(CASES[name])
    text = first.script()
    again = from_source(text)
    assert ir.structural_equal(first, again)
    assert again.script() == text


def run(body, n=12):
    func = from_source(f"@T.prim_func\ndef f(A: T.Buffer(({n},), 'int32'), B: T.Buffer(({n},), 'int32')):\n{body}")
    a, b = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    tir.interpret(func, a, b)
    return a, b


def test_loops_with_steps():
    a, b = run("""
    for i in T.serial(1, 12, step=4):
        B[i] = A[i] + 1
    for i in T.serial(10, step=5):
        B[i] = -1
""")
    expected = np.zeros(12, np.int32)
    expected[1::4] = a[1::4] + 1
    expected[:10:5] = -1
    np.testing.assert_array_equal(b, expected)


def test_scopes_written_with_with():
    _, b = run("""
    with T.While(B[0] < 5):
        B[0] = B[0] + 1
    with T.If(B[0] == 5):
        with T.Then():
            B[1] = 2
        with T.Else():
            B[1] = 3
    with T.If(A[0] == 7):
        with T.Then():
            B[2] = 2
""")
    assert list(b[:3]) == [5, 2, 0]


def test_memory_by_pointer():
    a, b = run("""
    p = T.allocate([12], "int32", "global")
    C = T.decl_buffer((12,), "int32", data=p)
    for i in range(12):
        C[i] = A[11 - i]
    for i in range(12):
        B[i] = C[i] * 2
""")
    np.testing.assert_array_equal(b, a[::-1] * 2)


def test_slices_in_expressions():
    a, b = run("""
    B[0:4] = A[4:8] * 2 + A[0:4]
    B[4:8] = T.max(A[0:4], A[8:12])
    T.buffer_store(B, T.Shuffle([A[0:2], A[2:4]], [3, 2, 1, 0]), [T.Ramp(8, 1, 4)])
""")
    np.testing.assert_array_equal(b, [*(a[4:8] * 2 + a[:4]), *a[8:12], 3, 2, 1, 0])


def test_texts_of_tvm_0_9():
    """Parameters flattened by a second statement, and memory whose elements the pointer names."""
    after = from_source("""
@T.prim_func
def after(A: T.Buffer[(16,), "float32"], B: T.Buffer[16, "float32"]):
    T.preflattened_buffer(A, (4, 4), "float32", data=A.data)
    T.preflattened_buffer(B, [16])
    with T.allocate([16], "float32", "global") as D:
        D[0] = A[0]
    C = T.allocate([16], "float32", "global")
    for i in range(16):
        C[i] = A[i] * 2.0
    for i in range(16):
        B[i] = C[i] + A[0]
""")
    assert [tuple(b.shape) for _, b in after.buffer_map] == [(4, 4), (16,)]
    ir.assert_structural_equal(from_source(after.script()), after)
    a, b = np.arange(16, dtype="float32").reshape(4, 4), np.zeros(16, "float32")
    tir.interpret(after, a, b)
    np.testing.assert_array_equal(b, a.ravel() * 2 + a[0, 0])
    with pytest.raises(ParseError, match="takes a parameter's buffer"):
        from_source("@T.prim_func\ndef f():\n    A = T.alloc_buffer((4,))\n    T.preflattened_buffer(A, (2, 2))")


def test_a_symbol_that_only_the_def_says():
    first, second, other = (from_source(f"@T.prim_func\ndef {n}(): T.evaluate({x})") for n, x in ("f0", "g0", "f1"))
    ir.assert_structural_equal(first, second)
    assert not ir.structural_equal(first, second)
    for wrong in (other, second.with_attr("global_symbol", "g")):
        refuses(ValueError, "differ at root", ir.assert_structural_equal, first, wrong)
    module = ir.IRModule.from_expr(first)
    assert module["main"] is module["f"] is first
    with pytest.raises(InvalidArgument, match="no function 'main'"):
        ir.IRModule({"f": first.with_attr("global_symbol", "f")})["main"]


def test_names_of_functions_around_that_are_being_called(tmp_path, monkeypatch):
    """Annotations that are text make no cells: names are those of functions around, and of no other caller."""
    (tmp_path / "nested_sizes.py").write_text("""
from __future__ import annotations
from weft.script import tir as T

def outer(M, inside=True):
    def middle(N):
        @T.prim_func
        def func(A: T.Buffer((M, N), "float32")):
            T.evaluate(0)
        return func
    return middle(8) if inside else middle

def caller(M):
    return outer(M, inside=False)

def elsewhere(M, make):
    return make(8)
""")
    monkeypatch.syspath_prepend(tmp_path)
    nested_sizes = importlib.import_module("nested_sizes")

    for size in (16, 32):
        assert tuple(nested_sizes.outer(size).buffer_map[0][1].shape) == (size, 8)
    refuses(ParseError, "name 'M' is not defined", nested_sizes.elsewhere, 5, nested_sizes.caller(4))


def test_a_python_tuple_is_unpacked_as_it_is():
    from weft.script import tir as T

    def swapped(i, j):
        return T.meta_var((j * 2, i))

    @T.prim_func
    def func(A: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(4, 4):
            first, second = swapped(i, j)
            A[first, second] = T.float32(1)

    @T.prim_func
    def plain(A: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(4, 4):
            A[j * 2, i] = T.float32(1)

    ir.assert_structural_equal(func.with_attr("global_symbol", "plain"), plain.with_attr("global_symbol", "plain"))
