"""The default pipeline's LegalizeOps: what is lowered once, and what only looks alike."""

import itertools
import sys

import numpy as np
import pytest

from tests.relax_models import model
from weft import relax, tir
from weft.relax import op as R
from weft.relax.transform import lower_ops


def build(*steps):
    """A chain of operators on a vector of symbolic length, each returned."""

    def outputs(x):
        _, *values = itertools.accumulate(steps, lambda value, step: step(value), initial=x)
        return relax.Tuple(values)

    return model(outputs, ("n", 4))


def kernels(mod):
    return sorted(v.name_hint for v, f in lower_ops()(mod).items() if isinstance(f, tir.PrimFunc))


def test_equal_operators_are_lowered_once(monkeypatch):
    made = []
    legalizer = sys.modules[lower_ops.__module__]._Legalizer
    kernel = legalizer.kernel
    monkeypatch.setattr(legalizer, "kernel", lambda self, *args: made.append(1) or kernel(self, *args))
    assert kernels(build(*[lambda x: R.add(x, x)] * 20)) == ["add"]
    assert len(made) == 1


def test_operators_on_sizes_that_are_computed_share_a_kernel():
    """Rows of half, a third and all of a tensor; those of two sizes that belong together keep what they have."""

    def outputs(x):
        n = x.ty.shape[0]
        parts = [R.strided_slice(x, [0], [0], [size]) for size in (n // 2, n // 3, n)]
        rows = [R.nn.softmax(p) for p in parts]
        wide = [R.broadcast_to(R.sum(x, [0], keepdims=True), (size, 4)) for size in (n * 4, n // 2 - 1, n // 5)]
        return relax.Tuple([*rows, *wide, R.strided_slice(R.nn.pad(x, (0, 2, 0, 0)), [0], [n // 2], [n // 2 + 1])])

    mod = model(outputs, ("n", 4))
    names = kernels(mod)
    assert sum(name.startswith("nn_softmax") for name in names) == 1
    assert sum(name.startswith("broadcast_to") for name in names) == 1
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), "cpu")
    for n in (2, 5, 33):
        x = np.random.default_rng(n).standard_normal((n, 4), np.float32)
        *found, row = [y.numpy() for y in vm["main"](x)]
        e = np.exp(x.astype("float64"))
        for size, y in zip((n // 2, n // 3, n), found[:3], strict=True):
            np.testing.assert_allclose(y, (e / e.sum(1, keepdims=True))[:size], rtol=1e-6)
        for size, y in zip((n * 4, n // 2 - 1, n // 5), found[3:], strict=True):
            np.testing.assert_allclose(y, np.broadcast_to(x.astype("float64").sum(0), (size, 4)), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(row, x[n // 2 : n // 2 + 1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: R.add(x, relax.const(1.0)), lambda x: R.add(x, relax.const(2.0))),
        (lambda x: R.multiply(x, relax.const(0.0)), lambda x: R.multiply(x, relax.const(-0.0))),
        (lambda x: R.add(x, relax.const([[1.0]])), lambda x: R.add(x, relax.const([1.0, 2, 3, 4]))),
        (lambda x: R.nn.leakyrelu(x, 0.1), lambda x: R.nn.leakyrelu(x, 0.2)),
        (lambda x: R.sum(x, [0], keepdims=True), lambda x: R.sum(x, [1], keepdims=True)),
    ],
)
def test_what_differs_is_lowered_apart(one, other):
    x = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    vm = relax.VirtualMachine(relax.build(build(one, other, one), "llvm"), "cpu")
    found = [y.numpy() for y in vm["main"](x)]
    assert len(kernels(build(one, other))) == 2
    for step, before, after in zip((one, other, one), (x, *found), found, strict=False):
        alone = relax.VirtualMachine(
            relax.build(model(lambda x, step=step: relax.Tuple([step(x)]), before.shape), "llvm"), "cpu"
        )
        np.testing.assert_array_equal(alone["main"](before)[0].numpy(), after)
