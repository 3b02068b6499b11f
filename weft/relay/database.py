"""Schedules of a database, for the kernels of Relay programs that are built inside of ``with database:``."""

from __future__ import annotations

from weft.ir import IRModule
from weft.meta_schedule import Database
from weft.relax.transform import MetaScheduleApplyDatabase
from weft.target import Target


def scheduled(kernels: IRModule, target: Target) -> IRModule:
    """Schedule kernels as the current database says; others, and all where there is none, are scheduled as ever."""
    if Database.current() is None:
        return kernels
    with target:
        return MetaScheduleApplyDatabase()(kernels)
