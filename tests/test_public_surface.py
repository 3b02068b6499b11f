"""Programs that use public names keep working; what changes for them is seen here first."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tools import public_surface
from weft.support import deprecations
from weft.support.deprecation import version


@pytest.fixture(scope="module")
def surface():
    """Of a process of its own: other tests register operators, which are public then."""
    program = "from tools import public_surface\nprint(*public_surface.surface(), sep='\\n')"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def test_public_names_are_those_of_the_list(surface):
    broken = public_surface.breaks(public_surface.written(), surface)
    assert not broken, "programs would break; deprecate names first (docs/decisions/023):\n" + "\n".join(broken)
    assert surface == public_surface.written(), "public names or parameters are new: `make public` lists them"


def test_list_has_what_readme_shows(surface):
    names = {line.split("(")[0].split(" ")[0] for line in surface}
    shown = """weft.Session.run weft.compile weft.relax.VirtualMachine weft.te.create_schedule weft.relax.op.nn.conv2d
        weft.relay.vm.compile weft.tir.script.language.grid weft.frontend.onnx.from_onnx"""
    assert set(shown.split()) <= names
    assert not [name for name in names if name.rpartition(".")[2].startswith("_")]


LINE = "weft.f(a, b=1, *, c=None)"


@pytest.mark.parametrize(
    "now",
    [LINE, "weft.f(a, b=1, d=2, *, c=None, e=3)", "weft.f(a=0, b=2, *, c=None)", "weft.f(a, b=1, c=None, **more)"],
)
def test_more_may_be_taken(now):
    assert public_surface.breaks([LINE], [now]) == []


@pytest.mark.parametrize(
    "now",
    [
        [],
        ["weft.f"],
        ["weft.f(b=1, a=0, *, c=None)"],
        ["weft.f(a, b, *, c=None)"],
        ["weft.f(a, b=1)"],
        ["weft.f(a, b=1, *, c=None, d)"],
    ],
)
def test_less_may_not(now):
    (text,) = public_surface.breaks([LINE], now)
    assert LINE in text and (now[0] if now else "gone") in text


def test_a_deprecated_name_goes_when_its_version_has_come(monkeypatch):
    line = f"{LINE}  # deprecated in 7.1, removed in 7.3"
    assert public_surface.breaks([line], [])
    monkeypatch.setattr(weft, "__version__", "7.3.0")
    assert public_surface.breaks([line], []) == []


def test_nothing_is_past_its_removal(surface):
    """All public modules are loaded by the fixture, so that their deprecations are known."""
    late = [d for d in deprecations() if d.name.startswith("weft.") and version(d.remove) <= version(weft.__version__)]
    assert not late, f"remove these, or give them a later version: {late}"


def test_lists_say_what_underscores_do_not():
    """``__all__`` stands in packages, where ``import *`` takes a module, and where it differs (docs/decisions/032)."""
    root = Path(weft.__file__).parent
    texts = {path: path.read_text() for path in root.rglob("*.py")}
    whole = set(re.findall(r"from (\S+) import (?:\*|__all__)", "\n".join(texts.values())))
    read = {*public_surface.public_modules(), *whole}
    for path, text in texts.items():
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        lists = "\n__all__ = " in text and "\ndef __getattr__" not in text
        if path.name != "__init__.py" and lists and name not in whole:
            module = importlib.import_module(name)
            homes = {getattr(getattr(module, n), "__module__", name) for n in module.__all__}
            says_more = {n for n in public_surface.bound(module) if not n.startswith("_")} != set(module.__all__)
            assert homes != {name} or (name in read and says_more), f"{path}: underscores say this __all__; delete it"
