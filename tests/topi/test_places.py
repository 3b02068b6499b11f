"""Operators that read at computed places: repeating, resizing, sampling, arguments of extrema."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from tests.topi.running import evaluate
from weft import topi
from weft.topi.reduce import arg_reduce
from weft.topi.resize import resize
from weft.topi.sample import grid_sample

RNG = np.random.default_rng(11)
scheduled = partial(evaluate, target="llvm")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_arguments_of_extrema(kind, axis, last):
    values = np.array([-np.inf, -1, -0.0, 0.0, 2, np.inf], np.float32)
    plain, odd = RNG.choice(values, (9, 13, 21)), RNG.choice([*values, np.nan], (9, 13, 21)).astype(np.float32)
    half = np.float16 if kind == "max" else ml_dtypes.bfloat16
    others = (RNG.integers(-2, 2, (9, 13, 21)).astype(np.int8), odd.astype(half), plain > 0)
    for x in (plain, odd) if last else (odd, *others[axis : axis + 1]):
        find = np.argmax if kind == "max" else np.argmin
        wanted = find((np.flip(x, axis) if last else x).astype(np.float32), axis)
        wanted = x.shape[axis] - 1 - wanted if last else wanted
        np.testing.assert_array_equal(scheduled(lambda t: arg_reduce(kind, t, axis, False, last), x), wanted)


def tent(size, out, scale):
    """Linear interpolation along an axis by half pixels, as a matrix in float64."""
    at = (np.arange(out) + 0.5) / scale - 0.5
    low = np.floor(at)
    matrix = np.zeros((out, size))
    for place, weight in ((low, 1 - (at - low)), (low + 1, at - low)):
        np.add.at(matrix, (np.arange(out), np.clip(place, 0, size - 1).astype(int)), weight)
    return matrix


@pytest.mark.parametrize(
    ("size", "out"), [((9, 11), (18, 22)), ((9, 11), (4, 30)), ((1, 7), (3, 7)), ((8, 33), (8, 20))]
)
def test_linear_resizing(size, out):
    x = RNG.standard_normal((2, 3, *size)).astype(np.float32)
    found = scheduled(lambda t: resize(t, (2, 3, *out), coordinate_transformation_mode="half_pixel"), x)
    rows, columns = (tent(n, m, m / n) for n, m in zip(size, out, strict=True))
    np.testing.assert_allclose(found, np.einsum("nchw,yh,xw->ncyx", x.astype(np.float64), rows, columns), atol=2e-5)


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampling_is_what_it_is_unscheduled(method, padding):
    """Tables of places are an order of computing: a grid that goes far outside, with what is no number in it."""
    x, grid = RNG.standard_normal((2, 3, 7, 5)).astype(np.float32), RNG.uniform(-1.6, 1.6, (2, 2, 6, 9))
    grid = grid.astype(np.float32)
    found = scheduled(lambda t, g: grid_sample(t, g, method, "NCHW", padding), x, grid)
    np.testing.assert_allclose(
        found, evaluate(lambda t, g: grid_sample(t, g, method, "NCHW", padding), x, grid), atol=1e-5
    )
    if (method, padding) == ("bilinear", "zeros"):
        at = (grid + 1) / 2 * np.array([4, 6])[None, :, None, None]
        framed = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (9, 9), (9, 9)))
        low, part = np.floor(at).astype(int), at - np.floor(at)
        wanted = 0
        for dy, dx in np.ndindex(2, 2):
            weight = (part[:, 1] if dy else 1 - part[:, 1]) * (part[:, 0] if dx else 1 - part[:, 0])
            picked = np.stack([framed[n][:, low[n, 1] + dy + 9, low[n, 0] + dx + 9] for n in range(2)])
            wanted = wanted + weight[:, None] * picked
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_nothing_of_an_empty_image_is_read():
    x, grid = np.zeros((1, 2, 0, 4), np.float32), np.zeros((1, 2, 3, 3), np.float32)
    assert not scheduled(lambda t, g: grid_sample(t, g), x, grid).any()


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("k", "stride", "pads", "ceil"),
    [
        ((5, 5), (1, 1), (2, 2), False),
        ((13, 4), (2, 3), (1, 0), False),
        ((16, 1), (1, 2), (3, 0), True),
        ((7, 3), (3, 3), (3, 1), True),
    ],
)
def test_large_windows(kind, k, stride, pads, ceil):
    x = RNG.standard_normal((2, 3, 30, 21)).astype(np.float32)
    found = scheduled(
        lambda t: topi.nn.pool2d(t, k, stride, (1, 1), pads * 2, kind, ceil_mode=ceil, count_include_pad=False), x
    )
    room = [(p, p + s) for p, s in zip(pads, stride, strict=True)]
    framed = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *room), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(framed, k, (2, 3))[:, :, :: stride[0], :: stride[1]]
    windows = windows[:, :, : found.shape[2], : found.shape[3]]
    wanted = (np.nanmax if kind == "max" else np.nanmean)(windows, (-1, -2))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
