"""Ranges of activations: what a model's inputs of products and convolutions are on given data, and what to cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

_BINS = 2048
_LEVELS = 128
_KEPT = 99.99
"""Percent of the values other than zero that ``percentile`` keeps, and ``entropy`` at least."""


@dataclass
class Observed:
    """A tensor's values over all data: least, largest, and a histogram of magnitudes up to `top`, without zeros.

    A zero is exact whatever the range is; as many as a ReLU makes would outweigh all that the range decides.
    """

    low: float = 0.0
    high: float = 0.0
    counts: np.ndarray | None = None

    @property
    def top(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high)

    def widen(self, x: np.ndarray) -> None:
        """Take values into the range, which has zero."""
        if x.size:
            self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))

    def count(self, x: np.ndarray) -> None:
        """Take values into the histogram."""
        found, _ = np.histogram(np.abs(x[x != 0]), _BINS, (0.0, self.top or 1.0))
        self.counts = found if self.counts is None else self.counts + found

    def within(self, limit: float) -> tuple[float, float]:
        """Return the range up to a magnitude."""
        return max(self.low, -limit), min(self.high, limit)


def observe(
    names: Iterable[str], samples: Callable[[], Iterable[Mapping[str, np.ndarray]]], histograms: bool
) -> dict[str, Observed]:
    """Look at the values of some tensors; `samples` runs the model anew each time it is called."""
    found = {name: Observed() for name in names}
    for values in samples():
        for name, seen in found.items():
            seen.widen(values[name])
    for values in samples() if histograms else ():
        for name, seen in found.items():
            seen.count(values[name])
    return found


def _whole(seen: Observed) -> tuple[float, float]:
    return seen.low, seen.high


def _kept(counts: np.ndarray) -> int:
    """How many bins have what is kept in any case."""
    return int(np.searchsorted(np.cumsum(counts) / max(counts.sum(), 1), _KEPT / 100)) + 1


def _percentile(seen: Observed) -> tuple[float, float]:
    assert seen.counts is not None
    return seen.within(_kept(seen.counts) * seen.top / _BINS)


def _entropy(seen: Observed) -> tuple[float, float]:
    """Choose the magnitude at which the histogram loses least information as `_LEVELS` levels (Kullback-Leibler).

    Of few values, bins have one or none, and levels lose nothing but what is cut off: that alone would say little.
    """
    assert seen.counts is not None
    counts, best, limit = seen.counts.astype(np.float64), np.inf, _BINS
    for end in range(max(_LEVELS, -(-_kept(counts) // 16) * 16), _BINS + 1, 16):
        p = counts[:end].copy()
        p[-1] += counts[end:].sum()
        level = np.arange(end) * _LEVELS // end
        filled = counts[:end] > 0
        sums = np.bincount(level, counts[:end], _LEVELS)
        q = np.where(filled, (sums / np.maximum(np.bincount(level, filled, _LEVELS), 1))[level], 0)
        lost = _divergence(p, q)
        if lost < best:
            best, limit = lost, end
    return seen.within(limit * seen.top / _BINS)


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    p, q = p / max(p.sum(), 1e-30), q / max(q.sum(), 1e-30)
    here = p > 0
    return float(np.sum(p[here] * np.log(p[here] / np.maximum(q[here], 1e-10))))


METHODS: dict[str, Callable[[Observed], tuple[float, float]]] = {
    "minmax": _whole,
    "percentile": _percentile,
    "entropy": _entropy,
}
"""How a range is chosen from what was observed."""
