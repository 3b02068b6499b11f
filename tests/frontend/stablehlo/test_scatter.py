"""What is scattered: to where windows select, without an index; and numbers that lose digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import RNG, computed, f32

ADD = """{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %1 : tensor<f32> }"""
SELECT = ADD.replace("add %a, %b :", "compare GE, %a, %b : (tensor<f32>, tensor<f32>) ->").replace("f32> }", "i1> }")
SELECT = SELECT.replace("-> tensor<f32>", "-> tensor<i1>")


@pytest.mark.parametrize(
    ("window", "stride", "low", "high"),
    [([2, 2], [2, 2], [0, 0], [0, 1]), ([3, 2], [1, 1], [1, 0], [1, 1]), ([3, 3], [2, 2], [0, 1], [0, 1])],
)
def test_sources_go_where_windows_select(window: Any, stride: Any, low: Any, high: Any) -> None:
    x, start = RNG.integers(-3, 1, (6, 7)).astype("f"), np.float32(0.5)  # padding, which is no element, would win
    out = [(n + a + b - w) // s + 1 for n, a, b, w, s in zip(x.shape, low, high, window, stride, strict=True)]
    source, expected = f32(*out), np.full(x.shape, start)
    for at in np.ndindex(*out):
        first = [i * s - a for i, s, a in zip(at, stride, low, strict=True)]
        places = [tuple(f + k for f, k in zip(first, w, strict=True)) for w in np.ndindex(*window)]
        inside = [p for p in places if all(0 <= i < n for i, n in zip(p, x.shape, strict=True))]
        expected[max(inside, key=lambda p: x[p])] += source[at]
    sides = [list(p) for p in zip(low, high, strict=True)]
    numbers = f" <{{padding = {sides}, window_dimensions = {window}, window_strides = {stride}}}>"
    computed('"stablehlo.select_and_scatter"', f"{numbers} ({SELECT}, {ADD})", expected, x, source, start)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_updates_without_an_index(shape: tuple[int, ...]) -> None:
    x, update = f32(*shape), f32(*(n - 1 for n in shape))
    expected = np.array(x)
    expected[tuple(slice(n - 1) for n in shape)] += update
    numbers = f"update_window_dims = {[*range(len(shape))]}" if shape else ""
    rest = f" <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({ADD})"
    computed('"stablehlo.scatter"', rest, expected, x, np.zeros(0, np.int32), update)


@pytest.mark.parametrize(("form", "dtype"), [("e5m10", np.float16), ("e8m23", np.float32)])
def test_reduced_precision(form: str, dtype: Any) -> None:
    x = np.float32([0, -0.0, 1 / 3, -65504, 65520, -1e30, np.inf, np.nan, 2**-14, 1 + 2**-11, 1 + 3 * 2**-11])
    with np.errstate(over="ignore"):
        computed("stablehlo.reduce_precision", f", format = {form}", x.astype(dtype).astype("f"), x)
