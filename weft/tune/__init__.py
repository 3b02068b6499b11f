"""Tuning: what the schedule rules leave open is decided by measuring, and kept in a database.

Read in this order: ``hardware``, ``database``, ``tuned`` (from records to schedules), ``worker`` and ``measure`` (in
other processes), ``search``, ``task``. Whole models are tuned by ``weft.relax.tune_relax``.
"""

from weft.tune.case import Argument, Case
from weft.tune.database import Database, DatabaseError, JSONDatabase, Trial, TuningRecord, open_database
from weft.tune.hardware import Hardware
from weft.tune.measure import Measured, Measurer, WorkerError
from weft.tune.search import RuleSpace, Search
from weft.tune.task import BudgetError, Progress, Task, tune_tasks
from weft.tune.tuned import CONFIG, Tuned, current_database, workload_of

__all__ = [
    "CONFIG", "Argument", "BudgetError", "Case", "Database", "DatabaseError", "Hardware", "JSONDatabase", "Measured",
    "Measurer", "Progress", "RuleSpace", "Search", "Task", "Trial", "Tuned", "TuningRecord", "WorkerError",
    "current_database", "open_database", "tune_tasks", "workload_of",
]  # fmt: skip
