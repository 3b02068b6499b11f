"""What ``tir.trace`` shows is what kernels compute, in order; a function may answer with another value."""

import numpy as np
import pytest

import weft
from weft import error, te, tir


def run(action, dtype, n=5):
    x = te.placeholder((n,), dtype, "x")
    y = te.compute((n,), lambda i: te.trace([i, x[i]], action) * 2, "y")
    f = weft.build(te.create_prim_func([x, y]), target="llvm")
    a, b = weft.nd.array(np.arange(n).astype(dtype)), weft.nd.array(np.zeros(n, dtype))
    f(a, b)
    return a.numpy(), b.numpy()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8"])
def test_values_are_seen_and_stay(dtype):
    seen = []
    weft.register_func("test.trace.see", lambda i, v: seen.append((i, v)), override=True)
    a, b = run("test.trace.see", dtype)
    np.testing.assert_array_equal(b, a * 2)
    assert sorted(seen) == [(i, i) for i in range(5)]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_function_may_change_a_value(dtype):
    weft.register_func("test.trace.change", lambda i, v: 7 if i == 3 else None, override=True)
    a, b = run("test.trace.change", dtype)
    np.testing.assert_array_equal(b, np.where(np.arange(5) == 3, 14, a * 2))


def test_nothing_runs_without_values():
    assert [len(found) for found in run("test.trace.absent", "float32", 0)] == [0, 0]


def test_values_come_as_a_list():
    with pytest.raises(error.InvalidArgument, match="takes its arguments as a list"):
        tir.trace((1, 2))


def test_by_default_values_are_printed(capfd):
    run("tvm.default_trace_action", "float32", 2)
    assert capfd.readouterr().out.splitlines() == ["[0, 0.0]", "[1, 1.0]"]
