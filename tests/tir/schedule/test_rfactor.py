"""Reductions in parts: rfactor keeps what a function computes, or is refused, as are parts that threads cannot join."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from weft import ir, te, tir
from weft.error import InvalidArgument, ScheduleError
from weft.script import tir as T
from weft.tir.schedule import Schedule


def row_sum(n, k):
    a = te.placeholder((n, k), name="A")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([a, te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="S")])


@pytest.mark.parametrize("k", [16, 13, 1, 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_rfactor(k, axis):
    sch = Schedule(row_sum(3, k))
    _, kk = sch.get_loops(sch.get_block("S"))
    _, ki = sch.split(kk, [None, 4])
    assert sch.get(sch.rfactor(ki, axis)).init is not None
    a = np.random.default_rng(2).standard_normal((3, k), np.float32)
    out = np.zeros(3, np.float32)
    run(sch.func, a, out)
    np.testing.assert_allclose(out, a.sum(1), rtol=1e-5, atol=1e-6)


def test_rfactor_max_and_refusals():
    a = te.placeholder((3, 10), name="A")
    r = te.reduce_axis((0, 10), name="k")
    sch = Schedule(te.create_prim_func([a, te.compute((3,), lambda i: te.max(a[i, r], axis=r), name="S")]))
    i, kk = sch.get_loops(sch.get_block("S"))
    refuses(ScheduleError, "not a reduction loop", sch.rfactor, i)
    _, ki = sch.split(kk, [None, 4])
    sch.rfactor(ki)
    x = np.random.default_rng(2).standard_normal((3, 10), np.float32)
    out = np.zeros(3, np.float32)
    run(sch.func, x, out)
    np.testing.assert_allclose(out, x.max(1))


@T.prim_func
def sums_beside_others(A: T.Buffer((4, 12), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        for k0, k1, _one in T.grid(4, 3, 1):
            with T.block("B"):
                vi, vk = T.axis.spatial(4, i), T.axis.reduce(12, k0 * 3 + k1)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
        for k in range(12):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk] * B[vi]


@pytest.mark.parametrize("loop", [1, 2, 3])
def test_rfactor_in_loops_that_others_share(loop):
    sch = Schedule(sums_beside_others)
    refuses(ScheduleError, "other statements stand between", sch.rfactor, sch.get_loops(sch.get_block("C"))[1])
    sch.rfactor(sch.get_loops(sch.get_block("B"))[loop])
    a, b, c = (
        np.random.default_rng(2).standard_normal((4, 12), np.float32),
        np.zeros(4, np.float32),
        np.zeros(4, np.float32),
    )
    run(sch.func, a, b, c)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c, a.sum(1) ** 2, rtol=1e-5, atol=1e-5)


@T.prim_func
def sums_of_what_follows(A: T.Buffer((4, 12), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        for k in range(12):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
        with T.block("A"):
            vi = T.axis.spatial(4, i)
            A[(vi + 1) % 4, 0] = B[vi]


def test_rfactor_before_what_writes_its_operand_is_refused():
    sch = Schedule(sums_of_what_follows)
    refuses(ScheduleError, "others in the loops write", sch.rfactor, sch.get_loops(sch.get_block("B"))[1])


SEVERAL = {  # combiners of an index and a value
    "first greatest": lambda x, y: (
        tir.Select((x[1] > y[1]) | ((x[1] == y[1]) & (x[0] < y[0])), x[0], y[0]),
        x[1] > y[1],
    ),
    "greatest, new first": lambda x, y: (tir.Select(y[1] > x[1], y[0], x[0]), x[1] >= y[1]),
    "sum": lambda x, y: (x[0] + y[0], x[1] > y[1]),
    "least index": lambda x, y: (tir.min(x[0], y[0]), x[1] > y[1]),
}
NO_ORDER = {
    "another order": lambda x, y: (tir.Select(x[1] < y[1], x[0], y[0]), x[1] > y[1]),
    "a constant": lambda x, y: (tir.Select(x[1] > 0.5, x[0], y[0]), x[1] > y[1]),
    "a factor": lambda x, y: (x[0] + y[0] * x[0], x[1] > y[1]),
}


def rows_of_pairs(combine):
    a = te.placeholder((3, 13), name="A")
    index = te.compute((3, 13), lambda i, j: j, name="I")
    r = te.reduce_axis((0, 13), name="k")

    def combiner(x, y):
        chosen, wins = combine(x, y)
        return chosen, tir.Select(wins, x[1], y[1])

    reducer = te.comm_reducer(combiner, lambda i, v: (tir.const(0, i), tir.min_value(v)))
    return te.create_prim_func([a, *te.compute((3,), lambda i: reducer((index[i, r], a[i, r]), axis=r), name="S")])


@pytest.mark.parametrize("loop", [1, 2])
@pytest.mark.parametrize("combine", SEVERAL.values(), ids=SEVERAL)
def test_rfactor_of_several_values(combine, loop):
    a = np.random.default_rng(2).standard_normal((3, 13), np.float32)
    results = []
    for factored in (False, True):
        sch = Schedule(rows_of_pairs(combine))
        sch.split(sch.get_loops(sch.get_block("S"))[1], [None, 4])
        if factored:
            sch.rfactor(sch.get_loops(sch.get_block("S"))[loop])
        out = np.zeros(3, np.int32), np.zeros(3, np.float32)
        run(sch.func, a, *out)
        results.append(out)
    np.testing.assert_array_equal(results[0][1], a.max(1))
    np.testing.assert_array_equal(results[1][0], results[0][0])
    np.testing.assert_array_equal(results[1][1], results[0][1])


@pytest.mark.parametrize("combine", NO_ORDER.values(), ids=NO_ORDER)
def test_parts_that_cannot_be_joined_are_refused(combine):
    sch = Schedule(rows_of_pairs(combine))
    loop = sch.get_loops(sch.get_block("S"))[1]
    refuses(ScheduleError, "not a reduction of the form", sch.rfactor, loop)
    sch.bind(loop, "threadIdx.x")
    with pytest.raises(InvalidArgument, match="cannot be shared among threads"):
        tir.transform.LowerCrossThreadReduction()(ir.IRModule({"main": sch.func}))
