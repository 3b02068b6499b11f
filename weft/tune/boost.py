"""A cost model: small regression trees, each fitted to what those before it leave, and what they learn from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from weft import runtime
from weft.error import reading


class BoostedTrees:
    """Predicts a number from a row of numbers, for ranking candidates.

    Parameters
    ----------
    rounds : int
        Trees.
    depth : int
        Questions of a tree, one after another.
    rate : float
        The share of each tree's answer that counts.

    Examples
    --------
    >>> x = np.arange(8.0)[:, None]
    >>> model = BoostedTrees().fit(x, (x[:, 0] > 3) * 2.0)
    >>> [round(float(v), 1) for v in model.predict(np.array([[1.0], [6.0]]))]
    [0.0, 2.0]
    """

    def __init__(self, rounds: int = 40, depth: int = 3, rate: float = 0.3) -> None:
        self.rounds, self.depth, self.rate = rounds, depth, rate
        self.base = 0.0
        self.trees: list[Any] = []

    def fit(self, rows: np.ndarray, values: np.ndarray) -> BoostedTrees:
        """Fit to rows ``(n, features)`` and their values ``(n,)``, and return the model."""
        rows, values = np.asarray(rows, np.float64), np.asarray(values, np.float64)
        self.base, self.trees = float(values.mean()) if len(values) else 0.0, []
        left = values - self.base
        for _ in range(self.rounds):
            tree = _grow(rows, left, self.depth)
            answer = _answers(tree, rows)
            if not np.any(answer):
                break
            self.trees.append(tree)
            left = left - self.rate * answer
        return self

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Predict the values of rows."""
        rows = np.asarray(rows, np.float64)
        total = np.full(len(rows), self.base)
        for tree in self.trees:
            total += self.rate * _answers(tree, rows)
        return total


def _grow(rows: np.ndarray, left: np.ndarray, depth: int) -> Any:
    """Return a leaf, a number, or (feature, threshold, tree below, tree above)."""
    mean = float(left.mean()) if len(left) else 0.0
    if depth == 0 or len(left) < 2:
        return mean
    gain, feature, threshold = _question(rows, left)
    if gain <= 1e-12:
        return mean
    below = rows[:, feature] <= threshold
    return feature, threshold, _grow(rows[below], left[below], depth - 1), _grow(rows[~below], left[~below], depth - 1)


def _question(rows: np.ndarray, left: np.ndarray) -> tuple[float, int, float]:
    """Find the feature and threshold whose two means leave least."""
    best, n = (0.0, 0, 0.0), len(left)
    total = left.sum()
    for feature in range(rows.shape[1]):
        order = np.argsort(rows[:, feature], kind="stable")
        column, sums = rows[order, feature], np.cumsum(left[order])[:-1]
        count = np.arange(1, n)
        gain = np.where(column[1:] > column[:-1], sums**2 / count + (total - sums) ** 2 / (n - count), -np.inf)
        at = int(np.argmax(gain))
        if gain[at] - total**2 / n > best[0]:
            best = (float(gain[at] - total**2 / n), feature, float((column[at] + column[at + 1]) / 2))
    return best


def _answers(tree: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(tree, float):
        return np.full(len(rows), tree)
    feature, threshold, below, above = tree
    return np.where(rows[:, feature] <= threshold, _answers(below, rows), _answers(above, rows))


class Experience:
    """What was measured, and trees that rank by it; a time counts as its share of the fastest of the same task."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.tasks: list[str] = []
        self.seconds: list[float] = []
        self._model: BoostedTrees | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, task: str, row: np.ndarray, seconds: float) -> None:
        """Take a measurement: numbers that describe what was measured, and its time (infinity where it failed)."""
        self.rows.append(row)
        self.tasks.append(task)
        self.seconds.append(seconds)

    def learn(self) -> None:
        """Fit the trees to all that was added."""
        seconds, tasks, speed = np.array(self.seconds), np.array(self.tasks), np.zeros(len(self.seconds))
        for task in set(self.tasks):
            mine = tasks == task
            speed[mine] = np.nan_to_num(seconds[mine].min() / seconds[mine])
        self._model = BoostedTrees().fit(np.stack(self.rows), speed) if self.rows else None

    def scores(self, rows: Sequence[np.ndarray], at_least: int) -> np.ndarray:
        """Score rows, the larger the faster; at random while fewer than `at_least` measurements are known."""
        if self._model is None or len(self) < at_least or not rows:
            return np.array([random.random() for _ in rows])
        return self._model.predict(np.stack(rows))

    def save(self, path: str) -> None:
        """Write the measurements as NumPy's ``.npz``, at this very path."""
        with runtime.finished_file(path) as beside, beside.open("wb") as file:
            np.savez(file, rows=np.array(self.rows), tasks=np.array(self.tasks, str), seconds=np.array(self.seconds))

    def load(self, path: str) -> None:
        """Read what :meth:`save` wrote, and learn from it."""
        with reading("not the measurements of a cost model", expected="a file that its save() wrote"):
            rows, tasks, seconds = itemgetter("rows", "tasks", "seconds")(runtime.read_arrays(path))
            if rows.ndim != 2 or not len(rows) == len(tasks) == len(seconds):
                raise ValueError("measurements without a row, a task or a time")
            self.rows, self.tasks, self.seconds = list(rows), tasks.tolist(), seconds.tolist()
            self.learn()
