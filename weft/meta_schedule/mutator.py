"""Mutators: traces with something decided otherwise."""

from weft.meta_schedule.part import Part
from weft.tir.schedule import Trace

__all__ = ["Mutator", "PyMutator"]


class Mutator(Part):
    """Changes a trace: ``apply(trace, seed)`` returns another, or None."""

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Change a trace."""
        raise NotImplementedError


class PyMutator(Mutator):
    """A mutator written in Python."""
