"""Functions whose loops are bound to GPU threads to LLVM IR for NVPTX and to PTX, by the emitter of target llvm.

Pointers are generic in the body; those of parameters are cast from global memory and those of shared buffers from
shared memory, from which LLVM infers the space of every access.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.error import CodegenError, WeftError
from weft.ir import DataType, IRModule, as_int, find
from weft.target.cuda.nvptx_math import MATH, float_remainder
from weft.target.cuda.nvptx_rules import INTRINSICS, STATEMENTS, KernelEmitter
from weft.target.gpu.lower import lower_for_gpu
from weft.target.gpu.threads import AXES, launch_extents
from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter
from weft.target.llvm.memory import alignment
from weft.target.llvm.object import assemble
from weft.target.llvm.stmt import STMT, finish
from weft.target.llvm.types import llvm_type
from weft.target.target import Target
from weft.tir import BufferStore, PrimFunc
from weft.tir import transform as t


class _DeviceModule(ModuleEmitter):
    """An LLVM module of device code."""

    intrinsics = {**MATH, **INTRINSICS}
    statements = STATEMENTS

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.has_scalar_loop = True  # code of one thread: LLVM's whole pipeline is for it

    def declare(self, name: str, signature: str) -> None:
        if not name.startswith("llvm."):
            raise CodegenError(
                f"target nvptx has no function '{name}': a device has no C library",
                help="functions of float32 are Weft's own: compute in it",
            )
        super().declare(name, signature)

    def remainder(self, s: FunctionEmitter, dtype: str, a: str, b: str) -> str:
        return float_remainder(s, dtype, a, b)


def emit_ptx(functions: Mapping[str, PrimFunc] | IRModule, target: Target | str | None = None) -> str:
    """Compile device functions to PTX.

    Parameters
    ----------
    functions : mapping of str to PrimFunc
        By the name of the kernel. Functions that :func:`weft.tir.transform.SplitHostDevice` made, or nests of loops
        bound to threads of which it makes kernels; in block form or lowered. A kernel takes the parameters of its
        device function in their order: pointers to the buffers' elements, and scalars.
    target : Target or str, optional
        Of kind nvptx; ``nvptx -mcpu=sm_80``.

    Returns
    -------
    str
        One ``.entry`` for each device function.

    Raises
    ------
    CodegenError
        For what the device cannot do; the message names the function and shows the line.
    """
    module = _emitted(functions, target)
    ptx = assemble(module)
    missing = re.search(r"^\.extern \.func\s+(?:\(.*?\)\s*)?([\w$.]+)", ptx, re.MULTILINE)
    if missing is not None:
        raise CodegenError(f"a device has no function '{missing[1]}'", help="does LLVM name it so?")
    return ptx


def emit_nvvm(functions: Mapping[str, PrimFunc] | IRModule, target: Target | str | None = None) -> str:
    """Return the LLVM IR of device functions; parameters and errors are those of :func:`emit_ptx`."""
    return _emitted(functions, target).text()


def _emitted(functions: Mapping[str, PrimFunc] | IRModule, target: Target | str | None) -> _DeviceModule:
    target = target if isinstance(target, Target) else Target(target or "nvptx")
    if target.kind.name != "nvptx":
        raise CodegenError("PTX is made for targets of kind nvptx", found=str(target), help="Target('nvptx')")
    named = {str(getattr(n, "name_hint", n)): f for n, f in functions.items() if isinstance(f, PrimFunc)}
    module = _DeviceModule(target)
    for name, func in device_functions(named, target).items():
        try:
            _emit_kernel(module, name, func)
        except WeftError as e:
            raise type(e)(
                f"kernel '{name}': {e.what}", where=e.where, expected=e.expected, found=e.found, help=e.help
            ) from e
    return module


def device_functions(functions: Mapping[str, PrimFunc], target: Target | str | None = None) -> dict[str, PrimFunc]:
    """Lower functions and return those of the device; a nest of thread-bound loops in a host function becomes one."""
    if not all(f.attrs.get("tir.is_global_func") for f in functions.values()):
        functions = lower_for_gpu(
            IRModule(dict(functions)), target if isinstance(target, Target) else Target(target or "nvptx")
        ).device
    lowered = t.lower_math(library=False)(IRModule(dict(functions)))
    return {v.name_hint: f for v, f in lowered.items() if isinstance(f, PrimFunc)}


def _emit_kernel(module: _DeviceModule, name: str, func: PrimFunc) -> None:
    """Emit one device function."""
    extents = launch_extents(func, int(module.target.attrs.get("max_num_threads", 1024)))
    symbol = re.sub(r"\W", "_", name)
    s = KernelEmitter(module, symbol)
    s.noalias = bool(func.attrs.get("tir.noalias", False))
    stored = {n.buffer.data for n in find(func.body, BufferStore)}
    buffers = dict(func.buffer_map)
    params: list[str] = []
    for i, p in enumerate(func.params):
        buffer = buffers.get(p)
        if buffer is not None or p.dtype == "handle":
            data = buffer.data if buffer is not None else p
            facts = "noalias " * s.noalias + "readonly " * (data not in stored)
            if buffer is not None:
                facts += f"align {alignment(buffer)} "
            params.append(f"ptr addrspace(1) {facts}%a{i}")
            s.allocas.append(f"  %g{i} = addrspacecast ptr addrspace(1) %a{i} to ptr")
            s.pointers[data] = f"%g{i}"
        elif p.dtype == "bool":
            params.append(f"i8 %a{i}")
            s.env[p] = s.value(f"icmp ne i8 %a{i}, 0")
        else:
            params.append(f"{llvm_type(p.dtype)} %a{i}")
            s.env[p] = f"%a{i}"
            if DataType(p.dtype).is_integer:
                _bound_dimension(func, p, s)
    STMT(func.body, s)
    s.emit("ret void")
    threads = [as_int(extents[a]) if a in extents else 1 for a in AXES[3:]]
    launch = f' "nvvm.maxntid"="{",".join(map(str, threads))}"' if None not in threads else ""
    module.functions.append(finish(s, f"define ptx_kernel void @{symbol}({', '.join(params)}) #0{launch}"))


def _bound_dimension(func: PrimFunc, p: Any, s: FunctionEmitter) -> None:
    """Let the analyzer know that a scalar which is a dimension of a buffer is not negative."""
    if any(d is p for _, b in func.buffer_map for d in b.shape):
        s.analyzer.mark_global_non_neg(p)
