"""Slices of columns that are taken apart become slices of heads, with the same values."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import relax
from weft.relax.rewriter import all_bindings
from weft.relax.transform import ReshapeBeforeSlice, dead_code_elimination


def module(body: str):
    return written("x: (2, n, 24)", body)


def operators(mod):
    after = dead_code_elimination()(ReshapeBeforeSlice()(mod))
    return [b.value.op.name.removeprefix("relax.") for b in all_bindings(after["main"])]


HEADS = """
a = R.strided_slice(x, axes=[2], begin=[8], end=[16])
b = R.strided_slice(x, axes=[-1], begin=[16], end=[24])
c = R.permute_dims(R.reshape(a, (2, n, 2, 4)), axes=[0, 2, 1, 3])
d = R.permute_dims(R.reshape(b, (2, n, 2, 4)), axes=[0, 2, 1, 3])
out = R.concat((c, d), axis=2)
"""


@pytest.mark.parametrize("n", [0, 1, 7])
def test_heads(n):
    mod = module(HEADS)
    assert operators(mod).count("reshape") == 1 and operators(mod).count("strided_slice") == 2
    x = np.random.default_rng(0).standard_normal((2, n, 24)).astype("float32")
    vm = relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())
    parts = [np.moveaxis(x[..., b : b + 8].reshape(2, n, 2, 4), 2, 1) for b in (8, 16)]
    np.testing.assert_array_equal(vm["main"](weft.runtime.tensor(x)).numpy(), np.concatenate(parts, 2))


@pytest.mark.parametrize(
    "body",
    [
        "out = R.reshape(R.strided_slice(x, axes=[2], begin=[6], end=[14]), (2, n, 2, 4))",  # no whole heads
        "out = R.reshape(R.strided_slice(x, axes=[2], begin=[0], end=[24], strides=[2]), (2, n, 3, 4))",
        "out = R.reshape(R.strided_slice(x, axes=[0], begin=[0], end=[1]), (1, n, 6, 4))",
        "out = R.reshape(R.strided_slice(x, axes=[2], begin=[8], end=[16]), (n, 2, 2, 4))",
        "s = R.strided_slice(x, axes=[2], begin=[8], end=[16])\n"
        "out = R.add(R.reshape(s, (2, n, 2, 4)), R.reshape(R.exp(s), (2, n, 2, 4)))",
    ],
)
def test_left_alone(body):
    mod = module(body)
    assert ReshapeBeforeSlice()(mod)["main"] is mod["main"]
