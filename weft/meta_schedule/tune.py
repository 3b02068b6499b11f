"""Tuning tasks and TIR functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import error, ir, tir
from weft.meta_schedule.builder import Builder
from weft.meta_schedule.cost_model import CostModel
from weft.meta_schedule.database import Database
from weft.meta_schedule.runner import Runner
from weft.meta_schedule.task_scheduler import TaskScheduler, callbacks_of
from weft.meta_schedule.tune_config import TuneConfig
from weft.meta_schedule.tune_context import TuneContext
from weft.target import Target
from weft.te import Tensor, create_prim_func
from weft.tir.schedule import Schedule


def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: object = "default",
    task_scheduler: TaskScheduler | str = "gradient",
    module_equality: str = "structural",
) -> Database:
    """Tune tasks and return the database with what was found.

    Parameters
    ----------
    tasks : sequence of TuneContext
    task_weights : sequence of float
        How often each is called.
    work_dir : str
        The folder of the database.
    max_trials_global, max_trials_per_task : int
        Schedules to measure at most.
    num_trials_per_iter : int
        Schedules of a batch.
    builder, runner, database, cost_model, measure_callbacks, task_scheduler : object or str
    module_equality : str
    """
    if not tasks:
        raise error.InvalidArgument("there are no tasks to tune")
    if len(tasks) != len(task_weights):
        raise error.InvalidArgument("each task has a weight", expected=str(len(tasks)), found=str(len(task_weights)))
    if not isinstance(database, Database):
        where = {"work_dir": work_dir} if database == "json" else {}
        database = Database.create(database, module_equality=module_equality, **where)
    scheduler = task_scheduler if isinstance(task_scheduler, TaskScheduler) else TaskScheduler.create(task_scheduler)
    scheduler.tune(
        tasks=tasks,
        task_weights=task_weights,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_global if max_trials_per_task is None else max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        builder=builder if isinstance(builder, Builder) else Builder.create(builder),
        runner=runner if isinstance(runner, Runner) else Runner.create(runner),
        measure_callbacks=callbacks_of(measure_callbacks),
        database=database,
        cost_model=CostModel.create(cost_model) if isinstance(cost_model, str) else cost_model,
    )
    return database


def tune_tir(
    mod: ir.IRModule | tir.PrimFunc,
    target: Target | str,
    work_dir: str | TuneConfig = "",
    max_trials_global: int | str = 0,
    *,
    config: TuneConfig | None = None,
    max_trials_per_task: int | None = None,
    space: object = "post-order-apply",
    strategy: object = "evolutionary",
    num_tuning_cores: int | str = "physical",
    seed: int | None = None,
    special_space: Mapping[str, Any] | None = None,
    task_name: str = "main",
    **options: Any,
) -> Any:
    """Tune TIR functions and return the database with what was found.

    As in TVM 0.9 there may be a ``TuneConfig`` for the numbers; the best schedule is returned then.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        Each function is a task.
    target : Target or str
    work_dir : str
    max_trials_global, max_trials_per_task : int
    space, strategy : object or str
    num_tuning_cores, seed : Any
    special_space : mapping of str to space generator, optional
        For single functions, by name.
    task_name : str
        Where there is one function.
    **options : Any
        Of :func:`tune_tasks`.
    """
    if isinstance(work_dir, TuneConfig):  # in front of the folder
        config, work_dir = work_dir, str(max_trials_global)
    if config is not None:
        database: Database = tune_tir(mod, target, work_dir, **config.options(options))
        found = compile_tir(database, mod, target)
        return Schedule(mod) if found is None else found
    functions = {task_name: mod} if isinstance(mod, tir.PrimFunc) else {v.name_hint: f for v, f in mod.items()}
    tasks = [
        TuneContext(
            func,
            target=target,
            space_generator=(special_space or {}).get(name, space),
            search_strategy=strategy,
            task_name=name,
            rand_state=-1 if seed is None else seed,
            num_threads=num_tuning_cores,
        ).clone()
        for name, func in functions.items()
        if isinstance(func, tir.PrimFunc)
    ]
    return tune_tasks(
        tasks=tasks,
        task_weights=[1.0] * len(tasks),
        work_dir=work_dir,
        max_trials_global=int(max_trials_global),
        max_trials_per_task=max_trials_per_task,
        **options,
    )


def tune_te(
    tensors: Sequence[Tensor], target: Target | str, config: TuneConfig, work_dir: str, **options: Any
) -> Schedule:
    """Tune what computes tensors, inputs and outputs in the order of the parameters; the best schedule is returned."""
    return tune_tir(create_prim_func(list(tensors)), target, work_dir, config=config, **options)


def compile_tir(database: Database, mod: ir.IRModule | tir.PrimFunc, target: Target | str) -> Schedule | None:
    """Return the fastest schedule that a database has for a module; None where it has none."""
    whole = ir.IRModule({"main": mod}) if isinstance(mod, tir.PrimFunc) else mod
    return database.query_schedule(whole, Target(target))
