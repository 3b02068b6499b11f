"""What a schedule of tensor expressions takes for arguments, and externs between computes."""

import numpy as np
import pytest

from weft import te, tir, topi  # noqa: F401 - brings what operators on whole tensors mean
from weft.target import build


def test_an_input_that_nothing_reads_may_be_an_argument() -> None:
    a = te.placeholder((3,), "float32", "a")
    b = te.compute((3,), lambda i: tir.const(2.0, "float32"), "b")
    kernel = build(te.schedule_to_prim_func(te.create_schedule(b.op), [a, b]))["main"]
    found = np.zeros(3, "float32")
    kernel(np.zeros(3, "float32"), found)
    np.testing.assert_array_equal(found, [2, 2, 2])


def test_a_compute_reads_what_an_extern_wrote() -> None:
    a = te.placeholder((2, 3), "float32", "a")

    def double(ins, outs):
        i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
        store = tir.BufferStore(outs[0], tir.BufferLoad(ins[0], (i, j)) * 2, (i, j))
        return tir.For(i, 0, 2, tir.ForKind.SERIAL, tir.For(j, 0, 3, tir.ForKind.SERIAL, store))

    twice = te.extern((2, 3), [a], double, "twice")
    b = te.compute((3, 2), lambda i, j: twice[j, i] + 1, "b")
    kernel = build(te.schedule_to_prim_func(te.create_schedule(b.op), [a, b]))["main"]
    x, found = np.arange(6, dtype="float32").reshape(2, 3), np.zeros((3, 2), "float32")
    kernel(x, found)
    np.testing.assert_array_equal(found, x.T * 2 + 1)


def test_whole_tensors_are_converted() -> None:
    a = te.placeholder((3,), "float32", "a")
    b = (a > 1).astype("int8")
    kernel = build(te.schedule_to_prim_func(te.create_schedule(b.op), [a, b]))["main"]
    found = np.zeros(3, "int8")
    kernel(np.array([0, 2, 3], "float32"), found)
    np.testing.assert_array_equal(found, [0, 1, 1])


@pytest.mark.parametrize("kept", [[], [0], [1], [0, 1]])
def test_any_outputs_of_an_operation_may_be_arguments(kept: list[int]) -> None:
    """The others are memory of the function."""
    a, s, t = (te.placeholder((4, 3), "int32", name) for name in "ast")
    both = te.compute((4, 3), lambda i, j: (a[i, j] + 1, a[i, j] * 2), "both")
    first = [te.compute((1, 3), lambda _, j, n=n: a[0, j] * n, f"first{n}") for n in (1, 2)]
    steps = [te.compute((4, 3), lambda i, j, n=n, x=x: x[i - 1, j] + a[i, j] * n) for n, x in ((1, s), (2, t))]
    ran = te.scan(first, steps, [s, t], [a], "ran")
    last = te.compute((4, 3), lambda i, j: both[0][i, j] * both[1][i, j] + ran[0][i, j] * ran[1][i, j], "last")
    outputs = [*(x[i] for x in (both, ran) for i in kept), last]
    kernel = build(te.schedule_to_prim_func(te.create_schedule([x.op for x in outputs]), [a, *outputs]))["main"]
    x = np.random.default_rng(0).integers(-5, 6, (4, 3), "int32")
    total = np.cumsum(x, 0)
    found = [np.full((4, 3), 77, "int32") for _ in outputs]
    kernel(x, *found)
    expected = [*(y[i] for y in ((x + 1, x * 2), (total, total * 2)) for i in kept), (x + 1) * x * 2 + total**2 * 2]
    np.testing.assert_array_equal(found, expected)
