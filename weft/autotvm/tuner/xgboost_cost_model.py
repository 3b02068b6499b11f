"""The model of the model-based tuner: boosted trees that rank configurations by their knobs or axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft import error, tune
from weft.autotvm.tuner.metric import get_rank


class XGBoostCostModel:
    """Predicts how fast configurations are, as a share of the fastest.

    Parameters
    ----------
    task : Task
    feature_type : str
        ``"knob"``: the decisions themselves; ``"itervar"`` and ``"curve"``: the extents of the parts, on a logarithmic
        scale, which are of one length for different tasks.
    loss_type : str
        ``"rank"`` or ``"rank-binary"`` (ranks are learned) or ``"reg"`` (shares of the fastest).
    num_threads, log_interval, upper_model : Any
    """

    def __init__(
        self,
        task: Any,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: int | None = None,
        log_interval: int = 25,
        upper_model: XGBoostCostModel | None = None,
    ) -> None:
        if feature_type not in ("knob", "itervar", "curve"):
            raise error.InvalidArgument(f"unknown features '{feature_type}'", expected="'knob', 'itervar' or 'curve'")
        if loss_type not in ("reg", "rank", "rank-binary"):
            raise error.InvalidArgument(f"unknown loss '{loss_type}'", expected="'reg', 'rank' or 'rank-binary'")
        self.task, self.space = task, task.config_space
        self.fea_type, self.loss_type, self.log_interval = feature_type, loss_type, log_interval
        self.base_model: XGBoostCostModel | None = upper_model
        self.bst: tune.BoostedTrees | None = None
        self.width = 0

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """Learn from the numbers of configurations and their operations a second."""
        self._learn([self._numbers(self.space.get(int(x))) for x in xs], np.asarray(ys, float), xs)

    def fit_log(self, records: Iterable[Any], plan_size: int, min_seed_records: int = 500) -> bool:
        """Learn from records of this or other tasks; False where there are fewer than `min_seed_records`."""
        used = [(inp, res) for inp, res in records if inp.config is not None]
        if not used or len(used) < min_seed_records:
            return False
        rows = [self._numbers(inp.config) for inp, _ in used]
        speed = [self.task.flop / float(np.mean(r.costs)) if r.error_no == 0 else 0.0 for _, r in used]
        self._learn(rows, np.asarray(speed), [inp.config.index for inp, _ in used])
        return True

    def _learn(self, rows: Sequence[np.ndarray], speed: np.ndarray, indices: Sequence[int]) -> None:
        self.width = max((len(r) for r in rows), default=1)
        target = get_rank(-speed) / -max(1, len(speed)) if self.loss_type != "reg" else speed / max(speed.max(), 1e-30)
        matrix = self._matrix(rows)
        if self.base_model is not None:
            target = target - self.base_model.score(rows)
        self.bst = tune.BoostedTrees().fit(matrix, target)

    def predict(self, xs: Sequence[int], output_margin: bool = False) -> np.ndarray:
        """Score the configurations of some numbers; the larger, the faster."""
        return self.score([self._numbers(self.space.get(int(x))) for x in xs])

    def score(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Score rows of features."""
        below = self.base_model.score(rows) if self.base_model is not None else np.zeros(len(rows))
        return below if self.bst is None else below + self.bst.predict(self._matrix(rows))

    def load_basemodel(self, base_model: XGBoostCostModel) -> None:
        """Learn on top of another model: only what it leaves."""
        self.base_model = base_model

    def clone_new(self) -> XGBoostCostModel:
        """Return a model that has learned nothing."""
        return XGBoostCostModel(self.task, self.fea_type, self.loss_type, upper_model=self.base_model)

    def spawn_base_model(self) -> XGBoostCostModel:
        """Return a model to learn from history, below this one."""
        return XGBoostCostModel(self.task, self.fea_type, self.loss_type)

    def _numbers(self, config: Any) -> np.ndarray:
        knobs = config.get_flatten_feature()
        return knobs if self.fea_type == "knob" else np.sign(knobs) * np.log2(1 + np.abs(knobs))

    def _matrix(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Bring rows to one length."""
        matrix = np.zeros((len(rows), self.width))
        for line, row in zip(matrix, rows, strict=True):
            line[: len(row)] = row[: self.width]
        return matrix
