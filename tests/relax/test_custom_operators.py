"""Operators that a program registers: their type, their form, what they become."""

import numpy as np
import pytest

from weft import ir, relax, runtime
from weft.relax.testing.transform import ApplyEmptyCppMutator
from weft.script import ir as I
from weft.script import relax as R


@pytest.fixture
def scaled():
    """``custom.scaled(x, y=ones)``: (x + y) * y."""
    attrs = {
        "FInferType": lambda call, context: call.args[0].ty,
        "FNormalize": lambda bb, call: (
            call if len(call.args) == 2 else relax.Call(call.op, [*call.args, relax.op.ones_like(call.args[0])])
        ),
        "FLegalize": lambda bb, call: relax.op.multiply(relax.op.add(*call.args), call.args[1]),
        "FPurity": True,
    }
    op = ir.Op.get("custom.scaled")
    for key, value in attrs.items():
        op.set_attr(key, value)
    yield op
    for key in attrs:
        op.reset_attr(key)


def test_an_operator_is_normalized_legalized_and_run(scaled):
    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                y = relax.Call(scaled, [x])
                R.output(y)
            return y

    assert len(Module["main"].body.blocks[0].bindings[0].value.args) == 1  # a text is read as it is written
    assert not relax.analysis.check_well_formed(Module)
    normal = ApplyEmptyCppMutator()(Module)
    assert relax.analysis.check_well_formed(normal)
    legal = relax.transform.LegalizeOps()(normal)
    assert {v.name_hint for v in legal} == {"main", "ones", "add", "multiply"}
    vm = relax.VirtualMachine(relax.build(legal, "llvm"), runtime.cpu())
    for n in (0, 1, 5):
        x = np.arange(n, dtype="float32")
        np.testing.assert_allclose(vm["main"](runtime.tensor(x)).numpy(), x.astype("float64") + 1)
