"""What all of autotvm shares: whether a tuner is at work, and whether it should be quiet."""

from __future__ import annotations

from typing import Any, ClassVar


class AutotvmGlobalScope:
    """State of this process; the last one made is ``AutotvmGlobalScope.current``."""

    current: ClassVar[Any] = None

    def __init__(self) -> None:
        self._old = AutotvmGlobalScope.current
        AutotvmGlobalScope.current = self
        self.in_tuning = False
        self.silent = False

    def deep_copy(self, global_scope: AutotvmGlobalScope) -> None:
        """Take over the state of another scope."""
        self.in_tuning, self.silent = global_scope.in_tuning, global_scope.silent


GLOBAL_SCOPE = AutotvmGlobalScope()


def reset_global_scope(global_scope: AutotvmGlobalScope) -> None:
    """Make a scope of another process the one of this."""
    GLOBAL_SCOPE.deep_copy(global_scope)
    AutotvmGlobalScope.current = global_scope
