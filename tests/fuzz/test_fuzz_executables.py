"""The tables of fields describe the files, and the programs run before they are mutated."""

import pytest

import weft
from tests.fuzz import relay_executables
from tests.fuzz.executables import fields
from tests.fuzz.programs import bases


@pytest.mark.parametrize("place", range(len(bases())))
def test_programs_run_unchanged(place):
    base = bases()[place]
    executable = weft.runtime.VMExecutable.from_bytes(base.data, base.imports)
    assert weft.relax.VirtualMachine(executable, weft.cpu())["main"](*base.args) is not None


def test_fields_cover_the_files():
    """The table of fields ends where the file ends, and each group that the format has is in one of them."""
    groups = set()
    for base in bases():
        table = list(fields(base.data))
        _, at, form = table[-1]
        assert (at + 8, form) == (len(base.data), "q")
        groups |= {g for g, _, _ in table}
    assert groups == {"header", "count", "function", "scope", "tag", "constant", "tensor", "shape", "offset", "word"}


def test_fields_cover_a_relay_file():
    data = bytes(relay_executables.program().save()[0])
    table = list(relay_executables.fields(data))
    _, at, form = table[-1]
    assert (at + 8, form) == (len(data), "q")
    assert {g for g, _, _ in table} == {"header", "count", "device", "tag", "tensor", "registers", "word"}
