"""Rules that schedule a function by what it computes."""

from weft.tir.schedule.rules.select import schedule_func

default_schedule = schedule_func

__all__ = ["default_schedule", "schedule_func"]
