"""Passes are found in the package that they are declared in, without being named there again."""

import re

import weft as tvm
from tests.refusals import refuses
from weft import error, ir, relax, relay, tir
from weft.ir.passes import _PASSES


def test_every_pass_is_found_where_it_is_declared():
    packages = {p.__name__: p for p in (relax.transform, relay.transform, tir.transform)}
    found = 0
    for key, make in _PASSES.items():
        package = packages.get(make.__module__.rpartition(".")[0])
        if package is not None:
            assert package.__getattr__(key.removeprefix("relay.")) is make
            found += 1
    assert found > 80


def test_a_pass_of_another_package_is_not():
    @ir.module_pass
    def nowhere_else(mod):
        return mod

    for package in (relax.transform, relay.transform, tir.transform):
        refuses(AttributeError, "NowhereElse", getattr, package, "NowhereElse")
    refuses(AttributeError, "", getattr, tir.transform, "LambdaLift")
    del _PASSES["NowhereElse"]


def test_what_describes_a_pass_has_tvms_names():
    mod = ir.IRModule()
    assert isinstance(relax.transform.FoldConstant(), ir.pass_decorators.ModulePass)
    assert ir.pass_decorators.PassInfo(opt_level=1, name="xyz").name == "xyz"
    assert mod.same_as(ir.pass_decorators.Sequential([])(mod)) and not mod.same_as(ir.IRModule())


def test_required_passes_run_before():
    timing = tvm.instrument.PassTimingInstrument()

    def run(*required):
        mine = tvm.transform.module_pass(lambda mod, _: mod, name="mine", required=required)
        with tvm.transform.PassContext(instruments=[timing]):
            tvm.transform.Sequential([mine])(ir.IRModule())
            return re.findall(r"(\w+): ", timing.render())

    assert run("FoldConstant", "relax.LegalizeOps") == ["FoldConstant", "LegalizeOps", "mine"]
    refuses(error.InvalidArgument, "near names: FoldConstant", run, "FoldConstants")
