"""The environment variables that Weft reads, each declared once: what it may be, what it means, when it is read.

Code of Weft asks a variable here (``environment.JIT.read()``); the native runtime, which runs without Python too, asks
by itself for those that are `native`, and :func:`check_native` refuses what it would not understand. ``weft doctor``
and ``docs/debugging.md`` show the list.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast

from weft.error import InvalidArgument

T = TypeVar("T")
PREFIX = "WEFT_"


class Variable(NamedTuple, Generic[T]):
    """An environment variable; where it is not set, or empty, its value is the default.

    `values` says in words what it may be, `unset` what holds without it. `when` is ``import`` (when Weft is loaded),
    ``compile`` or ``run``; ``tests`` and ``benchmarks`` are for those who work on Weft. `parse` raises ValueError.
    """

    name: str
    values: str
    parse: Callable[[str], T]
    default: T
    unset: str
    when: str
    meaning: str
    code: bool = False
    """Whether it decides what code is compiled, and so belongs to the keys of what is kept."""
    native: bool = False
    """Whether the native runtime reads it."""

    def read(self) -> T:
        """Return the value that holds now.

        Raises
        ------
        InvalidArgument
            When it is set to what it cannot be.
        """
        text = self.text
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError:
            raise InvalidArgument(
                f"the environment variable {self.name} has a value that it cannot have",
                expected=self.values,
                found=repr(text),
                help=f"it means: {self.meaning}; 'unset {self.name}' leaves it at: {self.unset}",
            ) from None

    @property
    def text(self) -> str:
        """What it is set to, without the space around it; empty where it is not."""
        return os.environ.get(self.name, "").strip()


VARIABLES: dict[str, Variable[object]] = {}
"""All of them, by name."""


def _declare(made: Variable[T]) -> Variable[T]:
    VARIABLES[made.name] = cast("Variable[object]", made)
    return made


_SWITCH = {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}


def _on(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(text)
    return _SWITCH[text.lower()]


def _switch(name: str, default: bool, when: str, meaning: str, *, code: bool = False) -> Variable[bool]:
    values = "1 (on, true, yes) or 0 (off, false, no)"
    return _declare(Variable(name, values, _on, default, str(int(default)), when, meaning, code))


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(text)
        return int(text)

    return parse


def _number(
    name: str, least: int, default: int, unset: str, when: str, meaning: str, *, native: bool = False
) -> Variable[int]:
    values = f"a whole number, {least} or more"
    return _declare(Variable(name, values, _at_least(least), default, unset, when, meaning, native=native))


def _choice(
    name: str, words: Sequence[str], when: str, meaning: str, *, code: bool = False, native: bool = False
) -> Variable[str]:
    """One of some words; the first is the default."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return _declare(Variable(name, ", ".join(words), parse, words[0], words[0], when, meaning, code, native))


def _path(
    name: str, what: str, unset: str, when: str, meaning: str, *, code: bool = False, native: bool = False
) -> Variable[Path | None]:
    return _declare(Variable(name, what, Path, None, unset, when, meaning, code, native))


CACHE_DIR = _path(
    "WEFT_CACHE_DIR",
    "a folder",
    "weft in $XDG_CACHE_HOME or ~/.cache; without a home, weft-UID beside temporary files",
    "compile",
    "where compiled kernels and models are kept",
)
CACHE_LIMIT = _number(
    "WEFT_CACHE_LIMIT",
    0,
    4 << 30,
    f"{4 << 30} (4 GiB)",
    "compile",
    "how many bytes of the cache's folder are kept at most",
)
COMPILE_PROCESSES = _number(
    "WEFT_COMPILE_PROCESSES",
    1,
    8,
    "a core each, at most 8",
    "compile",
    "how many processes compile kernels together, this one included",
)
CUDA_DRIVER = _path("WEFT_CUDA_DRIVER", "a library", "libcuda.so.1", "run", "the CUDA driver to use", native=True)
DEBUG = _switch(
    "WEFT_DEBUG", False, "compile", "a schedule rule that fails ends the compilation, with its own error", code=True
)
DEVICES = _choice(
    "WEFT_DEVICES",
    ("0", "here", "1"),
    "tests",
    "here: tests of hosts and devices run where these are; 1: and fail where one is missing",
)
DUMP_DIR = _path(
    "WEFT_DUMP_DIR",
    "a folder",
    "nothing is written",
    "compile",
    "where each compilation writes the program after every pass and the code of every kernel",
)
FIRST_ANSWER = _switch(
    "WEFT_FIRST_ANSWER", True, "run", "a session whose model has to be compiled answers meanwhile, by slower operators"
)
GUARD = _choice(
    "WEFT_GUARD",
    ("0", "1", "start"),
    "import",
    "1: the page behind a tensor cannot be touched; start: the page before it",
    code=True,
    native=True,
)
JIT = _switch("WEFT_JIT", True, "run", "kernels of symbolic shapes are compiled again for shapes that stay hot")
MATRIX_TILES = _choice(
    "WEFT_MATRIX_TILES",
    ("on", "off", "emulated"),
    "run",
    "off: the processor's matrix tiles (AMX) are left alone; emulated: another program carries them out",
    code=True,
    native=True,
)
MODEL_CACHE = _switch("WEFT_MODEL_CACHE", True, "compile", "whole models are kept in the cache, beside kernels")
NUM_THREADS = _number(
    "WEFT_NUM_THREADS", 1, 0, "the cores that the process may use", "run", "how many threads a kernel uses", native=True
)
NVRTC = _path(
    "WEFT_NVRTC",
    "a library",
    "the one of nvidia-cuda-nvrtc, or the system's",
    "compile",
    "the library that compiles CUDA C",
    code=True,
)
OPENCL_DRIVER = _path(
    "WEFT_OPENCL_DRIVER", "a library", "libOpenCL.so.1", "run", "the loader of OpenCL's drivers to use", native=True
)
VULKAN_DRIVER = _path(
    "WEFT_VULKAN_DRIVER", "a library", "libvulkan.so.1", "run", "the loader of Vulkan's drivers to use", native=True
)
OPT_LEVEL = _choice(
    "WEFT_OPT_LEVEL",
    ("3", "2", "1", "0"),
    "compile",
    "the effort of LLVM's passes and code generator, and of the C compiler, for targets that state none",
    code=True,
)
RUNTIME_LIBRARY = _path(
    "WEFT_RUNTIME_LIBRARY", "a library", "the one inside the package", "import", "the native runtime to load", code=True
)
VERIFY = _switch("WEFT_VERIFY", False, "import", "the form that each pass promises is checked after it", code=True)
RANDOM_TESTS = _switch("WEFT_RANDOM_TESTS", False, "tests", "random tests draw other examples in each run")
SWEEP = _switch("WEFT_SWEEP", False, "tests", "all operators, large networks and combinations are tested, not a part")
WHEEL_DEMO = _switch("WEFT_WHEEL_DEMO", False, "tests", "the demo runs from an installed wheel, in minutes")
TVM_PYTHON = _path(
    "WEFT_TVM_PYTHON",
    "a Python interpreter",
    "what needs it is left out",
    "tests",
    "one that has Apache TVM, to exchange libraries with and to measure",
)


def check_native() -> None:
    """Refuse what the native runtime would not understand, before it is loaded.

    Raises
    ------
    InvalidArgument
        When a variable that it reads has a value that it cannot have.
    """
    for variable in VARIABLES.values():
        if variable.native:
            variable.read()


def decides_code() -> dict[str, str]:
    """Return what is set in the environment of Weft and may decide what code is compiled, known or not."""
    other = {v.name for v in VARIABLES.values() if not v.code}
    return {k: v for k, v in os.environ.items() if k.startswith(PREFIX) and k not in other}


def unknown() -> dict[str, str | None]:
    """Return the variables that are set, have Weft's prefix and mean nothing, with the name that may be meant."""
    names = [k for k in os.environ if k.startswith(PREFIX) and k not in VARIABLES]
    return {k: next(iter(difflib.get_close_matches(k, VARIABLES, 1)), None) for k in sorted(names)}
