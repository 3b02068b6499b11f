"""Tasks of ``weft.auto_scheduler`` from Relay programs; a build with what was found is in ``database``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from weft import error, ir, tir
from weft.auto_scheduler.compute_dag import ComputeDAG
from weft.auto_scheduler.search_task import HardwareParams, SearchTask
from weft.auto_scheduler.workload_registry import register_workload_tensors
from weft.relax.transform.lower_ops import KernelSource, kernel_key
from weft.relay.build_module import as_target, lower_first_order, optimize
from weft.relay.database import kernel_sources
from weft.relay.first_order import needs_machine
from weft.relay.vm.compiler import VMCompiler, as_module, bind_params
from weft.runtime import write_file
from weft.target import Target, TargetLike

__all__ = ["extract_tasks", "is_auto_scheduler_enabled"]


def is_auto_scheduler_enabled() -> bool:
    """Whether builds ask the log of ``ApplyHistoryBest`` for the schedules of their kernels."""
    return bool(ir.PassContext.current().config.get("relay.backend.use_auto_scheduler"))


def extract_tasks(
    mod: ir.IRModule | ir.BaseFunc,
    params: Mapping[str, Any] | None,
    target: TargetLike,
    target_host: TargetLike | None = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | None = None,
    opt_level: int = 3,
    other_targets: Sequence[Any] | None = None,
) -> tuple[list[SearchTask], list[int]]:
    """List the computations of a program's kernels, each once, and how often the program calls them.

    Parameters
    ----------
    mod : IRModule or Function
        The program, with control flow or without.
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name.
    target, target_host : Target or str
    hardware_params : HardwareParams, optional
        Sizes of the machine; by default the target's.
    include_simple_tasks : bool
        Whether kernels without a reduction are listed, too.
    dump_workload_to_dag_log : str, optional
        A file for the computations as text, in JSON, by the keys of their workloads.
    opt_level : int
        Of the passes.
    other_targets : sequence of Target, optional
        TVM's, for programs on several devices: none here.

    Returns
    -------
    tasks : list of SearchTask
        Kernels with a dimension that is not known are none. What Weft chooses about layouts and fusion is chosen
        before, so a program has other tasks than in TVM.
    weights : list of int
    """
    if other_targets:
        raise error.InvalidArgument("tasks are extracted for one target", found=str(list(other_targets)))
    made = as_target(target, target_host)
    with ir.PassContext(opt_level=opt_level):
        kernels = kernels_with_sources(mod, params, made)
    tasks: dict[str, SearchTask] = {}
    weights: Counter[str] = Counter()
    for name, calls, source in kernels:
        dag = ComputeDAG.of_kernel(source.args)
        if dag is None or not (include_simple_tasks or dag.reduces):
            continue
        key = dag.workload_key()
        weights[key] += calls
        if key not in tasks:
            register_workload_tensors(key, dag.tensors)
            tasks[key] = SearchTask(
                workload_key=key, compute_dag=dag, target=made, hardware_params=hardware_params, desc=name
            )
    if dump_workload_to_dag_log is not None:
        _dump(dump_workload_to_dag_log, tasks)
    return list(tasks.values()), [weights[k] for k in tasks]


def kernels_with_sources(
    mod: ir.IRModule | ir.BaseFunc, params: Mapping[str, Any] | None, target: Target
) -> list[tuple[str, int, KernelSource]]:
    """Return the kernels that a program calls, with how often it does and what each is made of.

    It is lowered as a graph, or, where it has control flow or unknown sizes, for the virtual machine.
    """
    made = bind_params(as_module(mod), params) if params else as_module(mod)
    with kernel_sources(wanted=True) as sources:
        plain = optimize(made, target)[0]
        lower = partial(VMCompiler().optimize, made) if needs_machine(plain) else partial(lower_first_order, plain)
        kernels = lower(target)[0]
    calls: Counter[str] = Counter()
    for _, f in kernels.items():
        if not isinstance(f, tir.PrimFunc):
            calls.update(a.name_hint for n in ir.walk(f) for a in getattr(n, "args", ()) if isinstance(a, ir.GlobalVar))
    found = [(v.name_hint, f, calls[v.name_hint]) for v, f in kernels.items() if isinstance(f, tir.PrimFunc)]
    keys = [(name, n, kernel_key(f)) for name, f, n in found if n]
    return [(name, n, sources[key]) for name, n, key in keys if sources and key in sources]


def _dump(file: str, tasks: Mapping[str, SearchTask]) -> None:
    write_file(file, json.dumps({key: str(t.compute_dag) for key, t in tasks.items()}))
