"""From lowered functions to object code and to running code, through llvmlite."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from weft.error import CodegenError, InternalError
import weft.ffi  # loads libweft_runtime, whose weft_* symbols kernels call
from weft.runtime import jit_module
from weft.target.llvm.emitter import ModuleEmitter
from weft.target.llvm.entry import emit_function
from weft.tir import PrimFunc

__all__ = ["emit_assembly", "emit_ir", "emit_object", "load_objects"]

_LOCK = threading.Lock()
_READY: set[str] = set()


def _initialise(triple: str) -> None:
    with _LOCK:
        if not _READY:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            _READY.add("all")


def emit_ir(functions: Sequence[PrimFunc], target: Any) -> tuple[str, bool]:
    """Return (LLVM IR of lowered functions, whether they need the full pass pipeline)."""
    module = ModuleEmitter(target)
    for func in functions:
        emit_function(module, func)
    return module.text() + '\n!0 = !{!"branch_weights", i32 2000, i32 1}\n', module.irregular


def _machine(target: Any) -> Any:
    _initialise(target.triple)
    try:
        kind = llvm.Target.from_triple(target.triple)
    except RuntimeError as e:
        raise CodegenError(f"LLVM has no code generator for '{target.triple}'", found=str(e)) from e
    level = int(target.attrs.get("opt-level", 3))
    return kind.create_target_machine(
        cpu=target.cpu, features=target.attribute_string, opt=level, reloc="pic", codemodel="default"
    )


def _optimised(functions: Sequence[PrimFunc], target: Any) -> tuple[Any, Any]:
    text, _ = emit_ir(functions, target)
    machine = _machine(target)
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(text, context)
        module.verify()
    except RuntimeError as e:
        raise InternalError("LLVM rejects the generated code", found=str(e).strip()[:2000]) from e
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def emit_object(functions: Sequence[PrimFunc], target: Any) -> bytes:
    """Compile lowered functions to one object file."""
    module, machine = _optimised(functions, target)
    return machine.emit_object(module)


def emit_assembly(functions: Sequence[PrimFunc], target: Any) -> str:
    """Compile lowered functions to assembly text."""
    module, machine = _optimised(functions, target)
    return machine.emit_assembly(module)


class _Engine:
    """Owns JIT-linked code for as long as a function of it may run."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        _initialise("")

        self.objects = list(objects)
        module = llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"', llvm.create_context())
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            jit=True, codemodel="jitdefault"
        )
        self.engine = llvm.create_mcjit_compiler(module, machine)
        for data in self.objects:
            self.engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self.engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of an entry point."""
        address = self.engine.get_function_address("__tvm_ffi_" + name)
        if not address:
            raise InternalError(f"the compiled code lacks '{name}'")
        return address


def load_objects(objects: Sequence[bytes], names: Sequence[str]) -> Any:
    """Link objects into this process and return a module of their functions.

    Parameters
    ----------
    objects : sequence of bytes
        Object files for this machine.
    names : sequence of str
        The functions (``__tvm_ffi_<name>``) to offer.
    """
    engine = _Engine(objects)
    return jit_module(list(names), [engine.address(n) for n in names], list(objects), engine)
