"""A dataflow block is changed binding by binding, and the function given stays as it is."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax
from weft.relax.analysis import name_to_binding, well_formed
from weft.script import ir as I
from weft.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(x)  # noqa: F841 - nothing uses it
            c = R.add(a, a)
            d = R.multiply(c, a)
            R.output(d)
        return d


MAIN = Module["main"]
VARS = {name: bindings[0].var for name, bindings in name_to_binding(MAIN).items()}


@pytest.fixture
def rewrite():
    return relax.DataflowBlockRewrite(MAIN.body.blocks[0], MAIN)


def names(func):
    return [b.var.name_hint for block in func.body.blocks for b in block.bindings]


def test_uses_are_replaced_and_what_is_unused_goes(rewrite):
    rewrite.replace_all_uses(VARS["a"], VARS["b"])
    rewrite.remove_unused(VARS["a"])
    assert names(rewrite.mutated_root_fn()) == ["b", "c", "d"]
    assert names(MAIN) == ["a", "b", "c", "d"]
    mod = rewrite.mutate_irmodule(Module)
    well_formed(mod)
    x = np.random.default_rng(1).standard_normal((2, 3)).astype("float32")
    found = relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())["main"](weft.nd.array(x)).numpy()
    np.testing.assert_allclose(found, 2 * np.sin(x) ** 2, rtol=1e-5)


def test_bindings_are_added(rewrite):
    rewrite.add(relax.op.exp(VARS["d"]))
    rewrite.add(VARS["a"], "named", is_dfvar=True)
    assert names(rewrite.mutated_root_fn())[4:] == ["tmp0", "named"]
    assert isinstance(rewrite.mutated_dfb().bindings[-1].var, relax.DataflowVar)
    assert rewrite.mutated_root_fn().body.blocks[0] is rewrite.mutated_dfb()


def test_all_that_is_unused(rewrite):
    rewrite.remove_all_unused()
    assert names(rewrite.mutated_root_fn()) == ["a", "c", "d"]
    assert rewrite.mutated_root_fn().body.blocks[0] is rewrite.mutated_dfb()
    rewrite.add(VARS["a"], "later", is_dfvar=True)
    assert names(rewrite.mutated_root_fn())[-1] == "later"


def test_what_is_refused(rewrite):
    refuses(error.InvalidArgument, "a is used by 2 vars", rewrite.remove_unused, VARS["a"])
    refuses(error.InvalidArgument, "d is used by 1 vars", rewrite.remove_unused, VARS["d"])
    stranger = relax.Var("stranger")
    refuses(error.InvalidArgument, "Cannot find the variable 'stranger'", rewrite.remove_unused, stranger)
    refuses(error.InvalidArgument, "Cannot find the variable 'stranger'", rewrite.replace_all_uses, stranger, stranger)
    rewrite.remove_unused(stranger, allow_undef=True)
    assert rewrite.mutated_root_fn() is MAIN
    refuses(error.InvalidArgument, "none of the function's", relax.DataflowBlockRewrite, relax.DataflowBlock(()), MAIN)
    refuses(error.InvalidArgument, "no such function", rewrite.mutate_irmodule, weft.IRModule())
