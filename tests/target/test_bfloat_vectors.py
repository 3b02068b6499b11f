"""Vectors of bfloat16: rounding to the nearest even value, and maxima, which need no rounding."""

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import runtime, te

TARGETS = ["llvm", "llvm -mcpu=x86-64-v3"]  # the second has no instruction that rounds


def values(n: int = 512) -> np.ndarray:
    """Numbers of all sizes but the tiniest, ties between two bfloat16 values, and those that are none."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32)
    bits[: n // 4] = bits[: n // 4] & 0xFFFF0000 | 0x8000
    x = bits.view(np.float32)
    x[np.abs(x) < 1e-37] = 0.0
    x[-6:] = [np.inf, -np.inf, np.nan, -0.0, 3.4e38, -3.4e38]
    return x


@pytest.mark.parametrize("target", TARGETS)
def test_rounding(target):
    x = te.placeholder((512,), "float32", "x")
    func = te.create_prim_func([x, te.compute((512,), lambda i: x[i].astype("bfloat16"), name="y")])
    given, out = values(), runtime.tensor(np.zeros(512, ml_dtypes.bfloat16))
    weft.build(func, target=target)["main"](runtime.tensor(given), out)
    expected = given.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(out.numpy().astype(np.float32), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_extremes(target):
    x, y = (te.placeholder((512,), "bfloat16", name) for name in "xy")
    z = te.compute((512,), lambda i: weft.tir.Max(x[i], y[i]), name="z")
    func = te.create_prim_func([x, y, z])
    a = values().astype(ml_dtypes.bfloat16)
    b = np.roll(a, 7)
    out = runtime.tensor(np.zeros(512, ml_dtypes.bfloat16))
    weft.build(func, target=target)["main"](runtime.tensor(a), runtime.tensor(b), out)
    np.testing.assert_array_equal(
        out.numpy().astype(np.float32), np.maximum(a.astype(np.float32), b.astype(np.float32))
    )
