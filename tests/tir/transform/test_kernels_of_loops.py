"""Loops that were written for a CPU's threads become kernels, which compute the same."""

import numpy as np
import pytest

import weft
from tests.dlight.test_rules import on_host
from weft import ir, tir
from weft.script import tir as T
from weft.target.gpu import lower_for_gpu
from weft.tir.transform import default_gpu_schedule

CUDA = weft.target.Target("cuda -arch=sm_80")


@T.prim_func
def steps(X: T.Buffer((5, 70), "float32"), Y: T.Buffer((5, 70), "float32")):
    """A state that each step reads whole and writes anew, scaled by what one thread found."""
    T.func_attr({"target": T.target({"kind": "cuda"})})
    with T.block("extern"):
        T.reads(X[0:5, 0:70])
        T.writes(Y[0:5, 0:70])
        most = T.alloc_buffer((1,), "float32", scope="local")
        state = T.alloc_buffer((2, 70), "float32")
        for j in T.parallel(70):
            state[0, j] = T.float32(0)
        for t in range(5):
            most[0] = T.float32(1)
            for j in range(70):
                most[0] = T.max(most[0], X[t, j])
            for j in T.parallel(70):
                state[(t + 1) % 2, j] = state[t % 2, 69 - j] + X[t, j] / most[0]
            for j in T.parallel(70):
                if X[t, j] > T.float32(0):
                    Y[t, j] = state[(t + 1) % 2, j]
                else:
                    Y[t, j] = T.float32(0)


@T.prim_func
def turned(x: T.handle, y: T.handle):
    """Each line by way of memory of its own, as large as the line."""
    T.func_attr({"target": T.target({"kind": "cuda"})})
    m, n = T.int64(), T.int64()
    X, Y = T.match_buffer(x, (m, n), "float32"), T.match_buffer(y, (m, n), "float32")
    with T.block("extern"):
        T.reads(X[0:m, 0:n])
        T.writes(Y[0:m, 0:n])
        for i in T.parallel(m):
            line = T.alloc_buffer((n,), "float32")
            for j in T.parallel(n):
                line[j] = X[i, n - 1 - j]
            for j in range(n):
                Y[i, j] = line[j] * T.float32(2)


def scheduled(func):
    return default_gpu_schedule(ir.IRModule({"main": func}))["main"]


@pytest.mark.parametrize(
    ("func", "shape", "kernels"), [(steps, (5, 70), 4), (turned, (70, 33), 1), (turned, (1, 1), 1)]
)
def test_kernels_compute_what_the_loops_did(func, shape, kernels):
    made = scheduled(func)
    _, device = lower_for_gpu(ir.IRModule({"main": made}), CUDA)
    assert len(device) == kernels
    assert not any(
        isinstance(n, tir.For) and n.kind == tir.ForKind.PARALLEL for k in device.values() for n in ir.walk(k)
    )
    x, found, expected = (
        np.random.default_rng(0).standard_normal(shape).astype("float32"),
        *np.zeros((2, *shape), "float32"),
    )
    on_host(made, x, found)
    on_host(func, x, expected)
    np.testing.assert_array_equal(found, expected)
    assert expected.any()


def test_lines_lie_in_memory_of_the_device():
    made = scheduled(turned)
    (line,) = (n.buffer for n in ir.walk(made.body) if isinstance(n, tir.AllocBuffer))
    assert len(line.shape) == 2
    assert "__global__" in weft.build(made, target=CUDA).imports[0].inspect_source()
