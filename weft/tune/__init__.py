"""Tuning: what the schedule rules leave open is decided by measuring, and kept in a database.

Read in this order: ``hardware``, ``database``, ``tuned`` (from records to schedules).
"""

from weft.tune.database import Database, DatabaseError, JSONDatabase, Trial, TuningRecord, open_database
from weft.tune.hardware import Hardware
from weft.tune.tuned import CONFIG, Tuned, current_database, workload_of

__all__ = [
    "CONFIG", "Database", "DatabaseError", "Hardware", "JSONDatabase", "Trial", "Tuned", "TuningRecord",
    "current_database", "open_database", "workload_of",
]  # fmt: skip
