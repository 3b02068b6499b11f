"""Fourier transforms, windows, scans and fixed-point products, against NumPy."""

import numpy as np
import pytest
import torch

from tests.topi.running import evaluate
from weft import te, topi

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dft(inverse: bool, dtype: str) -> None:
    re, im = RNG.normal(size=(2, 2, 3, 7)).astype(dtype)
    found = evaluate(lambda a, b: topi.dft(a, b, inverse), re, im)
    expected = (np.fft.ifft if inverse else np.fft.fft)(re + 1j * im)
    np.testing.assert_allclose(found[0] + 1j * found[1], expected, atol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize(("n_fft", "hop", "onesided", "normalized"), [(7, 3, True, False), (8, 2, False, True)])
def test_stft(n_fft: int, hop: int, onesided: bool, normalized: bool) -> None:
    data, window = RNG.normal(size=(2, 30)).astype("float32"), RNG.uniform(size=n_fft).astype("float32")
    expected = torch.view_as_real(
        torch.stft(
            torch.from_numpy(data),
            n_fft,
            hop,
            n_fft,
            torch.from_numpy(window),
            False,
            onesided=onesided,
            normalized=normalized,
            return_complex=True,
        )
    ).numpy()
    found = evaluate(
        lambda x, w: topi.stft(x, n_fft, hop, n_fft, w, normalized, onesided, expected.shape), data, window
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_hamming_window(size: int, periodic: bool) -> None:
    found = evaluate(lambda: topi.hamming_window(size, periodic, 0.54, 0.46, "float32"))
    np.testing.assert_allclose(found, torch.hamming_window(size, periodic, 0.54, 0.46), atol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("exclusive", [False, True])
def test_scan_of_any_function(axis: int | None, exclusive: bool) -> None:
    x = RNG.integers(-9, 9, (3, 5)).astype("int32")
    found = evaluate(
        lambda a: topi.scanop(a, topi.maximum, topi.cast(-99, "int32"), "cummax", axis, None, exclusive), x
    )
    flat = x.reshape(-1) if axis is None else x
    expected = np.maximum.accumulate(flat, axis or 0)
    if exclusive:
        expected = np.roll(expected, 1, axis or 0)
        expected[(slice(None),) * (axis or 0) + (0,)] = -99
    np.testing.assert_array_equal(found, expected)


def _fixed(x: np.ndarray, m: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    product = [int(a) * int(b) << int(c) for a, b, c in zip(x.flat, m.flat, left.flat, strict=True)]
    moved = [(p + (1 << 30 + int(r))) >> 31 + int(r) for p, r in zip(product, right.flat, strict=True)]
    return np.array(moved, "int32").reshape(x.shape)


@pytest.mark.parametrize("shift", [-3, 0, 5])
def test_fixed_point_product(shift: int) -> None:
    x = RNG.integers(-(2**20), 2**20, (4, 3)).astype("int32")
    one = np.ones_like(x)
    found = evaluate(lambda a: topi.fixed_point_multiply(a, 1395864371, shift), x)
    np.testing.assert_array_equal(found, _fixed(x, one * 1395864371, one * max(shift, 0), one * max(-shift, 0)))


@pytest.mark.parametrize(("has_left", "has_right"), [(0, 1), (1, 0), (1, 1)])
def test_fixed_point_product_by_channel(has_left: int, has_right: int) -> None:
    x = RNG.integers(-(2**20), 2**20, (4, 3)).astype("int32")
    m, left, right = (RNG.integers(low, high, 3).astype("int32") for low, high in ((2**30, 2**31), (0, 4), (0, 4)))
    found = evaluate(lambda *a: topi.fixed_point_multiply_per_axis(*a, has_left, has_right, [1]), x, m, left, right)
    spread = [np.broadcast_to(v, x.shape) for v in (m, left * has_left, right * has_right)]
    np.testing.assert_array_equal(found, _fixed(x, *spread))


def test_ceil_log2() -> None:
    x = np.array([1, 2, 3, 64, 65], "int32")
    found = evaluate(lambda a: te.compute(a.shape, lambda i: topi.ceil_log2(a(i))), x)
    np.testing.assert_array_equal(found, [0, 1, 2, 6, 7])


@pytest.mark.parametrize("name", ["exp", "tanh", "erf"])
def test_fast_functions(name: str) -> None:
    x = np.linspace(-4, 4, 33, dtype="float32")
    found = evaluate(getattr(topi, f"fast_{name}"), x)
    np.testing.assert_allclose(found, getattr(torch, name)(torch.from_numpy(x)), rtol=1e-5, atol=1e-6)
