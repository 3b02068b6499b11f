"""From lowered functions to LLVM IR, assembly and object code, through llvmlite.

Every call has an LLVM context and a target machine of its own, so calls may run on many threads. llvmlite holds one
lock around each of its calls; the two that take time (optimising and emitting) are made without it, which LLVM allows
for separate contexts.

Two pipelines: loops that the schedule vectorised and unrolled need only their accumulators in registers (SROA and
clean-up: a fifth of the time, the same code); a module with a scalar loop gets LLVM's O2, whose vectoriser may
improve it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from ctypes import string_at
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from weft import environment
from weft.error import CodegenError, InternalError
from weft.ir import show_text
from weft.target.llvm import anylist, expr, intrin, kernel_call, packed, parallel, scale, struct, subroutine  # noqa: F401 - rules of the tables
from weft.target.llvm.emitter import ModuleEmitter
from weft.target.llvm.entry import emit_function
from weft.target.target import Target
from weft.target.triple import with_vendor
from weft.tir import PrimFunc
from weft.tir.transform.make_packed_api import PREFIX

_LOCK = threading.Lock()
_READY: list[bool] = []


def initialise() -> None:
    """Make LLVM's targets known, once."""
    with _LOCK:
        if not _READY:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            _READY.append(True)


def emit_ir(functions: Sequence[PrimFunc], target: Target) -> str:
    """Return the LLVM IR of lowered functions."""
    return _emitted(functions, target).text()


def _emitted(
    functions: Sequence[PrimFunc], target: Target, linkage: str = "internal", kernels: Mapping[str, Any] | None = None
) -> ModuleEmitter:
    module = ModuleEmitter(target)
    if kernels is not None:
        module.kernels.update(kernels)
        module.has_scalar_loop = True  # small functions are to be inlined
    module.siblings = {str(f.attrs.get("global_symbol")): f for f in functions}
    for func in functions:
        emit_function(module, func, linkage)
    return module


def _machine(target: Target) -> Any:
    initialise()
    try:
        kind = llvm.Target.from_triple(with_vendor(target.triple))
    except RuntimeError as e:
        raise CodegenError(f"LLVM has no code generator for '{target.triple}'", found=str(e)) from e
    reloc = "static" if target.triple.startswith("wasm") else "pic"  # the loader moves addresses (runtime/wasm_link.py)
    return kind.create_target_machine(
        cpu=target.cpu, features=target.attribute_string, opt=_level(target), reloc=reloc, codemodel="default",
        abiname=target.abi,
    )  # fmt: skip


def _level(target: Target) -> int:
    """The effort of LLVM's passes and of its code generator, 0 to 3."""
    return int(target.attrs.get("opt-level", environment.OPT_LEVEL.read()))


def _optimised(emitted: ModuleEmitter) -> tuple[Any, Any]:
    target = emitted.target
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(emitted.text(), llvm.create_context())
        module.verify()
    except RuntimeError as e:
        raise InternalError("LLVM rejects the generated code", found=str(e).strip()[:2000]) from e
    module.triple = with_vendor(target.triple)
    module.data_layout = str(machine.target_data)
    speed = min(_level(target), 2)
    options = llvm.create_pipeline_tuning_options(speed_level=speed)
    options.loop_vectorization, options.slp_vectorization, options.loop_unrolling = speed == 2, False, speed == 2
    builder = llvm.create_pass_builder(machine, options)
    if emitted.has_scalar_loop:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    return module, machine


def _unlocked(name: str) -> Any:
    """Return a function of llvmlite's C interface without the lock around it."""
    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def emit_object(
    functions: Sequence[PrimFunc],
    target: Target,
    *,
    linkage: str = "internal",
    kernels: Mapping[str, Any] | None = None,
) -> bytes:
    """Compile lowered functions to one object file.

    Parameters
    ----------
    functions : sequence of PrimFunc
    target : Target
    linkage : str
        Of the functions' bodies: ``"hidden"`` where other objects of the library call them directly.
    kernels : mapping of str to Kernel, optional
        The kernels that the functions call directly.
    """
    emitted = _emitted(functions, target, linkage, kernels)
    module, machine = _optimised(emitted)
    name = str(functions[0].attrs.get("global_symbol", "main"))
    show_text(name, "emitted.ll", emitted.text)
    show_text(name, "optimised.ll", lambda: str(module))
    show_text(name, "assembly.s", lambda: _emit(machine, module, as_object=False).decode())
    return _emit(machine, module, as_object=True)


def emit_assembly(functions: Sequence[PrimFunc], target: Target) -> str:
    """Compile lowered functions to assembly text."""
    return assemble(_emitted(functions, target))


def emit_bitcode(functions: Sequence[PrimFunc], target: Target) -> bytes:
    """Return the LLVM IR of lowered functions in its binary form."""
    initialise()
    return llvm.parse_assembly(emit_ir(functions, target), llvm.create_context()).as_bitcode()


def compile_ir(code: bytes) -> tuple[bytes, list[str]]:
    """Compile LLVM IR, as text or in its binary form, to an object file for this machine.

    Returns
    -------
    object : bytes
    names : list of str
        The functions in the convention of tvm-ffi that it defines.

    Raises
    ------
    CodegenError
        When it is no LLVM IR.
    """
    machine = _machine(Target("llvm"))
    try:
        is_binary = code.startswith((b"BC\xc0\xde", b"\xde\xc0\x17\x0b"))
        context = llvm.create_context()
        module = llvm.parse_bitcode(code, context) if is_binary else llvm.parse_assembly(code.decode(), context)
        module.verify()
    except (RuntimeError, UnicodeDecodeError) as e:
        raise CodegenError("this is no LLVM IR", found=str(e).strip()[:2000]) from e
    entries = [f.name.removeprefix(PREFIX) for f in module.functions if f.name.startswith(PREFIX)
               and not f.is_declaration]  # fmt: skip
    return _emit(machine, module, as_object=True), entries


def assemble(emitted: ModuleEmitter) -> str:
    """Compile an emitted module to assembly text."""
    module, machine = _optimised(emitted)
    return _emit(machine, module, as_object=False).decode()


def _emit(machine: Any, module: Any, *, as_object: bool) -> bytes:
    with ffi.OutputString() as error:
        memory = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, int(as_object), error)
        if not memory:
            raise CodegenError("LLVM cannot emit code for this target", found=str(error))
    try:
        return string_at(ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)
