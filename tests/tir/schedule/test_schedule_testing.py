"""Traces written down and run again; tests of transformations as classes."""

import pytest

from tests.refusals import refuses
from weft import error, testing
from weft.script import tir as T
from weft.tir import transform
from weft.tir.schedule import Schedule
from weft.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


@T.prim_func
def doubled(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)


other = doubled.with_attr("global_symbol", "other")


def test_a_trace_does_the_same_again():
    sch = Schedule(doubled)
    i, j = sch.get_loops(sch.get_block("B"))
    outer, inner = sch.split(j, [None, 4])
    sch.reorder(outer, i, inner)
    sch.vectorize(inner)
    assert len(verify_trace_roundtrip(sch, doubled).trace) == len(sch.trace)
    refuses(error.InvalidArgument, "no such form", verify_trace_roundtrip, sch, doubled, text_format="xml")


def test_a_trace_of_another_program_is_noticed():
    sch = Schedule(doubled)
    sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 4])
    renamed = Schedule(doubled)
    renamed.annotate(renamed.get_block("B"), "k", 1)
    refuses((ValueError, error.ScheduleError), "", verify_trace_roundtrip, sch, renamed.func)


def test_names_of_functions_do_not_count():
    assert_structural_equal_ignore_global_symbol(doubled, other)
    sch = Schedule(other)
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    refuses(ValueError, "differ", assert_structural_equal_ignore_global_symbol, doubled, sch.func)


class TestPass(testing.CompareBeforeAfter):
    transform = transform.StmtSimplify()

    def before(A: T.Buffer((4,), "int32")):  # noqa: N805 - a TVMScript function
        if True:
            A[0] = 1
        else:
            A[0] = 2

    def expected(A: T.Buffer((4,), "int32")):  # noqa: N805
        A[0] = 1


class TestMethod(testing.CompareBeforeAfter):
    def transform(self):
        return transform.RemoveNoOp()

    class Before:
        def main(A: T.Buffer((4,), "int32")):  # noqa: N805
            for i in range(0):
                A[i] = 1
            A[0] = 1

    class Expected:
        def main(A: T.Buffer((4,), "int32")):  # noqa: N805
            A[0] = 1


class TestFunctionOfModules(testing.CompareBeforeAfter):
    def transform(self):
        return lambda mod: transform.StmtSimplify()(mod)

    @T.prim_func
    def before(A: T.Buffer((4,), "int32")):  # noqa: N805 - no module around: it is read at once
        A[0] = A[1] * 0

    @T.prim_func
    def expected(A: T.Buffer((4,), "int32")):  # noqa: N805
        A[0] = 0


class TestError(testing.CompareBeforeAfter):
    transform = transform.ConvertBlocksToOpaque()

    def before(A: T.Buffer((8,), "int32")):  # noqa: N805
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                T.where(v < 6)
                A[v] = 1

    expected = RuntimeError


def test_two_programs_under_one_role_are_refused():
    with pytest.raises(TypeError, match="one is expected"):
        type("TestBoth", (testing.CompareBeforeAfter,), {"before": doubled, "Before": doubled})


def unknown_buffer(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = B[i]  # noqa: F821  # check_error: 'B' is not defined


def test_the_line_of_an_error():
    testing.check_error(unknown_buffer, 3)
    refuses(AssertionError, "line 2 is wrong", testing.check_error, unknown_buffer, 2)
