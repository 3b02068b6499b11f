"""Sums over something of a pair of elements, one of each operand, are tiled as products are."""

import numpy as np
import pytest

import weft
from weft import te, tir
from weft.target import Target, build
from weft.tir.schedule import noting_schedules, schedule_func

HOST = Target("llvm")


def distances(batch, rows, others, depth, of):
    x, y = (te.placeholder((batch, n, depth), name=name) for n, name in ((rows, "x"), (others, "y")))
    k = te.reduce_axis((0, depth), "k")
    return te.create_prim_func(
        [x, y, te.compute((batch, rows, others), lambda b, i, j: te.sum(of(x[b, i, k], y[b, j, k]), axis=k), "z")]
    )


OF = {
    "squares": (lambda a, b: (a - b) * (a - b), lambda a, b: (a - b) ** 2),
    "sizes": (lambda a, b: tir.abs(a - b), lambda a, b: abs(a - b)),
    "greater": (lambda a, b: tir.max(a, b), np.maximum),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("of", OF)
def test_sums_over_pairs(of, symbolic):
    value, expected = OF[of]
    every = [(1, 37, 50, 19), (2, 16, 33, 64), (3, 5, 1, 7), *([(1, 0, 4, 3), (2, 3, 4, 0)] if symbolic else [])]
    kernel = None
    for sizes in every:
        if kernel is None or not symbolic:
            dims = [te.size_var(n, "int64") for n in "bmnk"] if symbolic else sizes
            with noting_schedules() as records:
                scheduled = schedule_func(distances(*dims, value), HOST)
            assert "contraction" in records[0].taken.values() or sizes[2] == 1, records[0]
            kernel = build(scheduled, HOST)["main"]
        rng = np.random.default_rng(sum(sizes))
        x, y = (rng.standard_normal((sizes[0], n, sizes[3])).astype(np.float32) for n in sizes[1:3])
        z = weft.runtime.tensor(np.full(sizes[:3], np.nan, np.float32))
        kernel(weft.runtime.tensor(x), weft.runtime.tensor(y), z)
        want = expected(x.astype(np.float64)[:, :, None], y.astype(np.float64)[:, None]).sum(-1)
        np.testing.assert_allclose(z.numpy(), want, rtol=1e-5, atol=1e-5)
