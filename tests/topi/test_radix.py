"""Lines in sorted order, by digits and by merging, against a stable sort: ties, NaN, zeros of both signs, any axis."""

import ml_dtypes
import numpy as np
import pytest

from tests.topi.running import evaluate
from tests.topi.test_heap import expected, sample
from weft import te
from weft.target import Target, build
from weft.tir.schedule import default_schedule
from weft.topi.sort import argsort

DTYPES = "float32 float16 bfloat16 int32 uint32 int16 uint16 int8 uint8 bool float64 int64".split()


def of(dtype, shape, ties):
    if dtype == "bool":
        return np.random.default_rng(3).random(shape) > 0.4
    if dtype == "bfloat16":
        return sample(shape, "float32", ties).astype(ml_dtypes.bfloat16)
    x = sample(shape, dtype, ties)
    info = None if x.dtype.kind == "f" else np.iinfo(x.dtype)
    if info is not None and x.size > 9:
        x.reshape(-1)[3:9:2] = info.min, info.max, info.min
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((3, 300), 1), ((2, 70, 3), 1), ((65, 2), 0), ((2, 63), 1), ((1, 1), 1)])
def test_positions(dtype, shape, axis):
    for ascending in (True, False):
        x = of(dtype, shape, not ascending)
        order = evaluate(lambda t, up=ascending: argsort(t, axis, up, "int64"), x)
        plain = x if x.dtype != ml_dtypes.bfloat16 else x.astype(np.float32)
        np.testing.assert_array_equal(order, expected(plain, x.shape[axis], axis, not ascending)[1])


def test_digits_that_all_share_are_passed_over():
    """Passes of every number: none of four, one, two and three, which end in either half of the scratch memory."""
    for mask in (0, 0xFF, 0xFF00, 0xFF0000, 0xFFFF, 0xFF00FF, 0xFFFFFF, 0x7FFFFFFF):
        x = (np.random.default_rng(mask).integers(0, 1 << 31, (2, 500)) & mask).astype(np.int32)
        order = evaluate(lambda t: argsort(t, 1, True, "int64"), x)
        np.testing.assert_array_equal(order, np.argsort(x, 1, kind="stable"))


def test_lines_of_unknown_length():
    n, m = te.size_var("n", "int64"), te.size_var("m", "int64")
    x = te.placeholder((m, n), name="x")
    target = Target("llvm")
    func = te.create_prim_func([x, argsort(x, 1, False, "int64")])
    kernel = build(default_schedule(func, target), target)["main"]
    for rows, size in ((2, 0), (0, 100), (3, 1), (2, 63), (2, 64), (1, 5000)):
        data = sample((rows, size), "float32", True)
        found = np.empty((rows, size), np.int64)
        kernel(data, found)
        np.testing.assert_array_equal(found, expected(data, size, 1, True)[1])
