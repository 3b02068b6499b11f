"""Tuning: what the schedule rules leave open is decided by measuring, and kept in a database.

Read in this order: ``hardware``, ``database``, ``tuned`` (from records to schedules), ``worker`` and ``measure`` (in
other processes), ``space``, ``search``, ``task``, ``tune_tir``. Whole models are tuned by ``weft.relax.tune_relax``.
"""

import importlib
from typing import Any

from weft.tune.boost import BoostedTrees
from weft.tune.case import Argument, Case
from weft.tune.database import Asked, Database, DatabaseError, JSONDatabase, Trial, TuningRecord, open_database
from weft.tune.device import TrackerDevice
from weft.tune.hardware import Hardware
from weft.tune.measure import Built, Measured, Measurer, Timed, WorkerError
from weft.tune.ray import RayWorker, ray_workers
from weft.tune.search import DrawnSearch, Search
from weft.tune.space import DrawnSpace, RuleSpace
from weft.tune.task import BudgetError, Progress, Task, tune_tasks
from weft.tune.tune_tir import tune_tir
from weft.tune.tuned import CHOICE, CONFIG, Tuned, current_database, workload_of, workload_of_choice

__all__ = [
    "CHOICE", "CONFIG", "Argument", "Asked", "BoostedTrees", "BudgetError", "Built", "Case", "Database",
    "DatabaseError", "DrawnSearch", "DrawnSpace", "Hardware", "JSONDatabase", "Measured", "Measurer", "Progress",
    "RayWorker", "RuleSpace", "Search", "Task", "Timed", "TrackerDevice", "Trial", "Tuned",
    "TuningRecord", "WorkerError", "current_database", "open_database", "ray_workers", "tune_tasks", "tune_tir",
    "workload_of", "workload_of_choice",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Find what tunes models, which stands above."""
    if name in ("TuningResult", "extract_tasks", "tune_relax"):
        return getattr(importlib.import_module("weft.relax"), name)
    raise AttributeError(f"module 'weft.tune' has no attribute '{name}'")
