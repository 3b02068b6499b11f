"""A schedule never changes what is computed: every primitive, odd sizes and symbolic ones, against NumPy."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from weft import error, ir, te
from weft.tir import AllocBuffer, For, ForKind, decl_buffer, if_then_else

rng = np.random.default_rng(0)


def matmul(n, m, k_extent):
    A = te.placeholder((n, k_extent), name="A")
    B = te.placeholder((k_extent, m), name="B")
    k = te.reduce_axis((0, k_extent), "k")
    return A, B, te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C"), k


def check_matmul(sch, A, B, C, n, m, k_extent, args=None):
    a = rng.integers(-4, 5, (n, k_extent)).astype("float32")
    b = rng.integers(-4, 5, (k_extent, m)).astype("float32")
    c = np.full((n, m), 99, "float32")
    run(te.schedule_to_prim_func(sch, args or [A, B, C]), a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def loops(func):
    return {node.loop_var.name: node for node in ir.walk(func.body) if isinstance(node, For)}


@pytest.mark.parametrize(("n", "m", "k_extent"), [(4, 8, 6), (5, 7, 9), (1, 1, 1), (3, 17, 2)])
def test_tiled_matmul(n, m, k_extent):
    A, B, C, k = matmul(n, m, k_extent)
    s = te.create_schedule(C.op)
    x, y = s[C].op.axis
    xo, yo, xi, yi = s[C].tile(x, y, 2, 4)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].vectorize(yi)
    s[C].unroll(ki)
    s[C].parallel(xo)
    check_matmul(s, A, B, C, n, m, k_extent)


def test_symbolic_matmul_with_nparts_and_fuse():
    n, m = te.size_var("n"), te.size_var("m")
    A, B, C, k = matmul(n, m, 5)
    s = te.create_schedule(C.op)
    x, y = s[C].op.axis
    xo, xi = s[C].split(x, nparts=3)
    f = s[C].fuse(xo, xi)
    g = s[C].fuse(f, y)
    go, gi = s[C].split(g, factor=4)
    s[C].parallel(go)
    for size in ((1, 1), (4, 3), (7, 5)):
        check_matmul(s, A, B, C, *size, 5)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("level", ["xo", "yo", "xi"])
def test_compute_at(symbolic, level):
    n = te.size_var("n") if symbolic else 11
    A, B, C, k = matmul(n, n, 6)
    D = te.compute((n, n), lambda i, j: C[i, j] * 2.0 + 1.0, name="D")
    s = te.create_schedule(D.op)
    x, y = D.op.axis
    xo, yo, xi, yi = s[D].tile(x, y, 4, 3)
    s[C].compute_at(s[D], {"xo": xo, "yo": yo, "xi": xi}[level])
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(ko, *s[C].op.axis, ki)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((11, 6), (6, 11)))
    d = np.zeros((11, 11), "float32")
    run(te.schedule_to_prim_func(s, [A, B, D]), a, b, d)
    np.testing.assert_array_equal(d, (a @ b) * 2 + 1)


def stencil(n):
    A = te.placeholder((n,), name="A")
    P = te.compute((n + 2,), lambda i: if_then_else(te.all(i >= 1, i < n + 1), A[i - 1], 0.0), name="P")
    B = te.compute((n,), lambda i: P[i] + P[i + 1] * 2.0 + P[i + 2], name="B")
    return A, P, B, te.compute((n,), lambda i: B[i] + A[i], name="C")


def check_stencil(s, args, size):
    a = rng.integers(-9, 9, size).astype("float32")
    p = np.concatenate([[0], a, [0]])
    c = np.zeros(size, "float32")
    run(te.schedule_to_prim_func(s, args), a, c)
    np.testing.assert_array_equal(c, p[:-2] + 2 * p[1:-1] + p[2:] + a)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("size", [1, 5, 16])
def test_nested_compute_at_with_halo(symbolic, size):
    A, P, B, C = stencil(te.size_var("n") if symbolic else size)
    s = te.create_schedule(C.op)
    o, i = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], o)
    bo, bi = s[B].split(B.op.axis[0], factor=2)
    s[P].compute_at(s[B], bo)
    func = te.schedule_to_prim_func(s, [A, C])
    shapes = sorted(node.buffer.shape[0].value for node in ir.walk(func.body) if isinstance(node, AllocBuffer))
    if size >= 4 or symbolic:
        assert shapes == [4, 4]
    check_stencil(s, [A, C], size)


def test_inline_and_root():
    A, P, B, C = stencil(9)
    s = te.create_schedule(C.op)
    s[P].compute_inline()
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].compute_root()
    func = te.schedule_to_prim_func(s, [A, C])
    assert [n.buffer.name for n in ir.walk(func.body) if isinstance(n, AllocBuffer)] == ["B"]
    check_stencil(s, [A, C], 9)


def test_caches():
    A, B, C, k = matmul(6, 10, 7)
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "local")
    AA = s.cache_read(A, "shared", [CC])
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 4)
    s[CC].compute_at(s[C], yo)
    ko, ki = s[CC].split(s[CC].op.reduce_axis[0], factor=2)
    s[CC].reorder(ko, *s[CC].op.axis, ki)
    s[AA].compute_at(s[CC], ko)
    func = te.schedule_to_prim_func(s, [A, B, C])
    scopes = {
        n.buffer.name: (n.buffer.scope, [d.value for d in n.buffer.shape])
        for n in ir.walk(func.body)
        if isinstance(n, AllocBuffer)
    }
    assert scopes == {"C_local": ("local", [4, 4]), "A_shared": ("shared", [4, 2])}
    check_matmul(s, A, B, C, 6, 10, 7)


@pytest.mark.parametrize(("extent", "factor"), [(16, 4), (13, 4), (3, 8)])
def test_rfactor(extent, factor):
    A = te.placeholder((3, extent), name="A")
    k = te.reduce_axis((0, extent), "k")
    B = te.compute((3,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(k, factor=factor)
    BF = s.rfactor(B, ki)
    s[BF].vectorize(BF.op.axis[0])
    a = rng.integers(-4, 5, (3, extent)).astype("float32")
    b = np.zeros(3, "float32")
    run(te.schedule_to_prim_func(s, [A, B]), a, b)
    np.testing.assert_array_equal(b, a.sum(1))


def test_argmax_and_two_outputs():
    A = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), "k")

    def combine(x, y):
        return te_select(x[1] >= y[1], x[0], y[0]), te_select(x[1] >= y[1], x[1], y[1])

    from weft.ir import const
    from weft.ir import select as te_select

    argmax = te.comm_reducer(combine, lambda t0, t1: (const(-1, t0), te.lowest(t1)), name="argmax")
    index, value = te.compute((4,), lambda i: argmax((k.var, A[i, k]), axis=k), name="T")
    s = te.create_schedule(index.op)
    a = rng.permutation(24).reshape(4, 6).astype("float32")
    got_i, got_v = np.zeros(4, "int32"), np.zeros(4, "float32")
    run(te.schedule_to_prim_func(s, [A, index, value]), a, got_i, got_v)
    np.testing.assert_array_equal(got_i, a.argmax(1))
    np.testing.assert_array_equal(got_v, a.max(1))


@pytest.mark.parametrize("attached", [False, True])
def test_indices_of_other_types_than_the_axis(attached):
    a = te.placeholder((9,), name="a")
    b = te.compute((9,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((ir.const(4, "int64"),), lambda i: b[i * 2 + 1] * 3.0, name="c")
    sch = te.create_schedule(c.op)
    if attached:
        sch[b].compute_at(sch[c], sch[c].split(c.op.axis[0], factor=3)[0])
    x = np.random.default_rng(0).normal(size=9).astype("float32")
    out = weft.runtime.empty((4,), "float32")
    weft.build(sch, [a, c], "llvm")(weft.runtime.tensor(x), out)
    np.testing.assert_allclose(out.numpy(), (x[1::2] + 1) * 3, rtol=1e-6)


def test_annotations_reach_the_loops():
    A, B, C, k = matmul(8, 8, 8)
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    s[C].parallel(x)
    s[C].pragma(x, "hint", 3)
    s[C].bind(y, te.thread_axis("threadIdx.x"))
    with pytest.warns(
        UserWarning, match="nothing reads the pragma 'hint' of loop 'i' in stage 'C'.*loop_partition_hint"
    ):
        found = loops(te.schedule_to_prim_func(s, [A, B, C]))
    assert found["i"].kind is ForKind.PARALLEL and found["i"].annotations["pragma_hint"] == 3
    assert found["j"].thread_binding.thread_tag == "threadIdx.x"


@pytest.mark.parametrize("buffers", [False, True])
def test_extern_stage(buffers):
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: A[i] + 1.0, name="B")

    def fill(ins, outs):
        from weft.tir import BufferStore, For, Var

        i = Var("i", "int32")
        return For(
            i, te.const(0, "int32"), te.const(5, "int32"), ForKind.SERIAL, BufferStore(outs[0], ins[0][i] * 3.0, (i,))
        )

    given = {"in_buffers": decl_buffer((5,)), "out_buffers": decl_buffer((5,))} if buffers else {}
    C = te.extern((5,), [B], fill, name="C", **given)
    s = te.create_schedule(C.op)
    a, c = rng.integers(0, 9, 5).astype("float32"), np.zeros(5, "float32")
    run(te.schedule_to_prim_func(s, [A, C]), a, c)
    np.testing.assert_array_equal(c, (a + 1) * 3)


def test_refusals():
    A, B, C, k = matmul(8, 8, 8)
    D = te.compute((8, 8), lambda i, j: C[i, j] + 1.0, name="D")
    s = te.create_schedule(te.compute((8, 8), lambda i, j: C[i, j] + D[i, j], name="E").op)
    x, y = C.op.axis
    xo, xi = s[C].split(x, factor=2)
    refuses(error.ScheduleError, "not a loop of stage 'C' any more", s[C].split, x, factor=2)
    refuses(error.ScheduleError, "not adjacent", s[C].fuse, xo, y)
    refuses(error.ScheduleError, "is a reduction", s[C].vectorize, k)
    refuses(error.ScheduleError, "either factor or nparts", s[C].split, y)
    refuses(error.ScheduleError, "is a reduction", s[C].compute_inline)
    s[D].compute_at(s[C], y)
    refuses(error.ScheduleError, "does not use", s.normalize)
    s[D].compute_root()
    s[C].compute_at(s[D], D.op.axis[0])
    refuses(error.ScheduleError, "reads it outside", te.InferBound, s)
    refuses(error.ScheduleError, "no stage", lambda: s[te.placeholder((1,))])


@pytest.mark.parametrize("again", ["reduction", "rows", "fused", "rfactor"])
def test_a_loop_that_is_split_again_visits_each_point_once(again):
    """The inner loop of a split, split or fused again, overshoots into the next iteration of the outer one."""
    a, b = te.placeholder((10, 10), name="A"), te.placeholder((10, 7), name="B")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute((10, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    if again in ("reduction", "rfactor"):
        _, inner = s[c].split(k, nparts=2)
        outer, _ = s[c].split(inner, factor=3)
        if again == "rfactor":
            s.rfactor(c, outer)
    else:
        io, ii = s[c].split(i, nparts=2)
        if again == "fused":
            ii = s[c].fuse(ii, j)
        iio, iii = s[c].split(ii, factor=3)
        s[c].reorder(k, io, iio, iii)
    x, y = rng.random((10, 10), "float32"), rng.random((10, 7), "float32")
    z = np.zeros((10, 7), "float32")
    weft.build(s, [a, b, c], target="llvm")(x, y, z)
    np.testing.assert_allclose(z, x.astype("float64") @ y, rtol=1e-5)
