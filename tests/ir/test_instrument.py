"""Instruments of passes: entering, leaving, refusing to run a pass, timing, writing."""

import weft
from tests.refusals import refuses
from weft import ir
from weft.ir import instrument


@ir.module_pass(name="TestInner")
def inner(mod):
    return mod


@ir.module_pass(name="TestOuter")
def outer(mod):
    return inner()(mod)


@instrument.pass_instrument
class Watching:
    def __init__(self, seen, bad=""):
        self.seen, self.bad = seen, bad

    def _note(self, what):
        self.seen.append(what)
        if what == self.bad:
            raise ValueError(f"bad {what}")

    def enter_pass_ctx(self):
        self._note("enter")

    def exit_pass_ctx(self):
        self._note("exit")

    def run_before_pass(self, mod, info):
        self._note("before")

    def run_after_pass(self, mod, info):
        self._note("after")


def test_a_class_becomes_an_instrument():
    seen = []
    assert isinstance(Watching(seen), instrument.PassInstrument)
    with ir.PassContext(instruments=[Watching(seen)]):
        inner()(weft.IRModule({}))
    assert seen == ["enter", "before", "after", "exit"]


def test_a_pass_is_left_out_where_one_instrument_says_so():
    @instrument.pass_instrument
    class Skip:
        def should_run(self, mod, info):
            return info.name != "TestInner"

    seen = []
    with ir.PassContext(instruments=[Skip(), Watching(seen)]):
        outer()(weft.IRModule({}))
    assert seen == ["enter", "before", "after", "exit"]


def test_where_entering_fails_those_that_entered_leave():
    first, third = [], []
    context = ir.PassContext(instruments=[Watching(first), Watching([], "enter"), Watching(third)])
    refuses(ValueError, "bad enter", context.__enter__)
    assert first == ["enter", "exit"] and third == [] and context.instruments == []


def test_other_instruments_take_over():
    old, new = [], []
    with ir.PassContext(instruments=[Watching(old)]) as context:
        context.override_instruments([Watching(new)])
        inner()(weft.IRModule({}))
    assert old == ["enter", "exit"] and new == ["enter", "before", "after", "exit"]


def test_times_of_passes_inside_passes():
    timing = instrument.PassTimingInstrument()
    with ir.PassContext(instruments=[timing]):
        outer()(weft.IRModule({}))
        lines = timing.render().splitlines()
    assert lines[0].startswith("TestOuter: ") and lines[1].startswith("\tTestInner: ")
    assert timing.render() == ""


def test_printing_and_writing(capsys, tmp_path):
    with ir.PassContext(
        instruments=[
            instrument.PassPrintingInstrument(["TestInner"], []),
            instrument.PrintAfterAll(),
            instrument.DumpIR(tmp_path / "d"),
        ]
    ):
        outer()(weft.IRModule({}))
    printed = capsys.readouterr().out
    assert "before: TestInner" in printed and printed.count("After Running Pass") == 2
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["000_TestInner.py", "001_TestOuter.py"]
    (tmp_path / "d" / "mine.txt").touch()
    refuses(ValueError, "other files", instrument.DumpIR, tmp_path / "d", refresh=True)
