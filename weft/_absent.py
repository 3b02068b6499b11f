"""What an error says where Apache TVM has a name that Weft has not: the releases that had it, why, what to use.

``_tvm_names.txt`` lists the names (``tools/tvm_names.py`` writes it), ``_absent.toml`` says why one is not here and how
one that is here differs. Nothing of either is read before somebody sees such an error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cache, partial
from opcode import opmap
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent
UNLISTED = "?"  # begins the lines of modules whose names are not listed
_IMPORT_FROM = opmap["IMPORT_FROM"]


class AbsentName(AttributeError):
    """A module has no such name. The text is made when it is read: ``hasattr`` asks often and reads nothing."""

    def __init__(self, module: str, absent: str, said: str) -> None:
        super().__init__(module, absent, said)
        self.name = absent
        self._parts = (module, absent, said)

    def __str__(self) -> str:
        module, absent, said = self._parts
        text = explanation(module, absent)
        return f"{said}; {text}" if text else said


@cache
def tvm_names() -> dict[str, dict[str, str]]:
    """For each module of TVM, without ``tvm.`` and ``"."`` for itself: its names and the releases that have them."""
    found: dict[str, dict[str, str]] = {}
    for line in (FOLDER / "_tvm_names.txt").read_text().splitlines():
        module, releases, *names = line.split()
        found.setdefault(module, {}).update(dict.fromkeys(names, releases))
    del found[UNLISTED]
    return found


@cache
def unlisted() -> dict[str, str]:
    """Modules of TVM whose names are not listed, and the releases that have them."""
    lines = (line.split() for line in (FOLDER / "_tvm_names.txt").read_text().splitlines())
    return {name: releases for row, releases, *names in lines if row == UNLISTED for name in names}


@cache
def remarks(table: str) -> dict[str, str]:
    """One table of ``_absent.toml``: a name with its module, or a pattern of such, and what there is to say."""
    import tomllib

    return tomllib.loads((FOLDER / "_absent.toml").read_text())[table]


def remark(table: str, module: str, name: str) -> str:
    """The first remark of a table that meets a name; empty where none does."""
    full = f"{module}.{name}".lstrip(".")
    return next((text for pattern, text in remarks(table).items() if fnmatchcase(full, pattern)), "")


def meets(pattern: str, names: Iterable[str]) -> bool:
    """Whether a remark's pattern meets one of these names."""
    return any(fnmatchcase(name, pattern) for name in names)


def explanation(module: str, name: str) -> str:
    """What there is to say about a name that one of Weft's modules lacks; empty where TVM lacks it, too."""
    if name == "_ffi_api":
        return "TVM's functions of C++ have no names of their own here; use those of the Python package around it"
    there = {f"{s}.{name}".lstrip("."): r for s in _spellings(module) if (r := tvm_names().get(s, {}).get(name))}
    return _sentence(there) or _about_module(module, name)


def module_explanation(module: str) -> str:
    """The same of a module that is not there, such as ``weft.relay.frontend.caffe``."""
    parent, _, name = module.rpartition(".")
    own = {s: ",".join(tvm_names()[s].values()) for s in _spellings(module)}
    inside = {s: ",".join(names.values()) for s, names in tvm_names().items() if f"weft.{s}".startswith(f"{module}.")}
    return _sentence(own) or explanation(parent, name) or _sentence(dict([*inside.items()][:1]))


def _about_module(parent: str, name: str) -> str:
    """What is known of a module of TVM, under each name of the one around it; the names of some are not listed."""
    from weft._aliases import MODULES

    around = [parent.removeprefix("weft."), *(alias for alias, meant in MODULES.items() if meant == parent)]
    full_names = [f"{s}.{name}" for s in around]
    found = {full: ",".join(tvm_names().get(full, {}).values()) or unlisted().get(full, "") for full in full_names}
    for full in found:
        for package, text in remarks("outside").items():
            if f"{full}.".startswith(f"{package}."):
                return f"of Apache TVM's tvm.{package}: {text} (docs/reference/tvm.md)"
    return _sentence({full: releases for full, releases in found.items() if releases})


def watch(module: ModuleType) -> None:
    """Let a module's errors about names that it lacks say more; names that it has cost nothing."""
    own = module.__dict__.get("__getattr__")
    module.__dict__.setdefault("__path__", [])  # without one, import does not ask for what may lie inside
    module.__dict__["__getattr__"] = partial(_lacking, module.__name__, own)


def _lacking(module: str, own: Callable[[str], Any] | None, name: str) -> Any:
    said = f"module '{module}' has no attribute '{name}'"
    if own is not None:
        try:
            return own(name)
        except AttributeError as error:
            said = str(error.args[0]) if error.args and not isinstance(error, AbsentName) else said
            if name.startswith("__"):
                raise
    elif name.startswith("__"):
        raise AttributeError(said)
    from weft import _aliases

    if alias := _aliases.inside(module, name):
        return importlib.import_module(alias)
    frame = sys._getframe(1)
    # Python replaces an AttributeError by its own ImportError in `from module import name`, with its own text.
    importing = frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
    if importing and f"{module}.{name}" not in sys.modules and (text := explanation(module, name)):
        raise ImportError(f"cannot import name '{name}' from '{module}'; {text}", name=name)
    raise AbsentName(module, name, said)


@cache
def _spellings(module: str) -> list[str]:
    """The modules of TVM that one of Weft's modules stands for."""
    from weft._aliases import find

    return [s for s in tvm_names() if (find(s) or f"weft.{s}".rstrip(".")) == module]


def _sentence(found: dict[str, str]) -> str:
    """Which releases had a name, under which names; why it is not here."""
    if not found:
        return ""
    every = {release for releases in found.values() for release in releases.split(",")}
    *first, last = sorted(every, key=lambda release: int(release.partition(".")[2]))
    joined = f"{', '.join(first)} and {last}" if first else last
    names = " and ".join(f"tvm.{full}" for full in found)
    module, _, name = next(iter(found)).rpartition(".")
    return f"Apache TVM {joined} has it as {names}: {remark('absent', module, name)} (docs/reference/tvm.md)"
