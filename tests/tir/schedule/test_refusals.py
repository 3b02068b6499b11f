"""What each primitive does with a request that would change the result: an error that says who, where and why."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from tests.tir.schedule.test_primitives import check_matmul, matmul
from weft import ir, script, te, tir
from weft.error import InvalidArgument, ScheduleError
from weft.script import tir as T
from weft.tir import Schedule

SHAPE = (12, 10, 7)


def loops(sch, block="C"):
    return sch.get_loops(block)


def bind_then(again):
    def apply(sch):
        loop = loops(sch)[0]
        sch.bind(loop, "threadIdx.x")
        again(sch, loop)

    return apply


def reduction_outside(sch):
    i, j, k = loops(sch)
    sch.reorder(k, i)
    sch.decompose_reduction("C", i)


def split_twice(sch):
    i = loops(sch)[0]
    sch.split(i, [None, 2])
    sch.split(i, [None, 2])


def nested_axis(sch):
    i, j, _ = loops(sch)
    sch.bind(i, "threadIdx.x")
    sch.bind(j, "threadIdx.x")


CASES = {
    "split: factor 0 is not positive": lambda s: s.split(loops(s)[0], [0, None]),
    "split: no factors": lambda s: s.split(loops(s)[0], []),
    "split: at most one factor": lambda s: s.split(loops(s)[0], [None, None]),
    "split: the factors cover 9 iterations of 12": lambda s: s.split(loops(s)[0], [3, 3]),
    "split: the factor 2.5 is not an integer": lambda s: s.split(loops(s)[0], [2.5, None]),
    "split: variables that are not known at the loop: q": lambda s: s.split(loops(s)[0], [tir.Var("q", "int64"), None]),
    "split: variables .* loop: j": lambda s: s.split(loops(s)[0], [None, loops(s)[1].var]),
    "split: an argument is no loop": lambda s: s.split(s.get_block("C"), [2, None]),
    "split: the loop 'i' is no longer": split_twice,
    "split: the loop is bound to a thread": bind_then(lambda s, i: s.split(i, [None, 2])),
    "fuse: the loops are not directly nested": lambda s: s.fuse(loops(s)[0], loops(s)[2]),
    "fuse: the loops are not directly nested in this order": lambda s: s.fuse(loops(s)[1], loops(s)[0]),
    "fuse: no loops": lambda s: s.fuse(),
    "fuse: an argument is no loop": lambda s: s.fuse(loops(s)[0], 3),
    "fuse: a loop is bound": bind_then(lambda s, i: s.fuse(*loops(s)[:2])),
    "reorder: the loops are not nested": lambda s: s.reorder(loops(s)[0], loops(s, "D")[0]),
    "reorder: a loop is listed twice": lambda s: s.reorder(loops(s)[0], loops(s)[0]),
    "loop_partition: length -5 is negative": lambda s: s.loop_partition(loops(s)[0], [-5, None]),
    "loop_partition: the lengths add up to 50": lambda s: s.loop_partition(loops(s)[0], [50]),
    "loop_partition: the length 2.5": lambda s: s.loop_partition(loops(s)[0], [2.5]),
    "loop_partition: at most one length": lambda s: s.loop_partition(loops(s)[0], [None, None]),
    "loop_partition: a reduction inside still holds its init": lambda s: s.loop_partition(loops(s)[2], [3]),
    "specialize: variables .* loop: k": lambda s: s.specialize(loops(s)[0], loops(s)[2].var < 3),
    "parallel: the loop feeds 'v_k', a reduce variable": lambda s: s.parallel(loops(s)[2]),
    "vectorize: the loop feeds 'v_k', a reduce variable": lambda s: s.vectorize(loops(s)[2]),
    "bind: a loop of the same nest runs on threadIdx.x": nested_axis,
    "bind: unknown thread axis 'lane'": lambda s: s.bind(loops(s)[0], "lane"),
    "bind: the loop feeds 'v_k', a reduce variable": lambda s: s.bind(loops(s)[2], "blockIdx.x"),
    "unannotate: no annotation 'note'": lambda s: s.unannotate("C", "note"),
    "compute_inline: the block is not one element-wise store": lambda s: s.compute_inline("C"),
    "compute_inline: 'D' is an output": lambda s: s.compute_inline("D"),
    "compute_inline: the root block": lambda s: s.compute_inline("root"),
    "reverse_compute_inline: the producer is not": lambda s: s.reverse_compute_inline("D"),
    "reverse_compute_inline: the block is not one": lambda s: s.reverse_compute_inline("C"),
    "compute_at: the block is an output block": lambda s: s.compute_at("D", loops(s)[0]),
    "compute_at: the loop is already an ancestor": lambda s: s.compute_at("C", loops(s)[0]),
    "reverse_compute_at: no producer": lambda s: s.reverse_compute_at("C", loops(s, "D")[0]),
    "reverse_compute_at: the producer's result is not complete": lambda s: s.reverse_compute_at("D", loops(s)[2]),
    "decompose_reduction: the loop is not around": lambda s: s.decompose_reduction("C", loops(s, "D")[0]),
    "decompose_reduction: a reduction loop runs outside": reduction_outside,
    "decompose_reduction: the block has no init": lambda s: s.decompose_reduction("D", loops(s, "D")[0]),
    "rfactor: the loop is not a reduction loop": lambda s: s.rfactor(loops(s)[0]),
    "rfactor: factor_axis 9": lambda s: s.rfactor(loops(s)[2], 9),
    "rfactor: the block is not a reduction": lambda s: s.rfactor(loops(s, "D")[0]),
    "cache_read: buffer index 7": lambda s: s.cache_read("C", 7, "local"),
    "cache_read: 'D' does not read 'A'": lambda s: s.cache_read("C", 0, "local", [s.get_block("D")]),
    "cache_write: buffer index 7": lambda s: s.cache_write("C", 7, "local"),
    "set_scope: buffer index -3": lambda s: s.set_scope("C", -3, "local"),
    "set_scope: 'D' is a parameter": lambda s: s.set_scope("D", 0, "local"),
    r"transform_layout: the map \(i0\) puts several": lambda s: s.transform_layout("C", "C", lambda i, j: (i,)),
    r"transform_layout: the map .* puts several": lambda s: s.transform_layout("C", "C", lambda i, j: (i + j, i // 2)),
    "storage_align: buffer index 3": lambda s: s.storage_align("C", 3, 0, 1, 0),
    "storage_align: axis 9": lambda s: s.storage_align("C", 0, 9, 1, 0),
    "storage_align: factor 0": lambda s: s.storage_align("C", 0, 0, 0, 0),
    "storage_align: 'D' is a parameter": lambda s: s.storage_align("D", 0, 0, 1, 0),
    "sample_perfect_tile: 0 factors": lambda s: s.sample_perfect_tile(loops(s)[0], 0),
    r"sample_perfect_tile: the decision \[5, 7\]": lambda s: s.sample_perfect_tile(loops(s)[0], 2, decision=[5, 7]),
    r"sample_perfect_tile: the decision \[12\]": lambda s: s.sample_perfect_tile(loops(s)[0], 2, decision=[12]),
    "sample_categorical: the decision 7": lambda s: s.sample_categorical([1, 2], [0.5, 0.5], decision=7),
    "sample_categorical: 2 candidates and 1 prob": lambda s: s.sample_categorical([1, 2], [0.5]),
    "sample_categorical: the probabilities": lambda s: s.sample_categorical([1, 2], [-1, 0]),
    "get_block: there is no block 'X'": lambda s: s.get_block("X"),
    "add_unit_loop: there is no block 'X'|get_block: there is no block 'X'": lambda s: s.add_unit_loop("X"),
}


@pytest.mark.parametrize("message", CASES)
def test_refused(message):
    sch = Schedule(matmul(*SHAPE), seed=0)
    error = refuses(ScheduleError, message, CASES[message], sch)
    names_place = error.where or error.found or "no loops" in error.what
    assert names_place or error.what.startswith("sample_categorical"), "the error names no block and no loop"
    check_matmul(sch.func, *SHAPE)  # and the function is as good as before


def test_a_refused_primitive_leaves_the_function_and_the_trace():
    sch = Schedule(matmul(*SHAPE))
    i, *_ = sch.get_loops("C")
    func, text = sch.func, str(sch.trace)
    refuses(ScheduleError, "", sch.split, i, [3, 3])
    assert sch.func is func
    assert str(sch.trace) == text


def test_symbolic_extents():
    sch = Schedule(matmul(te.size_var("n", "int64"), 10, 7))
    i, *_ = sch.get_loops("C")
    caught = refuses(ScheduleError, "vectorize: the extent n is not a constant", sch.vectorize, i)
    assert "split a constant factor off" in str(caught)
    refuses(ScheduleError, "sample_perfect_tile: the decision", sch.sample_perfect_tile, i, 2, decision=[2, 5])
    refuses(ScheduleError, "split: the factors cover", sch.split, i, [4, 4])
    sch.vectorize(sch.split(i, [None, 4])[1])


def test_a_function_that_the_module_has_not():
    refuses(InvalidArgument, "no function 'f'", Schedule(matmul(*SHAPE)).get_block, "C", func_name="f")


def test_rebinding_the_axis_in_another_nest():
    sch = Schedule(matmul(*SHAPE))
    sch.bind(loops(sch)[0], "blockIdx.x")
    sch.bind(loops(sch, "D")[0], "blockIdx.x")
    other = Schedule(matmul(*SHAPE))
    sch.trace.apply_to_schedule(other)
    ir.assert_structural_equal(other.func, sch.func)


def window(shift):
    x = te.placeholder((13,), name="X")
    p = te.compute((13,), lambda i: x[i] * 2.0, name="P")
    return te.create_prim_func([x, te.compute((11,), lambda i: p[i] + p[i + shift], name="Y")])


def test_a_consumer_of_several_iterations():
    sch = Schedule(window(2))
    with pytest.raises(ScheduleError, match="reverse_compute_at: the block reads elements of 'P' that another"):
        sch.reverse_compute_at("Y", sch.get_loops("P")[0])
    outer, _ = sch.split(sch.get_loops("Y")[0], [None, 4])
    sch.compute_at("P", outer)  # what the help says
    x, out = np.random.default_rng(0).random(13, np.float32), np.full(11, np.nan, np.float32)
    run(sch.func, x, out)
    np.testing.assert_allclose(out, 2 * x[:-2] + 2 * x[2:], rtol=1e-6)
    same = Schedule(window(0))
    same.reverse_compute_at("Y", same.get_loops("P")[0])
    run(same.func, x, out)
    np.testing.assert_allclose(out, 4 * x[:-2], rtol=1e-6)


@T.prim_func
def rows(X: T.Buffer((4, 4), "float32"), Y: T.Buffer((4, 4), "float32")):
    B = T.alloc_buffer((4,), "float32")
    C = T.alloc_buffer((4, 4), "float32")
    for i in range(4):
        for k in range(4):
            with T.block("row"):
                v, w = T.axis.remap("SS", [i, k])
                C[v, w] = X[v, w]
        for j in range(4):
            with T.block("A"):
                w = T.axis.spatial(4, j)
                B[w] = X[w, w]
    for i, j in T.grid(4, 4):
        with T.block("Y"):
            v, w = T.axis.remap("SS", [i, j])
            Y[v, w] = C[v, w] + B[w]


def test_a_consumer_of_what_an_outer_loop_makes():
    """A row that an outer loop makes is all that there is so far, wherever inside of it the consumer runs."""
    sch = Schedule(rows)
    with pytest.raises(ScheduleError, match="reverse_compute_at: the block reads elements of 'C' that another"):
        sch.reverse_compute_at("Y", loops(sch, "A")[1])


def test_a_consumer_before_its_other_producer():
    x = te.placeholder((9,), name="X")
    p = te.compute((9,), lambda i: x[i] * 2.0, name="P")
    q = te.compute((9,), lambda i: x[i] + 1.0, name="Q")
    y = te.compute((9,), lambda i: p[i] * q[i], name="Y")
    sch = Schedule(te.create_prim_func([x, y]))
    first, second = sorted("PQ", key=sch.state.block_names().index)
    with pytest.raises(ScheduleError, match=f"the block reads what '{second}' makes, which runs after the loop"):
        sch.reverse_compute_at("Y", sch.get_loops(first)[0])
    sch.reverse_compute_at("Y", sch.get_loops(second)[0])
    x, out = np.random.default_rng(0).random(9, np.float32), np.full(9, np.nan, np.float32)
    run(sch.func, x, out)
    np.testing.assert_allclose(out, 2 * x * (x + 1), rtol=1e-6)


@pytest.mark.parametrize("index_map", [lambda i, j: (j, i), lambda i, j: (i * 10 + j,), lambda i, j: (i + j, j)])
def test_maps_that_lose_nothing(index_map):
    sch = Schedule(matmul(*SHAPE))
    sch.transform_layout("C", "C", index_map)
    check_matmul(sch.func, *SHAPE)


def test_symbolic_layouts():
    sch = Schedule(matmul(te.size_var("n", "int64"), 10, 7))
    with pytest.raises(ScheduleError, match="transform_layout: the map .* puts several"):
        sch.transform_layout("C", "C", lambda i, j: (j,))
    sch.transform_layout("C", "C", lambda i, j: (j // 4, i, j % 4))
    check_matmul(sch.func, 9, 10, 7)


def test_values_with_effects_are_computed_once():
    """A call that may do more than give a value is not moved to where it would run twice, or never."""

    def calling(name, call):
        x = te.placeholder((9,), name="X")
        p = te.compute((9,), lambda i: call("float32", name, x[i]), name="P")
        return te.create_prim_func([x, te.compute((9,), lambda i: p[i] * p[i], name="Y")])

    impure = calling("next_number", tir.call_extern)
    for primitive in ("compute_inline", "reverse_compute_inline"):
        with pytest.raises(ScheduleError, match=f"{primitive}: '.*next_number.*' may do more than give a value"):
            getattr(Schedule(impure), primitive)("P" if primitive == "compute_inline" else "Y")
    sch = Schedule(calling("sqrtf", tir.call_pure_extern))
    sch.compute_inline("P")
    assert "P" not in sch.state.block_names()


@pytest.mark.parametrize(("step", "whole"), [(1, True), (2, False)])
def test_copies_of_what_loops_inside_of_a_block_write(step: int, whole: bool) -> None:
    """Every other element is left as it was, and the copy would write it."""
    func = script.from_source(f"""
        @T.prim_func
        def f(B: T.Buffer((4, {4 * step}), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    v = T.axis.spatial(4, i)
                    T.writes(B[v, 0 : {4 * step}])
                    for k in range(4):
                        B[v, {step} * k] = T.float32(1)
        """)
    sch = Schedule(func)
    if whole:
        sch.cache_write(sch.get_block("b"), 0, "global")
    else:
        refuses(ScheduleError, "does not write all of 'B'", sch.cache_write, sch.get_block("b"), 0, "global")
