"""The names of ``tvm.te.schedule``: schedules, bound inference, and the way to statements."""

from weft.ir import IterVar
from weft.te.auto_inline import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective
from weft.te.bound import Bounds, InferBound
from weft.te.schedule_ops import ScheduleOps, schedule_to_prim_func
from weft.te.stage import AttachType, Fuse, Singleton, Split, Stage, StageGroup
from weft.te.stages import Schedule, create_schedule
from weft.tir import Buffer

__all__ = [
    "AttachType",
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
    "Singleton",
    "Split",
    "Stage",
    "StageGroup",
    "create_schedule",
    "schedule_to_prim_func",
]
