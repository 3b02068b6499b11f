"""Building for GPUs: host code that launches kernels, with a module of their code as its import.

What turns device functions into code is an attribute of the kind of the target, so that the host's half is the same for
all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tvm_ffi

from weft import ffi, ir, runtime, tir
from weft.error import CodegenError, InvalidArgument
from weft.target.build import get_source
from weft.target.gpu.lower import lower_for_gpu
from weft.target.gpu.threads import check_allocations
from weft.target.kind import TargetKind, register_target_kind
from weft.target.target import Target

_device_module = tvm_ffi.get_global_func("weft.device_module")


class DeviceCode(NamedTuple):
    """Code of device functions, made when asked for.

    Texts by format (the first is the default), and what devices load: an image and its format, such as ``"cubin"``.
    """

    sources: Mapping[str, Callable[[], str]]
    image: Callable[[], tuple[bytes, str]]

    @staticmethod
    def of_text(text: str, form: str) -> DeviceCode:
        """Code that devices load as text."""
        return DeviceCode({form: lambda: text}, lambda: (text.encode(), form))


DEVICE_CODE = "gpu.device_code"
"""The attribute of a kind of target that turns device functions, as ``lower_for_gpu`` makes them, into code."""


def device_module(functions: Mapping[str, tir.PrimFunc], target: Target) -> runtime.Module:
    """Compile device functions to a module whose functions launch them."""
    for func in functions.values():
        check_allocations(func, target.max_shared_memory_per_block)
    code: DeviceCode = target.attribute(DEVICE_CODE)(functions, target)

    def source(fmt: str) -> str:
        if fmt and fmt not in code.sources:
            raise InvalidArgument(
                f"there is no source of kind '{fmt}' for target {target.kind}",
                expected=" or ".join(map(repr, code.sources)),
                found=repr(fmt),
            )
        return code.sources[fmt or next(iter(code.sources))]()

    image, form = code.image()
    saved = _saved(functions, image, form)
    return runtime.Module(
        _device_module(runtime.Device(target.kind.device).device_type, saved, tvm_ffi.convert(source))
    )


def _saved(functions: Mapping[str, tir.PrimFunc], image: bytes, form: str) -> bytes:
    """A module of kernels as libraries keep it; its layout is Apache TVM's."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    rows = [text(form), struct.pack("<Q", len(functions))]
    for name, f in functions.items():
        types = [tvm_ffi.dtype(str(p.dtype)) for p in f.params]
        tags = [str(t).replace("tir.use_dyn", "tirx.use_dyn") for t in f.attrs["tir.kernel_launch_params"]]
        rows += [text(name), text(name), struct.pack("<Q", len(types))]
        rows += [struct.pack("<BBH", t.type_code, t.bits, t.lanes) for t in types]
        rows += [struct.pack("<Q", len(tags)), *map(text, tags), struct.pack("<Q", 0)]  # no tags of arguments
    return b"".join([*rows, struct.pack("<Q", len(image)), image])


def build_gpu(mod: ir.IRModule, target: Target) -> runtime.Module:
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


def register_gpu(
    name: str,
    source_format: str,
    code: Callable[[Mapping[str, tir.PrimFunc], Target], DeviceCode],
    *,
    like: str = "",
    attributes: Mapping[str, Any] | None = None,
    **described: Any,
) -> TargetKind:
    """Make and register the kind of a GPU, whose functions `code` turns into code; `like` another one's devices.

    The other parameters are :class:`TargetKind`'s.
    """
    like = like or name
    return register_target_kind(
        TargetKind(
            name,
            build=build_gpu,
            source=source_gpu,
            source_format=source_format,
            keys=(like, "gpu"),
            device=like,
            attributes={DEVICE_CODE: code, **(attributes or {})},
            **described,
        )
    )


def rewritten(text: str, target: Target) -> str:
    """Return a text as the user's ``tvm_callback_{kind}_postproc`` leaves it, where that is registered."""
    post = ffi.get_global_func(f"tvm_callback_{target.kind}_postproc", allow_missing=True)
    return text if post is None else str(called_back(post, text, target))


def called_back(callback: Callable[..., Any], text: str, target: Target) -> Any:
    """Call a user's callback; those written for TVM before 0.18 take no target."""
    try:
        return callback(text, target)
    except TypeError as mismatch:
        if "positional argument" not in str(mismatch):
            raise
        return callback(text)


def _host_generator(target: Target) -> Callable[[ir.IRModule, Target], runtime.Module]:
    kind = (target.host or Target("llvm")).kind
    if kind.build is None or kind.device != "cpu":
        raise CodegenError(f"'{kind}' is no target of host code", expected="'llvm' or 'c'", found=str(target.host))
    return kind.build


def source_gpu(mod: ir.IRModule, target: Target, fmt: str) -> str:
    """Write the text of functions: the kernels', or the host's half as the host's target has it."""
    host, device = lower_for_gpu(mod, target)
    code: DeviceCode = target.attribute(DEVICE_CODE)(device, target)
    if fmt in code.sources:
        return code.sources[fmt]()
    return get_source(host, target.host or Target("llvm"), fmt)
