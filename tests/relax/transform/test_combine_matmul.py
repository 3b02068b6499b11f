"""Products of one tensor with several weights: joined where they may be, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import relax
from weft.relax.analysis import check_well_formed
from weft.relax.rewriter import all_bindings
from weft.relax.transform import CombineParallelMatmul
from weft.script import from_source

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4, 6), "float32"), q: R.Tensor((6, 6), "float32"), k: R.Tensor((6, 3), "float32"),
             v: R.Tensor((6, 1), "float32")):
        with R.dataflow():
            a = R.matmul(x, q)
            s = R.nn.relu(a)
            t = R.exp(k)
            b = R.matmul(x, t)
            c = R.matmul(s, q)
            w = R.reshape(R.sum(s, axis=[0, 1]), (6, 1))
            d = R.matmul(x, w)
            e = R.matmul(x, v)
            R.output(b, c, d, e)
        f = R.matmul(x, v)
        return (b, c, d, e, f)
"""
MOD = from_source(SOURCE)


def run(mod):
    rng = np.random.default_rng(0)
    vm = relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())
    return [
        t.numpy()
        for t in vm["main"](*(rng.standard_normal(s, np.float32) for s in ((2, 4, 6), (6, 6), (6, 3), (6, 1))))
    ]


def products(mod):
    return [b for b in all_bindings(mod["main"]) if getattr(getattr(b.value, "op", None), "name", "") == "relax.matmul"]


def test_products_are_joined():
    new = CombineParallelMatmul()(MOD)
    check_well_formed(new)
    assert len(products(MOD)) == 6
    assert len(products(new)) == 4, "three join; one needs a result of the group, two have other operands"
    for found, wanted in zip(run(new), run(MOD), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert CombineParallelMatmul()(new) is new


@pytest.mark.parametrize("answer", [True, False])
def test_the_user_decides(answer):
    seen = []

    def check(x, weights, biases, bindings):
        seen.append((x.name_hint, [w.name_hint for w in weights], biases, {v.name_hint for v in bindings}))
        return answer

    new = CombineParallelMatmul(check)(MOD)
    assert (new is MOD) is not answer
    assert seen[0][:3] == ("x", ["q", "t", "v"], [])
    assert {"a", "b", "e"} <= seen[0][3]
