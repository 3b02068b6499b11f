"""Postprocessors: what is done to a schedule when all is decided; each says whether the schedule is good."""

from weft import ir, tir
from weft.meta_schedule.part import Part
from weft.tir.analysis import statements
from weft.tir.schedule import Schedule

__all__ = ["DisallowDynamicLoop", "Postproc", "PyPostproc"]


class Postproc(Part):
    """Postprocesses: ``apply(sch)`` returns False where the schedule is not to be measured."""

    def apply(self, sch: Schedule) -> bool:
        """Postprocess a schedule."""
        raise NotImplementedError


class PyPostproc(Postproc):
    """A postprocessor written in Python."""


class DisallowDynamicLoop(Postproc):
    """Refuses schedules with a loop whose extent is no constant."""

    def apply(self, sch: Schedule) -> bool:
        """Whether all extents are constants."""
        functions = [f for _, f in sch.mod.items() if isinstance(f, tir.PrimFunc)]
        loops = [s for f in functions for s in statements(f.body) if isinstance(s, tir.For)]
        return all(isinstance(loop.extent, ir.IntImm) for loop in loops)
