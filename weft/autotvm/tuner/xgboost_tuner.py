"""A tuner that asks a model: simulated annealing over predictions, then the best of what was found is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.autotvm.tuner.tuner import Tuner
from weft.autotvm.tuner.xgboost_cost_model import XGBoostCostModel


class ModelOptimizer:
    """Finds the configurations that a model likes best."""

    def find_maximums(self, model: Any, num: int, exclusive: set[int]) -> list[int]:
        """Return the numbers of `num` configurations, none of `exclusive`, the best last."""
        raise NotImplementedError


class SimulatedAnnealingOptimizer(ModelOptimizer):
    """Walks at random from many configurations; what is worse is accepted ever less.

    Parameters
    ----------
    task : Task
    n_iter : int
        Steps.
    temp : float or (float, float)
        How much worse is accepted, at the start and in the end.
    persistent : bool
        Go on where the last walk ended.
    parallel_size : int
        Walks at once.
    early_stop : int
        End after so many steps without a better one.
    log_interval : int
        Accepted for programs that want to hear of the walk.
    """

    def __init__(
        self,
        task: Any,
        n_iter: int = 500,
        temp: Any = (1, 0),
        persistent: bool = True,
        parallel_size: int = 128,
        early_stop: int = 50,
        log_interval: int = 50,
    ) -> None:
        self.space = task.config_space
        self.n_iter, self.persistent, self.early_stop = n_iter, persistent, early_stop
        self.temp = temp if isinstance(temp, (list, tuple)) else (temp, temp)
        self.parallel_size = min(parallel_size, len(self.space))
        self.points: list[int] | None = None

    def find_maximums(self, model: Any, num: int, exclusive: set[int]) -> list[int]:
        """Walk, and return the best configurations that were met."""
        points = self.points if self.persistent and self.points else list(self.space.sample_ints(self.parallel_size))
        scores = model.predict(points)
        met = dict(zip((int(p) for p in points), scores, strict=True))
        best, since = max(scores), 0
        for temperature in np.linspace(self.temp[0], self.temp[1], self.n_iter):
            if len(self.space) < 2 or since > self.early_stop:
                break
            moved = [self.space.random_walk(int(p)) for p in points]
            new = model.predict(moved)
            met.update(zip(moved, new, strict=True))
            with np.errstate(over="ignore"):
                accepted = np.random.random(len(moved)) < np.exp((new - scores) / (temperature + 1e-5))
            points = [m if a else p for p, m, a in zip(points, moved, accepted, strict=True)]
            scores = np.where(accepted, new, scores)
            best, since = (max(new), 0) if max(new) > best else (best, since + 1)
        self.points = [int(p) for p in points]
        ranked = sorted((p for p in met if p not in exclusive), key=lambda p: met[p])
        return ranked[-num:]


class ModelBasedTuner(Tuner):
    """Measures what a model likes best, and teaches it.

    Parameters
    ----------
    task : Task
    cost_model : XGBoostCostModel
    model_optimizer : ModelOptimizer
    plan_size : int
        Configurations that are planned at a time.
    diversity_filter_ratio : int, optional
        Accepted; what is planned is different already.
    """

    def __init__(
        self,
        task: Any,
        cost_model: Any,
        model_optimizer: Any,
        plan_size: int,
        diversity_filter_ratio: int | None = None,
    ) -> None:
        super().__init__(task)
        self.space, self.cost_model, self.model_optimizer = task.config_space, cost_model, model_optimizer
        self.plan_size = min(plan_size, len(self.space))
        self.xs: list[int] = []
        self.ys: list[float] = []
        self.visited: set[int] = set()
        self.trials: list[int] = []
        self.flops_max, self.train_ct = 0.0, 0

    def has_next(self) -> bool:
        """Whether a configuration was not tried."""
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[Any]:
        """Return what was planned, and now and then one at random."""
        found: list[Any] = []
        while len(found) < batch_size and self.has_next():
            while self.trials and self.trials[-1] in self.visited:
                self.trials.pop()
            explore = not self.trials or np.random.random() < 0.05
            index = self.space.get_rand_index(to_exclude=self.visited) if explore else self.trials.pop()
            self.visited.add(index)
            found.append(self.space.get(index))
        return found

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Teach the model where enough is new, and plan anew."""
        for inp, res in zip(inputs, results, strict=True):
            index = inp.config.index
            flops = inp.task.flop / float(np.mean(res.costs)) if res.error_no == 0 else 0.0
            self.flops_max = max(self.flops_max, flops)
            self.xs.append(index)
            self.ys.append(flops)
            self.visited.add(index)
        if len(self.xs) >= self.plan_size * (self.train_ct + 1) and self.flops_max > 1e-6:
            self.cost_model.fit(self.xs, self.ys, self.plan_size)
            self.trials = self.model_optimizer.find_maximums(self.cost_model, self.plan_size, self.visited)
            self.train_ct += 1

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 500) -> None:
        """Learn a model of earlier records, below the one of this run."""
        base = self.cost_model.spawn_base_model()
        if base.fit_log(data_set, self.plan_size, min_seed_records):
            self.cost_model.load_basemodel(base)
            self.trials = self.model_optimizer.find_maximums(self.cost_model, self.plan_size, self.visited)


class XGBTuner(ModelBasedTuner):
    """The model-based tuner with boosted trees.

    Parameters
    ----------
    task : Task
    plan_size : int
    feature_type, loss_type : str
        Of the cost model.
    num_threads : int, optional
    optimizer : "sa" or ModelOptimizer
    diversity_filter_ratio : int, optional
    log_interval : int
    """

    def __init__(
        self,
        task: Any,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: int | None = None,
        optimizer: Any = "sa",
        diversity_filter_ratio: int | None = None,
        log_interval: int = 50,
    ) -> None:
        model = XGBoostCostModel(task, feature_type, loss_type, num_threads, log_interval)
        walks = SimulatedAnnealingOptimizer(task, log_interval=log_interval) if optimizer == "sa" else optimizer
        super().__init__(task, model, walks, plan_size, diversity_filter_ratio)
