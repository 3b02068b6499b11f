"""From lowered functions to LLVM IR, assembly and object code, through llvmlite.

Every call has an LLVM context and a target machine of its own, so calls may run on many threads. llvmlite holds one
lock around each of its calls; the two that take time (optimising and emitting) are made without it, which LLVM allows
for separate contexts.

Two pipelines: loops that the schedule vectorised and unrolled need only their accumulators in registers (SROA and
clean-up: a fifth of the time, the same code); a module with a scalar loop gets LLVM's O2, whose vectoriser may
improve it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import string_at
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from weft import environment, ir, tir
from weft.error import CodegenError, InternalError
from weft.target.llvm import anylist, expr, intrin, kernel_call, packed, parallel, scale, services, struct, subroutine  # noqa: F401 - rules of the tables
from weft.target.llvm.emitter import ModuleEmitter
from weft.target.llvm.entry import emit_function
from weft.target.target import Target
from weft.target.triple import with_vendor
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


def emit_ir(functions: Sequence[tir.PrimFunc], target: Target) -> str:
    """Return the LLVM IR of lowered functions."""
    emitted = _emitted(functions, target)
    if not emitted.linked:
        return emitted.text()
    with _parsed(emitted, _machine(target)) as module:
        return str(module)


def _emitted(
    functions: Sequence[tir.PrimFunc],
    target: Target,
    linkage: str = "internal",
    kernels: Mapping[str, Any] | None = None,
    beside: bool = False,
) -> ModuleEmitter:
    module = ModuleEmitter(target, "declared", _mark(target)) if beside else ModuleEmitter(target)
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
        cpu=target.cpu,
        features=target.attribute_string,
        opt=_level(target),
        reloc=reloc,
        codemodel="default",
        abiname=target.abi,
    )


def _level(target: Target) -> int:
    """The effort of LLVM's passes and of its code generator, 0 to 3."""
    return int(target.attrs.get("opt-level", environment.OPT_LEVEL.read()))


@contextmanager
def _opened(code: str | bytes, context: Any) -> Generator[Any]:
    """Yield a module of LLVM's and close it: of garbage in a cycle its context might be freed first."""
    is_binary = isinstance(code, bytes) and code.startswith((b"BC\xc0\xde", b"\xde\xc0\x17\x0b"))
    text = code.decode() if isinstance(code, bytes) and not is_binary else code
    module = llvm.parse_bitcode(code, context) if is_binary else llvm.parse_assembly(text, context)
    try:
        module.verify()
        yield module
    finally:
        module.close()


@contextmanager
def _optimised(emitted: ModuleEmitter) -> Generator[tuple[Any, Any]]:
    target = emitted.target
    machine = _machine(target)
    with _parsed(emitted, machine) as module:
        speed = min(_level(target), 2)
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization, options.slp_vectorization, options.loop_unrolling = speed == 2, False, speed == 2
        builder = llvm.create_pass_builder(machine, options)
        if emitted.has_scalar_loop or emitted.linked:  # what is linked is to be inlined
            passes = builder.getModulePassManager()
        else:
            passes = llvm.create_new_module_pass_manager()
            passes.add_sroa_pass()
            passes.add_instruction_combine_pass()
            passes.add_simplify_cfg_pass()
        _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
        yield module, machine


@contextmanager
def _parsed(emitted: ModuleEmitter, machine: Any) -> Generator[Any]:
    """Yield a module of LLVM's, with the code linked that loops import."""
    context = llvm.create_context()
    with ExitStack() as stack:
        try:
            module = stack.enter_context(_opened(emitted.text(), context))
        except RuntimeError as e:
            raise InternalError("LLVM rejects the generated code", found=str(e).strip()[:2000]) from e
        module.triple, module.data_layout = with_vendor(emitted.target.triple), str(machine.target_data)
        try:
            _link(module, emitted, context)
        except RuntimeError as e:
            raise CodegenError(
                "what pragma_import_llvm names cannot be linked", expected="LLVM IR", found=str(e).strip()[:2000]
            ) from e
        yield module


def _link(module: Any, emitted: ModuleEmitter, context: Any) -> None:
    """Add the definitions of imported code; of two of one name the later one holds."""
    ours, taken = {"features": emitted.target.attribute_string}, set[str]()
    for text in reversed(emitted.linked):
        text = _OF_MACHINE.sub(lambda m: f'{m[1]}="{ours.get(m[2], emitted.target.cpu or "generic")}"', text)
        with _opened(text, context) as other:
            other.triple, other.data_layout = module.triple, module.data_layout
            defined = {g.name: g for g in (*other.functions, *other.global_variables) if not g.is_declaration}
            for name in taken & defined.keys():
                defined[name].linkage = "internal"
            taken |= defined.keys()
            module.link_in(other)
    for g in (*module.functions, *module.global_variables) if taken else ():
        if g.name in taken and g.linkage == llvm.Linkage.external:
            g.linkage = "internal"  # each kernel has its own


_OF_MACHINE = re.compile(r'("(?:target|tune)-(cpu|features)")="[^"]*"')
"""For whom a function was compiled: one for another machine would not be inlined."""


def _unlocked(name: str) -> Any:
    """Return a function of llvmlite's C interface without the lock around it."""
    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def emit_object(
    functions: Sequence[tir.PrimFunc],
    target: Target,
    *,
    linkage: str = "internal",
    kernels: Mapping[str, Any] | None = None,
    beside: bool = False,
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
    beside : bool
        Whether :func:`emit_services` is linked beside the object, which leaves those functions out then.
    """
    emitted = _emitted(functions, target, linkage, kernels, beside)
    name = str(functions[0].attrs.get("global_symbol", "main"))
    with _optimised(emitted) as (module, machine):
        ir.show_text(name, "emitted.ll", emitted.text)
        ir.show_text(name, "optimised.ll", lambda: str(module))
        ir.show_text(name, "assembly.s", lambda: _emit(machine, module, as_object=False).decode())
        return _emit(machine, module, as_object=True)


@lru_cache
def emit_services(target: Target) -> bytes:
    """Compile the helper functions of objects that were made with ``beside=True``, to one object for each library.

    They are weak, and their names have a mark of what they do: libraries that are linked into one program share them,
    if they are of one version.
    """
    emitted = ModuleEmitter(target, "weak_odr hidden", _mark(target))
    services.define_all(emitted)
    with _optimised(emitted) as (module, machine):
        return _emit(machine, module, as_object=True)


@lru_cache
def _mark(target: Target) -> str:
    emitted = ModuleEmitter(target)
    services.define_all(emitted)
    return "." + hashlib.sha256(emitted.text().encode()).hexdigest()[:12]


def emit_assembly(functions: Sequence[tir.PrimFunc], target: Target) -> str:
    """Compile lowered functions to assembly text."""
    return assemble(_emitted(functions, target))


def emit_bitcode(functions: Sequence[tir.PrimFunc], target: Target) -> bytes:
    """Return the LLVM IR of lowered functions in its binary form."""
    initialise()
    with _parsed(_emitted(functions, target), _machine(target)) as module:
        return module.as_bitcode()


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
        with _opened(code, llvm.create_context()) as module:
            entries = [
                f.name.removeprefix(PREFIX)
                for f in module.functions
                if f.name.startswith(PREFIX) and not f.is_declaration
            ]
            return _emit(machine, module, as_object=True), entries
    except CodegenError:
        raise
    except (RuntimeError, UnicodeDecodeError) as e:
        raise CodegenError("this is no LLVM IR", found=str(e).strip()[:2000]) from e


def assemble(emitted: ModuleEmitter) -> str:
    """Compile an emitted module to assembly text."""
    with _optimised(emitted) as (module, machine):
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
