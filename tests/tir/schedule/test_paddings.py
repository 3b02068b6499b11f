"""decompose_padding, and blocks that read what others make in another shape."""

import contextlib

import pytest

from tests.refusals import refuses
from tests.tir.schedule.test_more_primitives import extents, same
from tests.tir.schedule.test_primitives import matmul
from tests.tir.schedule.test_trace import every_way
from weft import te, tir
from weft.error import ScheduleError
from weft.script import tir as T
from weft.tir import Schedule


def padded(n=7, p=2):
    x = te.placeholder((3, n), "int32", "X")
    inside = lambda c, i: tir.if_then_else(tir.all(i >= p, i < n + p), x[c, i - p], tir.const(-1, "int32"))  # noqa: E731
    return te.create_prim_func([x, te.compute((3, n + 2 * p), inside, "P")])


def test_decompose_padding():
    func = padded()
    sch = Schedule(func)
    _, i = sch.get_loops("P")
    assert sch.can_decompose_padding("P", i)
    assert sch.func is Schedule(func).func or len(sch.state.block_names()) == 2
    fill = sch.decompose_padding("P", i)
    assert extents(sch, fill.name) == [3, 11] and extents(sch, "P") == [3, 7]
    assert "if_then_else" not in str(sch.func)
    same(sch, func)
    every_way(sch, func)


def test_decompose_padding_of_tiles():
    func = padded(8, 1)
    sch = Schedule(func)
    _, i = sch.get_loops("P")
    outer, _ = sch.split(i, [None, 4])
    sch.decompose_padding("P", outer)
    same(sch, func)


def repacked(outer, inner, to):
    """Rows of `inner` elements, made one by one, then read as rows of `to`."""
    x = te.placeholder((outer, 3, inner), "int32", "X")
    b = te.compute((outer, 3, inner), lambda o, i, j: x[o, i, j] * 2, "B")
    rows = -(-outer * inner // to)
    at = lambda o, j: te.min(o * to + j, outer * inner - 1) if outer * inner % to else o * to + j  # noqa: E731
    c = te.compute((rows, 3, to), lambda o, i, j: b[at(o, j) // inner, i, at(o, j) % inner], "C")
    return te.create_prim_func([x, c])


@pytest.mark.parametrize(
    ("outer", "inner", "to", "moves"),
    [(3, 16, 8, 2), (4, 6, 1, 2), (5, 7, 7, 2), (1, 8, 2, 2), (4, 8, 16, 0), (3, 16, 6, 0), (2, 5, 3, 0)],
)
def test_consumers_of_other_rows_move_under_their_producer(outer, inner, to, moves):
    func = repacked(outer, inner, to)
    moved = []
    for depth in range(3):
        sch = Schedule(func)
        with contextlib.suppress(ScheduleError):
            moved += [sch.reverse_compute_at("C", sch.get_loops("B")[depth])]
        same(sch, func)
        every_way(sch, func)
        sch = Schedule(func)
        sch.compute_at("B", sch.get_loops("C")[depth])
        same(sch, func)
    assert len(moved) >= moves


def test_a_consumer_of_another_shape_is_inlined_into_its_producer():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "int32"), C: T.Buffer((2, 4, 2, 2), "int32")):
        B = T.alloc_buffer((4, 8), "int32")
        for i, j in T.grid(4, 8):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] * 2
        for i, j, k, m in T.grid(2, 4, 2, 2):
            with T.block("C"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, m])
                C[a, b, c, d] = B[(((a * 4 + b) * 2 + c) * 2 + d) // 8, (((a * 4 + b) * 2 + c) * 2 + d) % 8]

    sch = Schedule(func)
    sch.reverse_compute_inline("C")
    assert sch.state.block_names() == ["root", "B"]
    same(sch, func)
    every_way(sch, func)


def pooled(n=7, p=2):
    x = te.placeholder((3, n), "int32", "X")
    inside = lambda c, i: tir.if_then_else(tir.all(i >= p, i < n + p), x[c, i - p], tir.const(-1, "int32"))  # noqa: E731
    pad = te.compute((3, n + 2 * p), inside, "P")
    k = te.reduce_axis((0, 3), "k")
    return te.create_prim_func([x, te.compute((3, n + 2 * p - 2), lambda c, i: te.max(pad[c, i + k], axis=k), "M")])


@pytest.mark.parametrize(("n", "p", "tile"), [(7, 2, 3), (7, 2, 4), (8, 1, 4), (1, 5, 4)])
@pytest.mark.parametrize("at", range(4))
def test_decompose_padding_of_overlapping_tiles(n, p, tile, at):
    func = pooled(n, p)
    sch = Schedule(func)
    c, i, _ = sch.get_loops("M")
    outer, inner = sch.split(i, [None, tile])
    sch.reorder(outer, c, inner)
    sch.compute_at("P", c, preserve_unit_loops=True)
    fill = sch.decompose_padding("P", sch.get_loops("P")[at])
    assert len(sch.get_loops(fill)) <= 4 and "if_then_else" not in str(sch.func)
    same(sch, func)
    every_way(sch, func)


def test_decompose_padding_of_tiles_that_run_at_once():
    func = pooled()
    sch = Schedule(func)
    _, i, _ = sch.get_loops("M")
    outer, _ = sch.split(i, [None, 3])
    sch.compute_at("P", outer)
    sch.parallel(outer)
    refuses(ScheduleError, "at the same time", sch.decompose_padding, "P", sch.get_loops("P")[2])
    sch.decompose_padding("P", outer)  # all padding is there before the first of them
    same(sch, func)


def test_decompose_padding_refuses_what_others_see():
    @T.prim_func
    def early(X: T.Buffer((4,), "int32"), P: T.Buffer((6,), "int32"), Y: T.Buffer((6,), "int32")):
        for i in range(6):
            with T.block("Y"):
                v = T.axis.spatial(6, i)
                Y[v] = P[v]
            with T.block("P"):
                w = T.axis.spatial(6, i)
                P[w] = T.if_then_else(w >= 1 and w < 5, X[w - 1], 9)

    @T.prim_func
    def cut(X: T.Buffer((4,), "int32"), P: T.Buffer((6,), "int32")):
        for i, j in T.grid(6, 3):
            with T.block("P"):
                w = T.axis.spatial(6, i)
                T.where(j < i)
                P[w] = T.if_then_else(w >= 1 and w < 5, X[w - 1], 9)

    for func, why in ((early, "'P' is read before it is made"), (cut, "is on loops that no variable of the block")):
        sch = Schedule(func)
        refuses(ScheduleError, why, sch.decompose_padding, "P", sch.get_loops("P")[0])
        same(sch, func)


def test_decompose_padding_refuses():
    sch = Schedule(matmul(4, 5, 6))
    with pytest.raises(ScheduleError, match="decompose_padding: the block is not one element-wise store"):
        sch.decompose_padding("C", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="decompose_padding: the block does not store if_then_else"):
        sch.decompose_padding("D", sch.get_loops("D")[0])
    with pytest.raises(ScheduleError, match="decompose_padding: the loop is not around"):
        sch.decompose_padding("D", sch.get_loops("C")[0])
    assert not sch.can_decompose_padding("D", sch.get_loops("D")[0])

    sch = Schedule(padded(p=0))
    refuses(ScheduleError, "decompose_padding: nothing lies outside", sch.decompose_padding, "P", sch.get_loops("P")[0])
