"""Pooling, channels first, against NumPy: strides, padding, widths that end inside a vector, NaN."""

import ctypes
import mmap

import numpy as np
import pytest

from tests.topi.running import evaluate
from weft import ir, te, topi
from weft.target import Target, build
from weft.tir.schedule import default_schedule, explain_schedule

TARGETS = ("llvm", "llvm -mcpu=haswell", "llvm -vector-width=128")


def expected(x, k, stride, pad, kind):
    fill = -np.inf if kind == "max" else np.nan
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), (2, 3))[:, :, ::stride, ::stride]
    return windows.max((-1, -2)) if kind == "max" else np.nanmean(windows, (-1, -2))


def pooled(x, k, stride, pad, kind, target="llvm"):
    window = (k, k), (stride, stride), (1, 1), (pad,) * 4
    return evaluate(lambda t: topi.nn.pool2d(t, *window, kind, count_include_pad=False), x, target=target)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("k", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 3, 2), (3, 2, 0)])
@pytest.mark.parametrize("size", [7, 14, 33, 40])
def test_windows(size, k, stride, pad, kind):
    x = np.random.default_rng(size).standard_normal((2, 3, size, size), np.float32)
    np.testing.assert_allclose(pooled(x, k, stride, pad, kind), expected(x, k, stride, pad, kind), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_every_vector_width(target):
    x = np.random.default_rng(5).standard_normal((1, 2, 35, 35), np.float32)
    np.testing.assert_allclose(pooled(x, 3, 2, 1, "max", target), expected(x, 3, 2, 1, "max"))


def test_nothing_past_the_end_is_read():
    """The input ends where a page ends that may not be read past."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(base + page), page, 0) == 0
    count = 16 * 33
    x = np.frombuffer(memory, np.float32, count, page - 4 * count).reshape(1, 1, 16, 33)
    x[...] = np.random.default_rng(6).standard_normal(x.shape, np.float32)
    for k, stride, pad in ((3, 2, 1), (3, 2, 0), (3, 1, 1)):
        np.testing.assert_allclose(pooled(x, k, stride, pad, "max"), expected(x, k, stride, pad, "max"))
    assert libc.mprotect(ctypes.c_void_p(base + page), page, 3) == 0


def test_not_a_number_wins():
    x = np.zeros((1, 1, 20, 20), np.float32)
    x[0, 0, 5, 5] = np.nan
    np.testing.assert_array_equal(np.isnan(pooled(x, 3, 2, 1, "max")), np.isnan(expected(x, 3, 2, 1, "max")))


@pytest.mark.parametrize("width", [8, 9, 23, 46])
@pytest.mark.parametrize("stride", [1, 2])
def test_volumes_get_the_rule_for_windows(width, stride):
    x = np.random.default_rng(width).standard_normal((2, 2, 4, 5, 2 * width + 1), np.float32)
    t = te.placeholder([ir.int64(d) for d in x.shape], name="x")
    y = topi.nn.pool3d(t, (2, 2, 2), (stride,) * 3, (1, 1, 1), (0,) * 6, "max")
    z = te.compute(y.shape, lambda *i: y(*i) * 2.0 + 1.0, "z")
    func, chosen = te.create_prim_func([t, z]), Target("llvm -mcpu=haswell")
    assert explain_schedule(func, chosen).kernels[0].record.taken["T_max_pool"] == "windows"
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2, 2), (2, 3, 4))[:, :, ::stride, ::stride, ::stride]
    out = np.zeros([int(d) for d in z.shape], np.float32)
    build(default_schedule(func, chosen), chosen)["main"](x, out)
    np.testing.assert_array_equal(out, windows.max((-1, -2, -3)) * np.float32(2) + np.float32(1))


@pytest.mark.parametrize("strides", [(1, 2, 1), (2, 1, 2), (3, 3, 1)])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_padded_volumes_of_unknown_size_are_copied_once_and_then_windows(kind, strides):
    t = te.placeholder((te.size_var("n", "int64"), 3, *(te.size_var(v, "int64") for v in "dhw")), name="x")
    y = topi.nn.pool3d(t, (2, 3, 3), strides, (1,) * 3, (1, 0, 1, 0, 1, 1), kind, count_include_pad=False)
    func, chosen = te.create_prim_func([t, y]), Target("llvm")
    taken = explain_schedule(func, chosen).kernels[0].record.taken
    assert {rule for block, rule in taken.items() if "pool" in block and block != "T_avg_pool"} == {"windows"}
    assert taken["pad"] != "inline"
    compiled = build(default_schedule(func, chosen), chosen)["main"]
    for size in ((2, 3, 5, 6, 19), (1, 3, 2, 3, 3), (1, 3, 9, 4, 67)):
        x = np.random.default_rng(3).standard_normal(size, np.float32)
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 0), (0, 1), (1, 1)), constant_values=np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3, 3), (2, 3, 4))
        windows = windows[:, :, :: strides[0], :: strides[1], :: strides[2]]
        wanted = (np.nanmax if kind == "max" else np.nanmean)(windows, (-1, -2, -3))
        out = np.zeros(wanted.shape, np.float32)
        compiled(x, out)
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(33, 7, 129), (64, 1, 13), (17, 50, 8 * 9 + 1), (300, 5, 9)])
def test_sums_over_columns_that_end_inside_a_vector(shape):
    x = np.random.default_rng(3).standard_normal(shape, np.float32)
    t = te.placeholder([ir.int64(d) for d in shape], name="x")
    func, chosen = te.create_prim_func([t, topi.sum(t, axis=1)]), Target("llvm -mcpu=haswell")
    assert "windows" in explain_schedule(func, chosen).kernels[0].record.taken.values()
    out = evaluate(lambda t: topi.sum(t, axis=1), x, target=chosen)
    np.testing.assert_allclose(out, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)
