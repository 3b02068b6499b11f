"""TVMScript of TIR: what is read, what is printed, and that reading what is printed gives the same program."""

import numpy as np
import pytest

import weft
from tests.ir.programs import matmul_func
from weft import error, ir, tir
from weft.ir import IntImm, SizeVar, StringImm, Var, assert_structural_equal, const, walk
from weft.script import from_source
from weft.script import tir as T
from weft.tir import BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, PrimFunc, SeqStmt


def round_trip(func):
    text = func.script()
    back = from_source(text)
    assert_structural_equal(func, back)
    assert back.script() == text
    return text


def plain(body, params=(), buffer_map=()):
    """A lowered function."""
    return PrimFunc(tuple(params), body, None, tuple(buffer_map), ir.Attrs.of(global_symbol="main"))


def test_matmul_reads_as_built():
    @T.prim_func
    def matmul(A: T.Buffer((16, 4), "float32"), B: T.Buffer((4, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(16, 8, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    assert_structural_equal(matmul, matmul_func())
    assert "with T.sblock" in round_trip(matmul)


def test_function_inside_a_function_sees_closures():
    n, dtype, scale = 12, "float16", 0.5

    @T.prim_func(private=True)
    def f(A: T.Buffer((n,), dtype), B: T.Buffer((n,), dtype)):
        for i in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * scale

    assert f.buffer_map[0][1].dtype == "float16"
    assert "global_symbol" not in f.attrs
    assert "@T.prim_func(private=True)" in round_trip(f)


def test_every_kind_of_loop():
    @T.prim_func
    def f(A: T.Buffer((4, 8, 16), "float32")):
        for i in T.parallel(4):
            for j in T.unroll(8, annotations={"pragma": 1, "sizes": [1, 2]}):
                for k in T.vectorized(16):
                    A[i, j, k] = 0.0
        for i in T.serial(1, 4):
            A[i, 0, 0] = 1.0
        for b in T.thread_binding(4, thread="blockIdx.x"):
            A[b, 0, 0] = 2.0

    kinds = [n.kind for n in ir.walk(f) if isinstance(n, For)]
    assert kinds == [ForKind.PARALLEL, ForKind.UNROLLED, ForKind.VECTORIZED, ForKind.SERIAL, ForKind.THREAD_BINDING]
    text = round_trip(f)
    assert "T.serial(1, 4)" in text and 'thread="blockIdx.x"' in text


def test_symbolic_shapes():
    @T.prim_func
    def f(a: T.handle, b: T.handle, n: T.int64):
        m = T.int64(is_size_var=True)
        A = T.match_buffer(a, (n, m), "float32", strides=[m + 1, 1], elem_offset=4, align=128, offset_factor=8)
        B = T.match_buffer(b, (m,), "int8", scope="local")
        for i, j in T.grid(n, m):
            B[j] = T.Cast("int8", A[i, j])

    first = f.buffer_map[0][1]
    assert isinstance(first.shape[1], SizeVar) and first.data_alignment == 128 and first.offset_factor == 8
    assert f.buffer_map[1][1].scope == "local"
    round_trip(f)


def test_blocks_with_everything():
    @T.prim_func
    def f(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128,), "float32")):
        C = T.sblock_alloc_buffer((128, 128), "float32", scope="shared")
        for i, j in T.grid(128, 33):
            with T.sblock("scan"):
                vi = T.axis.spatial((0, 128), i)
                vj = T.axis.reduce((2, 128), j * 4 + 2)
                T.where(j * 4 + 2 < 128)
                T.reads(A[vi, 0 : vj + 1], C[vi, vj])
                T.writes(B[vi])
                T.sblock_attr({"layout": "NCHW", "depth": 2})
                D = T.sblock_alloc_buffer((4,), "int32")
                sub = T.match_buffer(A[vi : vi + 1, 0:16], (1, 16), "float32", strides=[128, 1], elem_offset=vi * 128)
                with T.init():
                    B[vi] = T.float32("-inf")
                D[0] = vj
                B[vi] = T.max(B[vi], sub[0, 1] + T.Cast("float32", D[0]) + C[vi, vj])

    block = f.root.body.body.body.block
    assert block.iter_vars[1].dom.min.value == 2 and block.iter_vars[1].dom.extent.value == 126
    assert block.name_hint == "scan" and block.annotations["depth"] == 2
    assert len(block.match_buffers) == 1 and len(f.root.alloc_buffers) == 1
    round_trip(f)


def test_regions_that_are_not_stated_are_found():
    @T.prim_func
    def f(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.sblock("row"):
                vi = T.axis.spatial(16, i)
                for j in range(8):
                    B[vi] = B[vi] + A[vi, j]

    block = f.root.body.body.block
    assert [r.buffer.name for r in block.writes] == ["B"]
    assert any(r.buffer.name == "A" and r.region[1].extent.value == 8 for r in block.reads)


def test_statements_of_lowered_functions():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), n: T.int32):
        x: T.let[T.int32] = n * 2
        y = x + 1
        assert n > 0, "n must be positive"
        buf = T.alloc_buffer((8,), "float32", scope="local")
        view = T.decl_buffer((4, 2), "float32", data=buf.data)
        T.attr(buf, "storage", "fast")
        tx = T.launch_thread("threadIdx.x", 8)
        if tx < y:
            buf[tx] = A[tx]
        elif tx == 7:
            view[0, 1] = 1.0
        else:
            T.evaluate(0)
        while A[0] < T.float32(3):
            A[0] = A[0] + T.float32(1)
        T.call_packed("my.func", A, 3, "text")
        T.evaluate(T.call_extern("int32", "c_func", A.data, n))

    text = round_trip(f)
    for word in 'T.launch_thread elif while T.alloc_buffer T.decl_buffer T.attr assert T.call_packed("my.func"'.split():
        assert word in text


def test_scopes_that_end_before_the_sequence():
    a = tir.decl_buffer((8,), "float32", "A")

    def store(value, i):
        return BufferStore(a, const(value, "float32"), (i if isinstance(i, ir.PrimExpr) else const(i),))

    x = Var("x", "int32")
    local = tir.decl_buffer((4,), "int32", "local", scope="local")
    body = SeqStmt(
        (
            LetStmt(x, const(3), store(1.0, x)),
            tir.AllocBuffer(local, BufferStore(local, const(1), (const(0),))),
            tir.AssertStmt(a[const(0)] < 1.0, StringImm("m"), store(2.0, 1)),
            tir.AttrStmt(const(0), "pragma", const(1), store(3.0, 2)),
            store(4.0, 3),
        )
    )
    param = Var("a", "handle")
    assert round_trip(plain(body, [param], [(param, a)])).count("    with ") == 4


def test_nested_allocations_of_one_buffer():
    """Passes copy bodies, so one buffer may be allocated in several places."""
    a = tir.decl_buffer((8,), "float32", "A")
    local = tir.decl_buffer((4,), "float32", "local")
    i = Var("i", "int32")
    inner = For(i, const(0), const(4), ForKind.SERIAL, tir.AllocBuffer(local, BufferStore(local, a[i], (i,))))
    param = Var("a", "handle")
    func = plain(SeqStmt((inner, inner)), [param], [(param, a)])
    assert_structural_equal(func, from_source(func.script()))
    assert ir.fingerprint(func) == ir.fingerprint(from_source(func.script()))


def test_views_of_memory_made_inside():
    a = tir.decl_buffer((8,), "float32", "A")
    local = tir.decl_buffer((4,), "float32", "local")
    flat = tir.decl_buffer((2, 2), "float32", "flat", data=local.data)
    ptr = Var("ptr", "handle")
    body = tir.AllocBuffer(
        local,
        SeqStmt(
            (
                BufferStore(flat, const(1.0), (const(0), const(1))),
                LetStmt(
                    ptr,
                    ir.CallIntrin("handle", ir.Op.get("tir.address_of"), (a[0],)),
                    BufferStore(tir.decl_buffer((4,), "int8", "view", data=ptr), const(1, "int8"), (const(0),)),
                ),
            )
        ),
    )
    param = Var("a", "handle")
    text = round_trip(plain(body, [param], [(param, a)]))
    assert "data=local.data" in text and "data=ptr" in text


def test_vectors():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "int32")):
        A[T.Ramp(0, 1, 8)] = T.Broadcast(T.float32(1), 8) + A[T.Ramp(8, 2, 8)]
        B[T.Ramp(0, 1, 4)] = T.Select(T.Broadcast(T.bool(True), 4), T.Broadcast(1, 4), T.Ramp(0, 1, 4))
        A[0] = T.Shuffle([A[T.Ramp(0, 1, 4)]], [2])
        T.BufferStore(A, T.Broadcast(T.float32(0), 4), [T.Ramp(0, 1, 4)], T.Broadcast(T.bool(True), 4))

    assert f.body.seq[0].value.dtype == "float32x8"
    assert f.body.seq[3].predicate is not None
    round_trip(f)


X, Y, N, F = Var("x", "int32"), Var("y", "int64"), SizeVar("n", "int64"), Var("f", "float32")
SUMS = [X + 1, 1 - X, -X, X * (X + 2), (X * X) + 2, X - (X - 1), N * 4 + 1, ir.const(-1) * X]
QUOTIENTS = [X // 3 % 4, ir.div(X, 3), ir.truncmod(X, 3), N // 2, ir.ceildiv(N, 8)]
TRUTHS = [(X < 1) & (X > -5), ir.logical_or(ir.logical_and(X < 1, X > 2), ir.logical_not(X == 3)), ir.equal(X, Y)]
CHOICES = [ir.min_(X, 3), ir.max_(Y, N), ir.select(X < 1, F, F + 1.0), ir.if_then_else(X < 1, X, X + 1)]
UNFOLDED = [ir.Add(const(1), const(2)), ir.Mul(X, const(0)), ir.Add(const(0), X), ir.Sub(X, const(0))]
UNFOLDED += [ir.And(ir.TRUE, X < 1), ir.Not(ir.TRUE), ir.LT(const(1), const(2)), ir.FloorDiv(X, const(0))]
REALS = [F * 2.0 + 0.1, F / 3.0, ir.const(float("inf")) * F, ir.const(1e-30) + F, F < 0.5, ir.Div(F, F)]
CASTS = [ir.cast("int64", X) + Y, ir.Cast("int32", X), tir.reinterpret("int32", F)]
LITERALS = [IntImm("uint8", 200), IntImm("int8", -128), IntImm("bool", 1), const(2**40, "int64")]
LITERALS += [ir.FloatImm("float32", float("-inf")), ir.const(1.5, "bfloat16"), ir.const(3, "float16")]
LITERALS += [StringImm('quo"te\n\\')]
BITS = [X << 2, X >> 1, X & 7, X | 1, X ^ 3, ~X, tir.popcount(X)]
FUNCTIONS = [tir.exp(F), tir.sqrt(F * F), tir.isnan(F), ir.abs_(X), ir.abs_(F), tir.pow(F, F), tir.atan2(F, F)]
CALLS = [
    tir.likely(X < 1),
    tir.call_extern("float32", "g", F, X, "s"),
    tir.call_llvm_intrin("float32", "llvm.fma", F, F, F),
    tir.call_intrin("float32", "tir.unheard_of", F, 1, "s"),
    ir.CallIntrin("int32", ir.GlobalVar("h"), (X, const(1, "int64"))),
    ir.CallIntrin("float32", ir.Op.get("tir.exp"), (F,), ir.Attrs.of(fast=True)),
    ir.Let(X, const(3), X * X),
]
KINDS = [SUMS, QUOTIENTS, TRUTHS, CHOICES, UNFOLDED, REALS, CASTS, LITERALS, BITS, FUNCTIONS, CALLS]


@pytest.mark.parametrize("expr", [e for kind in KINDS for e in kind], ids=str)
def test_expressions(expr):
    func = plain(Evaluate(expr), (X, Y, N, F))
    assert_structural_equal(func, from_source(func.script()))


def test_random_expressions():
    rng = np.random.default_rng(0)
    leaves = [X, Var("z", "int32"), const(3), const(-2), const(0), const(1)]

    def build(depth):
        if depth == 0 or rng.random() < 0.15:
            return leaves[rng.integers(len(leaves))]
        a, b = build(depth - 1), build(depth - 1)
        cls = [ir.Add, ir.Sub, ir.Mul, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max, ir.Div, ir.Mod][rng.integers(9)]
        if rng.random() < 0.2:
            compare = [ir.LT, ir.LE, ir.GT, ir.GE, ir.EQ, ir.NE][rng.integers(6)](a, b)
            other = ir.LT(b, a)
            test = [ir.And(compare, other), ir.Or(compare, ir.Not(other)), compare][rng.integers(3)]
            return ir.Select(test, a, b)
        return cls(a, b)

    for _ in range(150):
        func = plain(Evaluate(build(5)), tuple(leaves[:2]))
        assert_structural_equal(func, from_source(func.script()))


def test_names_are_unique_and_safe():
    a, b = Var("for", "int32"), Var("for", "int32")
    c, d = Var("x.1", "int32"), Var("", "int32")
    func = plain(Evaluate(a + b + c + d), (a, b, c, d))
    names = [line for line in func.script().splitlines() if line.startswith("def")][0]
    assert names == "def main(for_: T.int32, for__1: T.int32, x_1: T.int32, v: T.int32):"
    round_trip(func)


def test_shared_pointers():
    a = tir.decl_buffer((4,), "float32", "A")
    b = tir.decl_buffer((2, 2), "float32", "B", data=a.data)
    p, q = Var("p", "handle"), Var("q", "handle")
    text = round_trip(plain(BufferStore(a, b[0, 1], (const(0),)), (p, q), [(p, a), (q, b)]))
    assert "data=A.data" in text


def test_macros():
    @T.macro
    def store(buf, i, value):
        buf[i] = value * 2.0

    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        for i in range(4):
            store(A, i, A[i])

    @T.prim_func
    def g(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] * 2.0

    assert_structural_equal(f.body, g.body, map_free_vars=True)


def test_programs_are_written_by_python():
    sizes, unrolled = [4, 8], True

    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        for n in sizes:
            A[0] = T.float32(n)
        if unrolled:
            A[1] = T.float32(sum([x for x in sizes]))
        half = T.meta_var(len(sizes))
        A[half] = 1.0

    assert [s.value.value for s in f.body.seq] == [4.0, 8.0, 12.0, 1.0]
    assert f.body.seq[3].indices[0].value == 2


def test_assignments_make_variables():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32"), n: T.int32):
        x = n + 1
        y: T.int32 = x * 2
        A[0] = y
        A[1] += 3

    assert isinstance(f.body, LetStmt) and isinstance(f.body.body, LetStmt)
    round_trip(f)


def test_constants_take_the_type_of_the_buffer():
    @T.prim_func
    def f(A: T.Buffer((4,), "int8"), B: T.Buffer((4,), "float32"), n: T.int32):
        A[0] = 3
        B[1] = 2
        B[2] = n

    values = [s.value for s in f.body.seq]
    assert [v.dtype for v in values] == ["int8", "float32", "float32"]
    assert isinstance(values[2], ir.Cast)


def test_annotations_may_be_text():
    func = from_source("""
        @T.prim_func
        def f(A: "T.Buffer((4,), 'int32')"):
            A[0] = 1
    """)
    assert func.buffer_map[0][1].dtype == "int32"


def test_a_function_without_blocks_has_no_root():
    func = from_source("@T.prim_func\ndef f(A: T.Buffer((4,), 'int32')):\n    A[0] = 1\n")
    assert isinstance(func.body, BufferStore)


def test_root_stated_or_not():
    without = from_source("""
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            C = T.alloc_buffer((4,), "int32")
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = C[vi]
    """)
    stated = from_source("""
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            with T.block("root"):
                T.reads()
                T.writes()
                C = T.alloc_buffer((4,), "int32")
                for i in range(4):
                    with T.block("b"):
                        vi = T.axis.spatial(4, i)
                        A[vi] = C[vi]
    """)
    assert_structural_equal(without, stated)
    round_trip(stated)


def test_partly_lowered_functions():
    func = matmul_func()
    lowered = func.replace(body=func.root.body)
    assert "root_block=False" in lowered.script()
    round_trip(lowered)
    round_trip(func.replace(body=IfThenElse(ir.TRUE, func.body)))


def test_long_sequences_and_chains():
    a = tir.decl_buffer((8,), "float32", "A")
    param = Var("a", "handle")
    body = BufferStore(a, const(0.0), (const(0),))
    for i in range(3000):
        body = LetStmt(Var(f"x{i}", "int32"), const(i), body)
    func = plain(body, [param], [(param, a)])
    assert_structural_equal(func, from_source(func.script()))


def test_fragments_print():
    func = matmul_func()
    block = func.root.body.body.body.body.block
    assert str(block).startswith("A = T.Buffer") or "with T.sblock" in str(block)
    assert str(block.reads[0]) == "A[vi, vk]"
    assert str(func.buffer_map[0][1]) == "A"
    assert str(block.body.value) == "C[vi, vj] + A[vi, vk] * B[vk, vj]"
    for node in ir.walk(func):
        assert str(node)


def test_slices_of_elements_are_vectors():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
        B[0:4] = A[0:8:2] * T.Broadcast(T.float32(2), 4)
        B[n : n + 8] = A[n + 1 : n + 9]
        B[15:16] = A[31]

    stores = [n for n in walk(f.body) if isinstance(n, tir.BufferStore)]
    assert [s.indices[0].dtype for s in stores] == ["int32x4", "int32x8", "int32"]
    a, b = np.arange(32, dtype="float32"), np.zeros(16, "float32")
    weft.build(f, target="llvm")(a, b, 5)
    expected = np.zeros(16, "float32")
    expected[:4] = a[0:8:2] * 2
    expected[5:13] = a[6:14]
    expected[15] = 31
    np.testing.assert_array_equal(b, expected)
    assert_structural_equal(from_source(f.script()), f)
    with pytest.raises(error.WeftError, match="constant length"):
        from_source("@T.prim_func\ndef f(A: T.Buffer((32,), 'float32'), n: T.int32):\n    A[0:n] = T.float32(1)\n")


def test_texts_read_as_tvm_writes_them():
    @T.prim_func
    def f(a: T.handle, B: T.Buffer((8, 8), "float32"), n: T.int32, m: T.int64) -> T.int32:
        A = T.match_buffer(a, (8, n))
        C = T.alloc_buffer((4, 4))
        H = T.alloc_buffer((4, 4), "float16")
        A.vstore([0, T.Ramp(0, 2, 4)], B.vload([0, T.Ramp(0, 4, 4)]), predicate=T.Broadcast(T.bool(False), 4))
        C[1, 0:4] = B.vload([n, T.Ramp(m * T.int64(4), T.int64(1), 4)], predicate=T.Broadcast(n > 2, 4))
        C[2, 0:4] = B[n, n * 4 : n * 4 + 4]
        H[T.Div(n, 2), 0] = T.Let(H[n, 0], where={n: 1})
        return T.Select(n > 3, 0, 2)

    text = round_trip(f)
    for line in (
        "A = T.match_buffer(a, (8, n))",
        "C = T.alloc_buffer((4, 4))",
        'H = T.alloc_buffer((4, 4), "float16")',
        "return T.Select(n > 3, 0, 2)",
        "C[2, 0:4] = B[n, n * 4:n * 4 + 4]",
        'B: T.Buffer((8, 8), "float32")',
        "A.vstore(",
        "B.vload(",
        "H[T.Div(n, 2), 0] = T.Let(H[n, 0], where={n: 1})",
    ):
        assert line in text, text
    axis = ir.IterVar(ir.Range(0, 8), Var("a"), "data_par")
    assert str(ir.Range(2, 8)) == "I.Range(2, 8)"
    assert str(axis).endswith('T.iter_var(a, T.Range(0, 8), "DataPar", "")')


def test_strides_by_name():
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n, 4), strides=("s", 1))
        A[0, 0] = T.Cast("float32", A.strides[0] * n)

    (buffer,) = f.buffer_map.values()
    assert (buffer.strides[0].name, buffer.strides[0].dtype) == ("s", "int32")
    round_trip(f)
