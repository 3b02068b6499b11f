"""CUDA C text to machine code through NVRTC, which is opened when it is first needed.

NVRTC needs neither a GPU nor a driver, so device code compiles anywhere. Source: NVRTC's user guide, sections 3 and 4.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from weft import environment, error

_OUTPUTS = {"ptx": ("compute", "PTX"), "cubin": ("sm", "CUBIN")}
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")


def _candidates() -> list[str]:
    """Where the library may be, in order: the user's word, the Python package, the loader's own search."""
    named = environment.NVRTC.read()
    if named is not None:
        return [str(named)]
    roots = dict.fromkeys(sysconfig.get_path(k) for k in ("platlib", "purelib"))
    installed = [
        str(path)
        for root in roots
        for folder in _FOLDERS
        for soname in _SONAMES
        if (path := Path(root) / folder / soname).exists()
    ]
    return installed + list(_SONAMES)


def _open(candidates: Sequence[str]) -> ctypes.CDLL:
    failures: list[str] = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as e:
            failures.append(str(e))
    raise error.MissingDependency(
        "compiling CUDA C needs the library NVRTC",
        expected="one of " + ", ".join(candidates),
        found="; ".join(failures),
        help="pip install 'weft[cuda]', or name the library in the environment variable WEFT_NVRTC",
    )


@functools.cache
def _load(candidates: tuple[str, ...]) -> ctypes.CDLL:
    library = _open(candidates)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _library() -> ctypes.CDLL:
    return _load(tuple(_candidates()))


def _check(library: ctypes.CDLL, status: int, doing: str) -> None:
    if status != 0:
        raise error.CodegenError(f"NVRTC: {doing} failed", found=library.nvrtcGetErrorString(status).decode())


def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC, ``(12, 9)``.

    Raises
    ------
    MissingDependency
        When the library cannot be opened; the message lists where it was looked for.
    """
    library = _library()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "asking its version")
    return major.value, minor.value


def have_fp16(compute_version: str) -> bool:
    """Whether GPUs of a version, such as ``"8.0"``, compute with float16."""
    major, _, minor = compute_version.partition(".")
    return (int(major), int(minor or 0)) == (5, 3) or int(major) >= 6


def compile_cuda(
    code: str, target_format: str = "cubin", arch: str = "sm_80", options: Sequence[str] | str | None = None
) -> bytes:
    """Compile CUDA C to PTX or to a cubin.

    Parameters
    ----------
    code : str
        The program. Kernels that the host finds by name are ``extern "C" __global__``.
    target_format : str
        ``"cubin"`` (machine code for one architecture) or ``"ptx"`` (text that a driver compiles when it loads it).
    arch : str
        The architecture, ``"sm_90"`` or ``"sm_90a"``.
    options : str or sequence of str, optional
        More of NVRTC's options, for example ``"--use_fast_math"``.

    Returns
    -------
    bytes
        The image, as ``cuModuleLoadData`` takes it: PTX ends with a zero byte.

    Raises
    ------
    CodegenError
        When the program has errors or NVRTC does not know the architecture; the message has its log.
    MissingDependency
        When NVRTC cannot be opened.
    """
    if target_format not in _OUTPUTS:
        raise error.InvalidArgument(
            f"NVRTC makes no '{target_format}'", expected="'cubin' or 'ptx'", found=repr(target_format)
        )
    if re.fullmatch(r"sm_\d+[af]?", arch) is None:
        raise error.InvalidArgument("not a CUDA architecture", expected="'sm_80', 'sm_90', ...", found=repr(arch))
    library = _library()
    prefix, output = _OUTPUTS[target_format]
    extra = [options] if isinstance(options, str) else list(options or ())
    flags = [f"--gpu-architecture={prefix}_{arch.removeprefix('sm_')}", "--std=c++17", "--disable-warnings", *extra]
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"weft.cu", 0, None, None)
    _check(library, status, "reading the program")
    try:
        array = (ctypes.c_char_p * len(flags))(*(f.encode() for f in flags))
        status = library.nvrtcCompileProgram(program, len(flags), array)
        if status != 0:
            reason = library.nvrtcGetErrorString(status).decode()
            raise error.CodegenError(
                "NVRTC does not compile this program",
                found=f"{reason}\n{_log(library, program)}",
                help=f"the options were {' '.join(flags)}",
            )
        return _bytes(library, program, output)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"sizing the {what}")
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer), f"reading the {what}")
    return buffer.raw


def _log(library: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    return _bytes(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
