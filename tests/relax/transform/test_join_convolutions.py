"""JoinConvolutions: which sums of convolutions become one, with the same results at every size."""

import functools
from typing import Any

import numpy as np
import pytest

from tests.relax_models import model
from weft import ir, relax
from weft.relax.interpreter import evaluate
from weft.relax.transform import dead_code_elimination, decompose_ops, join_convolutions

RNG = np.random.default_rng(4)
CHANNELS = 6
GROUPS = {"groups": CHANNELS}


def sum_of(branches: list[Any], dims: int = 2, again: int | None = None, known: Any = None) -> Any:
    """Add branches of one image: kernels as window and attributes, scales as their number of values."""
    n, *sizes = [ir.SizeVar(f"d{i}", "int64") for i in range(dims + 1)] if known is None else known

    def drawn(*shape: int) -> Any:
        return relax.constant(RNG.standard_normal(shape).astype(np.float32))

    def layers(x: relax.Var) -> Any:
        made = []
        for branch in branches:
            if isinstance(branch, int):
                made.append(relax.op.multiply(x, drawn(branch, *[1] * dims)))
            else:
                window, attrs = branch
                weights = drawn(CHANNELS, CHANNELS // attrs.get("groups", 1), *window)
                made.append(getattr(relax.op.nn, f"conv{dims}d")(x, weights, **attrs))
            made[-1] = relax.op.add(made[-1], relax.const(0.25, "float32"))
            if len(made) % 2:
                made[-1] = relax.op.add(made[-1], drawn(1, CHANNELS, *[1] * dims))
        total = functools.reduce(relax.op.add, made)
        return total if again is None else relax.op.multiply(total, made[again])

    return model(layers, (n, CHANNELS, *sizes))


def convolutions(mod: Any) -> int:
    return sum("conv" in c.op.name for c in ir.walk(mod["main"]) if isinstance(c, relax.Call))


def check(mod: Any, left: int, dims: int = 2) -> None:
    joined = dead_code_elimination()(join_convolutions()(mod))
    assert convolutions(joined) == left
    for sizes in ((2, 9, 8, 7), (1, 5, 5, 6), (0, 5, 5, 5)):
        x = RNG.standard_normal((sizes[0], CHANNELS, *sizes[1 : dims + 1])).astype(np.float32)
        (found,), (expected,) = evaluate(joined, x), evaluate(mod, x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("branches", "dims"),
    [
        ([((3, 3), {"padding": 1}), ((1, 1), {}), CHANNELS], 2),
        ([CHANNELS, ((1, 1), GROUPS), 1, ((5, 5), GROUPS | {"padding": 2}), ((3, 3), GROUPS | {"padding": 1})], 2),
        ([((1, 3), {"padding": (0, 1)}), ((3, 3), {"padding": 1}), ((3, 1), {"padding": (1, 0)})], 2),
        ([((3, 3), {"padding": 1, "strides": 2}), ((1, 1), {"strides": 2})], 2),
        ([((3, 3), {"padding": 2, "dilation": 2, "groups": 3}), ((1, 1), {"dilation": 2, "groups": 3}), CHANNELS], 2),
        ([((4, 2), {"padding": (1, 0, 2, 1)}), ((1, 1), {}), ((2, 2), {"padding": (0, 0, 1, 1)})], 2),
        ([((3,), {"padding": 1}), ((3,), {"padding": 1}), CHANNELS], 1),
        ([((3, 3, 3), {"padding": 1}), ((1, 1, 1), {})], 3),
    ],
)
def test_one_convolution_is_left(branches: list[Any], dims: int) -> None:
    check(sum_of(branches, dims), 1, dims)


@pytest.mark.parametrize(
    "branches",
    [
        [((3, 3), {"padding": 1}), ((3, 3), {"padding": 1, "groups": 2})],
        [((1, 3), {"padding": (0, 1)}), ((3, 1), {"padding": (1, 0)})],
        [((3, 3), {"padding": 2, "dilation": 2}), ((1, 1), {})],
        [((2, 2), {"padding": (1, 1, 0, 0)}), ((2, 2), {"padding": (0, 0, 1, 1)})],
        [((3, 3), {"padding": 2, "dilation": 2}), ((2, 2), {"padding": 1, "dilation": 2})],
    ],
)
def test_windows_that_do_not_lie_within_each_other_stay(branches: list[Any]) -> None:
    check(sum_of(branches), 2)


def test_a_result_that_is_read_twice_stays() -> None:
    check(sum_of([((3, 3), {"padding": 1}), ((1, 1), {})], again=1), 2)


def test_taps_that_meet_nothing_but_padding_go() -> None:
    smaller = 0
    for _ in range(60):
        (size, k, d, s), pads = RNG.integers(1, (9, 5, 12, 4), (2, 4)).T.tolist(), RNG.integers(0, 14, 4).tolist()
        if all(n + a + b > (t - 1) * j for n, t, j, a, b in zip(size, k, d, pads[:2], pads[2:], strict=True)):
            mod = sum_of([(k, {"dilation": d, "strides": s, "padding": pads, "groups": 2})], known=(2, *size))
            made, x = decompose_ops()(mod), RNG.standard_normal((2, CHANNELS, *size)).astype(np.float32)
            smaller += "strided_slice" in str(made)
            np.testing.assert_allclose(*(evaluate(m, x)[0] for m in (made, mod)), rtol=1e-4, atol=1e-4)
    assert smaller > 5
