"""A task: a module, its target, and how its schedules are found."""

from __future__ import annotations

import copy
import logging
import os
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft import error, ir, tir
from weft.meta_schedule.search_strategy import SearchStrategy
from weft.meta_schedule.space_generator import SpaceGenerator
from weft.target import Target


class ExtractedTask(NamedTuple):
    """A kernel of a program: its name, the program's module of it, and how often it is called."""

    task_name: str
    mod: ir.IRModule
    target: Target
    dispatched: Sequence[ir.IRModule]
    weight: int


class TuneContext:
    """A task.

    Parameters
    ----------
    mod : IRModule or PrimFunc, optional
    target : Target or str, optional
    space_generator : SpaceGenerator, str or callable, optional
    search_strategy : SearchStrategy or str, optional
    task_name : str
    rand_state : int
        -1 draws one.
    num_threads : int, "physical" or "logical"
    logger : Logger, optional
    """

    def __init__(
        self,
        mod: Any = None,
        *,
        target: Any = None,
        space_generator: Any = None,
        search_strategy: Any = None,
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: Any = "physical",
        logger: Any = None,
    ) -> None:
        self.mod: Any = ir.IRModule({"main": mod}) if isinstance(mod, tir.PrimFunc) else mod
        self.target = Target(target) if target is not None else None
        made = space_generator is None or isinstance(space_generator, SpaceGenerator)
        self.space_generator = space_generator if made else SpaceGenerator.create(space_generator)
        known = search_strategy is None or isinstance(search_strategy, SearchStrategy)
        self.search_strategy = search_strategy if known else SearchStrategy.create(str(search_strategy))
        self.task_name = task_name
        self.rand_state = random.randrange(1, 1 << 30) if rand_state == -1 else rand_state
        self.num_threads = num_threads if isinstance(num_threads, int) else os.cpu_count() or 1
        self.logger = logger or logging.getLogger(__name__)
        self.initialize()

    def initialize(self) -> None:
        """Let the generator and the strategy hear of the task."""
        for part in (self.space_generator, self.search_strategy):
            if part is not None:
                part._initialize_with_tune_context(self)

    def generate_design_space(self) -> list[Any]:
        """Return the schedules to begin with."""
        return self._generator().generate_design_space(self.mod)

    def _generator(self) -> Any:
        if self.space_generator is None:
            raise error.InvalidArgument("the task has no space generator")
        return self.space_generator

    def _strategy(self) -> Any:
        if self.search_strategy is None:
            raise error.InvalidArgument("the task has no search strategy")
        return self.search_strategy

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int = 64,
        design_spaces: Sequence[Any] | None = None,
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Begin the search."""
        spaces = design_spaces if design_spaces is not None else self.generate_design_space()
        self._strategy().pre_tuning(max_trials, num_trials_per_iter, spaces, database, cost_model)

    def post_tuning(self) -> None:
        """End the search."""
        self._strategy().post_tuning()

    def generate_measure_candidates(self) -> Any:
        """Return the next batch; None where there are no more."""
        return self._strategy().generate_measure_candidates()

    def notify_runner_results(self, measure_candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Tell the strategy of the times of a batch."""
        self._strategy().notify_runner_results(measure_candidates, results)

    def clone(self) -> TuneContext:
        """Return a copy, with a generator and a strategy of its own."""
        new = copy.copy(self)
        new.space_generator = self.space_generator.clone() if self.space_generator is not None else None
        new.search_strategy = self.search_strategy.clone() if self.search_strategy is not None else None
        new.initialize()
        return new
