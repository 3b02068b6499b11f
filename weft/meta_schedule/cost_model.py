"""Cost models: guesses how fast schedules are, learned from measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.error import reading
from weft.ir import IntImm
from weft.meta_schedule.part import Named, made
from weft.tir import For, ForKind, PrimFunc
from weft.tir.analysis import statements
from weft.tune.boost import Experience


class CostModel(Named):
    """Scores schedules; the larger, the faster."""

    def load(self, path: str) -> None:
        """Load what :meth:`save` wrote."""
        raise NotImplementedError

    def save(self, path: str) -> None:
        """Save what was learned."""
        raise NotImplementedError

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from the times of candidates of a task."""
        raise NotImplementedError

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Score candidates of a task."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "xgb", *args: Any, **kwargs: Any) -> CostModel:
        """Make a model: ``"xgb"``, ``"random"`` or ``"none"``."""
        if kind == "none":
            return None  # type: ignore[return-value]
        if kind == "random":
            return RandomModel()
        return made("cost model", {"xgb": XGBModel, "random": RandomModel}, kind, *args, **kwargs)


class PyCostModel(CostModel):
    """A model written in Python."""


class RandomModel(PyCostModel):
    """Scores at random.

    Parameters
    ----------
    seed : int, optional
    path : str, optional
        Where to load from.
    max_range : int
        Scores are below it.
    """

    def __init__(self, *, seed: int | None = None, path: str | None = None, max_range: int = 100) -> None:
        self.random, self.max_range = np.random.RandomState(seed), max_range
        if path is not None:
            self.load(path)

    @property
    def random_state(self) -> Any:
        """The state of the random numbers."""
        return self.random.get_state()

    def load(self, path: str) -> None:
        """Load the state."""
        with reading("not a state of random numbers", found=str(path), expected="what save() wrote"):
            state = json.loads(Path(path).read_text())
            key = np.array(state["state"]["key"], np.uint32)
            if not 0 <= state["state"]["pos"] <= len(key):  # NumPy would read behind the key
                raise ValueError("a position outside of the key")
            self.random.set_state({**state, "state": {**state["state"], "key": key}})

    def save(self, path: str) -> None:
        """Save the state."""
        state: Any = self.random.get_state(legacy=False)
        Path(path).write_text(json.dumps(state, default=np.ndarray.tolist))

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn nothing."""

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Score at random."""
        return self.random.rand(len(candidates)) * self.max_range


class XGBModel(PyCostModel):
    """Boosted trees over the loops of schedules.

    Parameters
    ----------
    extractor : object, optional
        ``extract_from(context, candidates)`` returns arrays of numbers, in place of the loops.
    num_warmup_samples : int
        Until so many are measured, scores are random.
    path : str, optional
        Where to load from.
    """

    def __init__(
        self, *, extractor: Any = None, num_warmup_samples: int = 100, path: str | None = None, **options: Any
    ) -> None:
        self.extractor, self.num_warmup_samples = extractor, num_warmup_samples
        self._known = Experience()
        if path is not None:
            self.load(path)

    def load(self, path: str) -> None:
        """Load what :meth:`save` wrote."""
        self._known.load(path)

    def save(self, path: str) -> None:
        """Save what was measured."""
        self._known.save(path)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from the times of candidates of a task."""
        task = str(getattr(context, "task_name", ""))
        for row, res in zip(self._rows(context, candidates), results, strict=True):
            self._known.add(task, row, float(np.median(res.run_secs)) if res.run_secs else 1e10)
        self._known.learn()

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Score candidates."""
        return self._known.scores(self._rows(context, candidates), self.num_warmup_samples)

    def _rows(self, context: Any, candidates: Sequence[Any]) -> list[np.ndarray]:
        if self.extractor is None:
            return [features_of(c.sch.func) for c in candidates]
        found = [
            np.asarray(getattr(f, "numpy", lambda f=f: f)()) for f in self.extractor.extract_from(context, candidates)
        ]
        return [np.concatenate([f.sum(0), f.max(0)]) if f.size else np.zeros(2 * f.shape[-1]) for f in found]


_LOOPS = 24


def features_of(func: PrimFunc) -> np.ndarray:
    """Describe a scheduled function by its loops: logarithms of extents, in order, and their sums by kind."""
    row = np.zeros(_LOOPS + len(ForKind))
    loops = [s for s in statements(func.body) if isinstance(s, For)]
    for i, loop in enumerate(loops):
        extent = np.log2(1 + loop.extent.value) if isinstance(loop.extent, IntImm) else 0.0
        if i < _LOOPS:
            row[i] = extent
        row[_LOOPS + list(ForKind).index(loop.kind)] += extent
    return row


create = CostModel.create
