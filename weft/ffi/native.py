"""Finds and loads ``libweft_runtime``, once, and checks that it fits this source.

The library is looked for at ``$WEFT_RUNTIME_LIBRARY``, else in ``weft/lib`` of the package (where a wheel and ``cmake
--build build`` put it) and of ``sys.path`` (where an editable install puts it); the newest of these wins. It is loaded
with global visibility: exported kernels leave ``weft_*`` undefined and the dynamic linker finds them here.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from types import ModuleType

from weft import environment, error

__all__ = ["LIBRARY", "find_include_path", "find_library", "find_libtvm_runtime", "symbol_address"]

ABI_VERSION = 1

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_PREFIX = "" if sys.platform == "win32" else "lib"
_BUILD_HELP = (
    "in a source checkout run `cmake -S . -B build && cmake --build build` "
    "(or `pip install -e .`); otherwise reinstall the package"
)


def find_library() -> Path:
    """Return the path of ``libweft_runtime``.

    Raises
    ------
    InternalError
        When there is none; the message lists the places and says how to build it.
    """
    name = f"{_PREFIX}weft_runtime{_SUFFIX}"
    package = Path(__file__).resolve().parent.parent
    places = [package / "lib" / name]
    places += [Path(entry) / "weft" / "lib" / name for entry in sys.path if entry]
    chosen = environment.RUNTIME_LIBRARY.read()
    if chosen is not None:
        places = [chosen]
    found = [place for place in places if place.is_file()]
    if found:
        return max(found, key=lambda place: place.stat().st_mtime)
    looked = ", ".join(str(p) for p in dict.fromkeys(places[:4]))
    raise error.InternalError("the native runtime library was not found", where=looked, help=_BUILD_HELP)


def find_libtvm_runtime() -> str:
    """Return the path of the native runtime library, which external code links with."""
    return str(find_library())


def find_include_path() -> str:
    """Return the folder of Weft's C headers.

    Raises
    ------
    InternalError
        When they are not installed.
    """
    package = Path(__file__).resolve().parent.parent
    places = [package / "include", package.parent / "native" / "include"]
    found = [place for place in places if (place / "weft").is_dir()]
    if not found:
        raise error.InternalError("the C headers were not found", where=", ".join(map(str, places)), help=_BUILD_HELP)
    return str(found[0])


def _load() -> ctypes.CDLL:
    environment.check_native()
    path = find_library()
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise error.InternalError("the native runtime library cannot be loaded", where=str(path), found=str(e),
                                  help=_BUILD_HELP) from e  # fmt: skip
    version = int(library.weft_abi_version())
    if version != ABI_VERSION:
        raise error.InternalError("the native runtime library is stale", where=str(path), expected=f"ABI {ABI_VERSION}",
                                  found=f"ABI {version}", help=_BUILD_HELP)  # fmt: skip
    return library


def _import_tvm_ffi() -> ModuleType:
    """Import tvm_ffi without PyTorch, which it would import where it is installed: 0.8 s, and nothing here needs it.

    PyTorch's tensors carry their exchange interface themselves, so importing PyTorch later is as good.
    """
    absent = "torch" not in sys.modules
    if absent:
        sys.modules["torch"] = None  # pyright: ignore[reportArgumentType] - Python's way to say "not there"
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        if absent:
            del sys.modules["torch"]


# tvm_ffi comes first: it loads libtvm_ffi, which ours needs and finds by its SONAME.
_TVM_FFI_VERSION = _import_tvm_ffi().__version__
LIBRARY = _load()
"""The loaded library, for its C functions."""


def symbol_address(name: str) -> int:
    """Address of an exported C function such as ``weft_parallel_for``, for a JIT's symbol table."""
    address = ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value
    assert address is not None
    return address
