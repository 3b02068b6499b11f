"""MetaScheduleTuneTIR, MetaScheduleTuneIRMod, MetaScheduleApplyDatabase: kernels tuned by ``weft.meta_schedule``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
from weft import error, tir
from weft.ir import Call, Function, GlobalVar, IRModule, Pass, find
from weft.relax.transform.bind_params import BindParams
from weft.spelling import also_called
from weft.target import Target, TargetLike


def extract_tasks(
    mod: IRModule, target: TargetLike, params: Mapping[str, Any] | None = None, module_equality: str = "structural"
) -> list[weft.meta_schedule.ExtractedTask]:
    """List the kernels of a program that call sites name, each once, with how often they are called.

    Parameters
    ----------
    mod : IRModule or Function
        Legalized: calls of TIR functions, not of operators.
    target : Target, str or dict
    params : mapping of str to tensor, optional
        Values for parameters of ``main``.
    module_equality : str
        Accepted: kernels that compute the same are one task.
    """
    mod = IRModule.from_expr(mod)
    if params:
        mod = BindParams("main", params)(mod)
    target = Target(target)
    calls: Counter[str] = Counter()
    for f in (f for _, f in mod.items() if isinstance(f, Function)):
        for n in find(f, Call):
            calls.update(a.name_hint for a in n.args if isinstance(a, GlobalVar))
    found: dict[str, weft.meta_schedule.ExtractedTask] = {}
    for var, func in mod.items():
        weight = calls[var.name_hint]
        if not isinstance(func, tir.PrimFunc) or not weight or func.attrs.get("tir.is_scheduled"):
            continue
        kernel = IRModule({"main": func.with_attr("global_symbol", var.name_hint)})
        key = weft.meta_schedule.database.workload_hash(kernel)
        if key in found:
            found[key] = found[key]._replace(weight=found[key].weight + weight)
        else:
            found[key] = weft.meta_schedule.ExtractedTask(var.name_hint, kernel, target, [kernel], weight)
    return list(found.values())


@also_called(num_tuning_cores="num_threads")
def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[weft.meta_schedule.ExtractedTask],
    work_dir: str,
    space: weft.meta_schedule.SpaceGenerator | Callable[..., Any] | str = "post-order-apply",
    strategy: weft.meta_schedule.SearchStrategy | str = "evolutionary",
    num_threads: int | str = "physical",
    seed: int | None = None,
) -> tuple[list[weft.meta_schedule.TuneContext], list[float]]:
    """Make tasks to tune of kernels, and their weights."""
    tasks = [
        weft.meta_schedule.TuneContext(
            t.dispatched[0],
            target=t.target,
            space_generator=space,
            search_strategy=strategy,
            task_name=t.task_name,
            rand_state=-1 if seed is None else seed,
            num_threads=num_threads,
        ).clone()
        for t in extracted_tasks
    ]
    return tasks, [float(t.weight) for t in extracted_tasks]


def tune_relax(
    mod: IRModule,
    params: Mapping[str, Any] | None,
    target: TargetLike,
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    space: weft.meta_schedule.SpaceGenerator | Callable[..., Any] | str = "post-order-apply",
    strategy: weft.meta_schedule.SearchStrategy | str = "evolutionary",
    seed: int | None = None,
    module_equality: str = "structural",
    **options: Any,
) -> weft.meta_schedule.Database:
    """Tune the kernels of a program and return the database with what was found.

    Parameters
    ----------
    mod : IRModule or Function
        Legalized.
    params : mapping of str to tensor, optional
    target : Target, str or dict
    work_dir : str
        The folder of the database.
    max_trials_global, max_trials_per_task : int
        Schedules to measure at most.
    op_names : sequence of str, optional
        Only kernels in whose names one of these occurs.
    space, strategy : object or str
    seed : int, optional
    module_equality : str
    **options : Any
        Of :func:`weft.meta_schedule.tune_tasks`.
    """
    tasks = extract_tasks(mod, target, params, module_equality)
    if op_names:
        tasks = [t for t in tasks if any(name in t.task_name for name in op_names)]
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, work_dir, space, strategy, seed=seed)
    return weft.meta_schedule.tune_tasks(
        tasks=contexts,
        task_weights=weights,
        work_dir=work_dir,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task,
        module_equality=module_equality,
        **options,
    )


def _current_target() -> Target:
    target = Target.current()
    if target is None:
        raise error.InvalidArgument("there is no current target", help="use `with Target('llvm'):`")
    return target


def MetaScheduleTuneIRMod(
    params: Mapping[str, Any],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
) -> Pass:
    """Make the pass that tunes the kernels of a module for the current target; the module stays as it is.

    Parameters
    ----------
    params : mapping of str to tensor
    work_dir : str
        The folder of the database.
    max_trials_global, max_trials_per_task : int
    op_names : sequence of str, optional
    """

    def run(mod: IRModule) -> IRModule:
        """Tune."""
        if max_trials_global > 0:
            tune_relax(mod, params, _current_target(), work_dir, max_trials_global, max_trials_per_task, op_names)
        return mod

    return Pass("MetaScheduleTuneIRMod", run, 0, MetaScheduleTuneIRMod.__doc__)


def MetaScheduleTuneTIR(work_dir: str, max_trials_global: int) -> Pass:
    """Make the pass that tunes all TIR functions of a module for the current target; the module stays as it is.

    Parameters
    ----------
    work_dir : str
        The folder of the database.
    max_trials_global : int
        Schedules to measure at most, of all functions together.
    """

    def run(mod: IRModule) -> IRModule:
        """Tune."""
        functions = {v.name_hint: f for v, f in mod.items() if isinstance(f, tir.PrimFunc)}
        open_ones = {n: f for n, f in functions.items() if not f.attrs.get("tir.is_scheduled")}
        if open_ones and max_trials_global > 0:
            target = _current_target()
            kernels = [IRModule({"main": f.with_attr("global_symbol", n)}) for n, f in open_ones.items()]
            tasks = [
                weft.meta_schedule.ExtractedTask(n, k, target, [k], 1) for n, k in zip(open_ones, kernels, strict=True)
            ]
            contexts, weights = extracted_tasks_to_tune_contexts(tasks, work_dir)
            weft.meta_schedule.tune_tasks(
                tasks=contexts, task_weights=weights, work_dir=work_dir, max_trials_global=max_trials_global
            )
        return mod

    return Pass("MetaScheduleTuneTIR", run, 0, MetaScheduleTuneTIR.__doc__)


def MetaScheduleApplyDatabase(work_dir: str | None = None, enable_warning: bool = False) -> Pass:
    """Make the pass that schedules TIR functions as the records of a database say.

    Parameters
    ----------
    work_dir : str, optional
        The folder of the database; by default that of ``with database:``.
    enable_warning : bool
        Whether functions without a record are told of.
    """

    def run(mod: IRModule) -> IRModule:
        """Schedule what has a record."""
        target = _current_target()
        search = weft.meta_schedule
        current = work_dir is None
        database = search.Database.current() if current else search.database.create("json", work_dir=work_dir)
        if database is None:
            raise error.InvalidArgument("there is no database", help="use `with database:`, or pass work_dir")
        functions: dict[Any, Any] = {}
        for var, func in mod.items():
            functions[var] = func
            if not isinstance(func, tir.PrimFunc) or func.attrs.get("tir.is_scheduled"):
                continue
            kernel = IRModule({"main": func})
            sch = database.query_schedule(kernel, target, var.name_hint)
            if sch is not None:
                functions[var] = sch.mod["main"].with_attr("tir.is_scheduled", True)
            elif enable_warning:
                print(f"no record of '{var.name_hint}' for {target}")
        return mod.with_functions(functions)

    return Pass("MetaScheduleApplyDatabase", run, 0, MetaScheduleApplyDatabase.__doc__)
