"""Watchers of passes as TVM's programs write them (``tvm.instrument``): a decorator, timing, printing, dumping."""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassInstrument

__all__ = ["DumpIR", "PassInstrument", "PassPrintingInstrument", "PassTimingInstrument", "PrintAfterAll",
           "PrintBeforeAll", "pass_instrument"]  # fmt: skip


def pass_instrument(pi_cls: Any = None) -> Any:
    """Make a watcher of a class with some of the methods of :class:`PassInstrument`."""

    def make(cls: type) -> type:
        if issubclass(cls, PassInstrument):
            return cls
        watcher = type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})
        return functools.update_wrapper(watcher, cls, updated=())  # type: ignore[type-var]

    return make if pi_cls is None else make(pi_cls)


class PassTimingInstrument(PassInstrument):
    """Measures passes, those inside others apart; :meth:`render` shows the last context's, while it is open."""

    _last = threading.local()

    def enter_pass_ctx(self) -> None:
        """Begin anew."""
        self._rows: list[list[Any]] = []
        self._open: list[tuple[int, float]] = []
        PassTimingInstrument._last.timer = self

    def exit_pass_ctx(self) -> None:
        """Forget what was measured."""
        self._rows = []

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Start the clock of the pass."""
        self._rows.append([len(self._open), info.name, 0.0])
        self._open.append((len(self._rows) - 1, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Stop the clock of the pass."""
        row, start = self._open.pop()
        self._rows[row][2] = (time.perf_counter() - start) * 1e6

    @staticmethod
    def render() -> str:
        """Show the passes with their times, one a line, those that ran inside another below it."""
        timer = getattr(PassTimingInstrument._last, "timer", None)
        rows = timer._rows if timer is not None else []
        total = sum(us for depth, _, us in rows if depth == 0) or 1.0
        lines = [f"{'  ' * depth}{name}: {us:.0f}us ({us / total * 100:.2f}%)" for depth, name, us in rows]
        return "\n".join(lines) + ("\n" if lines else "")


def _shown(info: Pass) -> str:
    return f'PassInfo(name="{info.name}", opt_level={info.opt_level})'


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after some passes."""

    def __init__(self, print_before_pass_names: Iterable[str] = (), print_after_pass_names: Iterable[str] = ()) -> None:
        self.before, self.after = set(print_before_pass_names), set(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Print the module, if the pass is one of those."""
        if info.name in self.before:
            print(f"Print IR before: {info.name}\n{mod}\n\n")

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Print the module, if the pass is one of those."""
        if info.name in self.after:
            print(f"Print IR after: {info.name}\n{mod}\n\n")


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Print the module."""
        print(f"Before Running Pass: {_shown(info)}\n{mod}")


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Print the module."""
        print(f"After Running Pass: {_shown(info)}\n{mod}")


class DumpIR(PassInstrument):
    """Writes the module after each pass into a file of a folder.

    Parameters
    ----------
    dump_dir : path
        The folder.
    refresh : bool
        Whether files that such a dump has left there are removed first.
    """

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.dump_dir, self._count = Path(dump_dir), 0
        if refresh and self.dump_dir.is_dir():
            for file in self.dump_dir.glob("[0-9][0-9][0-9]_*.py"):
                file.unlink()
            if not any(self.dump_dir.iterdir()):
                shutil.rmtree(self.dump_dir)

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Write the module."""
        self.dump_dir.mkdir(parents=True, exist_ok=True)
        name = info.name.replace("/", "_")
        (self.dump_dir / f"{self._count:03}_{name}.py").write_text(mod.script())
        self._count += 1
