"""Modules out of files, and of code that lies in memory."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import tvm_ffi

from weft import runtime
from weft.error import ExecutableError
from weft.runtime.elf import check_complete, entry_points
from weft.runtime.module import Module, archives
from weft.runtime.place import NotPlaced, place_objects
from weft.runtime.regular_file import read_regular
from weft.runtime.seal import check_seal

_jit_module = tvm_ffi.get_global_func("weft.jit_module")
_load_library = tvm_ffi.get_global_func("weft.load_library")
_load_tree = tvm_ffi.get_global_func("weft.load_tree")


def jit_module(
    names: Sequence[str],
    addresses: Sequence[int],
    objects: Sequence[bytes] = (),
    keep_alive: object = None,
    context: int = 0,
) -> Module:
    """Make a module of kernels that a compiler placed in this process.

    Parameters
    ----------
    names : sequence of str
        Names of the functions, without prefix.
    addresses : sequence of int
        Their addresses; each follows the safe-call convention and ignores its first argument.
    objects : sequence of bytes
        Object files with the same code, symbols ``__tvm_ffi_<name>``, for `Module.export_library`.
    keep_alive : object
        Held as long as the module or one of its functions lives: the engine that owns the code.
    context : int
        Address of the code's variable ``__tvm_ffi__library_ctx``, if it has one: it takes the module.
    """
    return Module(
        _jit_module(list(names), [int(a) for a in addresses], [bytes(o) for o in objects], keep_alive, context)
    )


def placed_module(objects: Sequence[bytes], names: Sequence[str]) -> Module | None:
    """Make a module of object files, placed in this process without a compiler; None where that takes a linker.

    Parameters
    ----------
    objects : sequence of bytes
        Object files of Weft's code generator.
    names : sequence of str
        The functions (``__tvm_ffi_<name>``) to offer.
    """
    if not names:
        return jit_module([], [], objects)
    try:
        code = place_objects(objects, names)
    except NotPlaced:
        return None
    return jit_module(names, code.addresses, objects, code.owner, code.context)


def load_module(path: str | os.PathLike[str], fmt: str = "") -> Module:
    """Open a library that Weft or Apache TVM exported.

    Parameters
    ----------
    path : path
        A shared library, or the container file that `export_library` writes where there is no linker; an object file
        or an archive of some, which are linked; LLVM's text or bit code, which is compiled.
    fmt : str
        What the file is, where its name does not say: ``"so"``, ``"o"``, ``"tar"``, ``"ll"``, ``"bc"``.

    Raises
    ------
    ExecutableError
        When the file is missing, damaged, or holds something unknown.
    """
    file = Path(path)
    kind = fmt or file.suffix.lstrip(".")
    if kind in ("o", "obj", "tar"):
        return _load_objects(file, kind)
    if kind == "wasm":
        raise ExecutableError("a library for WebAssembly runs in JavaScript (docs/web.md)", where=str(file))
    if kind in _LOADERS or kind in _COMPILED:
        if kind not in _LOADERS:
            importlib.import_module("weft.target")  # only here the runtime asks for a compiler, and for its own text
        return _LOADERS[kind](read_regular(file))
    try:
        container = runtime.link.read_container(file, sealed=check_seal(file))
    except OSError as e:
        what = "there is no such library" if isinstance(e, FileNotFoundError) else "cannot read the library"
        raise ExecutableError(what, where=str(file), found=e.strerror or str(e)) from e
    if container is not None:
        objects, names, blob = container
        code = placed_module(objects, names) or runtime.link.load_objects(objects, names, file)
        if blob is None:
            return code
        return Module(_load_tree(blob, code))
    check_complete(file)
    try:
        module = Module(_load_library(str(file.resolve())))
    except UnicodeEncodeError as e:
        raise ExecutableError("cannot open a library whose name is not UTF-8: rename it", where=ascii(path)) from e
    if module.kind == "library":
        module._exported = entry_points(file)
    return module


_COMPILED = ("ll", "bc")
_LOADERS: dict[str, Callable[[bytes], Module]] = {}


def register_file_loader(kind: str, loader: Callable[[bytes], Module]) -> None:
    """Set what makes a module of the files that end in ``.<kind>``."""
    _LOADERS[kind] = loader


def _load_objects(file: Path, kind: str) -> Module:
    """Link an object file, or an archive of some, into a library and open it; the library's file goes away."""
    import tempfile  # 3 ms, and a model that is in the cache needs none

    with tempfile.TemporaryDirectory(prefix="weft-load-") as folder:
        library = Path(folder) / f"{file.name}.so"
        if kind == "tar":
            archives().untar(file, folder)
            objects = sorted(p for p in Path(folder).rglob("*") if p.suffix in (".o", ".obj"))
        else:
            objects = [file]
        runtime.link.link_library(library, [read_regular(o) for o in objects], None)
        return load_module(library)


def load_static_library(path: str | os.PathLike[str], func_names: Sequence[str]) -> Module:
    """Read an object file as a module that other modules may import, and that is linked when they are exported.

    Parameters
    ----------
    path : path
        An object file of Weft's code generators.
    func_names : sequence of str
        Its functions.
    """
    code = read_regular(Path(path))
    return placed_module([code], list(func_names)) or runtime.link.load_objects([code], list(func_names), Path(path))


def system_lib(symbol_prefix: str = "") -> Module:
    """Return the module of the functions that were linked into this process statically."""
    return Module(tvm_ffi.system_lib(symbol_prefix))
