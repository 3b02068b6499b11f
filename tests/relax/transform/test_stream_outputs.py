"""Results that are only returned, and many constants later, are written past the caches."""

import numpy as np
import pytest

import weft
from weft import relax, script
from weft.relax.rewriter import all_bindings
from weft.relax.transform import stream_outputs

PROGRAM = """@I.ir_module
class Module:
    @R.function
    def main(past: R.Tensor((1, 3, "m", 16), "float32"), new: R.Tensor((1, 3, "n", 16), "float32")):
        m, n = T.int64(), T.int64()
        with R.dataflow():
            both = R.concat((past, new), axis=2)
            {use}
            first = R.nn.relu(new)
            product = R.matmul({operand}, R.const(WEIGHT))
            last = R.nn.relu(past)
            out = (both, first, product, last)
            R.output(out)
        return out
"""
WEIGHT = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")


def legalized(use="", operand="first"):
    mod = script.from_source(PROGRAM.format(use=use, operand=operand), {"WEIGHT": WEIGHT})
    return weft.ir.Sequential(relax.pipeline.graph_passes("llvm")[:-1])(mod)


def streamed(mod, after):
    out = stream_outputs(after=after)(mod)
    calls = [
        b.value.args[0]
        for b in all_bindings(out["main"])
        if getattr(b.value, "op", None) is not None and b.value.op.name == "relax.call_tir"
    ]
    return {c.name_hint.split("_")[0] for c in calls if out[c].attrs.get("tir.stream_outputs")}


def test_what_comes_before_the_constants_and_is_read_by_nobody():
    assert streamed(legalized(), WEIGHT.nbytes) == {"concat"}
    mod = legalized()
    assert stream_outputs()(mod) is mod, "few constants: a cache may hold everything"


def test_what_is_read_again_stays():
    assert streamed(legalized("again = R.sum(both)", "R.multiply(first, again)"), WEIGHT.nbytes) == set()


@pytest.mark.parametrize(("m", "n"), [(0, 3), (5, 1), (7, 0), (130, 30)])
def test_values(m, n):
    vm = relax.VirtualMachine(relax.build(stream_outputs(after=1)(legalized()), "llvm"), "cpu")
    rng = np.random.default_rng(1)
    past, new = (rng.standard_normal((1, 3, k, 16)).astype("float32") for k in (m, n))
    found = [x.numpy() for x in vm["main"](past, new)]
    first = np.maximum(new, 0)
    for x, y in zip(found, (np.concatenate([past, new], 2), first, first @ WEIGHT, np.maximum(past, 0)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
