"""Rules for intrinsics: registered by kind of target, applied until none is left, in generated code."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model
from weft import error, ir, te, tir


@pytest.fixture(autouse=True)
def own_rules(monkeypatch):
    monkeypatch.setattr(ir.intrin_rules, "_RULES", {})


def call(name, x):
    return tir.call_intrin("float32", name, x)


def build(name, target="llvm"):
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: call(name, a[i]), name="B")
    return weft.build(te.create_schedule(b.op), [a, b], target=target)


def run(f):
    x, out = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    f(x, out)
    return out.tolist()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_new_intrinsic(target):
    refuses(error.CodegenError, r"mine\.square", build, "mine.square", target)
    ir.register_intrin_lowering("mine.square", target, f=lambda e: e.args[0] * e.args[0])
    assert run(build("mine.square", target)) == [0, 1, 4, 9, 16]


def test_the_kind_comes_before_the_default():
    ir.register_intrin_lowering("mine.scale", f=lambda e: e.args[0] * 2.0)
    assert run(build("mine.scale")) == [0, 2, 4, 6, 8]
    ir.register_intrin_lowering("mine.scale", "llvm", f=lambda e: e.args[0] * 3.0)
    assert run(build("mine.scale")) == [0, 3, 6, 9, 12] and run(build("mine.scale", "c")) == [0, 2, 4, 6, 8]


def test_older_form_decorator_and_override():
    @ir.register_intrin_rule("llvm", "exp")
    def rule(e):
        return e.args[0] + 1.0

    assert run(build("tir.exp")) == [1, 2, 3, 4, 5]
    refuses(error.InvalidArgument, "override=True", ir.register_intrin_rule, "llvm", "exp", rule)
    ir.register_intrin_rule("llvm", "exp", lambda e: None, override=True)
    np.testing.assert_allclose(run(build("tir.exp")), np.exp(np.arange(5)), rtol=1e-6)


def test_rules_that_use_rules_and_rules_that_never_end():
    ir.register_intrin_lowering("mine.a", f=lambda e: call("mine.b", e.args[0]) + 1.0)
    ir.register_intrin_lowering("mine.b", f=lambda e: e.args[0] * 10.0)
    assert run(build("mine.a")) == [1, 11, 21, 31, 41]
    ir.register_intrin_lowering("mine.loop", f=lambda e: call("mine.loop", e.args[0]))
    refuses(error.LoweringError, "do not end", build, "mine.loop")
    ir.register_intrin_lowering("mine.type", f=lambda e: tir.const(1, "int32"))
    refuses(error.LoweringError, "changes the type", build, "mine.type")


def test_a_whole_model_takes_the_rule():
    from weft import relax

    def compiled():
        return relax.VirtualMachine(weft.compile(model(relax.op.exp, (4,)), target="llvm"), weft.cpu())

    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(compiled()["main"](x).numpy(), np.exp(x), rtol=1e-6)
    ir.register_intrin_rule("llvm", "exp", lambda e: e.args[0] + 5.0)
    np.testing.assert_array_equal(compiled()["main"](x).numpy(), x + 5)
