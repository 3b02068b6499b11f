"""What every Relax pass keeps: a second run and a program without work for it give the very same functions."""

from __future__ import annotations

import pytest

from tests.test_pass_docs import PASSES, example, sections
from weft.script import from_source

RELAX = {n: make for n, make in PASSES.items() if make.__module__.startswith("weft.relax.transform")}
NOT_IDEMPOTENT = {"VMShapeLower"}  # as its docstring says
# The program below takes and returns tensors, and is pure.
HAS_WORK = {"FreshOutputs", "LazyGetInput", "LazySetOutput", "RemovePurityChecking"}

PLAIN = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 3), "float32"), e: R.Tensor((0, 3), "float32"), p: R.Tensor((), "bool")
    ) -> R.Tuple(R.Tensor(("n", 3), "float32"), R.Tensor((0, 3), "float32")):
        n = T.int64()
        R.func_attr({"global_symbol": "main"})
        return (x, e)
"""


def changed(before, after):
    assert before.functions.keys() == after.functions.keys()
    return [v.name_hint for v in before.functions if before.functions[v] is not after.functions[v]]


def test_every_pass_is_here():
    assert len(RELAX) >= 20


@pytest.mark.parametrize("name", [n for n in RELAX if n not in NOT_IDEMPOTENT])
def test_a_second_run_changes_nothing(name):
    options, before, _ = example(sections(RELAX[name].__doc__)[1]["Example"])
    once = RELAX[name](**options)(before)
    assert changed(once, RELAX[name](**options)(once)) == []


@pytest.mark.parametrize("name", [n for n in RELAX if n not in NOT_IDEMPOTENT | HAS_WORK])
def test_without_work_nothing_changes(name):
    mod = from_source(PLAIN)
    assert changed(mod, RELAX[name]()(mod)) == []


@pytest.mark.parametrize("name", RELAX)
def test_an_empty_module(name):
    assert not RELAX[name]()(from_source("@I.ir_module\nclass Module:\n    pass")).functions
