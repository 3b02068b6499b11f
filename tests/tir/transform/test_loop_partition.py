"""LoopPartition: conditions leave the innermost loop of a split; what is computed stays the same."""

import numpy as np
import pytest

import weft
from weft import error, ir, script, te, tir
from weft.tir.transform import loop_partition

RNG = np.random.default_rng(9)


def innermost(func):
    """How many conditions stand in each innermost loop."""
    loops = [n for n in ir.walk(func.body) if isinstance(n, tir.For)]
    return [
        len(ir.find(f.body, tir.IfThenElse)) for f in loops if not any(isinstance(n, tir.For) for n in ir.walk(f.body))
    ]


def tail(n, factor=8, kind=None):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=factor)
    if kind:
        getattr(s[b], kind)(inner)
    return s, a, b, outer


@pytest.mark.parametrize("kind", [None, "unroll", "vectorize"])
@pytest.mark.parametrize("n", [1, 7, 8, 37])
def test_a_tail_of_any_size(kind, n):
    s, a, b, _ = tail(te.size_var("n"), kind=kind)
    func = loop_partition()(te.schedule.schedule_to_prim_func(s, [a, b]))["main"]
    assert innermost(func) == [0, 1]
    x = RNG.random(n, "float32")
    for run in (lambda *args: tir.interpret(func, *args), weft.build(s, [a, b], target="llvm")):
        run(x, out := np.zeros(n, "float32"))
        np.testing.assert_allclose(out, 2 * x + 1, rtol=1e-6)


def test_two_tails_at_once():
    m, n, k = 21, 19, 13
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    io, jo, ii, ji = s[c].tile(*c.op.axis, 4, 8)
    ro, ri = s[c].split(r, factor=4)
    s[c].reorder(io, jo, ro, ii, ri, ji)
    func = loop_partition()(te.schedule.schedule_to_prim_func(s, [a, b, c]))["main"]
    assert 0 in innermost(func)
    x, y = RNG.random((m, k), "float32"), RNG.random((k, n), "float32")
    for run in (lambda *args: tir.interpret(func, *args), weft.build(s, [a, b, c], target="llvm")):
        run(x, y, out := np.zeros((m, n), "float32"))
        np.testing.assert_allclose(out, x @ y, rtol=1e-5)


def plain(pragma=False):
    """A serial loop under a condition that no schedule wrote."""
    note = ', annotations={"pragma_loop_partition_hint": 1}' if pragma else ""
    return script.from_source(f"""
@T.prim_func
def main(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
    for i in range(13):
        for j in T.serial(8{note}):
            if i * 8 + j < 100:
                B[i * 8 + j] = A[i * 8 + j]
""")


def test_a_hint_makes_a_loop_a_tile():
    assert innermost(loop_partition()(plain())["main"]) == [1]
    func = loop_partition()(plain(pragma=True))["main"]
    assert innermost(func) == [0, 1]
    s, a, b, _ = tail(100)
    s[b].pragma(s[b].leaf_iter_vars[1], "loop_partition_hint", True)
    assert innermost(loop_partition()(te.schedule.schedule_to_prim_func(s, [a, b]))["main"]) == [0, 1]
    x, out = RNG.random(100, "float32"), np.zeros(100, "float32")
    tir.interpret(func, x, out)
    np.testing.assert_array_equal(out, x)


def test_loops_of_constant_extent():
    for n, left in ((100, [1]), (te.size_var("n"), [0, 1])):
        s, a, b, _ = tail(n)
        func = te.schedule.schedule_to_prim_func(s, [a, b])
        with ir.PassContext(config={"tir.LoopPartition": {"partition_const_loop": False}}):
            assert innermost(loop_partition()(func)["main"]) == left
        assert innermost(loop_partition()(func)["main"]) == [0, 1]


def test_option_names():
    with pytest.raises(error.InvalidArgument, match="no option 'constant'"):
        ir.PassContext(config={"tir.LoopPartition": {"constant": True}})


def test_what_divides_has_no_conditions():
    s, a, b, _ = tail(96)
    func = te.schedule.schedule_to_prim_func(s, [a, b])
    assert loop_partition()(func)["main"] is func


def test_a_version_of_a_body_allocates_buffers_of_its_own():
    func = script.from_source("""
@T.prim_func
def f(X: T.Buffer((10,), "int32"), Y: T.Buffer((10,), "int32")):
    B = T.sblock_alloc_buffer((10,), "int32")
    for i in range(3):
        for j in T.unroll(4):
            with T.sblock("A"):
                v = T.axis.spatial(10, i * 4 + j)
                T.where(i * 4 + j < 10)
                B[v] = X[v] + 7
        for k in T.unroll(4):
            with T.sblock("C"):
                v = T.axis.spatial(10, i * 4 + k)
                T.where(i * 4 + k < 10)
                Y[v] = B[v]
""")
    allocated = [n.buffer.data for n in ir.walk(tir.pipeline.lower(func).body) if isinstance(n, tir.AllocBuffer)]
    assert len(allocated) == 2 == len(set(allocated))
    y = np.zeros(10, "int32")
    weft.compile(func, "llvm")(np.arange(10, dtype="int32"), y)
    np.testing.assert_array_equal(y, np.arange(10) + 7)


@pytest.mark.parametrize("loop", ["range", "T.unroll"])
@pytest.mark.parametrize("columns", [8, 13, 16])
def test_a_sum_before_what_asks_is_not_copied(columns, loop):
    """Only the write-back of the last columns is careful; the sum of all columns is one loop."""
    text = f"""
@T.prim_func
def main(A: T.Buffer((5, 16), "float32"), B: T.Buffer((5, {columns}), "float32")):
    for i, o in T.grid(5, {-(-columns // 8)}):
        t = T.alloc_buffer((8,), "float32")
        for v in T.unroll(8):
            t[v] = T.float32(0)
        for k in {loop}(7):
            for v in T.unroll(8):
                t[v] = t[v] + A[i, o * 8 + v] * T.cast(k, "float32")
        for v in T.unroll(8):
            if o * 8 + v < {columns}:
                B[i, o * 8 + v] = t[v]
"""
    func = loop_partition()(weft.IRModule({"main": script.from_source(text)}))["main"]
    sums = [n for n in ir.walk(func.body) if isinstance(n, tir.For) and n.loop_var.name.startswith("k")]
    conditions = [n for n in ir.walk(func.body) if isinstance(n, tir.IfThenElse)]
    assert len(sums) == 1
    assert len(conditions) == (0 if columns % 8 == 0 else 2)  # which version, and in the careful one each column
    x, out = RNG.random((5, 16), "float32"), np.zeros((5, columns), "float32")
    tir.interpret(func, x, out)
    np.testing.assert_allclose(out, 21 * x[:, :columns], rtol=1e-6)


@pytest.mark.parametrize("n", [40, 45, 48, 50])
def test_tiles_with_no_element_inside_are_left_out(n):
    """Blocks of four tiles of eight end behind the last tile: there each access would be masked in all its lanes."""
    func = script.from_source(f"""
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for b, t in T.grid(2, 4):
        for v in T.vectorized(8):
            if (b * 4 + t) * 8 + v < {n}:
                B[(b * 4 + t) * 8 + v] = A[(b * 4 + t) * 8 + v]
""")
    func = loop_partition()(func)["main"]
    asked = [n.condition for n in ir.walk(func.body) if isinstance(n, tir.IfThenElse)]
    assert len(asked) == (3 if n % 8 else 1)  # all lanes inside; some, and which
    x, out = RNG.random(n, "float32"), np.zeros(n, "float32")
    tir.interpret(func, x, out)
    np.testing.assert_array_equal(out, x)
