"""Softmax against NumPy: sizes that end inside a vector, other axes, infinities, NaN, symbolic rows."""

import numpy as np
import pytest

from tests.relax_models import computed
from weft import target, te, tir, topi
from weft.ir import find
from weft.tir.analysis import child_realizes
from weft.tir.schedule import default_schedule

TARGET = target.Target("llvm")


def compiled(shape, axis, dtype="float32", fn=topi.nn.softmax):
    x = te.placeholder(shape, dtype, name="x")
    return target.build(default_schedule(te.create_prim_func([x, fn(x, axis)]), TARGET), TARGET)["main"]


ROWS = [(7, 1), (5, 3), (4, 15), (4, 16), (3, 37), (2, 64), (2, 77), (2, 129), (3, 1000), (700, 1003), (0, 8)]
AXES = [(shape, axis) for shape in ((3, 20, 33), (16, 5, 16), (2, 9, 17)) for axis in (0, 1, 2)]


@pytest.mark.parametrize(("shape", "axis"), [(shape, -1) for shape in ROWS] + AXES)
def test_sizes_and_axes(shape, axis):
    x = np.random.default_rng(0).standard_normal(shape, np.float32) * 5
    compiled(shape, axis)(x, y := np.full(shape, -1, np.float32))
    np.testing.assert_allclose(y, computed("nn.softmax", x, axis=axis), rtol=3e-6, atol=1e-9)


@pytest.mark.parametrize("length", [64, 1000, te.size_var("n", "int64")])
def test_elements_are_summed_as_they_are_made(length):
    x = te.placeholder((4, length), name="x")
    func = default_schedule(te.create_prim_func([x, topi.nn.softmax(x)]), TARGET)
    loops = find(func.body, tir.For)
    assert {"T_softmax_exp", "T_softmax_sum"} in [{r.block.name_hint[:13] for r in child_realizes(f)} for f in loops]


def test_masked_and_not_a_number():
    x = np.zeros((4, 50), np.float32)
    x[0, 10:] = -np.inf
    x[1, 49] = x[2, 3] = np.nan
    x[3] = np.linspace(-200, 0, 50)
    y = np.zeros_like(x)
    compiled(x.shape, -1)(x, y)
    np.testing.assert_allclose(y, computed("nn.softmax", x, axis=-1), rtol=3e-6, atol=1e-37)
    assert (y[0, 10:] == 0).all()


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e12), ("float64", 1e30)])
@pytest.mark.parametrize("fn", [topi.nn.softmax, topi.nn.log_softmax])
def test_great_products(fn, dtype, size):
    """The greatest element takes all, though the difference from it may round otherwise than it did."""
    x = (np.random.default_rng(3).standard_normal((4, 50)) * size).astype(dtype)
    y, want = np.zeros_like(x), computed("nn.softmax", x * np.dtype(dtype).type(0.7), axis=-1)
    compiled(x.shape, -1, dtype, lambda t, axis: fn(topi.multiply(t, te.const(0.7, dtype)), axis))(x, y)
    np.testing.assert_allclose(np.exp(y) if fn is topi.nn.log_softmax else y, want)


def test_symbolic_sizes():
    n, k = te.size_var("n", "int64"), te.size_var("k", "int64")
    kernel = compiled((n, k), -1)
    for shape in ((1, 1), (3, 17), (5, 64), (2, 131), (0, 4)):
        x = np.random.default_rng(2).standard_normal(shape, np.float32)
        kernel(x, y := np.zeros(shape, np.float32))
        np.testing.assert_allclose(y, computed("nn.softmax", x, axis=-1), rtol=3e-6, atol=1e-9)


def test_float64():
    x = np.random.default_rng(3).standard_normal((6, 29))
    compiled(x.shape, -1, "float64")(x, y := np.zeros_like(x))
    np.testing.assert_allclose(y, computed("nn.softmax", x, axis=-1), rtol=1e-13)
