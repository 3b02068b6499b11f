"""Kernels that return a value besides what they write into buffers."""

import re

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft.script import tir as T

TARGETS = pytest.mark.parametrize("target", ["llvm", "c"])


@T.prim_func
def sign(x: T.int32) -> T.int32:
    if x > 0:
        return 10
    else:
        return 20


@T.prim_func
def half(x: T.float32) -> T.float32:
    return x * T.float32(0.5)


@T.prim_func
def is_small(x: T.int64) -> T.bool:
    return x < T.int64(10)


@T.prim_func
def first_above(A: T.Buffer((8,), "float32"), limit: T.float32) -> T.int32:
    for i in range(8):
        if A[i] > limit:
            return i


@TARGETS
def test_numbers(target):
    f = weft.build(sign, target=target)
    assert [f(5), f(-1), f(True), f(False)] == [10, 20, 10, 20]
    g = weft.build(half, target=target)
    assert g(3.0) == 1.5 and isinstance(g(3), float)
    h = weft.build(is_small, target=target)
    assert h(3) is True and h(10) is False


@TARGETS
def test_a_return_leaves_a_loop_and_its_absence_gives_none(target):
    f, x = weft.build(first_above, target=target), np.arange(8, dtype="float32")
    assert [f(x, v) for v in (-1.0, 2.5, 6.5, 7.0)] == [0, 3, 7, None]


@TARGETS
def test_scratch_memory_is_given_back(target):
    @T.prim_func
    def total(A: T.Buffer((200000,), "float32")) -> T.float32:
        B = T.alloc_buffer((200000,), "float32")
        for i in range(200000):
            B[i] = A[i] + T.float32(1)
        for i in range(200000):
            if B[i] > T.float32(5):
                return B[i]
        return T.float32(-1)

    f = weft.build(total, target=target)
    assert f(np.arange(200000, dtype="float32")) == 6.0
    assert f(np.zeros(200000, "float32")) == -1.0


def test_parallel_loops_do_not_return():
    @T.prim_func
    def bad(A: T.Buffer((64,), "float32")) -> T.int32:
        for i in T.parallel(64):
            if A[i] > T.float32(1):
                return i

    refuses(weft.error.CodegenError, "cannot be returned from here", weft.build, bad)


@TARGETS
def test_expressions_of_dimensions_in_messages(target):
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n + 1,), "int32")
        B = T.match_buffer(b, (n,), "int32")
        for i in range(n):
            B[i] = A[i + 1]

    built = weft.build(f, target=target)
    expected = (
        "Invalid A.shape[0] on argument #0 when calling:\n"
        "  `f(A: Tensor([n + T.int64(1)], int32), B: Tensor([n], int32))`,\n"
        "  expected B.shape[0] + 1 == 5, found 10"
    )
    refuses(ValueError, "^" + re.escape(expected), built, np.zeros(10, "int32"), np.zeros(4, "int32"))
