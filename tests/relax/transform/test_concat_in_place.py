"""Parts of a concatenation are written where they belong, with the same values."""

import numpy as np
import pytest

import weft
from tests.relax_models import model, written
from weft import relax, tir
from weft.relax.core_ops import is_op
from weft.relax.pipeline import graph_passes, lowering_passes
from weft.relax.rewriter import all_bindings
from weft.relax.transform import ConcatInPlace


def module(body: str, x: str = "(2, 6, 5)"):
    return written(f"x: {x}", body)


def legalized(mod):
    for step in graph_passes(weft.target.Target("llvm")):
        mod = step(mod)
    return mod


def calls(mod):
    """How many kernels are called, and how many of them write into what another one has begun."""
    mod = ConcatInPlace()(legalized(mod))
    values = [b.value for b in all_bindings(mod["main"])]
    kernels = sum(isinstance(f, tir.PrimFunc) for _, f in mod.items())
    inplace = sum(is_op(v, "call_tir_inplace") for v in values)
    return sum(is_op(v, "call_tir") for v in values) + inplace, inplace, kernels


def run(mod, x, placed=True):
    mod = legalized(mod)
    mod = ConcatInPlace()(mod) if placed else mod
    for step in lowering_passes():
        mod = step(mod)
    made = relax.build(mod, "llvm", relax_pipeline=None)
    return relax.VirtualMachine(made, weft.cpu())["main"](weft.runtime.tensor(x)).numpy()


A, B = "a = R.exp(x)", "b = R.sigmoid(x)"
CASES = {
    "two": (f"{A}\n{B}\nout = R.concat((a, b), axis=2)", (2, 1, 2)),
    "first_axis": (f"{A}\n{B}\nout = R.concat((b, a), axis=0)", (2, 1, 2)),
    "middle": (f"{A}\n{B}\nc = R.concat((b, a), axis=1)\nout = R.sum(c, axis=[2])", (3, 1, 3)),
    "a_copy": (f"{A}\n{B}\nout = R.concat((a, x, b), axis=1)", (3, 2, 3)),
    "sums": ("a = R.sum(x, axis=[2])\nb = R.max(x, axis=[2])\nout = R.concat((a, b), axis=1)", (2, 1, 2)),
    "same_place": (f"{A}\nb = R.exp(x)\nc = R.tanh(x)\nout = R.concat((a, c), axis=2)", (2, 1, 2)),
    # A part that is used otherwise is copied, and most of the result has to be in place.
    "used_twice": (f"{A}\n{B}\nc = R.tanh(a)\nd = R.concat((a, b, c), axis=2)\nout = R.sum(d, axis=[1])", (5, 2, 5)),
    "mostly_copies": ("a = R.exp(x)\nout = R.concat((x, a), axis=2)", None),
    "nested": (f"{A}\n{B}\nc = R.concat((a, b), axis=1)\nd = R.tanh(x)\nout = R.concat((c, d), axis=1)", None),
    "twice": (f"{A}\nb = R.sum(a, axis=[0], keepdims=True)\nout = R.concat((b, b), axis=1)", (2, 0, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    body, expected = CASES[name]
    if expected is not None:
        assert calls(module(body)) == expected
    x = np.random.default_rng(0).standard_normal((2, 6, 5)).astype("float32")
    np.testing.assert_array_max_ulp(run(module(body), x), run(module(body), x, placed=False), 4)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_symbolic(n):
    body = "a = R.exp(x)\nb = R.max(x, axis=[2], keepdims=True)\nout = R.concat((a, b), axis=2)"
    mod = module(body, "(n, 3, 5)")
    assert calls(mod)[:2] == (2, 1)
    x = np.random.default_rng(n).standard_normal((n, 3, 5)).astype("float32")
    np.testing.assert_array_max_ulp(run(mod, x), run(mod, x, placed=False), 4)


def test_symbolic_axis_stays():
    assert calls(module("a = R.exp(x)\nb = R.tanh(x)\nout = R.concat((a, b), axis=0)", "(n, 5)"))[1] == 0


@pytest.mark.parametrize("channels", [(8, 16), (5, 3), (33, 64)])
def test_convolutions(channels):
    """The two convolutions of a fire module: the rules find them through the shifted result."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 12, 9, 7)).astype("float32")
    weights = [rng.standard_normal((c, 12, k, k)).astype("float32") for c, k in zip(channels, (1, 3), strict=True)]

    def part(image, w):
        return relax.op.nn.relu(relax.op.nn.conv2d(image, relax.const(w), padding=w.shape[-1] // 2))

    mod = model(lambda image: relax.op.concat([part(image, w) for w in weights], axis=1), x.shape)
    assert calls(mod)[1] == 1
    np.testing.assert_array_max_ulp(run(mod, x), run(mod, x, placed=False), 4)


@pytest.mark.parametrize("channels", [32, 33])
@pytest.mark.parametrize("width", [7, "n"])
def test_alike(channels, width):
    """Convolutions that differ in images and weights alone are one kernel, which is told where to write."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((channels, 12, 3, 3)).astype("float32") for _ in range(3)]

    def parts(x):
        images = (x, relax.op.nn.relu(x), relax.op.tanh(x))
        convs = [relax.op.nn.conv2d(i, relax.const(w), padding=1) for i, w in zip(images, weights, strict=True)]
        return relax.op.concat(convs, axis=1)

    mod = model(parts, (1, 12, 9, width))
    kernels = [v.name_hint for v in ConcatInPlace()(legalized(mod))]
    assert sum("_at" in k for k in kernels) == 1
    x = rng.standard_normal((1, 12, 9, 7)).astype("float32")
    np.testing.assert_array_max_ulp(run(mod, x), run(mod, x, placed=False), 4)
