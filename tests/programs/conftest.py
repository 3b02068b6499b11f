"""Each module that a program here builds is printed, read back and compared."""

import pytest

from weft import ir, script


@pytest.fixture(autouse=True)
def round_trip(monkeypatch):
    """Keep every module that is made, and compare each with what its text says when the test is over."""
    made = []
    original = ir.IRModule.__init__

    def keep(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(ir.IRModule, "__init__", keep)
        yield
    complete = [mod for mod in made if mod.functions]
    assert complete, "a program builds a module"
    for mod in complete:
        ir.assert_structural_equal(mod, script.from_source(mod.script(show_meta=True)))
