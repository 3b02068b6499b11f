"""StorageRewrite, RemoveNoOp, CommonSubexprElim, UnrollLoop's limits: what stays, what goes, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, te, tir
from weft.ir import PassContext, walk
from weft.script import tir as T


def apply(p, func):
    return p(weft.IRModule({"main": func}))["main"]


def allocations(func):
    return [n for n in walk(func.body) if isinstance(n, tir.AllocBuffer)]


def chain(sizes, kind=tir.ForKind.SERIAL):
    """Stage after stage, each over its own buffer of its own size, all read only by the next."""
    x = te.placeholder((16,), name="x")
    t = x
    for i, n in enumerate(sizes):
        t = te.compute((n,), lambda j, t=t: t[j % t.shape[0]] + 1.0, name=f"t{i}")
    out = te.compute((16,), lambda j: t[j % t.shape[0]] * 2.0, name="out")
    return te.schedule.schedule_to_prim_func(te.create_schedule(out.op), [x, out])


@pytest.mark.parametrize(
    ("sizes", "count"), [((8, 8, 8, 8), 1), ((8, 4, 16, 2, 32), 2), ((8,), 1), ((8, 8), 1), ((8, 16, 32, 64), 2)]
)
def test_dead_buffers_are_used_again(sizes, count):
    func = chain(sizes)
    assert len(allocations(func)) == len(sizes)
    shared = apply(tir.transform.StorageRewrite(), func)
    assert len(allocations(shared)) == count
    x = np.random.default_rng(0).random(16, "float32")
    first, second, native = (np.zeros(16, "float32") for _ in range(3))
    tir.interpret(func, x, first)
    tir.interpret(shared, x, second)
    weft.build(shared, target="llvm")(x, native)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(native, first, rtol=1e-6)


def test_what_lives_on_is_not_shared():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        C = T.alloc_buffer((8,))
        for k in range(3):
            for i in range(8):
                C[i] = A[i] + 1.0
            for i in range(8):
                B[i] = T.if_then_else(k == 0, C[i], B[i] + C[i])
        for i in range(8):
            D[i] = B[i]

    assert len(allocations(apply(tir.transform.StorageRewrite(), f))) == 2

    @T.prim_func
    def g(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            B[i] = A[i] + 1.0
        for i in range(8):
            D[i] = B[i]
        for p in T.parallel(2):
            C = T.alloc_buffer((8,))
            for i in range(8):
                C[i] = D[i]
            D[p] = C[p]

    assert len(allocations(apply(tir.transform.StorageRewrite(), g))) == 2


def test_types_and_symbolic_sizes_are_not_mixed():
    n = te.size_var("n")
    x = te.placeholder((n,), name="x")
    a = te.compute((n,), lambda i: x[i] + 1.0, name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((n,), lambda i: b[i] + 1.0, name="c")
    d = te.compute((n,), lambda i: c[i] + 1.0, name="d")
    func = te.schedule.schedule_to_prim_func(te.create_schedule(d.op), [x, d])
    assert apply(tir.transform.StorageRewrite(), func) is func


def test_no_ops_go():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), n: T.int32):
        B = T.alloc_buffer((8,))
        for i in range(n):
            T.evaluate(A[i] + 1.0)
        if n > 3:
            A[0] = A[0]
        else:
            A[1] = 2.0
        for i in range(0):
            B[i] = 1.0

    out = apply(tir.transform.RemoveNoOp(), f)
    kinds = {type(n) for n in walk(out.body)}
    assert tir.For not in kinds and tir.AllocBuffer not in kinds and tir.IfThenElse in kinds
    for n, expected in ((2, 2), (5, 0)):
        a = np.zeros(8, "float32")
        tir.interpret(out, a, n)
        assert a[1] == expected


def test_calls_stay():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        for _ in range(2):
            T.evaluate(T.call_extern("int32", "getpid"))
        if T.call_extern("int32", "getpid") > 0:
            A[0] = A[0]

    out = apply(tir.transform.RemoveNoOp(), f)
    calls = [n for n in walk(out.body) if isinstance(n, tir.Call) and n.op.name == "tir.call_extern"]
    assert len(calls) == 2


@T.prim_func
def repeated(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32, m: T.int32):
    for i in range(8):
        B[i * n + m] = A[i * n + m] * A[i * n + m]
        if m > 0:
            B[i * n + m] = B[i * n + m] + T.Cast("float32", (n * 7) // m + (n * 7) // m)


def test_common_expressions():
    out = apply(tir.transform.CommonSubexprElim(), repeated)
    assert sum(isinstance(n, tir.LetStmt) for n in walk(out.body)) >= 3
    a = np.random.default_rng(0).random(64, "float32")
    for n, m in ((3, 2), (5, 0)):
        first, second, native = (np.zeros(64, "float32") for _ in range(3))
        tir.interpret(repeated, a, first, n, m)
        tir.interpret(out, a, second, n, m)  # with m == 0, no division came out of its test
        weft.build(out, target="llvm")(a, native, n, m)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(native, first, rtol=1e-6)
    assert apply(tir.transform.CommonSubexprElim(enable_cse_tir=False), repeated) is repeated


def loops_left(func):
    return sum(isinstance(n, tir.For) for n in walk(func.body))


@T.prim_func
def nested(A: T.Buffer((4, 3, 2), "float32")):
    for i in range(4):
        for j in range(3):
            for k in range(2):
                A[i, j, k] = A[i, j, k] + 1.0


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, 3),
        ({"auto_max_step": 2}, 2),
        ({"auto_max_step": 6}, 1),
        ({"auto_max_step": 24}, 0),
        ({"auto_max_step": 24, "auto_max_depth": 1}, 0),
        ({"auto_max_step": 24, "auto_max_depth": 0}, 3),
        ({"auto_max_extent": 2}, 2),
        ({"auto_max_extent": 3}, 1),
    ],
)
def test_unroll_limits(options, left):
    out = apply(tir.transform.UnrollLoop(**options), nested)
    assert loops_left(out) == left
    with PassContext(config={"tir.UnrollLoop": options}):
        assert loops_left(apply(tir.transform.UnrollLoop(), nested)) == left
    a = np.zeros((4, 3, 2), "float32")
    tir.interpret(out, a)
    assert (a == 1).all()


def kinds(func):
    return [n.kind.name for n in walk(func.body) if isinstance(n, tir.For)]


def test_loops_that_are_only_marked():
    """Without explicit_unroll what would be expanded is marked; but what is within auto_max_extent is expanded."""
    marked = apply(tir.transform.UnrollLoop(auto_max_step=6, explicit_unroll=False), nested)
    assert kinds(marked) == ["SERIAL", "UNROLLED", "UNROLLED"]
    short = apply(tir.transform.UnrollLoop(auto_max_step=6, auto_max_extent=2, explicit_unroll=False), nested)
    assert kinds(short) == ["SERIAL", "UNROLLED"]
    a, b = np.zeros((4, 3, 2), "float32"), np.zeros((4, 3, 2), "float32")
    tir.interpret(marked, a)
    weft.build(marked, target="llvm")(b)
    assert (a == 1).all() and (b == 1).all()


def test_pragmas_around_statements():
    """An AttrStmt holds for what is inside of it, and not for what follows."""
    once = tir.AttrStmt(tir.IntImm("int32", 0), "pragma_auto_unroll_max_step", tir.IntImm("int32", 24), nested.body)
    assert loops_left(apply(tir.transform.UnrollLoop(), nested.replace(body=tir.seq(once, nested.body)))) == 3
    off = tir.AttrStmt(tir.IntImm("int32", 0), "pragma_unroll_explicit", tir.IntImm("int32", 0), nested.body)
    assert kinds(apply(tir.transform.UnrollLoop(auto_max_step=2), nested.replace(body=off))) == ["SERIAL"] * 2 + [
        "UNROLLED"
    ]


@pytest.mark.parametrize(("max_step", "left"), [(0, 2), (4, 1), (11, 1), (12, 0)])
def test_calls_are_steps(max_step, left):
    """A loop of calls is as long as one of stores: 3 * 4 evaluations are twelve steps."""

    @T.prim_func
    def calls(A: T.handle):
        for i in range(3):
            for j in range(4):
                T.evaluate(T.call_extern("int32", "tick", i * 4 + j))

    assert loops_left(apply(tir.transform.UnrollLoop(auto_max_step=max_step), calls)) == left


def test_a_tensorized_product_stays_short():
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    r = te.reduce_axis((0, 64), name="r")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")
    x, w = te.placeholder((64,), name="x"), te.placeholder((1, 64), name="w")
    k = te.reduce_axis((0, 64), name="k")
    y = te.compute((1,), lambda i: te.sum(x[k] * w[i, k], axis=k), name="y")

    def body(ins, outs):
        return tir.call_extern("int32", "dot", *(v.access_ptr("r") for v in ins), outs[0].access_ptr("w"))

    strided = tir.decl_buffer((1, 64), "float32", "w", strides=[te.var("s"), 1], offset_factor=1)
    s = te.create_schedule(c.op)
    jo, ji = s[c].split(c.op.axis[1], factor=1)
    s[c].tensorize(ji, te.decl_tensor_intrin(y.op, body, name="dot", binds={w: strided}))
    assert len(str(weft.lower(s, [a, b, c])).splitlines()) < 60


def test_unroll_explicit_and_pragmas():
    @T.prim_func
    def marked(A: T.Buffer((4,), "float32")):
        for i in T.unroll(4):
            A[i] = 1.0

    assert loops_left(apply(tir.transform.UnrollLoop(), marked)) == 0
    assert loops_left(apply(tir.transform.UnrollLoop(explicit_unroll=False), marked)) == 1
    x = te.placeholder((8, 4), name="x")
    y = te.compute((8, 4), lambda i, j: x[i, j] + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].pragma(y.op.axis[0], "auto_unroll_max_step", 16)
    assert loops_left(apply(tir.transform.UnrollLoop(), te.schedule.schedule_to_prim_func(s, [x, y]))) == 1
    refuses(error.InvalidArgument, "no option 'max_step'", PassContext, config={"tir.UnrollLoop": {"max_step": 3}})


def test_pointers_keep_memory_alive():
    @T.prim_func
    def by_call(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        C = T.alloc_buffer((8,))
        B[0] = A[0]
        C[0] = A[1]
        T.evaluate(T.call_extern("int32", "f", B.data))
        D[0] = C[0]

    @T.prim_func
    def by_name(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        C = T.alloc_buffer((8,))
        B[0] = A[0]
        with T.LetStmt(B.data) as p:
            C[0] = A[1]
            D[0] = C[0]
            T.evaluate(T.call_extern("int32", "f", p))

    for func in (by_call, by_name):
        assert apply(tir.transform.StorageRewrite(), func) is func


def test_scopes_are_not_mixed():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,), scope="shared")
        C = T.alloc_buffer((8,), scope="local")
        B[0] = A[0]
        D[0] = B[0]
        C[0] = A[1]
        D[1] = C[0]

    assert apply(tir.transform.StorageRewrite(scopes=("local", "shared")), f) is f


@pytest.mark.parametrize("pointer", [lambda copy, source: copy.data, lambda copy, source: source.data])
def test_double_buffers_have_no_pointers(pointer):
    @T.prim_func
    def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            C = T.alloc_buffer((4,), annotations={"double_buffer_scope": 1})
            for j in range(4):
                C[j] = A[i, j]
            T.evaluate(T.call_extern("int32", "f", pointer(C, A)))
            B[i] = C[0] + C[3]

    (kept,) = allocations(apply(tir.transform.InjectDoubleBuffer(), f))
    assert tuple(d.value for d in kept.buffer.shape) == (4,)


def run_both(func, x):
    """The result of the interpreter, which compiled code has, too."""
    slow, native = np.zeros(8, "float32"), np.zeros(8, "float32")
    tir.interpret(func, x, slow)
    weft.build(func, target="llvm")(x, native)
    np.testing.assert_allclose(native, slow, rtol=1e-6)
    return slow


def test_double_buffered_fill_with_its_own_memory():
    @T.prim_func
    def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            C = T.alloc_buffer((4,), annotations={"double_buffer_scope": 1})
            for j in range(4):
                t = T.alloc_buffer((1,))
                t[0] = A[i, j] * 2.0
                C[j] = t[0]
            B[i] = C[0] + C[3]

    doubled = apply(tir.transform.InjectDoubleBuffer(), f)
    x = np.random.default_rng(1).random((8, 4), "float32")
    np.testing.assert_allclose(run_both(doubled, x), 2 * (x[:, 0] + x[:, 3]), rtol=1e-6)


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 16])
def test_double_buffer_split_loop(factor):
    @T.prim_func
    def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(1, 8):
            C = T.alloc_buffer((4,), annotations={"double_buffer_scope": 1})
            for j in range(4):
                C[j] = A[i, j] * 2.0
            B[i] = C[0] + C[3]

    with PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": factor}}):
        doubled = apply(tir.transform.InjectDoubleBuffer(), f)
    unrolled = [n for n in walk(doubled.body) if isinstance(n, tir.For) and n.kind == tir.ForKind.UNROLLED]
    assert [n.extent.value for n in unrolled] == ([] if factor == 1 else [factor])
    x = np.random.default_rng(2).random((8, 4), "float32")
    np.testing.assert_allclose(run_both(doubled, x)[1:], 2 * (x[1:, 0] + x[1:, 3]), rtol=1e-6)


def test_double_buffer_option_names():
    refuses(error.InvalidArgument, "split", PassContext, config={"tir.InjectDoubleBuffer": {"split": 2}})


def test_flat_buffers_keep_the_type_of_indices_where_asked():
    @T.prim_func
    def f(A: T.Buffer((4, 6), "float32"), B: T.Buffer((24,), "float32")):
        for i, j in T.grid(4, 6):
            B[i * 6 + j] = A[3 - i, j] * T.float32(2)

    out = tir.transform.FlattenBuffer()(weft.IRModule({"f": f}))["f"]
    assert {str(n.indices[0].dtype) for n in walk(out) if isinstance(n, (tir.BufferLoad, tir.BufferStore))} == {"int32"}
    assert isinstance(out.body, tir.DeclBuffer) and len(out.body.buffer.shape) == 1
    x, got = np.arange(24, dtype="float32").reshape(4, 6), np.zeros(24, "float32")
    weft.build(weft.IRModule({"f": out}), target="llvm")["f"](x, got)
    np.testing.assert_array_equal(got, x[::-1].reshape(-1) * 2)
