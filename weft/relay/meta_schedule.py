"""Tuning the kernels of Relay programs by ``weft.meta_schedule``, and compiling with what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import error, ir, meta_schedule
from weft.relax import meta_schedule as of_relax
from weft.relay import vm
from weft.relay.build_module import as_target, build, lower_to_graph
from weft.relay.vm.compiler import as_module, bind_params
from weft.target import Target

extracted_tasks_to_tune_contexts = of_relax.extracted_tasks_to_tune_contexts


def _context(opt_level: int, pass_config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> ir.PassContext:
    """Make the context of the passes; what TVM's other options choose here has one way only."""
    known = {"disabled_pass", "instruments"}
    unknown = options.keys() - known - {"executor", "runtime", "module_equality"}
    if unknown:
        raise error.InvalidArgument(f"unknown option '{min(unknown)}'", expected=", ".join(sorted(known)))
    given = {k: v for k, v in options.items() if k in known and v is not None}
    return ir.PassContext(opt_level=opt_level, config=dict(pass_config or {}), **given)


def _kernels(mod: Any, target: Any, params: Mapping[str, Any] | None, context: ir.PassContext) -> ir.IRModule:
    with context:
        mod = as_module(mod)
        return lower_to_graph(bind_params(mod, params) if params else mod, as_target(target))[0]


def extract_tasks(
    mod: ir.IRModule | ir.BaseFunc,
    target: Target | str,
    params: Mapping[str, Any] | None = None,
    *,
    opt_level: int = 3,
    pass_config: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[meta_schedule.ExtractedTask]:
    """List the kernels of a program without control flow, each once, with how often it is called.

    Parameters
    ----------
    mod : IRModule or Function
        The program, as :func:`weft.relay.build` takes it.
    target : Target or str
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name.
    opt_level, pass_config, disabled_pass, instruments
        The context of the passes. TVM's ``module_equality``, ``executor`` and ``runtime`` are accepted.

    Returns
    -------
    list of ExtractedTask
        Their names, their TIR functions as modules, and their numbers of calls.

    Raises
    ------
    LoweringError
        When the program needs the virtual machine.
    """
    lowered = _kernels(mod, target, params, _context(opt_level, pass_config, options))
    return of_relax.extract_tasks(lowered, as_target(target))


def tune_relay(
    mod: ir.IRModule | ir.BaseFunc,
    params: Mapping[str, Any] | None,
    target: Target | str,
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    opt_level: int = 3,
    pass_config: Mapping[str, Any] | None = None,
    **options: Any,
) -> meta_schedule.Database:
    """Tune the kernels of a program and return the database with what was found.

    The program is as of :func:`extract_tasks`, all else as of :func:`weft.relax.meta_schedule.tune_relax`.
    """
    lowered = _kernels(mod, target, params, _context(opt_level, pass_config, {}))
    where = as_target(target)
    return of_relax.tune_relax(
        lowered, None, where, work_dir, max_trials_global, max_trials_per_task, op_names, **options
    )


def compile_relay(
    database: meta_schedule.Database,
    mod: ir.IRModule | ir.BaseFunc,
    target: Target | str,
    params: Mapping[str, Any] | None = None,
    *,
    backend: str = "graph",
    opt_level: int = 3,
    pass_config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Compile a program with the schedules of a database; other kernels are scheduled as ever.

    Parameters
    ----------
    database : Database
        What :func:`tune_relay` returned, or one that was loaded.
    backend : str
        ``"graph"`` gives what :func:`weft.relay.build` gives, ``"vm"`` an executable of the Relay virtual machine.

    Raises
    ------
    InvalidArgument
        When there is no such backend or option.
    """
    makers = {"graph": build, "vm": vm.compile}
    if backend not in makers:
        raise error.InvalidArgument("there is no such backend", expected="'graph' or 'vm'", found=repr(backend))
    with database, _context(opt_level, pass_config, options):
        return makers[backend](mod, as_target(target), params=params)
