"""The loop of all tuners: ask for configurations, measure them, tell what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.autotvm.env import GLOBAL_SCOPE
from weft.autotvm.measure import MeasureInput, create_measure_batch
from weft.autotvm.units import format_si_prefix

logger = logging.getLogger("autotvm")


class Tuner:
    """Searches the configurations of a task.

    Parameters
    ----------
    task : Task
    """

    def __init__(self, task: Any, **kwargs: Any) -> None:
        self.param, self.task = kwargs, task
        self.best_config: Any = None
        self.best_flops: float = 0
        self.best_measure_pair: Any = None
        self.best_iter = 0
        self.error_ct_threshold = 150
        self.ttl: int | None = None
        self.n_trial: int | None = None
        self.early_stopping: float | None = None

    def has_next(self) -> bool:
        """Whether there is anything left to try."""
        raise NotImplementedError

    def next_batch(self, batch_size: int) -> list[Any]:
        """Return up to `batch_size` configurations to try."""
        raise NotImplementedError

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements."""

    def tune(
        self,
        n_trial: int,
        measure_option: Any,
        early_stopping: int | None = None,
        callbacks: Iterable[Callable[..., None]] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure configurations.

        Parameters
        ----------
        n_trial : int
            How many at most.
        measure_option : what :func:`measure_option` returned
        early_stopping : int, optional
            End after so many without a better one.
        callbacks : sequence of callable
            Called with the tuner, the inputs and the results of each batch.
        si_prefix : str
            The unit of operations a second in log messages.
        """
        format_si_prefix(0, si_prefix)  # says at once that it is unknown
        measure_batch = create_measure_batch(self.task, measure_option)
        at_once = getattr(measure_batch, "n_parallel", 1)
        self.n_trial, self.early_stopping = n_trial, early_stopping or 1e9
        done = failed_in_a_row = 0
        GLOBAL_SCOPE.in_tuning = True
        try:
            while done < n_trial and self.has_next():
                configs = self.next_batch(min(at_once, n_trial - done))
                if not configs:
                    break
                inputs = [MeasureInput(self.task.target, self.task, c) for c in configs]
                results = measure_batch(inputs)
                for inp, res in zip(inputs, results, strict=True):
                    failed_in_a_row = failed_in_a_row + 1 if res.error_no else 0
                    self._note(done, inp, res, si_prefix)
                    done += 1
                self.ttl = int(min(self.early_stopping + self.best_iter, n_trial)) - done
                self.update(inputs, results)
                for callback in callbacks:
                    callback(self, inputs, results)
                if done >= self.best_iter + self.early_stopping:
                    logger.debug("stopped after %d trials without a better one", int(self.early_stopping))
                    break
                if failed_in_a_row > self.error_ct_threshold:
                    logger.warning("the last %d trials failed", failed_in_a_row)
                    logger.setLevel(logging.DEBUG)
        finally:
            GLOBAL_SCOPE.in_tuning = False
        if done and self.best_config is None:
            logger.warning("no configuration of %s could be measured", self.task)

    def _note(self, number: int, inp: Any, res: Any, si_prefix: str) -> None:
        flops = inp.task.flop / float(np.mean(res.costs)) if res.error_no == 0 else 0.0
        if flops > self.best_flops:
            self.best_flops, self.best_config = flops, inp.config
            self.best_measure_pair, self.best_iter = (inp, res), number
        now, best = format_si_prefix(flops, si_prefix), format_si_prefix(self.best_flops, si_prefix)
        logger.debug("No: %d\t%sFLOPS: %.2f/%.2f\tresult: %s\t%s", number + 1, si_prefix, now, best, res, inp.config)

    def reset(self) -> None:
        """Forget the best."""
        self.best_config, self.best_flops, self.best_measure_pair = None, 0, None

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 500) -> None:
        """Learn from records of earlier runs, where there are `min_seed_records` of them."""
        raise NotImplementedError

    def set_error_threshold(self, threshold: int) -> None:
        """Set how many failures in a row are told of."""
        self.error_ct_threshold = threshold
