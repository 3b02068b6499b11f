"""merge, decompose_padding, transform_block_layout, reindex_cache_*, read_at, compute locations and the like."""

import contextlib
import functools
import random

import numpy as np
import pytest

from tests.fuzz.schedules import PROGRAMS, arrays_of
from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from tests.tir.schedule.test_primitives import check_matmul, matmul
from tests.tir.schedule.test_trace import every_way
from weft import arith, ir, te, tir
from weft.error import ScheduleError
from weft.script import from_source
from weft.script import tir as T
from weft.tir import Schedule


@functools.cache
def size(name):
    """The variable of a dimension, the same wherever it is named."""
    return te.size_var(name, "int64")


def same(sch, func, seed=0):
    given = arrays_of(func, seed)
    expected, found = [a.copy() for a in given], [a.copy() for a in given]
    run(func, *expected)
    run(sch.func, *found)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_array_equal(f, e)


def extents(sch, block):
    return [ir.as_int(f.extent) for f in sch.state.loops_of(block)]


def two_steps(n=6, m=4, shift=0):
    x = te.placeholder((n, m), "int32", "X")
    b = te.compute((n, m), lambda i, j: x[i, j] * 2, "B")
    return te.create_prim_func([x, te.compute((n, m), lambda i, j: b[i, (j + shift) % m] + 1, "C")])


@pytest.mark.parametrize("depth", [0, 1])
def test_merge(depth):
    func = two_steps()
    sch = Schedule(func)
    merged = sch.merge(sch.get_loops("B")[depth], sch.get_loops("C")[depth])
    assert sch.get_loops("B")[depth].var is merged.var is sch.get_loops("C")[depth].var
    same(sch, func)
    every_way(sch, func)


def test_merge_refuses():
    sch = Schedule(two_steps(shift=1))
    with pytest.raises(ScheduleError, match="merge: an iteration reads elements of 'B' that another one makes"):
        sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1])
    sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])  # whole rows are made before they are read
    same(sch, two_steps(shift=1))
    sch = Schedule(matmul(4, 5, 6))
    refuses(ScheduleError, "merge: the nests differ", sch.merge, sch.get_loops("C")[2], sch.get_loops("D")[1])
    refuses(ScheduleError, "merge: the loops do not stand in nests", sch.merge, *sch.get_loops("C")[:2])
    refuses(ScheduleError, "merge: two loops", sch.merge, sch.get_loops("C")[0])


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "unroll", "bind"])
def test_a_bound_loop_can_run_in_another_way(kind):
    func = two_steps()
    sch = Schedule(func, debug_mask="all")
    i = sch.get_loops("B")[0]
    sch.bind(i, "blockIdx.x")
    getattr(sch, kind)(i, *(["threadIdx.x"] if kind == "bind" else []))
    tag = getattr(sch.get(i).thread_binding, "thread_tag", None)
    assert tag == ("threadIdx.x" if kind == "bind" else None)
    same(sch, func)
    every_way(sch, func)


def test_factors_of_a_loop_of_unknown_extent():
    x = te.placeholder((size("n"), 4), "int32", "X")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2, "B")])
    for draw in (Schedule.sample_perfect_tile, Schedule.sample_partitioned_tile):
        sch = Schedule(func)
        i, j = sch.get_loops("B")
        factors = draw(sch, i, 3)
        assert factors == [None, 1, 1]
        sch.split(i, factors)
        refuses(ScheduleError, "(?s)the decision.*product is 4", sch.sample_perfect_tile, j, 2, decision=[None, 4])
        sch.split(j, sch.sample_perfect_tile(j, 2))
        given, found = np.arange(20, dtype="int32").reshape(5, 4), np.zeros((5, 4), "int32")
        run(sch.func, given, found)
        np.testing.assert_array_equal(found, given * 2)
        every_way(sch, func)


@pytest.mark.parametrize("depth", [None, 0, 1])
@pytest.mark.parametrize("preserve", [True, False])
def test_blockize_of_blocks(depth, preserve):
    for size in [(6, 4), (1, 5), (0, 3)]:
        func = two_steps(*size)
        sch = Schedule(func, debug_mask="all")
        if depth is not None:
            sch.compute_at("B", sch.get_loops("C")[depth], preserve_unit_loops=True)
        outer = sch.blockize([sch.get_block("B"), sch.get_block("C")], preserve_unit_iters=preserve)
        assert [sch.get(b).name_hint for b in sch.get_child_blocks(outer)] == ["B", "C"]
        assert sch.get_child_blocks(sch.get_block("root"))[0].name == outer.name
        same(sch, func)
        every_way(sch, func)
        if depth == 0 and size[0] > 1:
            assert len(sch.get(outer).iter_vars) == 1
            sch.parallel(sch.get_loops(outer)[0])
            same(sch, func)


def test_blockize_of_blocks_keeps_loops_that_run_again():
    @T.prim_func
    def func(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (4, 6), "int32")
        B = T.match_buffer(b, (4, 6), "int32")
        for _ in T.serial(3):
            for i, j in T.grid(2, 6):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * 2
            for i, j in T.grid(2, 6):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi + 2, vj] = B[vi + 2, vj] + A[vi + 2, vj]

    sch = Schedule(func, debug_mask="all")
    outer = sch.blockize(["B", "C"])
    assert len(sch.get_loops(outer)) == 1 and not sch.get(outer).iter_vars
    same(sch, func)
    every_way(sch, func)


def test_blockize_of_blocks_refuses():
    sch = Schedule(matmul(4, 5, 6))
    sch.reverse_compute_at("D", sch.get_loops("C")[1])
    sch.blockize(["C", "D"])
    same(sch, matmul(4, 5, 6))
    sch = Schedule(matmul(4, 5, 6))
    sch.reorder(*[sch.get_loops("C")[n] for n in (2, 0, 1)])
    refuses(ScheduleError, "no blocks", sch.blockize, [])
    refuses(ScheduleError, "one after another in one scope", sch.blockize, ["C", "C"])
    refuses(ScheduleError, "an argument is no loop", sch.blockize, 3)
    copy = sch.cache_read("D", 0, "global")
    refuses(ScheduleError, "those between are C, C_global, D", sch.blockize, ["C", "D"])
    sch.blockize([copy, "D"])
    refuses(ScheduleError, "one after another in one scope", sch.blockize, ["C", "D"])
    same(sch, matmul(4, 5, 6))


def resized(index, n=5, m=7):
    x = te.placeholder((9, 9), "int32", "X")
    return te.create_prim_func([x, te.compute((n, m), lambda i, j: index(x, i, j), "B")])


@pytest.mark.parametrize(
    ("index", "repeats", "stages"),
    [
        (lambda x, i, j: x[i // 2 + j // 3, j // 2], 0, 2),
        (lambda x, i, j: x[i // 2 + 1, j] + x[i // 2 + 1, j // 2], 0, 2),
        (lambda x, i, j: x[i // 2 + 1, j] + x[i // 2, j // 2], 2, 1),
        (lambda x, i, j: x[i // 2 + 1, j] + x[i // 2, j // 2], 3, 0),
        (lambda x, i, j: x[x[i, j] % 3 + i // 2, j], 0, 1),
        (lambda x, i, j: x[tir.max(tir.min((i * 3 - 1) // 2, 8), 0), j], 0, 1),
        (lambda x, i, j: x[i, j], 0, 0),
    ],
)
def test_cache_index(index, repeats, stages):
    for n, m in [(5, 7), (1, 1), (0, 3)]:
        func = resized(index, n, m)
        sch = Schedule(func, debug_mask="all")
        cached = sch.cache_index("B", "global", repeats)
        assert len(cached) == stages <= len(sch.state.root.alloc_buffers) or n * m < 2
        for block in cached:
            sch.fuse(*sch.get_loops(block))
        same(sch, func)
        every_way(sch, func)


def test_transform_block_layout():
    func = matmul(4, 6, 8)
    sch = Schedule(func)
    sch.transform_block_layout("C", lambda i, j, k: (k // 4, j * 4 + i, k % 4))
    assert extents(sch, "C") == [2, 24, 4]
    check_matmul(sch.func, 4, 6, 8)
    every_way(sch, func)
    sch.reorder_block_iter_var("C", [1, 0, 2])
    check_matmul(sch.func, 4, 6, 8)
    refuses(ScheduleError, "not known to be invertible", sch.transform_block_layout, "D", lambda i, j: (i,))
    with pytest.raises(ScheduleError, match="mixes a reduction with elements"):
        Schedule(func).transform_block_layout("C", lambda i, j, k: (i, j * 8 + k))
    refuses(ScheduleError, "is no order of the variables", sch.reorder_block_iter_var, "C", [0, 0, 1])


def test_reindex_caches():
    func = matmul(4, 6, 8)
    sch = Schedule(func)
    copy = sch.reindex_cache_read("C", 1, "shared", lambda i, j, k: (j, k // 4, k % 4))
    assert [ir.as_int(d) for d in sch.get(copy).writes[0].buffer.shape] == [6, 2, 4]
    sch.reindex_cache_write("C", 0, "global", lambda i, j, k: (j * 4 + i,))
    check_matmul(sch.func, 4, 6, 8)
    every_way(sch, func)
    with pytest.raises(ScheduleError, match="not known to keep elements apart"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (k,))


def test_caches_by_name_and_for_consumers():
    func = PROGRAMS["softmax"](random.Random(3))
    sch = Schedule(func)
    sch.cache_write("E", "E", "global", ["S"])
    sch.cache_read("Y", "S", "global", consumer_blocks=["Y"])
    sch.set_scope("T", "T", "local")
    same(sch, func)
    every_way(sch, func)
    refuses(ScheduleError, "cache_read: the block writes 'Y'", sch.cache_read, "Y", "Y", "global")
    refuses(ScheduleError, "cache_write: 'T' does not run after", sch.cache_write, "E", 0, "global", ["T"])


def test_read_at_and_write_at():
    func = matmul(4, 6, 8)
    sch = Schedule(func)
    i, _, _ = sch.get_loops("C")
    a = sch.read_at(i, sch.get_block("C"), 0, "shared")
    c = sch.write_at(i, sch.get_block("C"), 0, "local")
    assert sch.get_loops(a)[0].var is i.var is sch.get_loops(c)[0].var
    assert sch.get(a).annotations.get("auto_copy") == 1
    check_matmul(sch.func, 4, 6, 8)
    every_way(sch, func)


def test_unsafe_set_dtype():
    sch = Schedule(matmul(4, 6, 8))
    sch.unsafe_set_dtype("C", 0, "float64")
    assert sch.get(sch.get_block("C")).writes[0].buffer.dtype == "float64"
    check_matmul(sch.func, 4, 6, 8)
    refuses(ScheduleError, "'D' is a parameter", sch.unsafe_set_dtype, "D", 0, "float16")


def test_compute_locations():
    func = two_steps()
    kinds = set()
    for seed in range(30):
        sch = Schedule(func, seed=seed)
        sch.compute_at("B", sch.sample_compute_location("B"))
        kinds |= set(sch.trace.decisions.values())
        same(sch, func)
        every_way(sch, func)
    assert kinds == {-2, -1, 0, 1}
    refuses(ScheduleError, "the decision 7 is no place", sch.sample_compute_location, "C", decision=7)
    sch = Schedule(func)
    sch.compute_at("B", sch.sample_compute_location("B", decision=-1))
    assert extents(sch, "B") == [6, 4]  # it stays
    sch.compute_at("B", sch.sample_compute_location("B", decision=-2))
    assert "B" not in sch.state.block_names()
    sch = Schedule(two_steps(1, 4))  # a loop of one iteration is no place, those inside keep their number
    refuses(ScheduleError, "the decision 0 is no place", sch.sample_compute_location, "B", decision=0)
    assert sch.sample_compute_location("B", decision=1).var is sch.get_loops("C")[1].var


@pytest.mark.parametrize(("factors", "text"), [([2, 3, 1], None), ([1, 1, 1], "0")])
def test_fused_indices(factors, text):
    """Loops of one iteration add nothing to the indices of what they are fused with, and are 0 alone."""
    func = two_steps(int(np.prod(factors)), 5)
    sch = Schedule(func)
    parts = sch.split(sch.get_loops("C")[0], factors)
    sch.fuse(parts[0])
    fused = sch.fuse(*sch.get_loops("C")[:3])
    index = str(sch.state.realize("C").iter_values[0])
    assert "* 0" not in index and "+ 0" not in index and (text or fused.var.name) in index
    same(sch, func)


def test_virtual_threads_share_copies():
    sch = Schedule(matmul(4, 8, 2))
    copy = sch.cache_read("C", 0, "shared")
    i, j, k = sch.get_loops("C")
    sch.bind(i, "vthread.x")
    sch.bind(j, "threadIdx.x")
    sch.compute_at(copy, k)
    assert extents(sch, copy.name) == [4, 8, 2, 4]


def test_partitioned_tiles():
    sch = Schedule(two_steps(24, 10), seed=1)
    i, j = sch.get_loops("C")
    for _ in range(20):
        a, b, c = sch.sample_partitioned_tile(i, 3, 1, 4)
        assert a * b * c == 24 and b * c % 4 == 0
        assert np.prod(sch.sample_partitioned_tile(j, 3, 1, 4)) == 10  # 4 does not divide it: any factors
    refuses(ScheduleError, "do not hold 4", sch.sample_partitioned_tile, i, 2, 1, 4, decision=[12, 2])


def test_split_without_predicate():
    sch = Schedule(matmul(te.size_var("n", "int64"), 6, 8))
    sch.split(sch.get_loops("C")[0], [None, 4], disable_predication=True)
    assert "T.where" not in str(sch.func)
    check_matmul(sch.func, 8, 6, 8)


@pytest.mark.parametrize("pad", [7, -1])
def test_padding_of_layouts(pad):
    func = two_steps(6, 5)
    sch = Schedule(func)
    sch.transform_layout("B", ("write", 0), lambda i, j: (j // 4, i, j % 4), pad_value=pad)
    assert len(sch.state.block_names()) == 4
    assert [ir.as_int(d) for d in sch.get(sch.get_block("B")).writes[0].buffer.shape] == [2, 6, 4]
    same(sch, func)
    every_way(sch, func)
    with pytest.raises(ScheduleError, match="the padding 0.5 is no int32, which 'C' holds"):
        sch.transform_layout("C", ("write", 0), lambda i, j: (i, j // 2, j % 2), pad_value=0.5)
    with pytest.raises(ScheduleError, match="puts several elements"):
        sch.transform_layout("B", ("write", 0), lambda a, i, j: (a, i, j // 2))
    sch.transform_layout("B", ("write", 0), lambda a, i, j: (a, i, j // 2), assume_injective_transform=True)


def test_padding_of_layouts_is_of_the_indices():
    func = two_steps(6, 5)
    sch = Schedule(func)
    to = lambda i, j: (j // 4, i, j % 4)  # noqa: E731
    other = tir.decl_buffer((1,), "int32", "other")
    stray = ir.Var("stray", "int32")
    for wrong in (lambda a, i, j: other[0], lambda a, i, j: i + stray):
        for block, side in (("B", "write"), ("B", "read")):
            with pytest.raises(ScheduleError, match="made of more than the indices"):
                sch.transform_layout(block, (side, 0), to, pad_value=wrong)
    with pytest.raises(ScheduleError, match="is no int32, which 'B' holds"):
        sch.transform_layout("B", ("write", 0), to, pad_value=ir.const(0, "int8"))
    with pytest.raises(ScheduleError, match="is no number of 3 indices"):
        sch.transform_layout("B", ("write", 0), to, pad_value=lambda a, i, j: (i, j))
    sch.transform_layout("B", ("write", 0), to, pad_value=lambda a, i, j: a * 100 + i * 10 + j)
    padding = sch.get(sch.get_block("B_pad"))
    assert [ir.as_int(iv.dom.extent) for iv in padding.iter_vars] == [1, 6, 4]
    point = dict(zip((iv.var for iv in padding.iter_vars), (1, 5, 3), strict=True))
    value = ir.substitute(padding.body.value, {v: ir.const(n, v.dtype) for v, n in point.items()})
    assert ir.as_int(arith.Analyzer().simplify(value)) == 153
    same(sch, func)
    every_way(sch, func)


def test_stated_and_hidden_accesses():
    func = two_steps()
    sch = Schedule(func)
    sch.annotate_buffer_access("C", 0, "read", lambda i, j: ((i, i + 1), (0, 4)))
    (read,) = sch.get(sch.get_block("C")).reads
    assert [(str(r.min), ir.as_int(r.extent)) for r in read.region] == [("v_i", 1), ("0", 4)]
    assert sch.get(sch.get_block("C")).annotations.get("explicit_read_region") == (0,)
    sch.unsafe_hide_buffer_access("C", "read", [0])
    assert sch.get(sch.get_block("C")).reads == ()
    same(sch, func)
    every_way(sch, func)
    with pytest.raises(ScheduleError, match="unsafe_hide_buffer_access: unknown kind of buffer 'both'"):
        sch.unsafe_hide_buffer_access("C", "both", [0])
    with pytest.raises(ScheduleError, match="annotate_buffer_access: 1 ranges for the 2 dimensions of 'C'"):
        sch.annotate_buffer_access("C", 0, "write", lambda i, j: [i])


@pytest.mark.parametrize(
    ("shape", "index_map", "message"),
    [
        ((100_000,), lambda i: (i % 70_000,), "puts several elements"),
        (("n",), lambda i: (i % 70_000,), "puts several elements"),
        ((9,), lambda i: (tir.min(i, 5),), "puts several elements"),
        (("n", "m"), lambda i, j: (i * size("n") + j,), "puts several elements"),
        ((4096, 4096), lambda i, j: (i * 5 + j,), "puts several elements"),
        (("n",), lambda i: (i * size("s"),), "assume_injective_transform=True"),
        (("n", "m"), lambda i, j: (i * size("m") + j,), None),
        (("n", "m"), lambda i, j: (j // 8, i, j % 8), None),
        ((4096, 4096), lambda i, j: (i // 32, j, i % 32), None),
        ((size("n") - 12, 4), lambda i, j: (j, i), None),
        ((size("n") - 12, 4), lambda i, j: (i % 70_000, j), "puts several elements"),
        ((size("n") - (1 << 21),), lambda i: (i,), "assume_injective_transform=True"),
        ((0, 4), lambda i, j: (i, j), None),
        ((), lambda: (0,), None),
    ],
)
def test_a_layout_keeps_elements_apart(shape, index_map, message):
    """In buffers of any size, whatever their symbolic dimensions are."""
    extents = [size(d) if isinstance(d, str) else d for d in shape]
    x = te.placeholder(extents, name="X")
    e = te.compute(extents, lambda *i: x(*i) * 2.0, "E")
    sch = Schedule(te.create_prim_func([x, te.compute(extents, lambda *i: e(*i) + 1.0, "Y")]))
    refused = contextlib.nullcontext() if message is None else pytest.raises(ScheduleError, match=message)
    with refused:
        sch.transform_layout("E", ("write", 0), index_map)


@pytest.mark.parametrize("cache", [lambda s: s.cache_read("B", 0, "global"), lambda s: s.cache_write("A", 0, "global")])
def test_a_copy_stands_between_maker_and_reader_of_one_nest(cache):
    func = PROGRAMS["one_nest"](random.Random(0))
    sch = Schedule(func)
    copy = cache(sch)
    assert sch.get(sch.get_loops(copy)[0]).extent == 6  # inside of the loop that both share
    same(sch, func)


def test_a_producer_that_counts_down_is_not_run_below_its_data():
    """What is rounded up to whole tiles reads at most what is there, at both ends."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[5 - i] + 1, name="B")
    func = te.create_prim_func([a, te.compute((6,), lambda i: b[i] * 2, name="C")])
    s = tir.Schedule(func)
    *_, inner = s.split(s.get_loops("C")[0], [2, None, 2])
    s.compute_at("B", inner)
    x, y = np.arange(6, dtype="int32"), np.zeros(6, "int32")
    tir.interpret(tir.pipeline.lower(s.func), x, y)
    np.testing.assert_array_equal(y, (x[::-1] + 1) * 2)


def test_a_copy_beside_a_condition_stays_inside_its_buffer():
    a = te.placeholder((4, 4), "int32", name="A")
    func = te.create_prim_func([a, te.compute((4, 4), lambda i, j: a[i, j] + 1, name="B")])
    s = tir.Schedule(func)
    i, j = s.get_loops("B")
    s.specialize(j, i.var < 2)
    s.split(i, [None, 8])
    s.cache_read("B", 0, "global")
    x, y = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((4, 4), "int32")
    tir.interpret(tir.pipeline.lower(s.func), x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_a_block_works_in_place_on_a_copy():
    a = te.placeholder((5,), "int32", name="A")
    func = te.create_prim_func([a, te.compute((5,), lambda i: a[i] + 1, name="B")])
    in_place = ir.substitute(func, {func.buffer_of(func.params[1]): func.buffer_of(func.params[0])})
    in_place = in_place.replace(params=func.params[:1], buffer_map=func.buffer_map[:1])
    sch = Schedule(in_place)
    assert [b.name for b in sch.cache_inplace("B", 0, "local")] == ["A_local", "A_local_1"]
    assert sch.get_producers("B")[0].name == "A_local"
    x = np.arange(5, dtype="int32")
    tir.interpret(tir.pipeline.lower(sch.func), x)
    np.testing.assert_array_equal(x, np.arange(5) + 1)
    every_way(sch, in_place)
    refuses(ScheduleError, "does not write", Schedule(func).cache_inplace, "B", 0, "local")


def test_separators_of_axes():
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="B")
    sch = Schedule(te.create_prim_func([a, te.compute((4, 4), lambda i, j: b[i, j] + 1.0, name="C")]))
    sch.set_axis_separator("B", ("write", 0), [1])
    sch.set_axis_separator("B", "A", [1])
    assert [w.buffer.axis_separators for w in sch.state.realize("B").block.writes] == [(1,)]
    assert sch.func.buffer_map[0][1].axis_separators == (1,)
    for wrong in ([0], [2], [1, 1]):
        refuses(ScheduleError, "no places between", sch.set_axis_separator, "B", ("write", 0), wrong)


def test_what_is_copied_at_a_loop_was_all_made_in_its_iteration():
    a = te.placeholder((2, 4), "int32", name="A")
    b = te.compute((2, 4), lambda i, j: a[i, j] + 1, name="B")
    sch = Schedule(te.create_prim_func([a, te.compute((2, 4), lambda i, j: b[i, j] * 2, name="C")]))
    sch.transform_layout("B", ("write", 0), lambda i, j: (i + j, j))  # a diagonal: rows of it overlap
    refuses(ScheduleError, "makes only some", sch.write_at, sch.get_loops("B")[0], "B", 0, "global")


def test_blocks_of_blocks_where_sizes_and_variables_have_other_types():
    a = te.placeholder((size("n"), 6), name="A")
    func = te.create_prim_func([a, te.compute((size("n"), 6), lambda i, j: a[i, j] + 1.0, name="B")])
    sch = Schedule(func)
    sch.blockize(sch.get_loops(sch.cache_read("B", 0, "global"))[0])
    ir.assert_structural_equal(from_source(sch.func.script()), sch.func, map_free_vars=True)
    same(sch, func)


def test_what_is_reached_by_its_address_is_copied():
    func = PROGRAMS["pointers"](random.Random(0))
    changes = [
        lambda s: s.cache_write("P", 0, "global"),
        lambda s: s.cache_read("P", 0, "local"),
        lambda s: s.cache_read("E", 0, "global", ["E", "Z"]),
    ]
    for order in (changes, changes[::-1], changes[:1], changes[1:2]):
        sch = Schedule(func, debug_mask="all")
        for change in order:
            change(sch)
        same(sch, func)
        every_way(sch, func)


def test_what_is_changed_by_its_address_is_copied():
    @T.prim_func
    def func(A: T.Buffer((2, 6), "int32"), D: T.Buffer((2, 6), "int32")):
        for i in range(2):
            with T.block("P"):
                v = T.axis.spatial(2, i)
                T.reads(A[v, 0:6], D[v, 0:6])
                T.writes(D[v, 0:6])
                T.evaluate(
                    T.call_extern(
                        "int32",
                        "reversed_copy",
                        D.access_ptr("rw", offset=v * 6, extent=6),
                        D.access_ptr("rw", offset=v * 6, extent=6),
                        5,
                    )
                )

    sch = Schedule(func, debug_mask="all")
    refuses(ScheduleError, "'D' is reached by its address", sch.cache_write, "P", 0, "global")
    assert len(sch.cache_inplace("P", 1, "local")) == 2
    same(sch, func)
    every_way(sch, func)


def test_what_is_viewed_keeps_its_values_or_its_place():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,), "float32")
        for i in range(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] * 2.0
        for i in range(4):
            with T.block("C"):
                w = T.axis.spatial(4, i)
                one = T.match_buffer(B[w : w + 1], (1,))
                C[w] = one[0] + 1.0

    sch = Schedule(func)
    refuses(ScheduleError, "'B' is reached by match_buffer", sch.compute_inline, "B")
    sch.unsafe_set_dtype("B", 0, "float64")
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.cache_read("C", 0, "global")
    x, found = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    tir.interpret(sch.func, x, found)
    np.testing.assert_array_equal(found, x * 2 + 1)
