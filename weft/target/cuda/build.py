"""Building for NVIDIA GPUs: host code that launches kernels, with a module of their machine code as its import.

What turns device functions into code is an attribute of the kind of the target, so that the host's half is the same for
all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tvm_ffi

from weft.error import CodegenError, InvalidArgument, MissingDependency
from weft.ffi import get_global_func
from weft.ir import IRModule
from weft.runtime import Module, cuda
from weft.target.build import get_source
from weft.target.cuda.lower import lower_for_gpu
from weft.target.cuda.nvptx import emit_nvvm, emit_ptx
from weft.target.cuda.nvrtc import compile_cuda
from weft.target.cuda.source import emit_cuda
from weft.target.target import Target
from weft.tir import PrimFunc

__all__ = [
    "DEVICE_CODE",
    "DeviceCode",
    "build_gpu",
    "cuda_code",
    "device_module",
    "gpu_arch",
    "nvptx_code",
    "source_gpu",
]

_cuda_module = tvm_ffi.get_global_func("weft.cuda_module")
_OLDEST = "sm_75"  # the oldest that every NVRTC from 12 on knows


class DeviceCode(NamedTuple):
    """Code of device functions, made when asked for.

    Texts by format (the first is the default), and what makes the image that a driver loads, with its format
    (``"cubin"`` or ``"ptx"``, which ends with a zero byte).
    """

    sources: Mapping[str, Callable[[], str]]
    compile: Callable[[], tuple[bytes, str]]


DEVICE_CODE = "gpu.device_code"
"""The attribute of a kind of target that turns device functions, as ``lower_for_gpu`` makes them, into code."""


def gpu_arch(target: Target) -> str | None:
    """Return the architecture that a target names, else that of this machine's first GPU, else None."""
    named = target.attrs.get("arch") or target.attrs.get("mcpu")
    if named:
        return str(named)
    version = cuda(0).compute_version
    return None if version is None else "sm_" + version.replace(".", "")


def device_module(functions: Mapping[str, PrimFunc], target: Target) -> Module:
    """Compile device functions to a module of kind ``"cuda"``, whose functions launch them."""
    code: DeviceCode = target.attribute(DEVICE_CODE)(functions, target)

    def source(fmt: str) -> str:
        if fmt and fmt not in code.sources:
            raise InvalidArgument(
                f"there is no source of kind '{fmt}' for target {target.kind}",
                expected=" or ".join(map(repr, code.sources)),
                found=repr(fmt),
            )
        return code.sources[fmt or next(iter(code.sources))]()

    rows = [[name, _types(f), list(f.attrs["tir.kernel_launch_params"])] for name, f in functions.items()]
    image, made = code.compile()
    return Module(_cuda_module(image, made, rows, tvm_ffi.convert(source)))


def _types(func: PrimFunc) -> list[Any]:
    return [tvm_ffi.dtype(str(p.dtype)) for p in func.params]


def build_gpu(mod: IRModule, target: Target) -> Module:
    """Compile functions whose loops are bound to GPU threads.

    Parameters
    ----------
    mod : IRModule
        Functions in block form or lowered; device functions alone, after ``SplitHostDevice``, make a device module.
    target : Target
        Its ``host`` compiles the host's half; by default ``"llvm"``.

    Returns
    -------
    Module
        The host's functions; its import has the kernels.
    """
    host, device = lower_for_gpu(mod, target)
    if not host.functions:
        return device_module(device, target)
    built = _host_generator(target)(host, target.host or Target("llvm"))
    if device:
        built.import_module(device_module(device, target))
    return built


def _host_generator(target: Target) -> Callable[[IRModule, Target], Module]:
    kind = (target.host or Target("llvm")).kind
    if kind.build is None or kind.device != "cpu":
        raise CodegenError(f"'{kind}' is no target of host code", expected="'llvm' or 'c'", found=str(target.host))
    return kind.build


# --- target cuda ------------------------------------------------------------------------------------------------------


def cuda_code(functions: Mapping[str, PrimFunc], target: Target) -> DeviceCode:
    """Make CUDA C++, which NVIDIA's compiler compiles."""
    text = emit_cuda(functions, int(target.attrs.get("max_num_threads", 1024)))
    post = get_global_func("tvm_callback_cuda_postproc", allow_missing=True)
    if post is not None:
        text = str(post(text, target))
    arch = gpu_arch(target)
    return DeviceCode(
        {"cuda": lambda: text, "ptx": lambda: compile_cuda(text, "ptx", arch or _OLDEST).rstrip(b"\0").decode()},
        lambda: _compile(text, arch, functions, target),
    )


def _compile(text: str, arch: str | None, functions: Mapping[str, PrimFunc], target: Target) -> tuple[bytes, str]:
    """Return an image and its format: machine code for a known GPU, else PTX, which any driver compiles."""
    own = get_global_func("tvm_callback_cuda_compile", allow_missing=True)
    if own is not None:
        made = own(text, target)
        image = made.encode() if isinstance(made, str) else bytes(made)
        return image, "cubin" if image.startswith(b"\x7fELF") else "ptx"
    try:
        if arch is None:
            return compile_cuda(text, "ptx", _OLDEST), "ptx"
        return compile_cuda(text, "cubin", arch), "cubin"
    except MissingDependency:  # LLVM makes PTX too
        return nvptx_code(functions, Target("nvptx" if arch is None else f"nvptx -mcpu={arch}")).compile()


def nvptx_code(functions: Mapping[str, PrimFunc], target: Target) -> DeviceCode:
    """Make PTX by LLVM, without NVIDIA's tools."""
    arch = gpu_arch(target)
    exact = target if arch is None or "mcpu" in target.attrs else Target({**target.export(), "mcpu": arch})
    text = functools.cache(lambda: emit_ptx(functions, exact))
    return DeviceCode(
        {"ptx": text, "ll": lambda: emit_nvvm(functions, exact)}, lambda: (text().encode() + b"\0", "ptx")
    )


def source_gpu(mod: IRModule, target: Target, fmt: str) -> str:
    """Write the text of functions: the kernels', or the host's half as the host's target has it."""
    host, device = lower_for_gpu(mod, target)
    code: DeviceCode = target.attribute(DEVICE_CODE)(device, target)
    if fmt in code.sources:
        return code.sources[fmt]()
    return get_source(host, target.host or Target("llvm"), fmt)
