"""Coordinate descent: the neighbours of the best configuration, and of the next, as long as they are better."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.autotvm.tuner.tuner import Tuner


class DropletTuner(Tuner):
    """Moves from one configuration to the best of its neighbours.

    Parameters
    ----------
    task : Task
    start_position : sequence of int, optional
        The numbers of the candidates to start with; by default the first of each knob.
    pvalue : float
        How sure it has to be that a configuration is better.
    """

    def __init__(self, task: Any, start_position: Sequence[int] | None = None, pvalue: float = 0.05) -> None:
        super().__init__(task)
        self.space = task.config_space
        self.dims: list[int] = self.space.dims or [1]
        start = list(start_position) if start_position is not None else [0] * len(self.dims)
        point = self.space.knob2point(start)
        self.best_choice: tuple[int, list[int], Any] = (-1, [0] * len(self.dims), [99999])
        self.visited = {point}
        self.execution, self.total_execution, self.pvalue = 1, max(self.dims), pvalue
        self.step, self.iter, self.batch = 1, 0, max(16, os.cpu_count() or 1)
        self.next = [(point, start)]

    def has_next(self) -> bool:
        """Whether a neighbour was not tried."""
        return bool(self.next)

    def next_batch(self, batch_size: int) -> list[Any]:
        """Return neighbours of the best."""
        self.batch, tried = batch_size, self.next[:batch_size]
        return [self.space.get(p) for p, _ in tried]

    def _neighbours(self, distance: int) -> list[tuple[int, list[int]]]:
        """List what lies `distance` away along some knobs, and was not tried."""
        found = []
        for moved in itertools.product((0, 1), repeat=len(self.dims)):
            for sign in (distance, -distance):
                knobs = [
                    min(max(b + sign * m, 0), n - 1)
                    for b, m, n in zip(self.best_choice[1], moved, self.dims, strict=True)
                ]
                point = self.space.knob2point(knobs)
                if point not in self.visited and self.space.is_index_valid(point):
                    self.visited.add(point)
                    found.append((point, knobs))
        return found

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Move to the best, and go further where there are too few neighbours."""
        self.iter += 1
        better = False
        for (point, knobs), res in zip(self.next, results, strict=False):
            if res.error_no == 0 and self._is_less(res.costs, self.best_choice[2]):
                self.best_choice, better = (point, knobs, res.costs), True
        self.next = self.next[len(results) :]
        if better:
            self.execution = 1
            self.next += self._neighbours(1)
        while len(self.next) < self.batch and self.execution < self.total_execution:
            self.execution += self.step
            self.next += self._neighbours(self.execution)

    def _is_less(self, costs: Sequence[float], others: Sequence[float]) -> bool:
        """Whether times are less than others: surely, by Welch's test with normal tails, where there are several."""
        a, b = np.asarray(costs, float), np.asarray(others, float)
        if a.mean() >= b.mean() or min(a.size, b.size) < 2:
            return bool(a.mean() < b.mean())
        spread = math.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size)
        return spread == 0 or math.erfc((b.mean() - a.mean()) / spread / math.sqrt(2)) <= self.pvalue

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 500) -> None:
        """Do nothing: the way starts where it is told."""
