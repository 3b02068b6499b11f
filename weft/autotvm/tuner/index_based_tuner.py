"""Tuners that go through the numbers of configurations, in order or at random."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.autotvm.tuner.tuner import Tuner
from weft.error import IndexOutOfRange


class IndexBaseTuner(Tuner):
    """Tries the configurations of a range of numbers, each once.

    Parameters
    ----------
    task : Task
    range_idx : (int, int), optional
        The first and the last number; by default all.
    """

    def __init__(self, task: Any, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task)
        self.space = task.config_space
        self.visited: list[int] = []
        self.begin_idx, last = range_idx or (0, self.space.range_length - 1)
        self.end_idx = last + 1
        self.range_length = self.end_idx - self.begin_idx
        if self.begin_idx < 0 or self.end_idx > self.space.range_length or self.range_length <= 0:
            raise IndexOutOfRange("no such range of configurations", found=f"{self.begin_idx} to {last}")
        self.visited_max = self.space.subrange_length(self.begin_idx, self.end_idx)

    @property
    def index_offset(self) -> int:
        """The first number of the range."""
        return self.begin_idx

    @property
    def counter(self) -> int:
        """How many were tried."""
        return len(self.visited)

    def has_next(self) -> bool:
        """Whether a configuration of the range was not tried."""
        return len(self.visited) < self.visited_max

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 500) -> None:
        """Do nothing: the order does not depend on measurements."""


class GridSearchTuner(IndexBaseTuner):
    """Tries configurations in the order of their numbers."""

    def __init__(self, task: Any, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task, range_idx)
        self.index: int | None = self.begin_idx
        if not self.space.is_index_valid(self.begin_idx):
            self.index = self._after(self.begin_idx)

    def _after(self, index: int) -> int | None:
        return self.space.get_next_index(index, start=self.begin_idx, end=self.end_idx)

    def next_batch(self, batch_size: int) -> list[Any]:
        """Return the next configurations."""
        found: list[Any] = []
        while len(found) < batch_size and self.has_next() and self.index is not None:
            self.visited.append(self.index)
            found.append(self.space.get(self.index))
            self.index = self._after(self.index)
        return found


class RandomTuner(IndexBaseTuner):
    """Tries configurations in a random order."""

    def next_batch(self, batch_size: int) -> list[Any]:
        """Draw configurations that were not tried."""
        found: list[Any] = []
        while len(found) < batch_size and self.has_next():
            index = self.space.get_rand_index(self.begin_idx, self.end_idx, to_exclude=self.visited)
            self.visited.append(index)
            found.append(self.space.get(index))
        return found
