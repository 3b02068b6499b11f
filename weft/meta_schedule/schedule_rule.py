"""Rules of users: how a block is scheduled."""

from weft.meta_schedule.part import Part
from weft.tir.schedule import BlockRV, Schedule

__all__ = ["PyScheduleRule", "ScheduleRule"]


class ScheduleRule(Part):
    """Schedules a block: ``apply(sch, block)`` returns the schedules that follow, itself among them or not."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Schedule a block."""
        raise NotImplementedError


class PyScheduleRule(ScheduleRule):
    """A rule written in Python."""
