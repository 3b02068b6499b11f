"""Finds and loads ``libweft_runtime``, once, and checks that it fits this source.

The library is looked for at ``$WEFT_RUNTIME_LIBRARY``, else in ``weft/lib`` of the package (where a wheel and ``cmake
--build build`` put it) and of ``sys.path`` (where an editable install puts it); the newest of these wins. It is loaded
with global visibility: exported kernels leave ``weft_*`` undefined and the dynamic linker finds them here.
"""

import ctypes
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from weft import environment, error

__all__ = ["LIBRARY", "find_include_path", "find_library", "find_libtvm_runtime", "find_tvm_ffi", "symbol_address"]

ABI_VERSION = 1

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_PREFIX = "" if sys.platform == "win32" else "lib"
_BUILD_HELP = (
    "in a source checkout run `cmake -S . -B build && cmake --build build` "
    "(or `pip install -e .`); otherwise reinstall the package"
)


def find_library() -> Path:
    """Return the path of ``libweft_runtime``; an InternalError where there is none says how to build it."""
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
    """Return the folder of Weft's C headers; an InternalError where they are not installed."""
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
        raise error.InternalError(
            "the native runtime library cannot be loaded", where=str(path), found=str(e), help=_BUILD_HELP
        ) from e
    version = int(library.weft_abi_version())
    if version != ABI_VERSION:
        raise error.InternalError(
            "the native runtime library is stale",
            where=str(path),
            expected=f"ABI {ABI_VERSION}",
            found=f"ABI {version}",
            help=_BUILD_HELP,
        )
    return library


class _Postponed(ModuleType):
    """Stands for a module until it is asked for something."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _import_tvm_ffi() -> ModuleType:
    """Import tvm_ffi without what it imports and nothing here needs: where PyTorch is installed, that takes 0.8 s.

    PyTorch's tensors carry their exchange interface themselves, so importing PyTorch later is as good. What is for
    compiling C++ waits until somebody asks for it, and so does reading what is installed (together a quarter of the
    whole), where the library lies in the package, as a wheel has it.
    """
    if "torch" in sys.modules:
        return importlib.import_module("tvm_ffi")
    away: dict[str, ModuleType | None] = {"torch": None}  # Python's way to say "not there"
    away |= {name: _Postponed(name) for name in ("tvm_ffi.cpp", "tvm_ffi._optional_torch_c_dlpack")}
    spec = importlib.util.find_spec("tvm_ffi")
    package = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    metadata = _Postponed("importlib.metadata")

    def distribution(name: str) -> object:
        if name == "apache-tvm-ffi":  # without a record it looks in its own folder
            return SimpleNamespace(read_text=lambda file: None)
        return _Postponed.__getattr__(metadata, "distribution")(name)

    if metadata.__name__ not in sys.modules and (package / "lib" / f"{_PREFIX}tvm_ffi{_SUFFIX}").is_file():
        metadata.__dict__["distribution"] = distribution
        away[metadata.__name__] = metadata
    sys.modules.update(away)  # pyright: ignore[reportCallIssue, reportArgumentType]
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        metadata.__dict__.pop("distribution", None)
        for name, module in away.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]


# tvm_ffi comes first: it loads libtvm_ffi, which ours needs and finds by its SONAME.
_TVM_FFI = _import_tvm_ffi()
LIBRARY = _load()
"""The loaded library, for its C functions."""


def find_tvm_ffi() -> Path:
    """Return the path of ``libtvm_ffi``."""
    return Path(_TVM_FFI.libinfo.find_libtvm_ffi())


def symbol_address(name: str) -> int:
    """Address of an exported C function such as ``weft_parallel_for``, for a JIT's symbol table."""
    address = ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value
    assert address is not None
    return address
