"""Bound checks on request: an access outside of its buffer is an error with a name, and happens nowhere."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model
from weft import ir, te, tir
from weft.script import tir as T

CHECKED = {"tir.instrument_bound_checkers": True}


def build(func, target="llvm"):
    with ir.PassContext(config=CHECKED):
        return weft.build(func, target=target)


@T.prim_func
def gather(a: T.handle, i: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    W = T.match_buffer(i, (m,), "int32")
    B = T.match_buffer(b, (m,), "float32")
    for j in T.parallel(m):
        with T.block("B"):
            v = T.axis.spatial(m, j)
            B[v] = A[W[v]]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_gather(target):
    f = build(gather, target)
    a, out = np.arange(5, dtype="float32"), np.full(3, -1, "float32")
    f(a, np.array([4, 0, 2], "int32"), out)
    assert out.tolist() == [4, 0, 2]
    for bad in (5, -1, 1 << 30):
        refuses(IndexError, rf"A: index {bad} of axis 0 is outside of 0...5", f, a, np.array([4, bad, 2], "int32"), out)


def test_in_the_interpreter():
    with ir.PassContext(config=CHECKED):
        lowered = tir.transform.InstrumentBoundCheckers()(tir.transform.lower_blocks()(weft.IRModule({"main": gather})))
    with pytest.raises(IndexError, match="A: index 9 of axis 0"):
        tir.interpret(lowered["main"], np.zeros(5, "float32"), np.array([9], "int32"), np.zeros(1, "float32"))


def test_a_store_and_an_inner_axis():
    a = te.placeholder((4, 6), name="A")

    def last_column(rows, out):
        ib = tir.ir_builder.create()
        x, y = ib.buffer_ptr(rows), ib.buffer_ptr(out)
        with ib.for_range(0, 8, kind="vectorize") as j:
            y[1, j] = x[1, j]
        return ib.get()

    b = te.extern((4, 6), [a], lambda ins, outs: last_column(ins[0], outs[0]), name="B")
    s = te.create_schedule(b.op)
    with ir.PassContext(config=CHECKED):
        f = weft.build(s, [a, b], target="llvm")
    with pytest.raises(IndexError, match=r"[AB]: index 6 of axis 1 is outside of 0...6"):
        f(np.zeros((4, 6), "float32"), np.zeros((4, 6), "float32"))


def test_what_is_known_is_not_checked():
    a = te.placeholder((te.size_var("n"), 6), name="A")
    b = te.compute(a.shape, lambda i, j: tir.if_then_else(j > 0, a[i, j - 1], 0.0), name="B")
    func = te.create_prim_func([a, b])
    lowered = tir.transform.InstrumentBoundCheckers()(tir.transform.lower_blocks()(weft.IRModule({"main": func})))
    checks = [n for n in weft.ir.walk(lowered["main"].body) if isinstance(n, tir.AssertStmt)]
    assert len(checks) <= 1  # at most the guarded one
    f = build(func)
    x, out = np.random.default_rng(0).random((3, 6), "float32"), np.zeros((3, 6), "float32")
    f(x, out)
    np.testing.assert_array_equal(out, np.pad(x, ((0, 0), (1, 0)))[:, :6])


def test_a_scheduled_function():
    a, b = te.placeholder((33, 17), name="A"), te.placeholder((17, 9), name="B")
    k = te.reduce_axis((0, 17), name="k")
    c = te.compute((33, 9), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    f = build(tir.schedule.schedule_func(te.create_prim_func([a, b, c]), weft.target.Target("llvm")))
    rng = np.random.default_rng(0)
    x, y, out = rng.random((33, 17), "float32"), rng.random((17, 9), "float32"), np.zeros((33, 9), "float32")
    f(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)


def test_a_whole_model():
    from weft import relax

    mod = model(lambda x: relax.op.nn.softmax(relax.op.add(x, x)), ("n", 8))
    with ir.PassContext(config=CHECKED):
        executable = weft.compile(mod, target="llvm")
    vm = relax.VirtualMachine(executable, weft.cpu())
    value = np.random.default_rng(0).random((5, 8), "float32")
    e = np.exp(2 * value - (2 * value).max(-1, keepdims=True))
    np.testing.assert_allclose(vm["main"](value).numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_condition_of_a_while_loop(target):
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), W: T.Buffer((1,), "int32")):
        W[0] = 0
        while A[W[0]] < T.float32(3):
            W[0] = W[0] + 1

    checked = build(f, target)
    a, w = np.zeros(8, "float32"), np.zeros(1, "int32")
    refuses(IndexError, "A: index 8 of axis 0", checked, a, w)
    a[5] = 4
    checked(a, w)
    assert w[0] == 5


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_condition_of_an_assertion(target):
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), W: T.Buffer((1,), "int32")):
        assert A[W[0]] < T.float32(3), "too large"

    checked = build(f, target)
    a = np.zeros(8, "float32")
    checked(a, np.array([7], "int32"))
    refuses(IndexError, "A: index -1 of axis 0", checked, a, np.array([-1], "int32"))
    a[2] = 3
    refuses(RuntimeError, "too large", checked, a, np.array([2], "int32"))


@T.prim_func
def vectors(A: T.Buffer((6,), "float32"), W: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32"), n: T.int32):
    B[T.Ramp(0, 1, 4)] = A[W[T.Ramp(n, 1, 4)]]


def masked():
    """A load of four lanes, of which the first n are read."""
    lanes, moved = (ir.Ramp(ir.const(begin, "int32"), ir.const(1, "int32"), 4) for begin in (0, 3))
    mask = lanes < ir.Broadcast(vectors.params[3], 4)
    (_, a), _, (_, b) = vectors.buffer_map
    return vectors.replace(body=tir.BufferStore(b, tir.BufferLoad(a, (moved,), mask), (lanes,)))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_lanes_of_vectors(target):
    f = build(vectors, target)
    a, out = np.arange(6, dtype="float32"), np.full(4, -1, "float32")
    f(a, np.array([5, 0, 3, 1], "int32"), out, 0)
    assert out.tolist() == [5, 0, 3, 1]
    for bad, n, message in ((6, 0, "A: index 6 of axis 0"), (0, 1, "W: index 4 of axis 0"), (0, -1, "W: index -1")):
        refuses(IndexError, message, f, a, np.array([1, 0, bad, 1], "int32"), out, n)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_lanes_that_are_masked_are_not_checked(target):
    f = build(masked(), target)
    a, out = np.arange(6, dtype="float32"), np.full(4, -1, "float32")
    f(a, np.zeros(4, "int32"), out, 3)
    assert out.tolist() == [3, 4, 5, 0]
    refuses(IndexError, "A: index 6 of axis 0 is outside of 0...6", f, a, np.zeros(4, "int32"), out, 4)
