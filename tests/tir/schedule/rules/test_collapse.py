"""Dimensions behind one that is shifted or compared are merged with it where they are short; the results stay."""

import numpy as np
import pytest

import weft
from weft import target, te, tir, topi
from weft.ir import int64, walk
from weft.tir.schedule import schedule_func
from weft.tir.schedule.rules.collapse import collapse_dims
from weft.topi.conv import conv

N = te.size_var("n", "int64")
SHORT = [(5, 3, 4), (5, 3, 2, 3), (1, 1, 1), (23, 12, 4), (5, N, 3), (N, N, 4)]
LONG = [(5, 2, 70), (5, 3, N), (5, 3, 2, N), (N, N, 4, N)]


def joined(a, b):
    return topi.concatenate([a, b], 1)


def framed(a, b):
    """Rows of one where there are some, in all forms of comparison, shifted both ways."""
    m, k = a.shape[1], b.shape[1]

    def element(*i):
        row = i[1]
        inside = tir.all(row >= int64(2), row - int64(2) < m)
        under = tir.all(m + int64(3) <= row, row < m + int64(3) + k)
        below = tir.if_then_else(under, b(i[0], row - (m + int64(3)), *i[2:]), tir.const(7, a.dtype))
        return tir.if_then_else(inside, a(i[0], row - int64(2), *i[2:]), below)

    return te.compute((a.shape[0], m + k + int64(5), *a.shape[2:]), element, name="framed")


def ends(a, b):
    """Comparisons whose sides may not be multiplied: they exclude or include the end."""
    last = b.shape[1] - int64(1)

    def element(*i):
        at = (i[0], tir.min(i[1], last), *i[2:])
        return tir.if_then_else(tir.any(i[1] <= int64(1), i[1] > int64(3)), a(*i), b(*at))

    return te.compute(a.shape, element, name="ends")


def expected(kind, a, b):
    if kind is joined:
        return np.concatenate([a, b], 1)
    if kind is framed:
        fill = [np.full((len(a), n, *a.shape[2:]), 7, a.dtype) for n in (2, 1, 2)]
        return np.concatenate([fill[0], a, fill[1], b, fill[2]], 1)
    rows = np.arange(a.shape[1])
    other = b[:, np.minimum(rows, b.shape[1] - 1)]
    return np.where(((rows <= 1) | (rows > 3)).reshape(1, -1, *[1] * (a.ndim - 2)), a, other)


@pytest.mark.parametrize("kind", [joined, framed, ends])
@pytest.mark.parametrize("sizes", SHORT + LONG)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_rows_of_two_tensors(kind, sizes, dtype):
    first, second, *inner = (s if s is N else int64(s) for s in sizes)
    a, b = (te.placeholder((N, rows, *inner), dtype, name=name) for name, rows in (("a", first), ("b", second)))
    func = te.create_prim_func([a, b, kind(a, b)])
    kernel = weft.build(schedule_func(func, target.Target("llvm")), "llvm")["main"]
    rng = np.random.default_rng(0)
    for n in (1, 2, 9) if sizes == (5, N, 3) else (0, 1, 3, 33):
        rows, others, *rest = (n if s is N else s for s in sizes)
        if kind is ends and (others == 0 or rows == 0):
            continue
        x, y = (rng.integers(0, 200, (n, r, *rest)).astype(dtype) for r in (rows, others))
        wanted = expected(kind, x, y)
        found = np.full(wanted.shape, 99, dtype)
        kernel(x, y, found)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("kind", "inner", "rank"),
    [(joined, (4,), 2), (joined, (2, 4), 2), (joined, (70,), 3), (framed, (4,), 2), (ends, (4,), 3)],
)
def test_what_is_merged(kind, inner, rank):
    sizes = [int64(n) for n in inner]
    a, b = (te.placeholder((int64(6), int64(rows), *sizes), name=name) for name, rows in (("a", 5), ("b", 3)))
    body = collapse_dims(te.create_prim_func([a, b, kind(a, b)])).body
    (store,) = (n for n in walk(body) if isinstance(n, tir.BufferStore))
    assert len(store.indices) == rank


def test_an_index_that_is_looked_up_stays():
    idx, x = te.placeholder((6,), "int64", name="idx"), te.placeholder((6, 4), name="x")
    func = te.create_prim_func(
        [idx, x, te.compute((6, 4), lambda v, c: tir.if_then_else(v < int64(2), x[v, c], x[idx[v], c]), name="picked")]
    )
    rows, data = np.array([5, 4, 3, 2, 1, 0]), np.arange(24, dtype=np.float32).reshape(6, 4)
    found = np.zeros((6, 4), np.float32)
    weft.build(schedule_func(func, target.Target("llvm")), "llvm")["main"](rows, data, found)
    np.testing.assert_array_equal(found, np.concatenate([data[:2], data[rows][2:]]))


def windows(channels, kernel, stride, places, dilation=1):
    x = te.placeholder((*places, int64(channels)), name="x")
    k = te.placeholder([int64(s) for s in (*kernel, channels, 16)], name="k")
    pad = tuple((s - 1) * dilation // 2 for s in kernel)
    layouts = ("NHWC", "HWIO") if len(kernel) == 2 else ("NDHWC", "DHWIO")
    return te.create_prim_func([x, k, topi.nn.relu(conv(x, k, stride, pad, dilation, 1, *layouts))])


def pixels_of(func):
    """How many dimensions the places of a convolution's pixels have, without the sample's and the channel's."""
    body = collapse_dims(func).body
    return {len(s.indices) - 2 for s in walk(body) if isinstance(s, tir.BufferStore) and s.buffer.name == "T_conv"}


CASES = [(64, (3, 3), 2), (17, (5, 5), 1), (300, (1, 1), 2), (20, (3, 3, 3), 1), (64, (1, 3, 3), 2)]


@pytest.mark.parametrize(("channels", "kernel", "stride"), CASES)
def test_tiles_go_over_the_ends_of_rows_of_unknown_length(channels, kernel, stride):
    names = "nhw" if len(kernel) == 2 else "nthw"
    func = windows(channels, kernel, stride, [te.size_var(name, "int64") for name in names])
    assert pixels_of(func) == {len(kernel) - 1}
    machine = target.Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=2")
    assert schedule_func(func, machine) is not func
    kernel_of = weft.build(schedule_func(func, target.Target("llvm")), "llvm")["main"]
    rng = np.random.default_rng(0)
    for n, h, w in ((1, 5, 7), (2, 14, 9), (1, 1, 1), (2, 3, 0), (0, 3, 4), (1, 13, 2)):
        places = (*[n + 1][: len(kernel) - 2], h, w)
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((n, *places, channels), (*kernel, channels, 16)))
        padded = np.pad(a.astype(np.float64), ((0, 0), *((s // 2, s // 2) for s in kernel), (0, 0)))
        taps = {
            tap: tuple(slice(i, i + s, stride) for i, s in zip(tap, places, strict=True)) for tap in np.ndindex(*kernel)
        }
        exact = sum(padded[(slice(None), *place)] @ b[tap] for tap, place in taps.items())
        found = np.full((n, *(-(-s // stride) for s in places), 16), 7, np.float32)
        kernel_of(a, b, found)
        np.testing.assert_allclose(found, np.maximum(exact, 0), atol=1e-3)


def test_rows_of_pixels_stay_where_that_is_better():
    names = [te.size_var(name, "int64") for name in "nhw"]
    assert pixels_of(windows(8, (3, 3), 1, names)) == {2}, "short sums"
    assert pixels_of(windows(64, (3, 3), 1, names, dilation=9)) == {2}, "taps in the padding are left out by rows"
    assert pixels_of(windows(64, (3, 3), 1, [int64(s) for s in (1, 7, 9)])) == {2}, "tiles divide rows"


@pytest.mark.parametrize("sizes", [[(2, 5, 7)], [(2, 5, 7), (1, 1, 1), (3, 6, 0), (1, 13, 2)]])
def test_pixels_of_a_window_of_one_tap_are_one_dimension(sizes):
    places = [int64(s) for s in sizes[0]] if len(sizes) == 1 else [te.size_var(name, "int64") for name in "nhw"]
    func = windows(16, (1, 1), 1, places)
    merged = [n for n in walk(collapse_dims(func).body) if isinstance(n, tir.BufferStore)]
    assert [len(s.indices) for s in merged] == [2] * len(merged)
    kernel = weft.build(schedule_func(func, target.Target("llvm")), "llvm")["main"]
    rng = np.random.default_rng(0)
    for size in sizes:
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((*size, 16), (1, 1, 16, 16)))
        found = np.full(a.shape, 7, np.float32)
        kernel(a, b, found)
        np.testing.assert_allclose(found, np.maximum(a.astype(np.float64) @ b[0, 0], 0), atol=1e-5)
