"""Vectors whose lanes come from near each other in memory: repeated, reversed, wrapped around."""

import ctypes
import mmap
import re

import numpy as np
import pytest

from tests.topi.running import evaluate
from weft import te
from weft.arith import Analyzer
from weft.ir import as_int, floordiv, floormod, int64
from weft.target import Target, build
from weft.tir.schedule import default_schedule
from weft.topi import add, take
from weft.topi.conv import conv_transpose

PLACES = {
    "twice each": (lambda i, n: floordiv(i, int64(2)), 2),
    "three times each": (lambda i, n: floordiv(i, int64(3)), 3),
    "sixteen times each": (lambda i, n: floordiv(i, int64(16)), 16),
    "backwards": (lambda i, n: int64(n - 1) - i, 1),
    "around": (lambda i, n: floormod(i, int64(4)) + floordiv(i, int64(4)) * int64(4), 1),
    "every third": (lambda i, n: i * int64(3), 1 / 3),
    "every fifth": (lambda i, n: i * int64(5), 1 / 5),
    "every eleventh": (lambda i, n: i * int64(11), 1 / 11),
    "of two halves": (lambda i, n: floormod(i, int64(2)) * int64(n // 2) + floordiv(i, int64(2)), 1),
}


def picked(x, size, place):
    rows, n = x.shape
    return evaluate(lambda t: te.compute((rows, size), lambda r, i: t(r, place(i, n))), x, target="llvm")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("name", PLACES)
def test_lanes_are_picked(name, dtype):
    place, times = PLACES[name]
    for n in (48, 50):
        x = (np.random.default_rng(n).random((3, n)) * 100 % 7).astype(dtype)
        size = min(int(n * times), 117)
        out = picked(x, size, place)
        at = [as_int(Analyzer().simplify(place(int64(i), n))) for i in range(size)]
        np.testing.assert_array_equal(out, x[:, at])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "float16"])
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 7])
def test_few_channels_are_interleaved(channels, dtype, known):
    """Lanes of several rows are loaded row by row, also where rows are no whole vectors or of any length."""
    target, size = Target("llvm -mcpu=x86-64-v3"), te.size_var("n", "int64")
    for columns in (1, 5, 16, 51, 0) if known else (size,):
        t = te.placeholder((3, channels, columns), dtype, "x")
        y = te.compute((3, columns, channels), lambda b, i, c, t=t: t(b, c, i), "y")
        module = build(default_schedule(te.create_prim_func([t, y]), target), target)
        for n in (columns,) if known else (0, 1, 5, 51):
            x = (np.random.default_rng(n).random((3, channels, n)) * 100 % 7).astype(dtype)
            module["main"](x, out := np.zeros((3, n, channels), dtype))
            np.testing.assert_array_equal(out, x.transpose(0, 2, 1))
        if channels < 4 if columns is size else dtype == "float32" and columns == 16 and channels <= 4:
            assert not re.search(r"masked\.gather", module.inspect_source("ll"))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_rows_that_may_be_of_one_element_are_not_gathered(dtype):
    """Whether an operand is repeated is one question for all lanes."""
    target, (m, n) = Target("llvm -mcpu=x86-64-v3"), (te.size_var(n, "int64") for n in "mn")
    a, b = te.placeholder((5, m), dtype, "a"), te.placeholder((5, n), dtype, "b")
    module = build(default_schedule(te.create_prim_func([a, b, add(a, b)]), target), target)
    assert not re.search(r"masked\.gather", module.inspect_source("ll"))
    for sizes in ((37, 37), (1, 37), (37, 1), (1, 1), (0, 0), (0, 1)):
        x, y = ((np.random.default_rng(k).random((5, k)) * 9).astype(dtype) for k in sizes)
        module["main"](x, y, out := np.zeros_like(x + y))
        np.testing.assert_array_equal(out, x + y)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("size", [0, 1, 31, 768])
def test_rows_that_are_picked_are_copied_by_memcpy(size):
    """Which reads no line that it writes as a whole."""
    target = Target("llvm -mcpu=x86-64-v3")
    n = te.size_var("n", "int64")
    for columns in (int64(size), n):
        x, at = te.placeholder((9, columns), name="x"), te.placeholder((5,), "int64", "at")
        module = build(default_schedule(te.create_prim_func([x, at, take(x, at, 0)]), target), target)
        rows, chosen = np.random.default_rng(size).random((9, size), np.float32), np.array([8, 0, 3, 3, 7])
        module["main"](rows, chosen, out := np.zeros((5, size), np.float32))
        np.testing.assert_array_equal(out, rows[chosen])
        assert "memcpy" in module.inspect_source("asm") or columns is not n


@pytest.mark.parametrize("name", ["twice each", "backwards", "every third", "every fifth"])
def test_lanes_are_picked_from_whole_vectors(name):
    """No gather is left, and no vector of odd length, whose lanes LLVM puts together one by one."""
    place, times = PLACES[name]
    t = te.placeholder((4, 320), "float32", "x")
    y = te.compute((4, int(320 * times) // 16 * 16), lambda r, i: t(r, place(i, 320)), "y")
    target = Target("llvm -mcpu=x86-64-v4")
    text = build(default_schedule(te.create_prim_func([t, y]), target), target).inspect_source("ll")
    assert not re.search(r"masked\.gather", text)
    assert set(re.findall(r"load <(\d+) x float>", text)) <= {"4", "8", "16"}


@pytest.mark.parametrize(("kernel", "stride"), [(2, 4), (3, 2), (2, 3)])
def test_phases_are_picked_from_the_vectors_that_were_stored(kernel, stride):
    """Vectors of a local buffer stay registers, and infinite weights reach the outputs of their phase alone."""
    x, w = te.placeholder((1, 3, 5, 19), name="x"), te.placeholder((3, 1, kernel, kernel), name="w")
    func = te.create_prim_func([x, w, conv_transpose(x, w, strides=stride, groups=3)])
    module = build(default_schedule(func, target := Target("llvm -mcpu=x86-64-v3")), target)
    assert not re.search(r"masked\.(gather|scatter)", module.inspect_source("ll"))
    weights, out = np.ones((3, 1, kernel, kernel), np.float32), [(n - 1) * stride + kernel for n in (5, 19)]
    weights[:, :, 0, 1] = np.inf
    module["main"](np.ones((1, 3, 5, 19), np.float32), weights, found := np.zeros((1, 3, *out), np.float32))
    assert np.isinf(found).sum() == 3 * 5 * 19 and not np.isnan(found).any()


def test_nothing_outside_is_read():
    """The input lies between pages that may not be read."""
    page, n = mmap.PAGESIZE, mmap.PAGESIZE // 4
    memory = mmap.mmap(-1, 3 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    guards = [ctypes.c_void_p(base + at) for at in (0, 2 * page)]
    assert not any(libc.mprotect(g, page, 0) for g in guards)
    x = np.frombuffer(memory, np.float32, n, page).reshape(1, n)
    x[...] = np.arange(n)
    for place, times in PLACES.values():
        out = picked(x, size := int(n * times), place)
        np.testing.assert_array_equal(out[0], [as_int(Analyzer().simplify(place(int64(i), n))) for i in range(size)])
    assert not any(libc.mprotect(g, page, 3) for g in guards)
