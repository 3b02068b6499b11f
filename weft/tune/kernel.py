"""Tuning TIR functions by themselves, without a model around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from weft import error, ir, runtime, tir
from weft.target import Target, TargetLike
from weft.tune.case import Case
from weft.tune.database import Database, JSONDatabase
from weft.tune.measure import Measurer
from weft.tune.task import Progress, Task, tune_tasks


def tune_tir(
    mod: ir.IRModule | tir.PrimFunc,
    target: TargetLike | None = None,
    database: Database | str | Any = None,
    max_trials_global: int | None = None,
    *,
    budget: float = 60.0,
    arguments: Mapping[str, Sequence[Sequence[Any]]] | None = None,
    space: Callable[[Any], Any] | None = None,
    report: Callable[[Progress], None] | None = None,
    measurer: Measurer | None = None,
) -> Database:
    """Tune TIR functions, and return the database with what was found.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        Functions in block form, not scheduled.
    target : Target, str or dict, optional
        By default this machine's CPU, or what `measurer` measures for. This machine has to run it, without one.
    database : Database or path, optional
        What is known, and where to put what is found; by default a new one in memory.
    max_trials_global : int, optional
        Candidates to measure at most.
    budget : float
        How long, in seconds, about.
    arguments : mapping of str to sequence of calls, optional
        By the name of a function, the calls to measure: arrays and integers. Needed where shapes are symbolic.
    space : callable, optional
        A design space: ``space(sch)`` schedules the function and draws what it leaves open, with
        ``sch.sample_perfect_tile`` and ``sch.sample_categorical``. By default the choices of the schedule rules.
    report : callable, optional
        Called with a :class:`Progress` after each candidate.
    measurer : Measurer, optional
        Compiles and measures, and is ended with the call; by default processes of this machine.

    Examples
    --------
    >>> from weft import te, tune
    >>> x = te.placeholder((1024,), name="x")
    >>> func = te.create_prim_func([x, te.compute((1024,), lambda i: x[i] + 1.0)])
    >>> database = tune.tune_tir(func, budget=10)  # doctest: +SKIP
    >>> with database:
    ...     lib = weft.relax.compile_kernels(weft.IRModule({"f": func}), weft.target.Target("llvm"))  # doctest: +SKIP
    """
    target = target if isinstance(target, Target) else Target(target or (measurer.target if measurer else "llvm"))
    if not isinstance(database, Database):
        database = JSONDatabase(database) if database is not None else Database()
    functions = {"main": mod} if isinstance(mod, tir.PrimFunc) else {v.name_hint: f for v, f in mod.items()}
    tasks: list[Task] = []
    for name, func in functions.items():
        if isinstance(func, tir.PrimFunc) and not func.attrs.get("tir.is_scheduled"):
            tasks.append(Task(func, _cases(name, func, (arguments or {}).get(name)), 1.0, name, space))
    if not tasks:
        raise error.InvalidArgument("there is nothing to tune", expected="TIR functions that are not scheduled")
    with measurer if measurer is not None else nullcontext():
        tune_tasks(tasks, target, database, budget, max_trials=max_trials_global, measurer=measurer, report=report)
    failed = [t for t in tasks if t.failure]
    if len(failed) == len(tasks):
        raise error.InvalidArgument(f"'{failed[0].name}' cannot be measured", found=failed[0].failure)
    return database


def _cases(name: str, func: tir.PrimFunc, calls: Sequence[Sequence[Any]] | None) -> list[Case]:
    if calls is None:
        found = [Case.static(func)]
    else:
        found = [Case.of(func, [_value(v) for v in call]) for call in calls]
        if any(len(call) != len(func.params) for call in calls):
            raise error.InvalidArgument(f"wrong arguments for '{name}'", expected=f"{len(func.params)} of them")
    cases = [case for case in found if case is not None]
    if not cases or len(cases) < len(found):
        raise error.InvalidArgument(
            f"'{name}' cannot be called without being told with what",
            expected="constant shapes, or calls of arrays and integers",
            help=f"pass arguments={{'{name}': [[...]]}}",
        )
    return cases


def _value(value: Any) -> Any:
    return value if isinstance(value, (int, runtime.Tensor)) else runtime.tensor(np.asarray(value))
