"""Code for NVIDIA GPUs: CUDA C++ by NVIDIA's compiler, or PTX by LLVM."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from weft import error, ffi, runtime, tir
from weft.target.cuda.nvptx import emit_nvvm, emit_ptx
from weft.target.cuda.nvrtc import compile_cuda
from weft.target.cuda.source import emit_cuda
from weft.target.gpu import DeviceCode, called_back, rewritten
from weft.target.target import Target

_OLDEST = "sm_75"  # the oldest that every NVRTC from 12 on knows


def gpu_arch(target: Target) -> str | None:
    """Return the architecture that a target names, else that of this machine's first GPU, else None."""
    named = target.attrs.get("arch") or target.attrs.get("mcpu")
    if named:
        return str(named)
    version = runtime.cuda(0).compute_version
    return None if version is None else "sm_" + version.replace(".", "")


def cuda_code(functions: Mapping[str, tir.PrimFunc], target: Target) -> DeviceCode:
    """Make CUDA C++, which NVIDIA's compiler compiles."""
    text = rewritten(emit_cuda(functions, int(target.attrs.get("max_num_threads", 1024))), target)
    arch = gpu_arch(target)
    return DeviceCode(
        {"cuda": lambda: text, "ptx": lambda: compile_cuda(text, "ptx", arch or _OLDEST).rstrip(b"\0").decode()},
        lambda: _compile(text, arch, functions, target),
    )


def _compile(text: str, arch: str | None, functions: Mapping[str, tir.PrimFunc], target: Target) -> tuple[bytes, str]:
    """Return an image and its format: machine code for a known GPU, else PTX, which any driver compiles."""
    own = ffi.get_global_func("tvm_callback_cuda_compile", allow_missing=True)
    if own is not None:
        made = called_back(own, text, target)
        image = made.encode() if isinstance(made, str) else bytes(made)
        return image, "cubin" if image.startswith(b"\x7fELF") else "ptx"
    try:
        if arch is None:
            return compile_cuda(text, "ptx", _OLDEST), "ptx"
        return compile_cuda(text, "cubin", arch), "cubin"
    except error.MissingDependency:  # LLVM makes PTX too
        exact = _exact(Target("nvptx" if arch is None else f"nvptx -mcpu={arch}"))
        return _zero_ended(emit_ptx(functions, exact))


def nvptx_code(functions: Mapping[str, tir.PrimFunc], target: Target) -> DeviceCode:
    """Make PTX by LLVM, without NVIDIA's tools."""
    exact = _exact(target)
    text = functools.cache(lambda: emit_ptx(functions, exact))
    return DeviceCode({"ptx": text, "ll": lambda: emit_nvvm(functions, exact)}, lambda: _zero_ended(text()))


def _zero_ended(ptx: str) -> tuple[bytes, str]:
    return ptx.encode() + b"\0", "ptx"


def _exact(target: Target) -> Target:
    """The target with the architecture of this machine's GPU, where it names none."""
    arch = gpu_arch(target)
    return target if arch is None or "mcpu" in target.attrs else Target({**target.export(), "mcpu": arch})
