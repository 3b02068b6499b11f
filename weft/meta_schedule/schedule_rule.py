"""Rules of users: how a block is scheduled."""

from __future__ import annotations

import copy
from typing import Any

from weft.tir.schedule import BlockRV, Schedule

__all__ = ["PyScheduleRule", "ScheduleRule"]


class ScheduleRule:
    """Schedules a block: ``apply(sch, block)`` returns the schedules that follow, itself among them or not."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Schedule a block."""
        raise NotImplementedError

    def clone(self) -> Any:
        """Return a copy."""
        return copy.copy(self)


class PyScheduleRule(ScheduleRule):
    """A rule written in Python."""
