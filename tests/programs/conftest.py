"""Each module that a program here builds is printed, read back and compared."""

import pytest

from weft.ir import IRModule, assert_structural_equal
from weft.script import from_source


@pytest.fixture(autouse=True)
def round_trip(monkeypatch):
    """Keep every module that is made, and compare each with what its text says when the test is over."""
    made = []
    original = IRModule.__init__

    def keep(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(IRModule, "__init__", keep)
        yield
    complete = [mod for mod in made if mod.functions]
    assert complete, "a program builds a module"
    for mod in complete:
        assert_structural_equal(mod, from_source(mod.script(show_meta=True)))
