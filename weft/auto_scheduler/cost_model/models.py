"""Cost models: guesses how fast states are, learned from measurements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.measure_record import RecordReader
from weft.auto_scheduler.transform_step import ANNOTATIONS
from weft.spelling import also_called
from weft.tune.boost import Experience


class CostModel:
    """Guesses how fast states are; the larger a score, the faster."""

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn."""
        raise NotImplementedError

    def predict(self, search_task: Any, states: Sequence[Any]) -> np.ndarray:
        """Score states."""
        raise NotImplementedError


class RandomModel(CostModel):
    """Scores at random."""

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn nothing."""

    def predict(self, search_task: Any, states: Sequence[Any]) -> np.ndarray:
        """Score at random."""
        return np.array([random.random() for _ in states])


class PythonBasedModel(CostModel):
    """A model written in Python."""


class XGBModel(PythonBasedModel):
    """Boosted trees over what states look like.

    Parameters
    ----------
    verbose_eval, seed : int
    num_warmup_sample : int
        Until so many are measured, scores are random.
    model_file : str, optional
        Where the model is saved when it has learned.
    adaptive_training : bool
        Learn less often the more is known.
    """

    @also_called(adapative_training="adaptive_training")
    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | None = None,
        adaptive_training: bool = False,
    ) -> None:
        self.num_warmup_sample, self.model_file = num_warmup_sample, model_file
        self.adaptive_training = adaptive_training
        self._known = Experience()
        self._taught = 0

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements; times count as shares of the fastest of their task."""
        for inp, res in zip(inputs, results, strict=True):
            self._known.add(inp.task.workload_key, features_of(inp.state), res.mean)
        known = len(self._known)
        if not known or (self.adaptive_training and known - self._taught < known / 5):
            return
        self._taught = known
        self._known.learn()
        if self.model_file:
            self.save(self.model_file)

    @also_called(task="search_task")
    def predict(self, search_task: Any, states: Sequence[Any]) -> np.ndarray:
        """Score states."""
        return self._known.scores([features_of(s) for s in states], self.num_warmup_sample)

    def predict_stages(self, task: Any, states: Sequence[Any]) -> np.ndarray:
        """Score states; stages are not told apart."""
        return self.predict(task, states)

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from a log."""
        self.update(*RecordReader(file_name).read_lines(n_lines))

    def save(self, file_name: str) -> None:
        """Save what was measured."""
        self._known.save(file_name)

    def load(self, file_name: str) -> None:
        """Load what :meth:`save` wrote."""
        self._known.load(file_name)


_STAGES, _LOOPS = 4, 12


def features_of(state: State) -> np.ndarray:
    """Describe the last stages of a state by the extents of loops, innermost first, and of each annotation."""
    numbers = np.zeros((_STAGES, _LOOPS + len(ANNOTATIONS) + 2))
    stages = [s for s in getattr(state, "stages", ()) if s.op_type != "placeholder"][::-1]
    for row, stage in zip(numbers, stages, strict=False):
        for i, it in enumerate(stage.iters[::-1][:_LOOPS]):
            row[i] = np.log2(1 + (it.extent or 1)) * (-1 if it.is_reduce else 1)
        for it in stage.iters:
            row[_LOOPS + it.annotation] += np.log2(1 + (it.extent or 1))
        row[-2:] = stage.compute_at, float(stage.pragmas.get("pragma auto_unroll_max_step", 0))
    return numbers.ravel()
