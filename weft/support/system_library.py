"""Models as object files that are linked into a program, which finds them among its own functions.

``model.export_library("model.o", fcompile=create_object)`` makes one. When the program starts, the object tells tvm-ffi
where its functions and modules are (``TVMFFIEnvModRegisterSystemLibSymbol``); `system_lib` and ``weft::Model::linked``
find them there. No library is opened.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weft.error import CodegenError, InvalidArgument, MissingDependency
from weft.support.cc import run_compiler

_PREFIX = "__tvm_ffi_"
_MODULE_SYMBOLS = ("__tvm_ffi__library_bin", "__tvm_ffi__library_ctx")


def create_object(output: str | Path, inputs: Sequence[str | Path], prefix: str = "", cc: str | None = None) -> None:
    """Make one relocatable object of the files of a library, which registers what is in it.

    Parameters
    ----------
    output : path
        The object file to write.
    inputs : sequence of path
        Object files with functions ``__tvm_ffi_<name>``, and the modules' ``__tvm_ffi__library_bin``.
    prefix : str
        Stands before all names in the program's registry: ``system_lib(prefix)`` finds this model among several.
    cc : str, optional
        The compiler's command, for the machine of the objects; by default the one that is found.

    Raises
    ------
    MissingDependency
        Where there is no C compiler, nm or objcopy.
    CodegenError
        When one of them fails; the error has what it said.
    """
    if not re.fullmatch(r"\w*", prefix, re.ASCII):
        raise InvalidArgument("a prefix is part of a name in C", expected="letters, digits and _", found=repr(prefix))
    with tempfile.TemporaryDirectory(prefix="weft-object-") as name:
        folder = Path(name)
        joined, source, registers = folder / "joined.o", folder / "register.c", folder / "register.o"
        run_compiler(["-r", "-nostdlib", "-o", str(joined), *map(str, inputs)], cc)
        source.write_text(_registration(_symbols(joined), prefix))
        run_compiler(["-O1", "-fPIC", "-w", "-c", "-o", str(registers), str(source)], cc)
        whole = folder / "whole.o"
        run_compiler(["-r", "-nostdlib", "-o", str(whole), str(joined), str(registers)], cc)
        # Other models have functions of the same names; this one's are known by their addresses.
        _binutil(["objcopy", "--wildcard", f"--localize-symbol={_PREFIX}*", str(whole), str(output)])


def _symbols(path: Path) -> list[str]:
    """List the symbols that the registry is told of."""
    lines = _binutil(["nm", "--defined-only", "--extern-only", str(path)]).splitlines()
    found = {line.split()[-1] for line in lines if line.split()}
    return sorted(s for s in found if s.startswith(_PREFIX) and (s in _MODULE_SYMBOLS or s[len(_PREFIX)] != "_"))


def _registration(symbols: Sequence[str], prefix: str) -> str:
    def registered(symbol: str) -> str:
        return prefix + symbol if symbol in _MODULE_SYMBOLS else _PREFIX + prefix + symbol.removeprefix(_PREFIX)

    lines = [
        "int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* address);",
        *(f"extern char {s}[];" for s in symbols),
        "__attribute__((constructor)) static void weft_register_model(void) {",
        *(f'  TVMFFIEnvModRegisterSystemLibSymbol("{registered(s)}", {s});' for s in symbols),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _binutil(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        raise MissingDependency(f"there is no '{command[0]}'", help="install binutils")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CodegenError(f"{command[0]} failed", found="\n".join(done.stderr.splitlines()[:20]))
    return done.stdout
