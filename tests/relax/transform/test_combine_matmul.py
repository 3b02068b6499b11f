"""Products of one tensor with several weights: joined where they may be, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.relax_models import model, written
from weft import relax, script
from weft.relax.analysis import well_formed
from weft.relax.interpreter import evaluate
from weft.relax.rewriter import all_bindings
from weft.relax.transform import CombineParallelMatmul

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
MOD = script.from_source(SOURCE)


def run(mod):
    rng = np.random.default_rng(0)
    return evaluate(mod, *(rng.standard_normal(s, np.float32) for s in ((2, 4, 6), (6, 6), (6, 3), (6, 1))))


def products(mod):
    return [b for b in all_bindings(mod["main"]) if getattr(getattr(b.value, "op", None), "name", "") == "relax.matmul"]


def test_products_are_joined():
    new = CombineParallelMatmul()(MOD)
    well_formed(new)
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


def heads(bias=True, used_twice=False):
    """Two products of one tensor with constant weights that become heads, the second one with no bias if so."""
    rng = np.random.default_rng(1)

    def results(x):
        outs = []
        for with_bias in (True, bias):
            y = relax.op.matmul(x, relax.const(rng.standard_normal((8, 8), np.float32)))
            if with_bias:
                y = relax.op.add(relax.const(rng.standard_normal(8, np.float32)), y)
            outs.append(relax.op.reshape(y, (1, x.ty.shape[1], 2, 4)))
        return relax.Tuple([*outs, relax.op.exp(y)] if used_twice else outs)

    return model(results, (1, "n", 8))


@pytest.mark.parametrize(("bias", "used_twice", "count"), [(True, False, 1), (False, False, 2), (True, True, 2)])
def test_products_that_become_heads_are_joined_with_their_biases(bias, used_twice, count):
    """Unless something else reads one of them, or only some of them have a bias to add."""
    mod = heads(bias, used_twice)
    new = CombineParallelMatmul(for_attention=True)(mod)
    well_formed(new)
    assert len(products(weft.ir.Sequential([relax.transform.DeadCodeElimination()])(new))) == count
    x = np.random.default_rng(0).standard_normal((1, 3, 8), np.float32)
    for found, wanted in zip(evaluate(new, x), evaluate(mod, x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_sums_of_scalars_are_no_biases():
    mod = written("x: (2, 6), s: (), b: (3)", "t = R.exp(s)", "u = R.add(t, b)")
    assert CombineParallelMatmul(for_attention=True)(mod) is mod


def test_batches_activations_and_one_unknown_width():
    source = written("""
x: (5, 6), a: (2, 6, 3), b: (2, 6, 4), c: (6, n), d: (6, 7), e: (6, m)
p = R.nn.relu(R.matmul(x, a))
q = R.nn.relu(R.matmul(x, b))
r = R.matmul(x, c)
s = R.matmul(x, d)
t = R.matmul(x, e)
return (p, q, r, s, t)
""")
    new = relax.transform.CombineParallelMatmul()(source)
    text = new.script()
    assert (text.count("R.matmul"), text.count("R.nn.relu"), text.count("R.split")) == (3, 1, 2)
    rng = np.random.default_rng(2)
    shapes = ((5, 6), (2, 6, 3), (2, 6, 4), (6, 5), (6, 7), (6, 2))
    args = [rng.standard_normal(s).astype("float32") for s in shapes]
    compiled = relax.VirtualMachine(weft.compile(new, target="llvm"), weft.cpu())["main"](*args)
    for g, w in zip(compiled, evaluate(source, *args), strict=True):
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-5, atol=1e-5)
