"""Tuning several tasks: whose turn it is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from weft.meta_schedule.builder import Builder, BuilderInput
from weft.meta_schedule.database import Database
from weft.meta_schedule.measure_callback import create as create_callbacks
from weft.meta_schedule.part import Named, made
from weft.meta_schedule.runner import Runner, RunnerInput, RunnerResult

__all__ = ["GradientBased", "PyTaskScheduler", "RoundRobin", "TaskRecord", "TaskScheduler", "create"]


class TaskRecord:
    """How far a task is."""

    def __init__(self, ctx: Any, weight: float) -> None:
        self.ctx, self.task_weight = ctx, weight
        self.is_terminated = False
        self.latency_ms: list[float] = []
        self.build_error_count = self.run_error_count = self.trials = 0
        self.best: list[float] = []  # after each batch, ms


class TaskScheduler(Named):
    """Gives turns to tasks."""

    def __init__(self) -> None:
        self.tasks_: list[TaskRecord] = []
        self.database_: Any = None
        self.cost_model_: Any = None
        self.measure_callbacks_: list[Any] = []

    def next_task_id(self) -> int:
        """Return the task whose turn it is; -1 where all have ended."""
        raise NotImplementedError

    def alive(self) -> list[int]:
        """List the tasks that have not ended."""
        return [i for i, t in enumerate(self.tasks_) if not t.is_terminated]

    def terminate_task(self, task_id: int) -> None:
        """End a task."""
        self.tasks_[task_id].is_terminated = True

    def tune(
        self,
        tasks: Sequence[Any],
        task_weights: Sequence[float],
        max_trials_global: int,
        max_trials_per_task: int,
        num_trials_per_iter: int,
        builder: Builder,
        runner: Runner,
        measure_callbacks: Sequence[Any],
        database: Database | None,
        cost_model: Any,
    ) -> None:
        """Tune tasks in turns, for so many trials together."""
        self.tasks_ = [TaskRecord(t, w) for t, w in zip(tasks, task_weights, strict=True)]
        self.database_, self.cost_model_, self.measure_callbacks_ = database, cost_model, list(measure_callbacks)
        for task in tasks:
            task.pre_tuning(max_trials_per_task, num_trials_per_iter, None, database, cost_model)
        done = 0
        while done < max_trials_global:
            number = self.next_task_id()
            if number < 0:
                break
            task = self.tasks_[number]
            candidates = task.ctx.generate_measure_candidates()
            if candidates is None:
                self.terminate_task(number)
                continue
            candidates = candidates[: max_trials_global - done]
            done += len(candidates)
            self._measure(number, candidates, builder, runner)
        for task in tasks:
            task.post_tuning()

    def _measure(self, number: int, candidates: Sequence[Any], builder: Builder, runner: Runner) -> None:
        task = self.tasks_[number]
        target = task.ctx.target
        built = builder.build([BuilderInput(c.sch.mod, target) for c in candidates])
        kind = str(target) if target is not None else "llvm"
        good = [(c, b) for c, b in zip(candidates, built, strict=True) if b.error_msg is None]
        futures = iter(runner.run([RunnerInput(str(b.artifact_path), kind, c.args_info) for c, b in good]))
        results = [
            RunnerResult(None, b.error_msg) if b.error_msg is not None else next(futures).result() for b in built
        ]
        task.trials += len(candidates)
        task.build_error_count += sum(b.error_msg is not None for b in built)
        seconds = [sum(r.run_secs) / len(r.run_secs) for r in results if r.run_secs and r.error_msg is None]
        task.run_error_count += len(good) - len(seconds)
        task.latency_ms += [s * 1e3 for s in seconds]
        task.best.append(min(task.latency_ms, default=1e10))
        for callback in self.measure_callbacks_:
            callback.apply(self, number, candidates, built, results)
        task.ctx.notify_runner_results(candidates, results)

    @staticmethod
    def create(kind: str = "gradient", *args: Any, **kwargs: Any) -> TaskScheduler:
        """Make a scheduler: ``"gradient"`` or ``"round-robin"``."""
        return made("task scheduler", {"gradient": GradientBased, "round-robin": RoundRobin}, kind, *args, **kwargs)


class PyTaskScheduler(TaskScheduler):
    """A scheduler written in Python."""


class RoundRobin(TaskScheduler):
    """One task after another."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def next_task_id(self) -> int:
        """Return the next that has not ended."""
        alive = self.alive()
        if not alive:
            return -1
        self._last = next((i for i in alive if i > self._last), alive[0])
        return self._last


class GradientBased(TaskScheduler):
    """Those first whose time still falls, weighted.

    Parameters
    ----------
    alpha : float
        How much the last turns count against how long a task takes.
    window_size : int
        How many turns those are.
    seed : int
    """

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        super().__init__()
        self.alpha, self.window_size = alpha, window_size
        self._random = random.Random(None if seed == -1 else seed)

    def next_task_id(self) -> int:
        """Return the task that is expected to gain most."""
        alive = self.alive()
        fresh = [i for i in alive if not self.tasks_[i].best]
        return fresh[0] if fresh else max(alive, key=self._worth, default=-1)

    def _worth(self, number: int) -> float:
        task = self.tasks_[number]
        window = task.best[-1 - self.window_size :]
        lately = (window[0] - window[-1]) / max(1, len(window) - 1)
        return task.task_weight * (self.alpha * lately + (1 - self.alpha) * task.best[-1] / max(1, task.trials))


create = TaskScheduler.create


def callbacks_of(given: object) -> list[Any]:
    """Return the callbacks that an argument means."""
    if given == "default":
        return create_callbacks()
    return list(given) if isinstance(given, (list, tuple)) else [given]
