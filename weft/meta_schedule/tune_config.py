"""How TVM 0.9 asked for a search: its numbers in one object, and the best schedule as the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from weft.meta_schedule.database import Database
from weft.meta_schedule.space_generator import PostOrderApply


class TuneConfig(NamedTuple):
    """What a search may take.

    Attributes
    ----------
    max_trials_global, num_trials_per_iter : int
        Schedules to measure at most, and in a batch.
    max_trials_per_task : int, optional
    task_scheduler, strategy : str
        ``"gradient"`` or ``"round_robin"``; ``"evolutionary"``, ``"replay_func"`` or ``"replay_trace"``.
    task_scheduler_config, search_strategy_config, logger_config : mapping, optional
        Accepted; these parts have their defaults.
    """

    max_trials_global: int
    num_trials_per_iter: int
    max_trials_per_task: int | None = None
    task_scheduler: str = "gradient"
    strategy: str = "evolutionary"
    task_scheduler_config: Mapping[str, Any] | None = None
    search_strategy_config: Mapping[str, Any] | None = None
    logger_config: Mapping[str, Any] | None = None

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `tune_tir` and `tune_relax` take now, of this and of the other arguments of 0.9."""
        named = {k: v for k, v in given.items() if v is not None}
        parts = {p: named.pop(p)() for p in ("sch_rules", "postprocs", "mutator_probs") if p in named}
        if parts and "space" not in named:
            named["space"] = PostOrderApply(**parts)
        if "num_threads" in named:
            named["num_tuning_cores"] = named.pop("num_threads")
        return {
            "max_trials_global": self.max_trials_global,
            "max_trials_per_task": self.max_trials_per_task,
            "num_trials_per_iter": self.num_trials_per_iter,
            "strategy": self.strategy.replace("_", "-"),
            "task_scheduler": self.task_scheduler.replace("_", "-"),
            **named,
        }


class ApplyHistoryBest:
    """Let compilation inside of a ``with`` block take the schedules of a database."""

    def __init__(self, database: Database, te_filter_func: Callable[..., Any] | str | None = None) -> None:
        self.database = database

    def __enter__(self) -> Database:
        return self.database.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.database.__exit__(*error)
