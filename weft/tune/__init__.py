"""Tuning: what the schedule rules leave open is decided by measuring, and kept in a database.

Read in this order: ``hardware``, ``database``, ``tuned`` (from records to schedules), ``worker`` and ``measure`` (in
other processes), ``space``, ``search``, ``task``, ``kernel``. Whole models are tuned by ``weft.relax.tune_relax``.
"""

from typing import TYPE_CHECKING

from weft._aliases import names_of
from weft.tune.database import Asked, Database, DatabaseError, JSONDatabase, Trial, TuningRecord, open_database
from weft.tune.hardware import Hardware
from weft.tune.space import DrawnSpace, RuleSpace
from weft.tune.tuned import CHOICE, CONFIG, Tuned, current_database, workload_of, workload_of_choice

if TYPE_CHECKING:  # compiling only reads the database: what tunes is loaded when it is asked for
    from weft.tune.boost import BoostedTrees
    from weft.tune.case import Argument, Case
    from weft.tune.device import TrackerDevice
    from weft.tune.kernel import tune_tir
    from weft.tune.measure import Built, Measured, Measurer, Timed, WorkerError
    from weft.tune.ray import RayWorker, ray_workers
    from weft.tune.search import DrawnSearch, Search
    from weft.tune.task import BudgetError, Progress, Task, tune_tasks

__all__ = [
    "CHOICE",
    "CONFIG",
    "Argument",
    "Asked",
    "BoostedTrees",
    "BudgetError",
    "Built",
    "Case",
    "Database",
    "DatabaseError",
    "DrawnSearch",
    "DrawnSpace",
    "Hardware",
    "JSONDatabase",
    "Measured",
    "Measurer",
    "Progress",
    "RayWorker",
    "RuleSpace",
    "Search",
    "Task",
    "Timed",
    "TrackerDevice",
    "Trial",
    "Tuned",
    "TuningRecord",
    "WorkerError",
    "current_database",
    "open_database",
    "ray_workers",
    "tune_tasks",
    "tune_tir",
    "workload_of",
    "workload_of_choice",
]


_INSIDE = {
    "boost": ["BoostedTrees"],
    "case": ["Argument", "Case"],
    "device": ["TrackerDevice"],
    "measure": ["Built", "Measured", "Measurer", "Timed", "WorkerError"],
    "ray": ["RayWorker", "ray_workers"],
    "search": ["DrawnSearch", "Search"],
    "task": ["BudgetError", "Progress", "Task", "tune_tasks"],
}
__getattr__ = names_of(
    "weft.tune",
    {
        **{name: f"weft.tune.{module}" for module, names in _INSIDE.items() for name in names},
        **dict.fromkeys(_INSIDE, ""),
        "tune_tir": "weft.tune.kernel",
        **dict.fromkeys(("TuningResult", "extract_tasks", "tune_relax"), "weft.relax"),  # which stands above
    },
)
