"""Mutators: traces with something decided otherwise."""

from __future__ import annotations

import copy
from typing import Any

from weft.tir.schedule import Trace

__all__ = ["Mutator", "PyMutator"]


class Mutator:
    """Changes a trace: ``apply(trace, seed)`` returns another, or None."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Change a trace."""
        raise NotImplementedError

    def clone(self) -> Any:
        """Return a copy."""
        return copy.copy(self)


class PyMutator(Mutator):
    """A mutator written in Python."""
