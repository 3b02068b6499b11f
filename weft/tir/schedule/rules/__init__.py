"""Rules that schedule a function by what it computes."""

from weft.tir.schedule.rules.knobs import Knob, Knobs
from weft.tir.schedule.rules.record import Refusal, ScheduleRecord, noting_schedules
from weft.tir.schedule.rules.select import schedule_choices, schedule_func

default_schedule = schedule_func
