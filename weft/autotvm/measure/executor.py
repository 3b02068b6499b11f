"""Where measurements may be sent: executors that return futures."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

from weft.error import WeftError

__all__ = ["ExecutionError", "Executor", "Future", "FutureError", "TimeoutError"]


class FutureError(WeftError, RuntimeError):
    """What was sent to an executor did not return."""


class TimeoutError(FutureError):
    """It took too long."""


class ExecutionError(FutureError):
    """It raised, or its process ended."""


Future = concurrent.futures.Future


class Executor:
    """Runs functions and returns futures with their results."""

    DEFAULT_TIMEOUT = 120

    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a call and return its future."""
        raise NotImplementedError
