"""Linking and compiling by the system's C compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.error import CodegenError, MissingDependency


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


def run_compiler(
    arguments: Sequence[str], cc: str | None = None, cwd: str | None = None, ccache_env: Mapping[str, str] | None = None
) -> None:
    """Run the compiler, in the folder `cwd`; through ``ccache`` with these variables of its environment if there are.

    Raises
    ------
    CodegenError
        When it fails; the error has its first lines.
    """
    cached = ccache_env is not None and shutil.which("ccache")
    command = [*(["ccache"] if cached else ()), *compiler(cc), *arguments]
    _run(command, "the C compiler failed", cwd=cwd, env={**os.environ, **(ccache_env or {})})


def _run(command: Sequence[str], failure: str, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise CodegenError(failure, found="\n".join(done.stderr.splitlines()[:20]))
    return done.stdout


def _files(objects: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(objects)] if isinstance(objects, (str, Path)) else [str(o) for o in objects]


def create_shared(
    output: str | Path,
    objects: str | Path | Sequence[str | Path],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
    ccache_env: Mapping[str, str] | None = None,
) -> None:
    """Make a shared library of object or source files."""
    run_compiler(["-shared", "-fPIC", "-o", str(output), *_files(objects), *(options or ())], cc, cwd, ccache_env)


def create_executable(
    output: str | Path,
    objects: str | Path | Sequence[str | Path],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
    ccache_env: Mapping[str, str] | None = None,
) -> None:
    """Make a program of object or source files."""
    run_compiler(["-o", str(output), *_files(objects), *(options or ())], cc, cwd, ccache_env)


def create_staticlib(output: str | Path, inputs: str | Path | Sequence[str | Path], ar: str | None = None) -> None:
    """Make a static library of object files."""
    archiver = ar or "ar"
    if not shutil.which(archiver):
        raise MissingDependency(f"there is no archiver '{archiver}'", help="install binutils, or pass ar=")
    Path(output).unlink(missing_ok=True)
    _run([archiver, "-crs", str(output), *_files(inputs)], "the archiver failed")


def get_cc() -> str | None:
    """Return the C++ compiler: ``$CXX``, ``$CC``, or the path of what there is."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    return named or next(filter(None, map(shutil.which, ("g++", "gcc", "clang++", "clang", "c++", "cc"))), None)


def get_target_by_dump_machine(compiler: str | None) -> Callable[[], str | None]:
    """Make a function that says for which machine a compiler compiles, None where it cannot."""

    def triple() -> str | None:
        try:
            return _run([*shlex.split(compiler or ""), "-dumpmachine"], "the compiler failed").strip()
        except (CodegenError, OSError):
            return None

    return triple


def cross_compiler(
    compile_func: str | Callable[..., object],
    options: Sequence[str] | None = None,
    output_format: str | None = None,
    get_target_triple: Callable[[], str | None] | None = None,
    add_files: Sequence[str] | None = None,
) -> Callable[..., object]:
    """Make a function that links, for ``export_library(fcompile=...)``.

    Parameters
    ----------
    compile_func : str or callable
        A compiler's command, such as ``aarch64-linux-gnu-gcc``, or ``compile_func(output, objects, options=[...])``.
    options, add_files : sequence of str, optional
        Passed on each time, before what is asked for then.
    output_format, get_target_triple
        The ending of what is made, and a function that says for which machine; by default those of `compile_func`.
    """
    always = list(options or ())
    named: dict[str, Any] = {"cc": compile_func} if isinstance(compile_func, str) else {}
    link = create_shared if isinstance(compile_func, str) else compile_func

    def fcompile(outputs: str, objects: Sequence[str], options: Sequence[str] | None = None) -> None:
        link(outputs, [*objects, *(add_files or ())], options=[*always, *(options or ())], **named)

    own = get_target_by_dump_machine(named["cc"]) if named else getattr(link, "get_target_triple", None)
    form = output_format or getattr(link, "output_format", "so")
    vars(fcompile).update(output_format=form, get_target_triple=get_target_triple or own)
    return fcompile
