"""Operators that a program registers: their type, their form, what they become, and what is said without them."""

import numpy as np
import pytest

from weft import error, ir, relax, runtime
from weft.relax.testing.transform import ApplyEmptyCppMutator
from weft.script import ir as I
from weft.script import relax as R


@pytest.fixture
def scaled():
    """``custom.scaled(x, factors=ones)``: x times factors, of which the second may be left out."""
    name = "custom.scaled"
    attrs = {
        "FInferType": lambda call, context: call.args[0].ty,
        "FNormalize": lambda bb, call: (
            call if len(call.args) == 2 else relax.Call(call.op, [*call.args, relax.op.ones_like(call.args[0])])
        ),
        "FLegalize": lambda bb, call: relax.op.multiply(relax.op.add(call.args[0], call.args[1]), call.args[1]),
        "FPurity": True,
    }
    for key, value in attrs.items():
        ir.register_op_attr(name, key, value)
    yield ir.Op.get(name)
    for key in attrs:
        ir.Op.get(name).reset_attr(key)


def _module(op, *more):
    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                y = relax.Call(op, [x, *more])
                R.output(y)
            return y

    return Module


def test_an_operator_is_normalized_legalized_and_run(scaled):
    mod = _module(scaled)
    assert len(mod["main"].body.blocks[0].bindings[0].value.args) == 1  # a text is read as it is written
    assert not relax.analysis.check_well_formed(mod)
    normal = ApplyEmptyCppMutator()(mod)
    assert relax.analysis.check_well_formed(normal)
    legal = relax.transform.LegalizeOps()(normal)
    assert {v.name_hint for v in legal} == {"main", "ones", "add", "multiply"}
    vm = relax.VirtualMachine(relax.build(legal, "llvm"), runtime.cpu())
    for n in (0, 1, 5):
        x = np.arange(n, dtype="float32")
        np.testing.assert_allclose(vm["main"](runtime.tensor(x)).numpy(), x.astype("float64") + 1)


def test_what_is_not_registered_is_refused():
    with pytest.raises(error.WeftError, match=r"custom\.unknown"):
        _module(ir.Op.get("custom.unknown"))
