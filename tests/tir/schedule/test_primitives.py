"""Every primitive keeps what the function computes, on odd and symbolic shapes, or is refused."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from weft import ir, te, tir
from weft.error import ScheduleError
from weft.script import tir as T
from weft.tir import interpret
from weft.tir.pipeline import lower
from weft.tir.schedule import IndexMap, Schedule


def matmul(m, n, k, relu: bool = True):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    if not relu:
        return te.create_prim_func([a, b, c])
    d = te.compute((m, n), lambda i, j: tir.max(c[i, j], tir.const(0, "float32")), name="D")
    return te.create_prim_func([a, b, d])


def check_matmul(func, m, n, k, relu: bool = True) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    out = np.full((m, n), np.nan, np.float32)
    run(func, a, b, out)
    expected = a @ b
    np.testing.assert_allclose(out, np.maximum(expected, 0) if relu else expected, rtol=1e-5, atol=1e-5)


def chain(n, m):
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    return te.create_prim_func([a, te.compute((m, n), lambda i, j: b[j, i] + 1.0, name="C")])


def check_chain(func, n, m) -> None:
    a = np.random.default_rng(1).standard_normal((n, m), np.float32)
    out = np.full((m, n), np.nan, np.float32)
    run(func, a, out)
    np.testing.assert_allclose(out, (a * 2 + 1).T, rtol=1e-6)


@pytest.mark.parametrize("factors", [[None, 4], [2, None], [None, 3, 2], [7], [None, 16]])
def test_split_any_factor(factors):
    sch = Schedule(matmul(7, 5, 6))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors)
    sch.split(j, [None, 2])
    sch.split(k, [None, 4])
    check_matmul(sch.func, 7, 5, 6)


@pytest.mark.parametrize("m", [1, 2, 7, 16])
def test_split_symbolic(m):
    sch = Schedule(matmul(te.size_var("m", "int64"), 5, 3))
    i, _ = sch.get_loops(sch.get_block("D"))
    sch.split(i, [None, 4])
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.split(sch.fuse(i, j), [None, 8])
    check_matmul(sch.func, m, 5, 3)


def test_split_refusals():
    sch = Schedule(matmul(7, 5, 6))
    i, _, _ = sch.get_loops(sch.get_block("C"))
    refuses(ScheduleError, "the factors cover", sch.split, i, [2, 3])
    refuses(ScheduleError, "at most one", sch.split, i, [None, None])
    refuses(ScheduleError, "not positive", sch.split, i, [None, 0])
    sch.split(i, [None, 2])
    refuses(ScheduleError, "no longer", sch.split, i, [None, 2])
    refuses(ScheduleError, "no block 'X'", sch.get_block, "X")


def test_fuse_and_reorder():
    sch = Schedule(matmul(6, 5, 4))
    i, j, k = sch.get_loops(sch.get_block("C"))
    refuses(ScheduleError, "not directly nested", sch.fuse, j, i)
    sch.reorder(k, j, i)
    check_matmul(sch.func, 6, 5, 4)
    sch.split(sch.fuse(k, j, i), [None, 7])
    check_matmul(sch.func, 6, 5, 4)


def test_parallel_vectorize_refuse_reductions():
    sch = Schedule(matmul(6, 8, 4))
    i, j, k = sch.get_loops(sch.get_block("C"))
    refuses(ScheduleError, "reduce variable", sch.parallel, k)
    refuses(ScheduleError, "reduce variable", sch.vectorize, k)
    sch.parallel(i)
    sch.vectorize(j)
    sch.unroll(k)
    check_matmul(sch.func, 6, 8, 4)


@pytest.mark.parametrize("lengths", [[4, None], [None, 2], [1, 2, None], [7]])
def test_loop_partition(lengths):
    sch = Schedule(matmul(7, 5, 6))
    i, _, _ = sch.get_loops(sch.get_block("C"))
    assert len(sch.loop_partition(i, lengths)) == len(lengths)
    check_matmul(sch.func, 7, 5, 6)


def test_loop_partition_of_an_extent_written_in_two_ways():
    """Lengths that add up to the extent, as can be proved and simplification does not show, leave no rest."""
    n = te.var("n", "int64")
    a = te.placeholder((n,), name="A")
    twice = te.compute((n // 2 + (n + 1) // 2,), lambda i: a[i] * 2, name="C")
    sch = Schedule(te.create_prim_func([a, twice]))
    (i,) = sch.get_loops(sch.get_block("C"))
    assert len(sch.loop_partition(i, [n // 4 * 4, n % 4])) == 2
    given, out = np.arange(7, dtype="float32"), np.full(7, np.nan, "float32")
    run(sch.func, given, out)
    np.testing.assert_array_equal(out, 2 * given)


def test_loop_partition_refuses_initialised_reduction():
    sch = Schedule(matmul(7, 5, 6))
    block = sch.get_block("C")
    k = sch.get_loops(block)[2]
    refuses(ScheduleError, "decompose_reduction", sch.loop_partition, k, [4, None])
    sch.decompose_reduction(block, k)
    sch.loop_partition(k, [4, None])
    check_matmul(sch.func, 7, 5, 6)


@pytest.mark.parametrize("m", [3, 8, 11])
def test_specialize(m):
    size = te.size_var("m", "int64")
    sch = Schedule(matmul(size, 4, 3))
    i = sch.get_loops(sch.get_block("C"))[0]
    copies = sch.specialize(i, size >= 8)
    assert [c.name for c in copies] == ["C_p1"]
    sch.split(i, [None, 8])
    sch.split(sch.get_loops(copies[0])[0], [None, 2])
    check_matmul(sch.func, m, 4, 3)


def test_compute_inline_and_reverse():
    sch = Schedule(chain(5, 3))
    sch.compute_inline(sch.get_block("B"))
    check_chain(sch.func, 5, 3)
    assert sch.state.block_names() == ["root", "C"]
    sch = Schedule(chain(5, 3))
    sch.reverse_compute_inline(sch.get_block("C"))
    check_chain(sch.func, 5, 3)
    assert sch.state.block_names() == ["root", "B"]


def test_inlining_what_is_unread_or_conditional():
    @T.prim_func
    def padded(A: T.Buffer((7,), "float32"), C: T.Buffer((5,), "float32")):
        B, D = T.alloc_buffer((5,), "float32"), T.alloc_buffer((7,), "float32")
        for i in range(7):
            with T.block("B"):
                v = T.axis.spatial(7, i)
                T.where(i < 5)
                B[v] = A[v] * T.float32(2)
            with T.block("D"):
                v = T.axis.spatial(7, i)
                D[v] = A[v]
        for i, j in T.grid(3, 2):
            with T.block("C"):
                v = T.axis.spatial(5, i * 2 + j)
                T.where(i * 2 + j < 5)
                C[v] = B[v] + T.float32(1)

    sch = Schedule(padded)
    sch.compute_inline("D")
    sch.reverse_compute_inline("C")
    assert sch.state.block_names() == ["root", "B"] and str(sch.state.realize("B").predicate) == "i < 5"
    x, out = np.arange(7, dtype=np.float32), np.zeros(5, np.float32)
    run(sch.func, x, out)
    np.testing.assert_array_equal(out, 2 * x[:5] + 1)


@pytest.mark.parametrize(
    ("shape", "index", "inlined"),
    [
        ((4, 6, 5), lambda i, j, k: (i * 6 + j, k), True),  # of (24, 5)
        ((7, 3), lambda i, j: (i, j + 2), True),  # a part
        ((5, 5), lambda i, j: (j * 4 + 1, i), True),
        ((23, 5), lambda i, j: (i, j), True),
        ((1, 5), lambda i, j: (i * 3, j), True),
        ((0, 5), lambda i, j: (i, j), True),
        ((25, 5), lambda i, j: (tir.if_then_else(i < 24, i, 0), j), False),
        ((12, 2, 5), lambda i, j, k: (i, k), False),
    ],
)
def test_reverse_inlining_turns_what_is_read_around(shape, index, inlined):
    x = te.placeholder((24, 5), name="X")
    b = te.compute((24, 5), lambda i, j: x[i, j] * 2.0 + tir.Cast("float32", j), "B")
    sch = Schedule(te.create_prim_func([x, te.compute(shape, lambda *at: b[index(*at)] + 1.0, "Y")]))
    given, found, expected = np.random.default_rng(0).random((24, 5), "float32"), *np.zeros((2, *shape), "float32")
    run(sch.func, given, expected)
    if not inlined:
        refuses(ScheduleError, "reverse_compute_inline", sch.reverse_compute_inline, sch.get_block("Y"))
        return
    sch.reverse_compute_inline(sch.get_block("Y"))
    assert sch.state.block_names() == ["root", "B"]
    run(sch.func, given, found)
    np.testing.assert_array_equal(found, expected)


def test_a_variable_of_one_value_is_inlined_as_it():
    """The producer's own variable is in no index of its store, so that no reader gives a value for it."""
    x = te.placeholder((1, 4), name="X")
    e = te.compute((1, 4), lambda i, j: x[i, j] * 2.0 + tir.Cast("float32", i), "E")
    func = te.create_prim_func([x, te.compute((1, 4), lambda i, j: e[i, j] + 1.0, "Y")])
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("E"), ("write", 0), lambda i, j: (i * 7 + j,))
    sch.compute_inline(sch.get_block("E"))
    given, found = np.arange(4, dtype="float32").reshape(1, 4), np.zeros((1, 4), "float32")
    run(sch.func, given, found)
    np.testing.assert_array_equal(found, given * 2 + 1)


def test_reverse_compute_at_runs_what_its_iteration_makes():
    """Of loops that go past the end, an iteration that makes nothing copies nothing: what others made may be gone."""
    x = te.placeholder((2,), name="X")
    func = te.create_prim_func([x, te.compute((2,), lambda i: x[i] + 1.0, "Y")])
    sch = Schedule(func)
    copy = sch.cache_write(sch.get_block("Y"), 0, "global")
    _, middle, _ = sch.split(sch.get_loops(sch.get_block("Y"))[0], [2, None, 2])
    sch.reverse_compute_at(copy, middle)
    given, found = np.array([1, 2], "float32"), np.zeros(2, "float32")
    interpret(lower(sch.func), given, found)
    np.testing.assert_array_equal(found, given + 1)
    assert "T.where(i_0 * 2 + ax0 < 2)" in sch.func.script()


@pytest.mark.parametrize(("rows", "reached"), [(6, False), (8, True)])
def test_reverse_compute_at_must_reach_all_of_the_block(rows, reached):
    """Padding behind what the producer makes is the block's to write as well."""
    x = te.placeholder((rows, 4), name="X")
    b = te.compute((rows, 4), lambda i, j: x[i, j] * 2.0, "B")
    y = te.compute((8, 4), lambda i, j: tir.if_then_else(i < rows, b[i, j], 0.0), "Y")
    sch = Schedule(te.create_prim_func([x, y]))
    loop = sch.get_loops(sch.get_block("B"))[0]
    if not reached:
        with pytest.raises(ScheduleError, match="do not reach all that the block runs for: .* i to i \\+ 1 of 8"):
            sch.reverse_compute_at(sch.get_block("Y"), loop)
        return
    sch.reverse_compute_at(sch.get_block("Y"), loop)
    given, found = np.ones((8, 4), "float32"), np.zeros((8, 4), "float32")
    run(sch.func, given, found)
    np.testing.assert_array_equal(found, given * 2)


def test_inline_refusals():
    sch = Schedule(matmul(4, 4, 4))
    refuses(ScheduleError, "not one element-wise store", sch.compute_inline, sch.get_block("C"))
    refuses(ScheduleError, "output", sch.compute_inline, sch.get_block("D"))
    refuses(ScheduleError, "producer is not", sch.reverse_compute_inline, sch.get_block("D"))
    check_matmul(sch.func, 4, 4, 4)


@pytest.mark.parametrize("shape", [(16, 16, 8), (7, 13, 5), (1, 1, 1), (9, 32, 3)])
@pytest.mark.parametrize("tile", [(4, 8), (3, 5)])
def test_compute_at_tile(shape, tile):
    m, n, k = shape
    sch = Schedule(matmul(m, n, k))
    d, c = sch.get_block("D"), sch.get_block("C")
    i, j = sch.get_loops(d)
    io, ii = sch.split(i, [None, tile[0]])
    jo, ji = sch.split(j, [None, tile[1]])
    sch.reorder(io, jo, ii, ji)
    sch.compute_at(c, jo)
    sch.set_scope(c, 0, "local")
    check_matmul(sch.func, m, n, k)
    sch.decompose_reduction(c, sch.get_loops(c)[-1])
    check_matmul(sch.func, m, n, k)


@pytest.mark.parametrize("m", [1, 5, 8])
def test_compute_at_symbolic(m):
    sch = Schedule(matmul(te.size_var("m", "int64"), 8, 5))
    d, c = sch.get_block("D"), sch.get_block("C")
    i, j = sch.get_loops(d)
    io, ii = sch.split(i, [None, 4])
    sch.compute_at(c, io)
    check_matmul(sch.func, m, 8, 5)


@pytest.mark.parametrize("factors", [[2, None, 2], [1, 3], [None, 1]])
def test_compute_at_leaves_the_conditions_of_unit_loops_behind(factors):
    """A loop of one iteration, split into more, runs its block under a condition of loops that the block loses."""
    sch = Schedule(matmul(4, 6, 5))
    d, c = sch.get_block("D"), sch.get_block("C")
    sch.split(sch.add_unit_loop(c), factors)
    sch.compute_at(c, sch.get_loops(d)[0], preserve_unit_loops=True)
    check_matmul(sch.func, 4, 6, 5)


def test_compute_at_refusals():
    sch = Schedule(matmul(8, 8, 4))
    d, c = sch.get_block("D"), sch.get_block("C")
    refuses(ScheduleError, "output", sch.compute_at, d, sch.get_loops(c)[0])
    refuses(ScheduleError, "already an ancestor", sch.reverse_compute_at, d, sch.get_loops(d)[0])
    i, j, k = sch.get_loops(c)
    refuses(ScheduleError, "reduction runs around", sch.reverse_compute_at, d, k)


@pytest.mark.parametrize("shape", [(8, 8, 4), (7, 9, 3)])
def test_reverse_compute_at(shape):
    m, n, k = shape
    sch = Schedule(matmul(m, n, k))
    d, c = sch.get_block("D"), sch.get_block("C")
    i, j, _ = sch.get_loops(c)
    io, ii = sch.split(i, [None, 4])
    sch.reverse_compute_at(d, io)
    check_matmul(sch.func, m, n, k)
    sch = Schedule(matmul(m, n, k))
    d, c = sch.get_block("D"), sch.get_block("C")
    i, j, _ = sch.get_loops(c)
    sch.reverse_compute_at(d, j)
    check_matmul(sch.func, m, n, k)


def test_reordering_a_reduction_outside_blocks_reverse_compute_at():
    sch = Schedule(matmul(8, 8, 4))
    d, c = sch.get_block("D"), sch.get_block("C")
    i, j, k = sch.get_loops(c)
    sch.reorder(k, i, j)
    refuses(ScheduleError, "not complete", sch.reverse_compute_at, d, i)


def test_cache_write_and_read():
    sch = Schedule(matmul(8, 6, 4, relu=False))
    c = sch.get_block("C")
    copy = sch.cache_write(c, 0, "local")
    b = sch.cache_read(c, 1, "global")
    check_matmul(sch.func, 8, 6, 4, relu=False)
    i, j = sch.get_loops(copy)
    io, ii = sch.split(i, [None, 3])
    sch.compute_at(c, io)
    check_matmul(sch.func, 8, 6, 4, relu=False)
    sch.transform_layout(b, ("write", 0), lambda k, j: (j // 4, k, j % 4))
    assert not ir.find(sch.func, ir.Cast)  # the map computes in the block's own integers
    sch.compute_at(b, io)
    check_matmul(sch.func, 8, 6, 4, relu=False)


def test_blocks_that_share_a_copy_may_have_been_decomposed():
    a, r = te.placeholder((3, 10), name="A"), te.reduce_axis((0, 10), name="k")
    total = te.compute((3,), lambda i: te.sum(a[i, r], axis=r), name="S")
    sch = Schedule(te.create_prim_func([a, total, te.compute((3, 10), lambda i, j: a[i, j] + 1.0, name="D")]))
    blocks = [sch.get_block("S"), sch.get_block("D")]
    sch.decompose_reduction(blocks[0], sch.get_loops(blocks[0])[1])
    sch.cache_read(blocks[0], "A", "global", blocks)
    x = np.random.default_rng(2).standard_normal((3, 10), np.float32)
    sums, more = np.zeros(3, np.float32), np.zeros((3, 10), np.float32)
    run(sch.func, x, sums, more)
    np.testing.assert_allclose(sums, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(more, x + 1)


def test_compute_at_rounds_up_over_padded_weights():
    """A tile over packed, padded weights needs no predicate in the reduction, though the output's width is odd."""
    m, n, k, panel = 5, 13, 3, 8
    a, w = te.placeholder((m, k), name="A"), te.placeholder((2, k, panel), name="W")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[j // panel, r, j % panel], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + 1.0, name="D")
    sch = Schedule(te.create_prim_func([a, w, d]))
    block, out = sch.get_block("C"), sch.get_block("D")
    i, j = sch.get_loops(out)
    jo, ji = sch.split(j, [None, panel])
    sch.reorder(jo, i, ji)
    sch.compute_at(block, jo)
    assert str(sch.state.realize("C").predicate) == str(tir.const(True))
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((m, k), np.float32), rng.standard_normal((2, k, panel), np.float32)
    result = np.zeros((m, n), np.float32)
    run(sch.func, x, y, result)
    dense = y.transpose(1, 0, 2).reshape(k, -1)[:, :n]
    np.testing.assert_allclose(result, x @ dense + 1, rtol=1e-5, atol=1e-5)


def test_trace_prints_and_replays():
    sch = Schedule(matmul(8, 8, 8))
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    io, ii = sch.split(i, [None, 4])
    sch.parallel(io)
    sch.decompose_reduction(c, k)
    text = str(sch.trace)
    assert "sch.split(loop=l1, factors=[None, 4]" in text and "sch.parallel(loop=l4)" in text
    again = Schedule(matmul(8, 8, 8))
    sch.trace.apply_to_schedule(again)
    assert again.state.block_names() == sch.state.block_names()
    check_matmul(again.func, 8, 8, 8)
    third = Schedule(matmul(8, 8, 8))
    type(sch.trace).apply_json_to_schedule(sch.trace.as_json(), third)
    assert third.state.block_names() == sch.state.block_names()


def test_annotate_and_sampling():
    sch = Schedule(matmul(8, 8, 8), seed=1)
    i, _, _ = sch.get_loops(sch.get_block("C"))
    sch.annotate(i, "pragma_grain", 4)
    assert sch.get(i).annotations["pragma_grain"] == 4
    refuses(ScheduleError, "no annotation", sch.unannotate, i, "x")
    sch.unannotate(i, "pragma_grain")
    tile = sch.sample_perfect_tile(i, 2)
    assert tile[0] * tile[1] == 8
    choice = sch.sample_categorical([3, 5], [0.5, 0.5])
    replayed = Schedule(matmul(8, 8, 8))
    sch.trace.apply_to_schedule(replayed)
    assert choice in (3, 5) and replayed.trace.insts[-1].outputs == [choice]


def test_places_of_reads_are_those_that_the_block_lists():
    @T.prim_func
    def product(A: T.Buffer((6, 10), "float32"), B: T.Buffer((10, 4), "float32"), C: T.Buffer((6, 4), "float32")):
        for i, j, k in T.grid(6, 4, 10):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    for place, name in enumerate("CAB"):
        sch = Schedule(product)
        if name == "C":
            refuses(ScheduleError, "the block writes 'C'", sch.cache_read, "C", place, "global")
        else:
            assert sch.get(sch.cache_read("C", place, "global")).reads[0].buffer.name == name
    sch = Schedule(product)
    sch.transform_layout("C", ("read", 1), lambda i, j: (j, IndexMap.AXIS_SEPARATOR, i))
    (_, moved), *_ = sch.func.buffer_map
    assert ([ir.as_int(d) for d in moved.shape], moved.axis_separators) == ([10, 6], (1,))
    sch = Schedule(product)
    sch.reindex_cache_read("C", 2, "global", lambda i, j, k: (j, k))
    assert [r.buffer.name for r in sch.get(sch.get_block("C")).reads] == ["C", "A", "B_global"]


def test_conditions_of_consumers_are_inlined_into():
    @T.prim_func
    def chosen(A: T.Buffer((9,), "float32"), C: T.Buffer((9,), "float32")):
        B = T.alloc_buffer((9,), "float32")
        for i in range(9):
            with T.block("B"):
                v = T.axis.spatial(9, i)
                B[v] = A[v] * T.float32(2)
        for i in range(9):
            with T.block("C"):
                v = T.axis.spatial(9, i)
                T.where(B[i] < T.float32(1))
                C[v] = B[v] + T.float32(1)

    sch = Schedule(chosen)
    sch.compute_inline("B")
    x, out = np.random.default_rng(0).random(9, np.float32), np.zeros(9, np.float32)
    run(sch.func, x, out)
    np.testing.assert_array_equal(out, np.where(2 * x < 1, 2 * x + 1, 0))
