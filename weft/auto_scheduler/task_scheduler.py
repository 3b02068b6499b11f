"""Tuning several tasks: whose turn it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.auto_scheduler.measure_record import RecordReader
from weft.auto_scheduler.search_policy import PreloadMeasuredStates, measurer_of, policy_named
from weft.error import InvalidArgument


class TaskSchedulerCallback:
    """Hears of the rounds of a task scheduler."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called before a task is tuned."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called after a task was tuned."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints a table of the tasks."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Print it."""
        if task_scheduler.tune_option.verbose < 1:
            return
        print("|  ID  | latency (ms) | GFLOP/s | trials | task")
        for i, task in enumerate(task_scheduler.tasks):
            cost, trials = task_scheduler.best_costs[i], task_scheduler.task_cts[i]
            known = cost < 1e9
            speed = task.compute_dag.flop_ct / cost / 1e9 if known else 0.0
            print(f"| {i:4d} | {cost * 1e3 if known else 0:12.3f} | {speed:7.2f} | {trials:6d} | {task.desc}")


class LogEstimatedLatency(TaskSchedulerCallback):
    """Appends to a file how long the tasks take together.

    Parameters
    ----------
    log_file : str
    """

    def __init__(self, log_file: str) -> None:
        self.log_file = log_file

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Append a line."""
        ms = task_scheduler.cur_score * 1e3
        with open(self.log_file, "a") as f:
            f.write(
                f"ElapsedTime(s)\t{time.time() - task_scheduler.tic:.0f}\tEstimatedLatency(ms)\t{ms:.3f}\t"
                f"Trials\t{task_scheduler.ct}\n"
            )


class TaskScheduler:
    """Gives turns to tasks: those first whose time still falls, weighted.

    Parameters
    ----------
    tasks : sequence of SearchTask
    task_weights : sequence of float, optional
        How often each occurs.
    objective_func : callable, optional
        Of the times of all tasks; by default their weighted sum.
    strategy : "gradient" or "round-robin"
    load_model_file, load_log_file : str, optional
        What is known already.
    alpha, beta, gamma, backward_window_size : number
        Accepted; a turn goes to the task whose last turns saved most.
    callbacks : sequence of TaskSchedulerCallback, optional
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        task_weights: Sequence[float] | None = None,
        objective_func: Callable[[Any], float] | None = None,
        strategy: str = "gradient",
        load_model_file: str | None = None,
        load_log_file: str | None = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        if strategy not in ("gradient", "round-robin"):
            raise InvalidArgument(f"unknown strategy '{strategy}'", expected="'gradient' or 'round-robin'")
        self.tasks, self.strategy = list(tasks), strategy
        weights = np.array(task_weights if task_weights is not None else [1.0] * len(self.tasks))
        self.objective_func = objective_func or (lambda costs: float(np.dot(costs, weights)))
        self.load_log_file, self.load_model_file = load_log_file, load_model_file
        self.alpha, self.beta, self.gamma, self.backward_window_size = alpha, beta, gamma, backward_window_size
        self.callbacks = list(callbacks) if callbacks is not None else [PrintTableInfo()]
        self.task_cts = [0] * len(self.tasks)
        self.task_costs_history: list[list[float]] = [[] for _ in self.tasks]
        self.best_costs = np.full(len(self.tasks), 1e10)
        self.cur_score = self.objective_func(self.best_costs)
        self.dead_tasks: set[int] = set()
        self.ct, self.tic = 0, time.time()
        self.tune_option: Any = None
        if load_log_file:
            self._load(load_log_file)

    def _load(self, log_file: str) -> None:
        keys = {t.workload_key: i for i, t in enumerate(self.tasks)}
        for inp, res in RecordReader(log_file):
            i = keys.get(inp.task.workload_key)
            if i is not None and res.error_no == 0:
                self.best_costs[i] = min(self.best_costs[i], res.mean)
        self.cur_score = self.objective_func(self.best_costs)

    def tune(
        self,
        tune_option: Any,
        search_policy: Any = "default",
        search_policy_params: dict[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Tune the tasks in turns, for as many trials as the options say together."""
        self.tune_option, self.tic = tune_option, time.time()
        per_round = min(tune_option.num_measures_per_round, max(1, tune_option.num_measure_trials // len(self.tasks)))
        measurer = measurer_of(tune_option)
        policies = [policy_named(search_policy, t, tune_option.verbose, adaptive_training) for t in self.tasks]
        if self.load_log_file:
            for policy in policies:
                PreloadMeasuredStates(self.load_log_file)(policy)
        turn = 0
        while self.ct < tune_option.num_measure_trials and len(self.dead_tasks) < len(self.tasks):
            number = self._next(turn)
            turn += 1
            for callback in self.callbacks:
                callback.pre_tune(self, number)
            count = min(per_round, tune_option.num_measure_trials - self.ct)
            inputs, results = policies[number].continue_search_one_round(count, measurer)
            self._note(number, inputs, results)
            for callback in self.callbacks:
                callback.post_tune(self, number)

    def _next(self, turn: int) -> int:
        alive = [i for i in range(len(self.tasks)) if i not in self.dead_tasks]
        if self.strategy == "round-robin":
            return alive[turn % len(alive)]
        if turn < len(self.tasks) and turn in alive:
            return turn
        return max(alive, key=self._worth)

    def _worth(self, number: int) -> float:
        """How much the objective falls where the task gets as much faster again as in its last turns, or a tenth."""
        history = self.task_costs_history[number][-1 - self.backward_window_size :]
        gain = max((history[0] - history[-1]) / history[0] if history else 0.0, 0.1 / max(1, self.task_cts[number]))
        costs = np.array(self.best_costs)
        costs[number] *= 1 - gain
        return self.objective_func(self.best_costs) - self.objective_func(costs)

    def _note(self, number: int, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        if not inputs:
            self.dead_tasks.add(number)
            return
        self.ct += len(inputs)
        self.task_cts[number] += 1
        self.best_costs[number] = min(self.best_costs[number], *(r.mean for r in results))
        self.task_costs_history[number].append(float(self.best_costs[number]))
        self.cur_score = self.objective_func(self.best_costs)
