"""Rules that schedule a function by what it computes."""

from weft.tir.schedule.rules.knobs import Knob, Knobs
from weft.tir.schedule.rules.select import schedule_func

default_schedule = schedule_func

__all__ = ["Knob", "Knobs", "default_schedule", "schedule_func"]
