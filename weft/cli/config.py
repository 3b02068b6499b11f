"""``weft config --cmake``: where build systems of programs in C and C++ find headers, libraries and sources."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from weft.error import InvalidArgument
from weft.ffi import find_library
from weft.ffi.native import find_include_path, find_tvm_ffi

_PACKAGE = Path(__file__).resolve().parent.parent
_Flag = Annotated[bool, Parameter(negative="")]


def config(
    *,
    cmake: _Flag = False,
    pkgconfig: _Flag = False,
    includes: _Flag = False,
    library: _Flag = False,
    sources: _Flag = False,
    tvm_ffi: _Flag = False,
    cflags: _Flag = False,
    libs: _Flag = False,
    java: _Flag = False,
    rust: _Flag = False,
    rustflags: _Flag = False,
) -> None:
    """Print what a build of a program in C, C++, Rust or Java asks for, a line each, in the order listed here.

    Parameters
    ----------
    cmake : bool
        The folder for `cmake -Dweft_DIR=`, in which find_package(weft) looks.
    pkgconfig : bool
        The folder for PKG_CONFIG_PATH; of an installed package, since a checkout has no headers beside its library.
    includes : bool
        The folder of Weft's headers.
    library : bool
        The runtime library.
    sources : bool
        The folder with the runtime's sources, for programs that link it statically.
    tvm_ffi : bool
        The folder of the tvm-ffi package, with its headers, library and sources.
    cflags : bool
        Options to compile with.
    libs : bool
        Options to link with.
    java : bool
        The folder with Weft.java.
    rust : bool
        The folder with the crate weft, for `cargo add --path`.
    rustflags : bool
        Options of rustc, for RUSTFLAGS.
    """
    ffi = find_tvm_ffi().parent.parent
    answers = {
        "cmake": (cmake, lambda: str(_PACKAGE / "share/cmake/weft")),
        "pkgconfig": (pkgconfig, lambda: str(_PACKAGE / "share/pkgconfig")),
        "includes": (includes, find_include_path),
        "library": (library, lambda: str(find_library())),
        "sources": (sources, _sources),
        "tvm-ffi": (tvm_ffi, lambda: str(ffi)),
        "cflags": (cflags, lambda: f"-I{find_include_path()} -I{ffi / 'include'}"),
        "libs": (libs, lambda: _link_options(ffi)),
        "java": (java, lambda: str(_PACKAGE / "share/java")),
        "rust": (rust, lambda: str(_PACKAGE / "share/rust")),
        "rustflags": (rustflags, lambda: " ".join(f"-L native={p} -C link-arg=-Wl,-rpath,{p}" for p in _folders(ffi))),
    }
    asked = [answer for wanted, answer in answers.values() if wanted]
    if not asked:
        raise InvalidArgument("weft config needs to know what to print", expected=" ".join(f"--{n}" for n in answers))
    for answer in asked:
        print(answer())


def _folders(ffi: Path) -> tuple[Path, Path]:
    """Where the libraries are."""
    return find_library().parent, ffi / "lib"


def _link_options(ffi: Path) -> str:
    return " ".join([str(find_library()), str(find_tvm_ffi()), *(f"-Wl,-rpath,{p}" for p in _folders(ffi))])


def _sources() -> str:
    places = [_PACKAGE / "native", _PACKAGE.parent / "native"]
    found = [p for p in places if (p / "static.cmake").is_file()]
    if not found:
        raise InvalidArgument(
            "the runtime's sources were not found", found=", ".join(map(str, places)), help="reinstall the package"
        )
    return str(found[0])
