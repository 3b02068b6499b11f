"""fuse_reduction_epilogue: what is joined to a reduction is what it starts from; anything else is refused."""

import itertools

import numpy as np
import pytest

from tests.refusals import refuses
from tests.tir.schedule.test_more_primitives import same
from tests.tir.schedule.test_trace import every_way
from weft import te, tir
from weft.error import ScheduleError
from weft.tir import Schedule

SIZES = [(3, 5, 7), (1, 1, 1), (4, 1, 2), (0, 3, 2)]


def product(finish, n=3, m=5, k=7, reducer=te.sum, also=None):
    """``D = finish(T, C, i, j)`` with ``T = A @ B^T`` and, with `also`, another reader of T."""
    a, b, c = (te.placeholder(s, "int32", x) for s, x in (((n, k), "A"), ((m, k), "B"), ((n, m), "C")))
    over = te.reduce_axis((0, k), "k")
    t = te.compute((n, m), lambda i, j: reducer(a[i, over] * b[j, over], axis=over), "T")
    d = te.compute((n, m), lambda i, j: finish(t, c, i, j), "D")
    others = [te.compute((n, m), lambda i, j: also(t, i, j), "E")] if also else []
    return te.create_prim_func([a, b, c, d, *others])


ADDED = {
    "bias": lambda t, c, i, j: t[i, j] + c[i, j],
    "left": lambda t, c, i, j: c[i, j] + t[i, j],
    "less": lambda t, c, i, j: t[i, j] - c[i, j] * 3 - 5,
    "copy": lambda t, c, i, j: t[i, j],
    "chain": lambda t, c, i, j: i + (t[i, j] + c[i, 0]) + j,
}


@pytest.mark.parametrize(("kind", "size"), [*itertools.product(ADDED, SIZES)])
def test_sums_start_from_what_is_added(kind, size):
    func = product(ADDED[kind], *size)
    sch = Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue("T", "D")
    assert sch.state.block_names() == ["root", "T"] and not sch.state.root.alloc_buffers
    same(sch, func)
    every_way(sch, func)
    if 0 not in size:
        sch.decompose_reduction("T", sch.get_loops("T")[-1])
        same(sch, func)


def test_other_operations_and_places():
    largest = product(lambda t, c, i, j: tir.max(t[i, j], c[i, j]), reducer=te.max)
    turned = product(lambda t, c, i, j: t[j, i] + c[i, j], 4, 4)
    for func in (largest, turned):
        sch = Schedule(func)
        sch.split(sch.get_loops("T")[0], [None, 2])
        sch.fuse_reduction_epilogue("T", "D")
        same(sch, func)


REFUSED = {
    "relu": (lambda t, c, i, j: tir.max(t[i, j], 0), "does more than to join"),
    "scale": (lambda t, c, i, j: t[i, j] * 2 + c[i, j], "does more than to join"),
    "twice": (lambda t, c, i, j: t[i, j] + t[i, 0], "more places than one"),
    "negative": (lambda t, c, i, j: c[i, j] - t[i, j], "does more than to join"),
    "one row": (lambda t, c, i, j: t[0, j] + c[i, j], "each element of the reduction once"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_not_be_the_same_is_refused(kind):
    finish, why = REFUSED[kind]
    sch = Schedule(product(finish))
    before = sch.func
    refuses(ScheduleError, why, sch.fuse_reduction_epilogue, "T", "D")
    assert sch.func is before


def test_needed_results_stay():
    func = product(ADDED["bias"], also=lambda t, i, j: t[i, j] * 2)
    sch = Schedule(func)
    refuses(ScheduleError, "needed by others than 'D'", sch.fuse_reduction_epilogue, "T", "D")
    sch = Schedule(product(ADDED["bias"]))
    refuses(ScheduleError, "not a whole reduction", sch.fuse_reduction_epilogue, "D", "T")
    sch.decompose_reduction("T", sch.get_loops("T")[2])
    refuses(ScheduleError, "not a whole reduction", sch.fuse_reduction_epilogue, "T", "D")


def test_what_is_added_must_be_there_when_the_reduction_starts():
    a, b = te.placeholder((4, 6), "int32", "A"), te.placeholder((4,), "int32", "B")
    over = te.reduce_axis((0, 6), "k")
    t = te.compute((4,), lambda i: te.sum(a[i, over], axis=over), "T")
    bias = te.compute((4,), lambda i: b[i] * 2, "Bias")
    func = te.create_prim_func([a, b, te.compute((4,), lambda i: t[i] + bias[i], "D")])
    sch = Schedule(func)
    if sch.state.block_names().index("Bias") > sch.state.block_names().index("T"):
        refuses(ScheduleError, "'Bias' overwrites what the block reads", sch.fuse_reduction_epilogue, "T", "D")
    sch.compute_inline("Bias")
    sch.fuse_reduction_epilogue("T", "D")
    same(sch, func)
    np.testing.assert_equal(len(sch.state.block_names()), 2)
