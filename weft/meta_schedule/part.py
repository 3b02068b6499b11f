"""What a search is made of has a text, hears of the task, and can be copied."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from weft.error import InvalidArgument


class Named:
    """What has its class and its place in memory for a text, as TVM's objects have."""

    def __str__(self) -> str:
        return f"meta_schedule.{type(self).__name__}({id(self):#x})"


class Part(Named):
    """A part of a search."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""

    def clone(self) -> Any:
        """Return a copy."""
        return copy.copy(self)


def made(what: str, kinds: Mapping[str, Callable[..., Any]], kind: str, *args: Any, **kwargs: Any) -> Any:
    """Make something of a kind.

    Raises
    ------
    InvalidArgument
        When there is no such kind.
    """
    if kind not in kinds:
        raise InvalidArgument(f"unknown {what} '{kind}'", expected=", ".join(kinds))
    return kinds[kind](*args, **kwargs)
