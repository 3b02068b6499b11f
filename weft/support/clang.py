"""clang, alone or in the ``ziglang`` package: LLVM IR of C and C++ sources (``tvm.contrib.clang``)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


def find_clang(required: bool = True) -> list[str]:
    """Return the paths of the compilers called ``clang`` on the search path.

    Raises
    ------
    RuntimeError
        When one is required and there is none.
    """
    found = [path for path in (shutil.which(name) for name in ("clang", "clang.exe")) if path]
    if required and not found:
        raise RuntimeError("no clang was found; install it or the ziglang package, or add its folder to PATH")
    return found


def create_llvm(
    inputs: str | Sequence[str], output: str | None = None, options: Sequence[str] | None = None, cc: str | None = None
) -> str:
    """Compile C++ to the text of LLVM IR.

    Parameters
    ----------
    inputs : str or sequence of str
        Paths of sources, or sources.
    output : str, optional
        Where the text is written, too.
    options : sequence of str, optional
        Options of the compiler.
    cc : str, optional
        The compiler; by default the first clang that is found, else that of the ``ziglang`` package.

    Raises
    ------
    RuntimeError
        When there is no compiler, or it refuses the source; the message has what it says.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, text in enumerate([inputs] if isinstance(inputs, str) else inputs):
            is_path = "\n" not in text and text.endswith((".c", ".cc", ".cpp", ".cxx"))
            path = Path(text) if is_path else Path(folder) / f"input{i}.cc"
            if not is_path:
                path.write_text(text)
            paths.append(str(path))
        target = output or str(Path(folder) / "output.ll")
        command = [*_compiler(cc), "-S", "-emit-llvm", *(options or ()), "-o", target, *paths]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return Path(target).read_text()


def _compiler(cc: str | None) -> list[str]:
    """The command of a compiler, before its options."""
    zig = find_spec("ziglang") is not None
    found = [cc] if cc is not None else find_clang(required=not zig)
    return found[:1] or [sys.executable, "-m", "ziglang", "c++", "-fno-sanitize=undefined"]
