"""What may be decided about a kernel: choices of the schedule rules, or a schedule of the user's that draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft import error, ir, tir
from weft.target import Target
from weft.tir.schedule import Knobs, Schedule, Trace, schedule_func

_TRACE = "trace"
"""The one decision of a candidate of the user's: the primitives that were applied, with what was drawn."""


class RuleSpace:
    """The choices that the schedule rules leave open for a kernel."""

    def __init__(self, func: tir.PrimFunc, target: Target) -> None:
        self.func, self.target = func, target

    def schedule(self, decisions: Mapping[str, Any]) -> tuple[tir.PrimFunc, Knobs]:
        """Schedule the kernel as decided, and return the choices there were.

        Raises
        ------
        ScheduleError
            When the rules have no such choices, or cannot do what was decided.
        """
        knobs = Knobs(decisions)
        scheduled = schedule_func(self.func, self.target, knobs)
        if knobs.unused():
            raise error.ScheduleError(f"the rules do not have its choices {', '.join(knobs.unused())}")
        return scheduled, knobs


class DrawnSpace:
    """A function that schedules a kernel and draws what it leaves open: ``sch.sample_perfect_tile(loop, n=2)``.

    Parameters
    ----------
    func : PrimFunc
        The kernel.
    target : Target
        For the rules' own schedule, which candidates have to beat.
    program : callable
        ``program(sch)`` applies primitives to a schedule.
    """

    def __init__(self, func: tir.PrimFunc, target: Target, program: Callable[[Schedule], Any]) -> None:
        self.func, self.target, self.program = func, target, program
        self.signature = f"space {getattr(program, '__qualname__', type(program).__name__)}"

    def default(self) -> tir.PrimFunc:
        """Return the kernel as the rules schedule it."""
        return schedule_func(self.func, self.target)

    def draw(self, seed: int) -> dict[str, Any] | None:
        """Run the program with other draws and return its decisions; None where a primitive refuses them."""
        sch = Schedule(self.func, seed=seed)
        try:
            self.program(sch)
        except error.ScheduleError:
            return None
        return {_TRACE: sch.trace.as_json()}


def schedule_as_decided(func: tir.PrimFunc, target: Target, decisions: Mapping[str, Any]) -> tir.PrimFunc:
    """Schedule a kernel as was decided.

    Raises
    ------
    ScheduleError
        When that cannot be done, or not any more.
    """
    if _TRACE not in decisions:
        return RuleSpace(func, target).schedule(decisions)[0]
    sch = Schedule(func)
    try:
        Trace.apply_json_to_schedule(decisions[_TRACE], sch)
    except Exception as e:
        raise error.ScheduleError(f"its trace does not apply, {type(e).__name__}: {e}") from e
    return sch.func


def mark_of(func: tir.PrimFunc) -> str:
    """Name a scheduled function, whatever it is called."""
    return ir.fingerprint(func.without_attr("global_symbol"))[:24]
