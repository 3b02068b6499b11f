"""Linking and compiling by the system's C compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from weft.error import CodegenError, MissingDependency

__all__ = ["compiler", "create_executable", "create_shared", "create_staticlib", "run_compiler"]


def compiler(cc: str | None = None) -> list[str]:
    """Return the compiler's command: `cc`, else ``$CC``, else cc, gcc, clang or g++, whichever there is.

    Raises
    ------
    MissingDependency
        When there is none.
    """
    named = shlex.split(cc or os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"], ["g++"]]:
        if shutil.which(command[0]):
            return command
    raise MissingDependency(
        "there is no C compiler",
        expected=f"'{named[0]}'" + ("" if cc else ", which CC names") if named else "cc, gcc or clang on PATH",
        help="install one, set CC to its path, or use the target 'llvm', which needs none",
    )


def run_compiler(arguments: Sequence[str], cc: str | None = None) -> None:
    """Run the compiler.

    Raises
    ------
    CodegenError
        When it fails; the error has its first lines.
    """
    _run([*compiler(cc), *arguments], "the C compiler failed")


def _run(command: Sequence[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CodegenError(failure, found="\n".join(done.stderr.splitlines()[:20]))


def _files(objects: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(objects)] if isinstance(objects, (str, Path)) else [str(o) for o in objects]


def create_shared(
    output: str | Path,
    objects: str | Path | Sequence[str | Path],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Make a shared library of object or source files."""
    run_compiler(["-shared", "-fPIC", "-o", str(output), *_files(objects), *(options or ())], cc)


def create_executable(
    output: str | Path,
    objects: str | Path | Sequence[str | Path],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Make a program of object or source files."""
    run_compiler(["-o", str(output), *_files(objects), *(options or ())], cc)


def create_staticlib(output: str | Path, inputs: str | Path | Sequence[str | Path], ar: str | None = None) -> None:
    """Make a static library of object files."""
    archiver = ar or "ar"
    if not shutil.which(archiver):
        raise MissingDependency(f"there is no archiver '{archiver}'", help="install binutils, or pass ar=")
    Path(output).unlink(missing_ok=True)
    _run([archiver, "-crs", str(output), *_files(inputs)], "the archiver failed")
