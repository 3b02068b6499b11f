"""How well a ranking agrees with measurements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def get_rank(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the place of each value when they are sorted, the largest first.

    Examples
    --------
    >>> get_rank([5.0, 9.0, 1.0]).tolist()
    [1, 0, 2]
    """
    order = np.argsort(-np.asarray(values))
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def max_curve(trial_scores: Sequence[float]) -> np.ndarray:
    """The best of the first n, for each n."""
    return np.maximum.accumulate(np.asarray(trial_scores, float))


def mean_curve(trial_scores: Sequence[float]) -> np.ndarray:
    """The mean of the first n, for each n."""
    scores = np.asarray(trial_scores, float)
    return np.cumsum(scores) / np.arange(1, len(scores) + 1)


def recall_curve(trial_ranks: Sequence[int], top: int | None = None) -> np.ndarray:
    """The share of the n best that is among the first n (or `top`), for each n."""
    ranks = np.asarray(trial_ranks)
    sizes = range(1, len(ranks) + 1)
    if top is not None:
        return np.array([np.sum(ranks[:n] < top) / top for n in sizes])
    return np.array([np.sum(ranks[:n] < n) / n for n in sizes])


def cover_curve(trial_ranks: Sequence[int]) -> np.ndarray:
    """How many of the best, without a gap, are among the first n, as a share of n, for each n."""
    curve, seen, covered = [], set(), 0
    for n, rank in enumerate(trial_ranks, 1):
        seen.add(int(rank))
        while covered in seen:
            covered += 1
        curve.append(covered / n)
    return np.array(curve)
