"""C text to a module: the system's C compiler makes a shared library, which the runtime opens."""

import ctypes
import tempfile
from pathlib import Path

from weft import environment, error, ir, runtime, tir
from weft.support.cc import run_compiler
from weft.target.c.entry import emit_c
from weft.target.target import Target
from weft.tir.transform.make_packed_api import PREFIX

_FLAGS = ("-std=gnu99", "-fPIC", "-w", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno")


def compile_c(source: str, folder: Path, options: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """Compile C text in a folder; return the object file and the shared library.

    Raises
    ------
    MissingDependency
        When the machine has no C compiler.
    CodegenError
        When the compiler refuses the text; the error has its first lines.
    """
    text, code, library = (folder / f"module.{suffix}" for suffix in ("c", "o", "so"))
    text.write_text(source)
    run_compiler([f"-O{environment.OPT_LEVEL.read()}", *_FLAGS, *options, "-c", "-o", str(code), str(text)])
    run_compiler(["-shared", "-o", str(library), str(code), "-lm"])
    return code, library


def build_c(mod: ir.IRModule, target: Target) -> runtime.Module:
    """Compile the functions of a module for target c."""
    functions = [f for _, f in mod.items() if isinstance(f, tir.PrimFunc)]
    names = [str(f.attrs["global_symbol"]).removeprefix(PREFIX) for f in functions]
    march = target.attrs.get("march") or target.attrs.get("mcpu")
    with tempfile.TemporaryDirectory(prefix="weft-c-") as folder:
        code, path = compile_c(emit_c(functions, target), Path(folder), (f"-march={march}",) if march else ())
        library, objects = ctypes.CDLL(str(path)), [code.read_bytes()]  # stays mapped when the file is gone
    addresses = [ctypes.cast(getattr(library, f"__tvm_ffi_{n}"), ctypes.c_void_p).value or 0 for n in names]
    return runtime.jit_module(names, addresses, objects, library, _context(library))


def _context(library: ctypes.CDLL) -> int:
    """The address of the variable that takes the library's module, if it has one."""
    try:
        return ctypes.addressof(ctypes.c_void_p.in_dll(library, "__tvm_ffi__library_ctx"))
    except ValueError:
        return 0


def source_c(mod: ir.IRModule, target: Target, fmt: str) -> str:
    """Return the functions of a module as text of C."""
    if fmt != "c":
        raise error.CodegenError(f"there is no source of kind '{fmt}' for target c", expected="'c'")
    return emit_c([f for _, f in mod.items() if isinstance(f, tir.PrimFunc)], target)
