"""What is measured, what comes of it, and who builds and runs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.autotvm.task.task import Task
from weft.tune.front_end import MeasureErrorNo

__all__ = ["Builder", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Runner", "create_measure_batch"]


class MeasureInput(NamedTuple):
    """A configuration of a task on a target."""

    target: Any
    task: Any
    config: Any


class MeasureResult(NamedTuple):
    """Times of a configuration: seconds a run, or the error; `all_cost` is how long measuring took."""

    costs: Any
    error_no: int
    all_cost: float
    timestamp: float


class Builder:
    """Makes code of configurations.

    Parameters
    ----------
    timeout : float
        Seconds for one.
    n_parallel : int, optional
        How many at a time; by default one a core.
    """

    def __init__(self, timeout: float = 10, n_parallel: int | None = None) -> None:
        self.timeout, self.n_parallel = timeout, n_parallel or multiprocessing.cpu_count()
        self.build_kwargs: dict[str, Any] = {}
        self.task: Any = None

    def set_task(self, task: Any, build_kwargs: dict[str, Any] | None = None) -> None:
        """Say of which task the next configurations are."""
        self.task, self.build_kwargs = task, build_kwargs or {}

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """Return what :meth:`Runner.run` takes, one for each configuration."""
        raise NotImplementedError


class Runner:
    """Times the code of configurations.

    Parameters
    ----------
    timeout : float
        Seconds for one.
    n_parallel : int, optional
        How many at a time.
    """

    def __init__(self, timeout: float = 5, n_parallel: int | None = None) -> None:
        self.timeout, self.n_parallel = timeout, n_parallel or multiprocessing.cpu_count()
        self.task: Any = None

    def set_task(self, task: Any) -> None:
        """Say of which task the next configurations are."""
        self.task = task

    def get_build_kwargs(self) -> dict[str, Any]:
        """Return what the builder has to know of the machine."""
        raise NotImplementedError

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Measure what the builder made."""
        raise NotImplementedError


def create_measure_batch(task: Task, option: dict[str, Any]) -> Callable[[Sequence[MeasureInput]], list[MeasureResult]]:
    """Return a function that measures configurations of a task, ``n_parallel`` of them best at once."""
    builder, runner = option["builder"], option["runner"]
    runner.set_task(task)
    builder.set_task(task, runner.get_build_kwargs())

    def measure_batch(measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        return runner.run(measure_inputs, builder.build(measure_inputs))

    measure_batch.n_parallel = builder.n_parallel  # type: ignore[attr-defined]
    measure_batch.attach_objects = (builder, runner)  # type: ignore[attr-defined]
    return measure_batch
