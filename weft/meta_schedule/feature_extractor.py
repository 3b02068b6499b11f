"""Feature extractors: candidates as rows of numbers, for cost models that learn from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.meta_schedule.part import Named
from weft.runtime import Tensor
from weft.runtime import array as to_tensor


class FeatureExtractor(Named):
    """Describes candidates; cost models such as :class:`weft.meta_schedule.cost_model.XGBModel` take one."""

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Tensor]:
        """Return for each candidate a float64 array ``(rows, features)``."""
        raise NotImplementedError


class PyFeatureExtractor(FeatureExtractor):
    """An extractor written in Python."""


class RandomFeatureExtractor(PyFeatureExtractor):
    """Describes candidates at random, to try models with.

    Parameters
    ----------
    feature_size : int
        How many features.
    max_block_num : int
        Rows of a candidate are 1 up to this number.
    seed : int
    """

    def __init__(self, *, feature_size: int = 30, max_block_num: int = 5, seed: int = 0) -> None:
        self.feature_size, self.max_block_num = feature_size, max_block_num
        self.random = np.random.RandomState(seed)

    @property
    def random_state(self) -> Any:
        """The state of the random numbers."""
        return self.random.get_state()

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self.random.set_state(state)

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Tensor]:
        """Draw features."""
        rows = (self.random.randint(1, self.max_block_num + 1) for _ in candidates)
        return [to_tensor(self.random.rand(n, self.feature_size)) for n in rows]
