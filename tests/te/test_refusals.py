"""Every wrong use of te is an error that says what was expected."""

import pytest

import weft
from tests.refusals import refuses
from weft import error, te, tir


def product(m=12, n=10, k=8):
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), "k")
    return a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def chain(n=20):
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="B")
    return a, b, te.compute((n, n), lambda i, j: b[i, j] + 1.0, name="C")


A, B, C = chain()
I, J = C.op.axis  # noqa: E741
X, Y, P = product()
K = P.op.reduce_axis[0]
TX = te.thread_axis("threadIdx.x")

STAGES = [
    (lambda s: s[C].split(I, factor=0), "not a positive integer"),
    (lambda s: s[C].split(I, nparts=-3), "not a positive integer"),
    (lambda s: s[C].split(I, factor=2.5), "not a positive integer"),
    (lambda s: s[C].split(I, factor="4"), "not a positive integer"),
    (lambda s: s[C].split(I, factor=J.var), "not a positive integer"),
    (lambda s: s[C].split(I, factor=A[0, 0].astype("int32")), "not a positive integer"),
    (lambda s: s[C].split(I), "either factor or nparts"),
    (lambda s: s[C].split(I, 2, 2), "either factor or nparts"),
    (lambda s: s[C].split(B.op.axis[0], 2), "'i' is not a loop of stage 'C'"),
    (lambda s: s[C].split(0, 2), "'0' is not a loop of stage 'C'"),
    (lambda s: s[A].split(I, 2), "is not a loop of stage 'A'"),
    (lambda s: (s[C].split(I, 2), s[C].vectorize(I)), "not a loop of stage 'C' any more"),
    (lambda s: s[C].tile(I, I, 2, 2), "names a loop twice"),
    (lambda s: s[C].reorder(I, I), "names a loop twice"),
    (lambda s: s[C].reorder(J, B.op.axis[0]), "is not a loop of stage 'C'"),
    (lambda s: s[C].fuse(J, I), "not adjacent in this order"),
    (lambda s: s[C].fuse(I, I), "not adjacent in this order"),
    (lambda s: s[C].fuse(I, B.op.axis[1]), "is not a loop of stage 'C'"),
    (lambda s: s[C].vectorize(B.op.axis[0]), "is not a loop of stage 'C'"),
    (lambda s: s[C].pragma(B.op.axis[0], "x"), "is not a loop of stage 'C'"),
    (lambda s: s[C].bind(I, J), "no thread axis"),
    (lambda s: s[C].bind(I, te.var("x")), "no thread axis"),
    (lambda s: s[C].bind(I, te.thread_axis("thread.x")), "no threads 'thread.x'"),
    (lambda s: s[C].bind(I, te.thread_axis("threadIdx")), "no threads 'threadIdx'"),
    (lambda s: s[C].bind(I, te.thread_axis("blockIdx.w")), "no threads 'blockIdx.w'"),
    (lambda s: (s[C].bind(I, te.thread_axis((0, 7), "threadIdx.x")), weft.lower(s, [A, C])), "20 iterations.*7 thr"),
    (lambda s: (s[B].compute_at(s[B], B.op.axis[0]), s.normalize()), "cannot run inside itself"),
    (lambda s: (s[C].compute_at(s[B], B.op.axis[0]), s.normalize()), "'C' is an output"),
    (lambda s: (s[A].compute_at(s[C], I), s.normalize()), "'A' is an input"),
    (lambda s: s[B].compute_at(C, I), "takes a stage"),
    (lambda s: s[B].compute_at(s[C], B.op.axis[0]), "is not a loop of stage 'C'"),
    (lambda s: s[C].compute_inline(), "'C' is an output"),
    (lambda s: s[A].compute_inline(), "no expression to substitute"),
    (lambda s: s.cache_read(A, "local", [C]), "stage 'C' does not read 'A'"),
    (lambda s: s.cache_read(A, "local", []), "needs readers"),
    (lambda s: s.cache_read(A, "sharde", [B]), "unknown memory scope 'sharde'"),
    (lambda s: s.cache_read(A, 3, [B]), "unknown memory scope 3"),
    (lambda s: s.cache_write(A, "local"), "no compute operation"),
    (lambda s: s.cache_write([B, C], "local"), "outputs of one operation"),
    (lambda s: s.cache_write(C, "locale"), "unknown memory scope 'locale'"),
    (lambda s: s[B].set_scope("nowhere"), "unknown memory scope 'nowhere'"),
    (lambda s: s[C].set_scope("local"), "'C' is an output, memory of the caller"),
    (lambda s: s[C].double_buffer(), "'C' is an output"),
    (lambda s: s[A].double_buffer(), "'A' is an input"),
    (lambda s: s.rfactor(B, B.op.axis[0]), "'B' is not a reduction"),
    (lambda s: s[C].tensorize(J, "intrin"), "takes a tensor intrinsic"),
    (lambda s: s[C].prefetch(A, I, 1), "'C' does not read 'A'"),
    (lambda s: (s[B].compute_at(s[C], J), s[C].prefetch(B, I), weft.lower(s, [A, C])), "computed inside of loop 'i'"),
    (lambda s: s[B].storage_align(I, 32, 0), "no axis of 'B'"),
    (lambda s: s[B].storage_align(B.op.axis[0], 0, 0), "positive factor"),
    (lambda s: s[B].storage_align(B.op.axis[0], 32, 32), "an offset below it"),
    (lambda s: s[te.placeholder((3,))], "has no stage for"),
]


REDUCTIONS = [
    (lambda s: s[P].vectorize(K), "is a reduction"),
    (lambda s: s[P].parallel(K), "is a reduction"),
    (lambda s: s[P].bind(K, te.thread_axis("vthread")), "is a reduction"),
    (lambda s: (s[P].fuse(P.op.axis[1], K), s.cache_write(P, "local")), "was fused with a reduction"),
    (lambda s: (s[P].fuse(s[P].split(P.op.axis[1], 2)[1], K), s.cache_write(P, "local")), "was fused with a reduction"),
    (
        lambda s: (
            s[P].reorder(K, s[P].split(P.op.axis[1], 2)[0]),
            s[P].fuse(K, s[P].leaf_iter_vars[2]),
            s.cache_write(P, "local"),
        ),
        "was fused with a reduction",
    ),
    (lambda s: s.rfactor(P, P.op.axis[0]), "no reduction loop"),
    (lambda s: s.rfactor(P, s[P].fuse(P.op.axis[1], K)), "fused of axes of both kinds"),
    (lambda s: s.rfactor(P, K, 3), "no axis 3.*expected -3 to 2"),
    (lambda s: s.rfactor(P, K, -4), "no axis -4"),
]


@pytest.mark.parametrize(("out", "use", "message"), [(C, *row) for row in STAGES] + [(P, *row) for row in REDUCTIONS])
def test_stages(out, use, message):
    refuses(error.ScheduleError, f"(?s){message}", use, te.create_schedule(out.op))


def test_loops_around_each_other():
    """A stage runs where a consumer of it does, so two cannot run inside each other."""
    d = te.compute((20, 20), lambda i, j: C[i, j] + B[i, j], name="D")
    s = te.create_schedule(d.op)
    s[B].compute_at(s[C], I)
    refuses(error.ScheduleError, r"'D' reads it outside", weft.lower, s, [A, d])
    s[C].compute_at(s[B], B.op.axis[0])
    refuses(error.ScheduleError, "stage 'B' does not use 'C'", weft.lower, s, [A, d])


def test_what_is_refused_changes_no_loop():
    for use in (lambda s: s[C].tile(I, J, 2, 0), lambda s: s[C].tile(I, I, 2, 2), lambda s: s[C].fuse(I, J, I)):
        s = te.create_schedule(C.op)
        refuses(error.ScheduleError, "", use, s)
        assert s[C].leaf_iter_vars == [I, J]


def test_a_reduction_is_not_inlined():
    d = te.compute((12, 10), lambda i, j: P[i, j] + 1.0, name="D")
    refuses(error.ScheduleError, "'C' is a reduction", te.create_schedule(d.op)[P].compute_inline)


V = te.placeholder((4,), name="V")
M = te.placeholder((4, 3), name="M")
Q = te.reduce_axis((0, 3), "q")


def scan(init=(1, 3), update=(4, 3), state=(4, 3), dtype="float32"):
    placeholder = te.placeholder(state, name="state")
    first = te.compute(init, lambda t, i: M[0, 0].astype(dtype), name="init")
    return te.scan(first, te.compute(update, lambda t, i: placeholder[t - 1, 0], name="update"), placeholder)


EXPRESSIONS = [
    (lambda: te.placeholder((-3,)), "none below zero"),
    (lambda: te.placeholder((3.5,)), "integers"),
    (lambda: te.placeholder(("n",)), "integers"),
    (lambda: te.placeholder((te.var("n", "float32"),)), "integers"),
    (lambda: te.placeholder((3,), "float33"), "unknown data type 'float33'"),
    (lambda: te.placeholder((3,), "floaty"), "unknown data type 'floaty'"),
    (lambda: te.compute((3, 3), lambda i: V[i]), "another number of indices"),
    (lambda: te.compute((3,), lambda i: M[i]), "tensor 'M' takes another number of indices"),
    (lambda: te.compute((3,), lambda i: V[i, i]), "tensor 'V' takes another number of indices"),
    (lambda: te.compute((3,), lambda i: V[i * 1.0]), "an index of tensor 'V' is no integer"),
    (lambda: te.compute((3,), lambda i: None), "gives no scalar expression"),
    (lambda: te.compute((3,), lambda i: "x"), "gives no scalar expression"),
    (lambda: te.compute((3,), lambda i: V), "gives no scalar expression"),
    (lambda: te.compute((3,), lambda i: ()), "has no outputs"),
    (lambda: te.compute((4,), lambda i: (te.sum(M[i, Q], axis=Q), te.max(M[i, Q], axis=Q))), "of one reduction"),
    (lambda: te.compute((4,), lambda i: (te.sum(M[i, Q], axis=Q), V[i])), "components of one reduction"),
    (lambda: te.compute((3,), lambda i: te.sum(M[i, 0], axis=i)), "te.reduce_axis"),
    (lambda: te.compute((3,), lambda i: te.sum(M[i, 0], axis=[])), "te.reduce_axis"),
    (lambda: te.sum(M[0, Q], axis=TX), "te.reduce_axis"),
    (lambda: te.reduce_axis(5), r"runs over \(begin, end\)"),
    (lambda: te.comm_reducer(lambda x, y: x[0], lambda t, u: (0, 0))((V[0], V[1]), axis=Q), "combination of reduce"),
    (lambda: te.comm_reducer(lambda x, y: x, lambda t, u: 0)((V[0], V[1]), axis=Q), "the identity of reduce"),
    (lambda: te.comm_reducer(lambda x, y: x, lambda t: 0)((V[0], V[1]), axis=Q), "another number of arguments"),
    (lambda: scan(state=(5, 3)), "'update' does not fit the state 'state'"),
    (lambda: scan(init=(1, 2)), "'init' does not fit the state 'state'"),
    (lambda: scan(dtype="int32"), "'init' does not fit the state 'state'"),
    (lambda: te.scan([V], [V, V], [V]), "first rows and an update for each state"),
    (lambda: te.scan(V, V, te.compute((4,), lambda i: V[i], name="W")), "the state 'W' is no placeholder"),
    (lambda: te.extern((3,), [], lambda ins, outs: tir.Evaluate(0)), "cannot tell the data type"),
    (lambda: te.extern((3,), [V], lambda ins, outs: 5), "gives no statement"),
    (lambda: te.thread_axis((0, 3)), "needs a tag"),
]


@pytest.mark.parametrize(("use", "message"), EXPRESSIONS)
def test_expressions(use, message):
    refuses(error.InvalidArgument, message, use)


def test_tags():
    with te.tag_scope("one"):
        assert te.compute((3,), lambda i: V[i]).op.tag == "one"
        refuses(error.InvalidArgument, "one tag", te.compute, (3,), lambda i: V[i], tag="two")
        with pytest.raises(error.InvalidArgument, match="do not nest"), te.tag_scope("two"):
            pass
    assert te.compute((3,), lambda i: V[i], tag="two").op.tag == "two"


ARGUMENTS = [
    (lambda s: weft.lower(s), "needs args"),
    (lambda s: weft.lower(s, [C]), "input 'A' is not among the arguments"),
    (lambda s: weft.build(s, [A]), "output 'C' is not among the arguments"),
    (lambda s: weft.lower(s, [A, A, C]), "'A' is an argument twice"),
    (lambda s: weft.lower(s, [A, 3, C]), "takes tensors, buffers and variables"),
    (lambda s: weft.lower(s, [A, te.compute((2,), lambda i: i, "other"), C]), "has no stage for 'other'"),
    (lambda s: weft.lower(s, [A, C], binds={A: tir.decl_buffer((3, 3), "float32")}), "does not fit 'A'"),
    (lambda s: weft.lower(s, [A, C], binds={A: tir.decl_buffer((20, 20), "int32")}), "does not fit 'A'"),
    (lambda s: te.create_schedule(5), "operations or tensors"),
    (lambda s: te.create_schedule([]), "operations or tensors"),
]


@pytest.mark.parametrize(("use", "message"), ARGUMENTS)
def test_arguments(use, message):
    refuses(error.WeftError, message, use, te.create_schedule(C.op))


def test_extents_may_be_any_integer_expression():
    n = te.var("n")
    a = te.compute((tir.Cast("int64", tir.floor(n.astype("float32") * 1.5)),), lambda i: tir.const(1.0), name="a")
    assert len(a.shape) == 1
