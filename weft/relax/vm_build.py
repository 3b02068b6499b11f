"""relax.build: passes, bytecode, kernels (from the disk cache where it has them), linked into one executable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from math import prod
from typing import Any, cast

from weft import error, tune
from weft.compile_key import compile_key, is_plain
from weft.garbage import rarely_collected
from weft.ir import Attrs, DeepPool, Function, IntImm, IRModule, Pass, Sequential, dumped, fingerprint, show_text
from weft.ir.spec import verify
from weft.relax import transform as passes
from weft.relax.kernel_builder import CompiledKernel, KernelJob, compile_kernel_jobs, compile_scheduled, schedule_kernel
from weft.relax.pipeline import PRECISIONS, get_pipeline, lowering_passes
from weft.relax.recompile import recompilable_kernels
from weft.relax.schedule_report import schedule_report, slow_kernels, warn_of_slow_kernels
from weft.relax.spec import VM_READY
from weft.relax.vm import ExecBuilder, vm_codegen, vmtir_codegen
from weft.relax.vm.vmtir import PREFIX
from weft.runtime import Module, VMExecutable, cache
from weft.spelling import also_called
from weft.target import Kernel, Target, TargetLike, compile_func, emit_object, get_source, load_objects, services
from weft.target import build as build_target
from weft.tir import PrimFunc
from weft.tir.analysis import refuse_accesses_outside
from weft.tune import Tuned, current_database, open_database

METADATA_FUNCTION = "weft.metadata"
_INLINE_ELEMENTS = 256  # of all tensors of a kernel that compiled functions have a copy of


@error.own_errors("compiling the module")
@also_called(pipeline="relax_pipeline")
@rarely_collected()
@dumped
def build(
    mod: IRModule,
    target: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = None,
    exec_mode: str = "bytecode",
    *,
    progress: Callable[[str, int, int], None] | None = None,
    tuned: tune.Database | str | os.PathLike[str] | None = None,
    precision: str = "float32",
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
        Run on the TIR functions instead of the schedule rules, which ``"default"`` names.
    exec_mode : str
        ``"bytecode"``: the machine interprets the functions. ``"compiled"``: they become native code,
        ``__vmtir__<name>``, that works on the machine's registers.
    progress : callable, optional
        ``progress(what, done, total)``, called as kernels are compiled.
    tuned : Database or path, optional
        What ``weft tune`` found; by default the current database (``with database:``), if there is one.
    precision : str
        What products with constant weights are computed on: ``"float32"``, or ``"bf16"`` (``"bfloat16"``), whose sums
        are float32 and which halves the memory of weights. Where the target has no instructions for it, a warning
        says that it stays float32.
    """
    if exec_mode not in ("bytecode", "compiled"):
        raise error.InvalidArgument(f"unknown exec_mode '{exec_mode}'", expected="'bytecode' or 'compiled'")
    mod = IRModule.from_expr(mod)
    if any(isinstance(f, Function) and getattr(f, "body", None) is None for _, f in mod.items()):
        raise error.InvalidArgument("the module has a function without a body")
    verify(mod, "tir.well_formed")
    refuse_accesses_outside(mod)
    target = target if isinstance(target, Target) else Target(target or "llvm")
    tir_pipeline = kernel_pass(tir_pipeline)
    if params:
        mod = passes.BindParams("main", params)(mod)
    records = _records(tuned, target)
    metadata = _metadata(mod)
    external = mod.attrs.get(passes.EXTERNAL_MODULES, ())
    if relax_pipeline is not None:
        with records.database if records.database is not None else nullcontext():
            chosen = _pipeline(relax_pipeline, target, precision)
            mod = chosen(mod)
            if not _ends_in_calls(chosen):
                rest = passes.normalize, passes.lambda_lift, passes.check_relations, passes.lower_ops, passes.fuse_tir
                mod = Sequential([*(make() for make in rest), *lowering_passes(target)])(mod)
    builder = ExecBuilder()
    kernels = vm_codegen(builder, mod)
    if exec_mode == "compiled":
        functions, direct = vmtir_codegen(builder, _named(kernels) if target.kind.compile is not None else {})
    else:
        functions, direct = IRModule({}), set[str]()
    modules, objects, names, noted = list[Module](), list[bytes](), list[str](), dict[str, str]()
    if target.kind.compile is not None:
        objects, names, noted = _compile_objects(kernels, target, tir_pipeline, progress, direct, records)
    elif (whole := _build_whole(kernels, target, tir_pipeline, records)) is not None:
        modules.append(whole)
    report = schedule_report(kernels, noted, target)
    slow = slow_kernels(mod, report)
    warn_of_slow_kernels(slow)
    if metadata is not None:
        with builder.function(METADATA_FUNCTION):
            about = json.dumps({**json.loads(metadata), "schedule": str(report)})
            builder.emit_call("vm.builtin.copy", [builder.convert_constant(about)], builder.r(0))
            builder.emit_ret(builder.r(0))
    if len(functions.functions):
        objects.append(_compile_functions(functions, kernels, direct, target, tir_pipeline, records))
        names += [v.name_hint for v, _ in functions.items()]
    modules += [load_objects(objects, names)] if objects else []
    made = builder.get([*modules, *external])
    made.slow_kernels = slow
    show_text("", "bytecode.txt", made.as_text)
    if target.kind.compile is not None:
        here = copy_context()  # hot kernels are made later, by another thread, as these were
        again = lambda m: here.copy().run(compile_kernels, m, target, tir_pipeline)  # noqa: E731
        made.recompilable = recompilable_kernels(kernels, again)
    return made


def _vmcodegen(  # pyright: ignore[reportUnusedFunction] - the name that TVM's programs know
    builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode"
) -> IRModule:
    """Emit the Relax functions of a module that nothing remains to be lowered in, and return its TIR functions.

    In the mode ``"compiled"`` they are among these, as ``__vmtir__<name>``.
    """
    kernels = vm_codegen(builder, mod)
    if exec_mode != "compiled":
        return kernels
    functions, _ = vmtir_codegen(builder)
    return kernels.with_functions({**kernels.functions, **functions.functions})


def _vmlink(  # pyright: ignore[reportUnusedFunction] - as above
    builder: ExecBuilder,
    target: Any = None,
    tir_mod: IRModule | None = None,
    tir_pipeline: Pass | None = None,
    ext_libs: Sequence[Module] = (),
) -> VMExecutable:
    """Compile the TIR functions of :func:`_vmcodegen` and return the executable of a builder with them."""
    target = target if isinstance(target, Target) else Target(target or "llvm")
    found = {v: f for v, f in (tir_mod.items() if tir_mod is not None else ()) if isinstance(f, PrimFunc)}
    functions = IRModule({v: f for v, f in found.items() if v.name_hint.startswith(PREFIX)})
    kernels = IRModule({v: f for v, f in found.items() if not v.name_hint.startswith(PREFIX)})
    made = compile_kernels(kernels, target, tir_pipeline)
    modules = [made] if made is not None else []
    if len(functions):
        code = _compile_functions(functions, kernels, set(), target, tir_pipeline, _records(None, target))
        modules.append(load_objects([code], [v.name_hint for v, _ in functions.items()]))
    return builder.get([*modules, *ext_libs])


def kernel_pass(given: str | Pass | None) -> Pass | None:
    """Return the pass that a ``tir_pipeline`` is, None where that is the usual one."""
    if given is None or given == "default":
        return None
    if isinstance(given, str) or not callable(given):
        raise error.InvalidArgument("no pipeline of kernels", expected="a Pass or 'default'", found=repr(given))
    return given


def _pipeline(chosen: str | Pass, target: Target, precision: str) -> Pass:
    if isinstance(chosen, str):
        return get_pipeline(chosen, target, precision)
    if PRECISIONS.get(precision) != "float32":
        raise error.InvalidArgument(
            "a precision is for pipelines by name",
            found=repr(precision),
            help="make the pass with weft.relax.get_pipeline(name, target, precision)",
        )
    return chosen


def _ends_in_calls(chosen: Pass) -> bool:
    """Whether a pipeline ends in what the code generator takes; ``zero``, and most of users' own, do not."""
    return chosen.ensures == VM_READY.name or any(map(_ends_in_calls, getattr(chosen, "passes", ())))


def _records(tuned: Any, target: Target) -> Tuned:
    """The records to compile with: those that are given, else of the current database."""
    return Tuned(open_database(tuned) if tuned is not None else current_database(), target)


def _metadata(mod: IRModule) -> str | None:
    main = mod["main"] if "main" in mod else None
    attrs: Attrs | None = getattr(main, "attrs", None)
    return attrs.get("weft.io") if attrs is not None else None


@dumped
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
        None when there is no TIR function. Its source is made when it is asked for.
    """
    records = _records(None, target)
    if target.kind.compile is None:
        return _build_whole(mod, target, tir_pipeline, records)
    objects, names, _ = _compile_objects(mod, target, tir_pipeline, progress, set(), records)
    if not objects:
        return None
    module, here, kernels = load_objects(objects, names), copy_context(), IRModule(dict(_named(mod)))  # no constants
    scheduled = lambda: here.copy().run(_all_scheduled, kernels, target, tir_pipeline, records)  # noqa: E731
    module.set_source(lambda fmt: get_source(scheduled(), target, fmt))
    return module


def compile_with_callers(callers: IRModule, kernels: IRModule, target: Target) -> Module:
    """Compile TIR functions in lowered form, and the kernels that they call directly (``tir.call_kernel``).

    Returns
    -------
    Module
        Of the callers; kernels are inside.
    """
    direct = set(_named(kernels))
    records = _records(None, target)
    objects, _, _ = _compile_objects(kernels, target, None, None, direct, records)
    objects.append(_compile_functions(callers, kernels, direct, target, None, records))
    return load_objects(objects, list(_named(callers)))


def _named(mod: IRModule) -> dict[str, PrimFunc]:
    return {f.attrs.get("global_symbol") or v.name_hint: f for v, f in mod.items() if isinstance(f, PrimFunc)}


def _compile_objects(
    mod: IRModule,
    target: Target,
    tir_pipeline: Pass | None,
    progress: Callable[[str, int, int], None] | None,
    direct: set[str],
    records: Tuned,
) -> tuple[list[bytes], list[str], dict[str, str]]:
    """Compile TIR functions to objects; the bodies of those in `direct` are visible to others.

    Returns the objects, their names, and by name what the schedule rules decided.
    """
    jobs = [KernelJob(n, f, "hidden" if n in direct else "internal") for n, f in _named(mod).items()]
    keys: dict[str, str | None] = {}
    objects: dict[str, CompiledKernel] = {}

    def here(job: KernelJob) -> CompiledKernel:
        if tir_pipeline is None:
            return compile_scheduled(job.func, job.name, target, job.linkage, records)
        func = _scheduled(job.func, job.name, target, tir_pipeline, records)
        return CompiledKernel(compile_func(func, target, job.linkage, beside=True))

    def made(job: KernelJob, kernel: CompiledKernel) -> None:
        key = keys.get(job.name)
        if key is not None:
            cache.put(key, kernel.pack())
        found(job, kernel)

    def found(job: KernelJob, kernel: CompiledKernel) -> None:
        objects[job.name] = kernel
        if progress is not None:
            progress(job.name, len(objects), len(jobs))

    if tir_pipeline is None:
        with DeepPool(len(os.sched_getaffinity(0))) as pool:
            keys = dict(zip((j.name for j in jobs), pool.map(lambda j: _key_of(j, target, records), jobs), strict=True))
            kept = list(pool.map(lambda j: _kept(keys[j.name]), jobs))
        for job, kernel in zip(jobs, kept, strict=True):
            if kernel is not None:
                found(job, kernel)
    missing = [job for job in jobs if job.name not in objects]
    if missing:
        compile_kernel_jobs(missing, here, target, records, made, plain=tir_pipeline is None and is_plain())
    names = [job.name for job in jobs]
    return (
        [*(objects[n].code for n in names), *services(target)] if names else [],
        names,
        {n: objects[n].record for n in names if objects[n].record},
    )


def _key_of(job: KernelJob, target: Target, records: Tuned) -> str | None:
    return _cache_key({job.name: job.func}, target, job.linkage, records)


def _kept(key: str | None) -> CompiledKernel | None:
    """Take a kernel from the disk cache."""
    entry = cache.get(key) if key is not None else None
    return CompiledKernel.unpack(entry) if entry is not None else None


def _build_whole(mod: IRModule, target: Target, tir_pipeline: Pass | None, records: Tuned) -> Module | None:
    """Compile TIR functions by a kind of target that makes modules only."""
    return build_target(_all_scheduled(mod, target, tir_pipeline, records), target) if _named(mod) else None


def _all_scheduled(mod: IRModule, target: Target, tir_pipeline: Pass | None, records: Tuned) -> IRModule:
    return IRModule({n: _scheduled(f, n, target, tir_pipeline, records) for n, f in _named(mod).items()})


def _scheduled(func: PrimFunc, name: str, target: Target, tir_pipeline: Pass | None, records: Tuned) -> PrimFunc:
    if tir_pipeline is None:
        return schedule_kernel(func, name, target, records)
    return cast(PrimFunc, tir_pipeline(IRModule({name: func.with_attr("global_symbol", name)}))[name])


def _compile_functions(
    functions: IRModule, mod: IRModule, direct: set[str], target: Target, tir_pipeline: Pass | None, records: Tuned
) -> bytes:
    """Compile functions ``__vmtir__<name>`` for the host, with copies of the small kernels that they call."""
    host = target if target.kind.compile is not None else Target("llvm")
    called = {n: f for n, f in _named(mod).items() if n in direct}
    key = _cache_key(_named(functions) | called, host, "functions", records) if tir_pipeline is None else None
    code = cache.get(key) if key is not None else None
    if code is None:
        kernels: dict[str, Kernel] = {}
        for name, func in called.items():
            inline = _is_small(func)
            body = target.kind.lower(_scheduled(func, name, target, tir_pipeline, records), target) if inline else func
            kernels[name] = Kernel(body, inline)
        code = emit_object(list(_named(functions).values()), host, kernels=kernels)
        if key is not None:
            cache.put(key, code)
    return code


def _is_small(func: PrimFunc) -> bool:
    """Whether a kernel's work is of the order of its call."""
    elements = [
        prod(d.value if isinstance(d, IntImm) else _INLINE_ELEMENTS + 1 for d in b.shape) for _, b in func.buffer_map
    ]
    return sum(elements) <= _INLINE_ELEMENTS


def _cache_key(functions: Mapping[str, PrimFunc], target: Target, kind: str, records: Tuned) -> str | None:
    what = [p for name, func in functions.items() for p in (name, fingerprint(func), *_argument_names(func))]
    return compile_key(kind, what, target, [records.cache_part(func) for func in functions.values()])


def _argument_names(func: PrimFunc) -> list[str]:
    """The names that messages of the entry point say, which fingerprints leave out."""
    buffers = [n for _, b in func.buffer_map for n in (b.name, *(str(d) for d in b.shape))]
    return [*(p.name for p in func.params), *buffers]
