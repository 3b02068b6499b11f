"""Watchers of passes as TVM's programs write them, and supplies of names."""

import pytest

import weft
from weft import ir, tir
from weft.error import InvalidArgument
from weft.ir.instrument import DumpIR, PassTimingInstrument, PrintAfterAll, PrintBeforeAll, pass_instrument
from weft.ir.supply import GlobalVarSupply, UniqueNameSupply
from weft.script import tir as T


@T.prim_func
def func(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = A[i] + T.float32(0)


PASSES = ir.Sequential([tir.transform.simplify(), tir.transform.remove_no_op()])


@pass_instrument
class Recorder:
    """Notes what happens; has no method for what it does not care about."""

    def __init__(self, events, name="r", skip=()):
        self.events, self.name, self.skip = events, name, skip

    def enter_pass_ctx(self):
        self.events.append(f"{self.name} enters")

    def exit_pass_ctx(self):
        self.events.append(f"{self.name} exits")

    def should_run(self, mod, info):
        return info.name not in self.skip

    def run_before_pass(self, mod, info):
        self.events.append(info.name)


def test_a_context_tells_its_instruments():
    events = []
    with ir.PassContext(instruments=[Recorder(events, skip=("Simplify",))]) as context:
        PASSES(ir.IRModule({"main": func}))
        context.override_instruments([Recorder(events, "other")])
        context.override_instruments(None)
    assert events == ["r enters", "RemoveNoOp", "r exits", "other enters", "other exits"]
    with ir.PassContext(instruments=[Recorder(events, skip=("Simplify",))], required_pass=["Simplify"]):
        PASSES(ir.IRModule({"main": func}))
    assert events[6:8] == ["Simplify", "RemoveNoOp"]


def test_an_instrument_that_cannot_begin():
    @pass_instrument
    class Failing:
        def enter_pass_ctx(self):
            raise KeyError("enter")

    events = []
    context = ir.PassContext(instruments=[Recorder(events), Failing(), Recorder(events, "late")])
    with pytest.raises(KeyError, match="enter"), context:
        pass
    assert events == ["r enters", "r exits"] and context.instruments == []
    assert ir.PassContext.current() is not context


def test_timing():
    timing = PassTimingInstrument()
    with ir.PassContext(instruments=[timing]):
        PASSES(ir.IRModule({"main": func}))
        text = PassTimingInstrument.render()
    assert [line.split(":")[0] for line in text.splitlines()] == ["Simplify", "RemoveNoOp"]
    assert PassTimingInstrument.render() == ""


def test_printing_and_dumping(capsys, tmp_path):
    with ir.PassContext(instruments=[PrintBeforeAll(), PrintAfterAll(), DumpIR(tmp_path / "dump")]):
        PASSES(ir.IRModule({"main": func}))
    out = capsys.readouterr().out
    assert 'Before Running Pass: PassInfo(name="Simplify"' in out and "After Running Pass" in out
    files = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert files == ["000_Simplify.py", "001_RemoveNoOp.py"]
    DumpIR(tmp_path / "dump", refresh=True)
    assert not (tmp_path / "dump").exists()


def test_names():
    names = UniqueNameSupply("p")
    assert [names.fresh_name("x") for _ in range(3)] == ["p_x", "p_x_1", "p_x_2"]
    assert names.fresh_name("", add_prefix=False) == "v" and names.fresh_name("a.b", False, False) == "a_b"
    assert names.reserve_name("y") == "p_y" and names.contains_name("y") and names.fresh_name("y") == "p_y_1"
    supply = GlobalVarSupply(ir.IRModule({"main": func}))
    assert supply.fresh_global("main").name_hint == "main_1"
    assert supply.unique_global_for("f") is supply.unique_global_for("f")
    with pytest.raises(InvalidArgument, match="another function"):
        supply.reserve_global(ir.GlobalVar("main"))


def test_under_tvm_names():
    assert weft.instrument.PassTimingInstrument is PassTimingInstrument
    assert weft.ir.transform.PassContext is ir.PassContext
    assert not hasattr(weft, "no_such")
