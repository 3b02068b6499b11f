"""A genetic algorithm: the knobs of good configurations are crossed and mutated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.autotvm.tuner.tuner import Tuner


class GATuner(Tuner):
    """Breeds configurations.

    Parameters
    ----------
    task : Task
    pop_size : int
        Configurations of a generation.
    elite_num : int
        The best of all so far, which parents are chosen from too.
    mutation_prob : float
        How often a knob is drawn anew.
    """

    def __init__(self, task: Any, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1) -> None:
        super().__init__(task)
        self.space = task.config_space
        self.dims: list[int] = self.space.dims
        self.pop_size = min(pop_size, len(self.space))
        self.elite_num = min(elite_num, self.pop_size)
        self.mutation_prob = mutation_prob
        self.visited: set[int] = {int(i) for i in self.space.sample_ints(self.pop_size)}
        self.genes: list[list[int]] = [self.space.point2knob(i) for i in self.visited]
        self.scores: list[float] = []
        self.elites: list[list[int]] = []
        self.elite_scores: list[float] = []
        self.trial_pt = 0

    def has_next(self) -> bool:
        """Whether some of this generation, or of the space, were not tried."""
        return len(self.visited) - (len(self.genes) - self.trial_pt) < len(self.space)

    def next_batch(self, batch_size: int) -> list[Any]:
        """Return configurations of this generation."""
        genes = self.genes[self.trial_pt : self.trial_pt + batch_size]
        self.trial_pt += len(genes)
        return [self.space.get(self.space.knob2point(g)) for g in genes]

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Note the scores; behind the last of a generation, breed the next."""
        for inp, res in zip(inputs, results, strict=True):
            flops = inp.task.flop / float(np.mean(res.costs)) if res.error_no == 0 else 0.0
            self.best_flops = max(self.best_flops, flops)
            self.scores.append(flops)
        if len(self.scores) >= len(self.genes) and len(self.visited) < len(self.space):
            self._breed()

    def _breed(self) -> None:
        genes = self.genes + self.elites
        scores = np.array(self.scores[: len(self.genes)] + self.elite_scores)
        best = np.argsort(scores)[::-1][: self.elite_num]
        self.elites, self.elite_scores = [genes[i] for i in best], [float(scores[i]) for i in best]
        weights = (scores + 1e-8) / (scores + 1e-8).sum()
        self.genes = []
        for _ in range(min(self.pop_size, len(self.space) - len(self.visited))):
            a, b = np.random.choice(len(genes), 2, p=weights)
            child = self._mutated(genes[a], genes[b])
            self.visited.add(self.space.knob2point(child))
            self.genes.append(child)
        self.scores, self.trial_pt = [], 0

    def _mutated(self, mother: list[int], father: list[int]) -> list[int]:
        cut = np.random.randint(len(self.dims))
        child = mother[:cut] + father[cut:]
        for _ in range(64):
            child = [
                int(np.random.randint(n)) if np.random.random() < self.mutation_prob else d
                for d, n in zip(child, self.dims, strict=True)
            ]
            point = self.space.knob2point(child)
            if point not in self.visited and self.space.is_index_valid(point):
                return child
        return self.space.point2knob(self.space.get_rand_index(to_exclude=self.visited))

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 500) -> None:
        """Do nothing: generations start at random."""
