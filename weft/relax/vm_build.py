"""relax.build: passes, bytecode, kernels (from the disk cache where it has them), linked into one executable."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from weft.error import InvalidArgument
from weft.ir import Attrs, Function, IRModule, Pass, PassContext, fingerprint, rules_of
from weft.relax.pipeline import get_pipeline
from weft.relax.transform import EXTERNAL_MODULES, BindParams, schedule_tir
from weft.relax.vm import ExecBuilder, vm_codegen, vmtir_codegen
from weft.runtime import Module, VMExecutable, cache
from weft.target import Target, compile_func, emit_object, load_objects
from weft.tir import PrimFunc

__all__ = ["build", "compile_kernels"]

METADATA_FUNCTION = "weft.metadata"
_STACK_BYTES = 64 << 20  # of compiling threads, whose walks recurse as deep as expressions nest


def build(
    mod: IRModule,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: Pass | None = None,
    exec_mode: str = "bytecode",
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> VMExecutable:
    """Compile a module to an executable of the virtual machine.

    Parameters
    ----------
    mod : IRModule
        Relax functions, and TIR functions they call.
    target : Target, str or dict, optional
        By default the host's CPU.
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name; they become constants.
    relax_pipeline : str, Pass or None
        A pipeline's name, a pass, or None where `mod` is ready for code generation.
    tir_pipeline : Pass, optional
        Run on the TIR functions instead of the schedule rules.
    exec_mode : str
        ``"bytecode"``: the machine interprets the functions. ``"compiled"``: they become native code,
        ``__vmtir__<name>``, that works on the machine's registers.
    progress : callable, optional
        ``progress(what, done, total)``, called as kernels are compiled.
    """
    if exec_mode not in ("bytecode", "compiled"):
        raise InvalidArgument(f"unknown exec_mode '{exec_mode}'", expected="'bytecode' or 'compiled'")
    if any(isinstance(f, Function) and getattr(f, "body", None) is None for _, f in mod.items()):
        raise InvalidArgument("the module has a function without a body")
    target = target if isinstance(target, Target) else Target(target or "llvm")
    if params:
        mod = BindParams("main", params)(mod)
    metadata = _metadata(mod)
    external = mod.attrs.get(EXTERNAL_MODULES, ())
    if relax_pipeline is not None:
        mod = (get_pipeline(relax_pipeline, target) if isinstance(relax_pipeline, str) else relax_pipeline)(mod)
    builder = ExecBuilder()
    kernels = vm_codegen(builder, mod)
    functions = vmtir_codegen(builder) if exec_mode == "compiled" else IRModule({})
    if metadata is not None:
        with builder.function(METADATA_FUNCTION):
            builder.emit_call("vm.builtin.copy", [builder.convert_constant(metadata)], builder.r(0))
            builder.emit_ret(builder.r(0))
    modules = [compile_kernels(kernels, target, tir_pipeline, progress), _compile_functions(functions, target)]
    return builder.get([*(m for m in modules if m is not None), *external])


def _compile_functions(functions: IRModule, target: Target) -> Module | None:
    """Compile functions ``__vmtir__<name>``, which are in lowered form, for the host."""
    host = target if target.kind.name == "llvm" else Target("llvm")
    named = [f for _, f in functions.items() if isinstance(f, PrimFunc)]
    return load_objects([emit_object(named, host)], [f.attrs["global_symbol"] for f in named]) if named else None


def _metadata(mod: IRModule) -> str | None:
    main = mod["main"] if "main" in mod else None
    attrs: Attrs | None = getattr(main, "attrs", None)
    return attrs.get("weft.io") if attrs is not None else None


def compile_kernels(
    mod: IRModule,
    target: Target,
    tir_pipeline: Pass | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Module | None:
    """Compile the TIR functions of a module to one native module, taking from the disk cache what it has.

    Returns
    -------
    Module or None
        None when there is no TIR function.
    """
    functions = [(f.attrs.get("global_symbol") or v.name_hint, f) for v, f in mod.items() if isinstance(f, PrimFunc)]
    if not functions:
        return None
    done = 0
    own_code = any(k.startswith("tir.") for k in PassContext.current().config) or rules_of(target.kind.name)

    def report(name: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(name, done, len(functions))

    def compile_one(item: tuple[str, PrimFunc]) -> bytes:
        name, func = item
        func = func.with_attr("global_symbol", name)
        key = _cache_key(func, name, target) if tir_pipeline is None and not own_code else None
        code = cache.get(key) if key is not None else None
        if code is None:
            scheduled = (
                tir_pipeline(IRModule({name: func}))
                if tir_pipeline is not None
                else schedule_tir(target=target)(IRModule({name: func}))
            )
            code = compile_func(cast(PrimFunc, scheduled[name]), target)
            if key is not None:
                cache.put(key, code)
        report(name)
        return code

    before = threading.stack_size(_STACK_BYTES)
    try:
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
            objects = list(pool.map(compile_one, functions))
    finally:
        threading.stack_size(before)
    return load_objects(objects, [name for name, _ in functions])


def _cache_key(func: PrimFunc, name: str, target: Target) -> str:
    text = "\n".join([fingerprint(func), name, str(target), compiler_fingerprint()])
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def compiler_fingerprint() -> str:
    """Hash the sources that decide what code a function becomes, so that another compiler never uses old entries."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for package in ("ir", "arith", "tir", "target"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
