"""Every environment variable that Weft reads is declared, documented, checked and shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.refusals import refuses
from weft import environment, error
from weft.cli import main

ROOT = Path(__file__).resolve().parent.parent
PYTHON = [p for p in (ROOT / "weft").rglob("*.py") if p.name != "environment.py"]
NATIVE = [p for p in (ROOT / "native").rglob("*.cc") if "tests" not in p.relative_to(ROOT / "native").parts]


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_asks_the_registry(path):
    """Nobody but the registry gives the environment, or a child, a variable of Weft's by its spelled name."""
    assert not re.search(r"""environ[^\n]*["']WEFT_|["']WEFT_\w+["']\s*[:\]]""", path.read_text())


def test_what_native_code_reads_is_declared():
    asked = {name for p in NATIVE for name in re.findall(r'getenv\("(\w+)"\)', p.read_text())}
    asked.remove("TMPDIR")  # POSIX names it: where the server has its folders
    assert asked == {v.name for v in environment.VARIABLES.values() if v.native}


def test_every_setting_that_is_written_down_exists():
    """In messages, in documentation, in the Makefile and in what tests start."""
    places = [*PYTHON, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", *NATIVE]
    named = {name for p in places for name in re.findall(r"\b(WEFT_[A-Z_]+)=", p.read_text())}
    assert len(named) > 5 and named <= set(environment.VARIABLES)


@pytest.mark.parametrize("variable", environment.VARIABLES.values(), ids=lambda v: v.name)
def test_empty_is_the_default(variable, monkeypatch):
    monkeypatch.setenv(variable.name, " ")
    assert variable.read() == variable.default


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WEFT_JIT", "maybe"),
        ("WEFT_CACHE_LIMIT", "4GiB"),
        ("WEFT_COMPILE_PROCESSES", "0"),
        ("WEFT_GUARD", "2"),
        ("WEFT_NUM_THREADS", "-1"),
        ("WEFT_MATRIX_TILES", "of"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name, text, monkeypatch):
    monkeypatch.setenv(name, text)
    told = str(refuses(error.InvalidArgument, "", environment.VARIABLES[name].read))
    assert name in told and repr(text) in told and environment.VARIABLES[name].values in told and "unset" in told


def test_what_native_code_would_misread_is_refused_before_it_is_loaded():
    program = [sys.executable, "-c", "import weft.runtime"]
    done = subprocess.run(program, env={**os.environ, "WEFT_NUM_THREADS": "many"}, capture_output=True, text=True)
    assert done.returncode == 1 and "WEFT_NUM_THREADS" in done.stderr and "a whole number, 1 or more" in done.stderr


def test_doctor_shows_all_and_names_what_is_unknown(monkeypatch, capsys):
    monkeypatch.setenv("WEFT_NUM_THREAD", "2")
    monkeypatch.setenv("WEFT_JIT", "sometimes")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in environment.VARIABLES)
    assert re.search("WEFT_NUM_THREAD\tunknown\t.*did you mean WEFT_NUM_THREADS", printed)
    assert re.search("WEFT_JIT\tsometimes: wrong, expected 1", printed)


def test_code_depends_on_settings_that_decide_it(monkeypatch):
    before = environment.decides_code()
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    assert environment.decides_code() == before
    monkeypatch.setenv("WEFT_MATRIX_TILES", "off")
    assert environment.decides_code() == {**before, "WEFT_MATRIX_TILES": "off"}
