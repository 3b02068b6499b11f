"""Schedules: transformations that change how a function computes and never what.

Read in this order: ``trace``, ``state``, ``schedule``; the primitives by kind in ``loops``, ``annotate``, ``blocks``,
``compute_at``, ``reduction``, ``cache``, ``layout``; then ``rules/``, which apply them by analysis.
"""

from weft.tir.schedule.rules import default_schedule, schedule_func
from weft.tir.schedule.schedule import Schedule
from weft.tir.schedule.trace import BlockRV, Instruction, LoopRV, Trace

__all__ = ["BlockRV", "Instruction", "LoopRV", "Schedule", "Trace", "default_schedule", "schedule_func"]
