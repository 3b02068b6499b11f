"""Dumps: where ``WEFT_DUMP_DIR`` names a folder, each compilation writes one there with all that became of its program.

::

    0001-model/                  numbered, and named as the model or the function
        summary.txt              every pass in order, and whether it changed the program
        000-given.py             the program before the first pass; then, after each pass that changed it,
        001-Normalize.py         the program
        bytecode.txt             what the virtual machine runs
        kernels/fused_add/       the same for every kernel, from its TIR on, with
            trace.py             the primitives that scheduled it
            emitted.ll           its LLVM IR, as it is emitted and as LLVM leaves it
            optimised.ll
            assembly.s

Nothing comes from the cache then (`compile_key`), and all is compiled in the process that writes.
"""

from __future__ import annotations

import copy
import functools
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from weft import environment, error
from weft.ir.module import IRModule
from weft.ir.node import Attrs
from weft.ir.passes import Pass, PassContext, PassInstrument

P = ParamSpec("P")
R = TypeVar("R")


class DumpPrograms(PassInstrument):
    """Writes the programs of one compilation into a folder; of passes that other passes run, nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: ContextVar[int] = ContextVar("passes that run", default=0)  # in a pool's threads as where it began
        self._lock = threading.Lock()  # kernels are compiled on several threads
        self._graph = _Stages(folder)
        self._kernels: dict[str, _Stages] = {}

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Write what is given to the first pass, and to one that is not given what the last one made."""
        if self._open.get() == 0:
            with self._lock:
                for name, program in _programs(mod):
                    self._stages(name, str(program)).given(str(program))
        self._open.set(self._open.get() + 1)

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Write what a pass changed."""
        self._open.set(self._open.get() - 1)
        if self._open.get() == 0:
            with self._lock:
                for name, program in _programs(mod):
                    self._stages(name).add(info.name, str(program))

    def see_text(self, function: str, file: str, text: Callable[[], str]) -> None:
        """Write a text that belongs to a kernel, or to the whole."""
        if self._open.get() <= 1:
            with self._lock:
                folder = self._stages(function).folder
                (folder / file).write_text(text() + "\n")

    def _stages(self, name: str, given: str | None = None) -> _Stages:
        """The stages of the graph, or of a kernel; one that is given anew, for a shape of its own, has its own."""
        if not name:
            return self._graph
        known = self._kernels.get(name)
        if known is None or (given is not None and known.program not in (None, given)):
            plain = re.sub(r"[^\w.-]", "_", name)
            self._kernels[name] = known = _Stages(_new_folder(self.folder / "kernels", plain))
        return known


class _Stages:
    """The files of one program, which is a module or a kernel."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0
        self.program: str | None = None

    def given(self, program: str) -> None:
        if self.program != program:
            self._write("given", program)

    def add(self, name: str, program: str) -> None:
        self._count += 1
        if program == self.program:
            self._note(f"{self._count:03} {name}: no change")
        else:
            self._write(name, program)

    def _write(self, name: str, program: str) -> None:
        self.program = program
        file = f"{self._count:03}-{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.py"
        (self.folder / file).write_text(program + "\n")
        self._note(f"{self._count:03} {name}: {file}")

    def _note(self, line: str) -> None:
        with (self.folder / "summary.txt").open("a") as out:
            print(line, file=out)


def _programs(mod: IRModule) -> list[tuple[str, Any]]:
    """What a pass works on: a graph with all around it, which has no name; or kernels, which have buffers, by name."""
    if not all(hasattr(f, "buffer_map") for _, f in mod.items()):
        return [("", mod)]
    return [(_symbol(f) or v.name_hint, f) for v, f in mod.items()]


def _new_folder(parent: Path, name: str, number: bool = False) -> Path:
    """Make a folder of a new name; other processes may be making some beside it."""
    count = 0
    while True:
        count += 1
        folder = parent / (f"{count:04}-{name}" if number else name if count == 1 else f"{name}-{count}")
        taken = list(parent.glob(f"{count:04}-*")) if number else []
        if not taken:
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder


@contextmanager
def compilation(name: str) -> Generator[None]:
    """Dump what is compiled in the block under a name, where ``WEFT_DUMP_DIR`` says so; blocks inside belong to it.

    Raises InvalidArgument when nothing can be written there.
    """
    parent, now = environment.DUMP_DIR.read(), PassContext.current()
    if parent is None or any(isinstance(i, DumpPrograms) for i in now.instruments):
        yield
        return
    try:
        folder = _new_folder(parent, re.sub(r"[^\w.-]", "_", name), number=True)
    except OSError as e:
        raise error.InvalidArgument(
            "the folder of WEFT_DUMP_DIR cannot be written", found=str(e), help="unset WEFT_DUMP_DIR, or name another"
        ) from e
    watched = copy.copy(now)
    watched.instruments = [*now.instruments, DumpPrograms(folder)]
    with watched.again():
        yield


def dumped(fn: Callable[P, R]) -> Callable[P, R]:
    """Make a compilation of a function whose first argument is what it compiles."""

    @functools.wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with compilation(_name_of(next(iter([*args, *kwargs.values()]), None))):
            return fn(*args, **kwargs)

    return run


def _name_of(program: Any) -> str:
    if isinstance(program, IRModule):
        names = [v.name_hint for v, _ in program.items()]
        return "main" if "main" in names or not names else names[0]
    return _symbol(program) or "main"


def _symbol(function: Any) -> str | None:
    attrs: Any = getattr(function, "attrs", None)
    return attrs.get("global_symbol") if isinstance(attrs, Attrs) else None
