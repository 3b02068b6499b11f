"""What a search is made of has a text, hears of the task, and can be copied."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from weft.error import InvalidArgument
from weft.target import Target


class Named:
    """What has its class and its place in memory for a text, as TVM's objects have."""

    def __str__(self) -> str:
        return f"meta_schedule.{type(self).__name__}({id(self):#x})"


class Part(Named):
    """A part of a search, and the task that it heard of."""

    _context: Any = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""
        self._context = context

    @property
    def _target(self) -> Target:
        """The task's target.

        Raises
        ------
        InvalidArgument
            When there is none.
        """
        if self._context is None or self._context.target is None:
            raise InvalidArgument(f"{type(self).__name__}: the target is not known", help="give TuneContext a target")
        return self._context.target

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
