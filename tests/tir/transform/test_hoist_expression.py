"""HoistExpression: what leaves loops, what stays, and that both forms compute the same."""

import numpy as np
import pytest

from weft import error, tir
from weft.ir import IRModule, PassContext, structural_equal, walk
from weft.script import from_source
from weft.script import tir as T
from weft.tir.transform import HoistedConditionals, HoistedLetBindings, hoist_if_then_else


def hoisted(func, conditionals=HoistedConditionals.All, lets=HoistedLetBindings.All):
    config = {"tir.HoistExpression": {"hoisted_conditionals": conditionals.value, "hoisted_let_bindings": lets.value}}
    with PassContext(config=config):
        return tir.transform.HoistExpression()(IRModule({"main": func}))["main"]


def depth_of_tests(func):
    """For each test, how many loops are inside."""
    return [
        sum(isinstance(n, tir.For) for n in walk(t.then_case)) for t in walk(func.body) if isinstance(t, tir.IfThenElse)
    ]


@T.prim_func
def branches(A: T.Buffer((4, 4, 4), "float32"), n: T.int32):
    for i in range(4):
        for j in range(4):
            for k in range(4):
                if j < 3 and i < 2:
                    if i < 1 or n > 5:
                        A[i, j, k] = T.float32(1)
                    else:
                        A[i, j, k] = T.float32(2)
                else:
                    A[i, j, k] = T.if_then_else(n == 3, T.float32(4), T.float32(5))


@T.prim_func
def later(A: T.Buffer((4, 4), "float32"), n: T.int32):
    for i in range(4):
        for j in range(4):
            A[i, j] = T.float32(0)
            if i < n:
                A[i, j] = T.float32(1)


@T.prim_func
def bound(A: T.Buffer((4, 4), "float32"), n: T.int32):
    for i in range(4):
        for j in range(4):
            with T.LetStmt(n // 2 + i) as m:
                if m < 3:
                    A[i, j] = T.Cast("float32", m)


@pytest.mark.parametrize("n", [0, 3, 4, 6])
@pytest.mark.parametrize("func", [branches, later, bound], ids=["branches", "later", "bound"])
def test_the_same_is_computed(func, n):
    shape = tuple(int(d) for d in func.buffer_map[0][1].shape)
    for conditionals in (HoistedConditionals.All, HoistedConditionals.IfElseStmt, HoistedConditionals.IfElseExpr):
        for lets in (HoistedLetBindings.All, HoistedLetBindings.RequiredByConditional, HoistedLetBindings.Never):
            want, out = np.full(shape, 9, "float32"), np.full(shape, 9, "float32")
            tir.interpret(func, want, n)
            tir.interpret(hoisted(func, conditionals, lets), out, n)
            np.testing.assert_array_equal(out, want)


def test_tests_leave_their_loops():
    assert 0 not in depth_of_tests(hoisted(branches))
    assert hoisted(later) is later  # another statement comes before
    assert depth_of_tests(hoisted(bound)) == [1] and isinstance(hoisted(bound).body.body, tir.LetStmt)
    assert hoisted(bound, lets=HoistedLetBindings.Never) is bound
    assert hoisted(branches, HoistedConditionals.Never) is branches


def test_hoist_if_then_else_has_variants():
    with pytest.raises(error.InvalidArgument, match="unknown variant"):
        tir.transform.HoistIfThenElse("other")
    for variant in (None, "basic"):
        out = tir.transform.HoistIfThenElse(variant)(IRModule({"main": bound}))["main"]
        assert structural_equal(out, hoisted(bound, HoistedConditionals.IfElseStmt))


@pytest.mark.parametrize(
    ("test", "target", "columns", "noalias", "depth"),
    [
        ("A[i] > 0", "B[i, j]", 4, True, 1),
        ("A[i] > 0", "B[i, j]", 4, False, 0),
        ("A[i] > 0", "A[j]", 4, True, 0),
        ("A[i] > 0", "B[i, j]", "n", True, 0),
        ("j < 3 and A[i] > 0", "B[i, j]", 4, True, 0),
    ],
)
def test_tests_of_memory_leave_loops_that_leave_it_alone(test, target, columns, noalias, depth):
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((4,), "int32"), B: T.Buffer((4, 4), "int32"), n: T.int32):
    T.func_attr({{"tir.noalias": {noalias}}})
    for i in range(4):
        for j in range({columns}):
            if {test}:
                {target} = 7
""")
    assert depth_of_tests(hoist_if_then_else(IRModule({"main": func}))["main"]) == [depth]
    assert hoisted(func) is func, "HoistExpression leaves all of them"
