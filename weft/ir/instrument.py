"""Instruments of passes: what programs for TVM call those, and the decorator that makes one of a class."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.error import InvalidArgument
from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassInstrument
from weft.spelling import also_called

__all__ = [
    "DumpIR",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "pass_instrument",
]


def pass_instrument(pi_cls: type | None = None) -> Any:
    """Make a class an instrument; its methods are those of :class:`PassInstrument`, as many as it has.

    Examples
    --------
    >>> @pass_instrument
    ... class SkipAll:
    ...     def should_run(self, mod, info):
    ...         return False
    >>> isinstance(SkipAll(), PassInstrument)
    True
    """

    def make(cls: Any) -> type:
        if not isinstance(cls, type):
            raise InvalidArgument("pass_instrument decorates a class", found=repr(cls))
        if issubclass(cls, PassInstrument):
            return cls
        return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})

    return make(pi_cls) if pi_cls is not None else make


class _Profile:
    """A pass that ran, and those inside it, in microseconds."""

    def __init__(self, name: str) -> None:
        self.name, self.start, self.us = name, time.perf_counter(), 0.0
        self.inside: list[_Profile] = []

    @property
    def own_us(self) -> float:
        return self.us - sum(p.us for p in self.inside)


class PassTimingInstrument(PassInstrument):
    """Times passes, those inside others, too; :meth:`render` shows them until the context ends."""

    def __init__(self) -> None:
        self._local = threading.local()  # kernels are compiled on several threads

    def _stack(self) -> list[_Profile]:
        return self._local.__dict__.setdefault("stack", [_Profile("root")])

    def enter_pass_ctx(self) -> None:
        """Forget what was timed."""
        self._local = threading.local()

    def exit_pass_ctx(self) -> None:
        """Forget what was timed."""
        self._local = threading.local()

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Start the clock of a pass."""
        stack = self._stack()
        stack[-1].inside.append(_Profile(info.name))
        stack.append(stack[-1].inside[-1])

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Stop the clock of a pass."""
        stack = self._stack()
        profile = stack[-1]
        profile.us = (time.perf_counter() - profile.start) * 1e6
        if len(stack) > 1:
            stack.pop()

    def render(self) -> str:
        """Return a line a pass: its microseconds, those without passes inside it, and its shares."""
        root = self._stack()[0]
        total = sum(p.us for p in root.inside)
        lines: list[str] = []
        waiting = [(p, 0, total) for p in reversed(root.inside)]
        while waiting:
            p, depth, around = waiting.pop()
            shares = f"({_percent(p.us, total)}; {_percent(p.us, around)})"
            lines.append("\t" * depth + f"{p.name}: {p.us:.0f}us [{p.own_us:.0f}us] {shares}")
            waiting += [(inner, depth + 1, p.us) for inner in reversed(p.inside)]
        return "".join(f"{line}\n" for line in lines)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after passes of some names.

    Parameters
    ----------
    print_before_pass_names, print_after_pass_names : iterable of str
    """

    def __init__(self, print_before_pass_names: Iterable[str], print_after_pass_names: Iterable[str]) -> None:
        self.before, self.after = frozenset(print_before_pass_names), frozenset(print_after_pass_names)

    @also_called(pass_info="info")
    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Print where the pass is named."""
        if info.name in self.before:
            print(f"Print IR before: {info.name}\n{mod}\n\n")

    @also_called(pass_info="info")
    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Print where the pass is named."""
        if info.name in self.after:
            print(f"Print IR after: {info.name}\n{mod}\n\n")


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Print it."""
        print(f"After Running Pass: {info}\n{mod}")


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Print it."""
        print(f"Before Running Pass: {info}\n{mod}")


class DumpIR(PassInstrument):
    """Writes the module after every pass to a folder, numbered: ``000_Normalize.py``.

    Parameters
    ----------
    dump_dir : path
        Made where it is not there.
    refresh : bool
        Delete what is in it first; it must hold nothing but such files.
    """

    def __init__(self, dump_dir: Path | str, refresh: bool = False) -> None:
        self.dump_dir, self.counter = Path(dump_dir), 0
        if refresh and self.dump_dir.exists():
            others = [p for p in self.dump_dir.iterdir() if not (p.suffix == ".py" and p.name[:3].isdigit())]
            if others:
                raise InvalidArgument(f"'{dump_dir}' holds other files, too", found=str(others[0]))
            shutil.rmtree(self.dump_dir)
        self.dump_dir.mkdir(parents=True, exist_ok=True)

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Write it."""
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in info.name)
        (self.dump_dir / f"{self.counter:03d}_{name}.py").write_text(f"{mod}\n")
        self.counter += 1
