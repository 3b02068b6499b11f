"""Of a quarter of the importer's tests one program is compiled; ``WEFT_SWEEP=1`` and `compiled` compile all."""

import sys

import pytest

from tests.frontend.torch import programs
from tests.pairs import compiles
from weft import environment


@pytest.fixture(autouse=True)
def _first_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine run the first program of a test's first row; `tests/op` has kernels of all types and sizes."""
    row = getattr(request.node, "callspec", None)
    first = (row is None or not any(row.indices.values())) and compiles(4)
    monkeypatch.setattr(programs, "compiles", sys.maxsize if environment.SWEEP.read() else int(first))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile every program: for what kernels do with poles and infinities."""
    monkeypatch.setattr(programs, "compiles", sys.maxsize)
