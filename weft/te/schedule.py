"""The names of ``tvm.te.schedule``: schedules, bound inference, and the way to statements."""

from weft.te.bound import Bounds, InferBound
from weft.te.schedule_ops import ScheduleOps, schedule_to_prim_func
from weft.te.stage import Fuse, Schedule, Split, Stage, create_schedule

__all__ = [
    "Bounds",
    "Fuse",
    "InferBound",
    "Schedule",
    "ScheduleOps",
    "Split",
    "Stage",
    "create_schedule",
    "schedule_to_prim_func",
]
