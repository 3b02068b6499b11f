"""The names of ``tvm.te.schedule``: schedules, bound inference, and the way to statements."""

from weft.ir import IterVar
from weft.te.auto_inline import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective
from weft.te.bound import Bounds, InferBound
from weft.te.schedule_ops import ScheduleOps, schedule_to_prim_func
from weft.te.stage import Fuse, Split, Stage
from weft.te.stages import Schedule, create_schedule
from weft.tir import Buffer

__all__ = [
    "AutoInlineBroadcast",
    "AutoInlineElemWise",
    "AutoInlineInjective",
    "Bounds",
    "Buffer",
    "Fuse",
    "InferBound",
    "IterVar",
    "Schedule",
    "ScheduleOps",
    "Split",
    "Stage",
    "create_schedule",
    "schedule_to_prim_func",
]
