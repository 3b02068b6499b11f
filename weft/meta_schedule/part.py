"""What a search is made of hears of the task, and can be copied."""

from __future__ import annotations

import copy
from typing import Any


class Part:
    """A part of a search."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""

    def clone(self) -> Any:
        """Return a copy."""
        return copy.copy(self)
