"""Deprecations: a name that goes away says so for two minor versions, and what to use instead."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from weft.error import InvalidArgument

T = TypeVar("T", bound=Callable[..., Any])


class Deprecation(NamedTuple):
    """What is deprecated, since which version, in which it will be gone, and what to use instead."""

    name: str
    since: str
    remove: str
    instead: str


_DEPRECATIONS: list[Deprecation] = []


def deprecated(*, since: str, remove: str, instead: str) -> Callable[[T], T]:
    """Make calls of a function, or of a class, warn that it will be removed.

    Parameters
    ----------
    since, remove : str
        The version that warns first and the version without it, two minor versions later or more: ``"0.2"``, ``"0.4"``.
    instead : str
        What to use instead, as it is written in a program.

    Raises
    ------
    InvalidArgument
        When the time between is shorter.

    >>> @deprecated(since="0.2", remove="0.4", instead="weft.compile")
    ... def translate(): ...
    """
    (major, minor), end = version(since), version(remove)
    if (end[0] == major and end[1] < minor + 2) or end[0] < major:
        raise InvalidArgument(
            "deprecated: programs need two minor versions to follow",
            expected=f"remove= at least two minor versions after {since}",
            found=remove,
        )

    def mark(value: T) -> T:
        entry = Deprecation(f"{value.__module__}.{value.__qualname__}", since, remove, instead)
        _DEPRECATIONS.append(entry)
        text = f"{entry.name} is deprecated since Weft {since} and will be removed in {remove}; use {instead}"

        def warning(function: Callable[..., Any]) -> Any:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                return function(*args, **kwargs)

            return call

        marked: Any = value
        if isinstance(value, type):
            marked.__init__ = warning(marked.__init__)
        else:
            marked = warning(value)
        marked.__deprecation__ = entry
        return marked

    return mark


def deprecation_of(value: object) -> Deprecation | None:
    """The deprecation of a function or class, not of one that it inherits from; None if it stays."""
    return getattr(value, "__dict__", {}).get("__deprecation__")


def deprecations() -> tuple[Deprecation, ...]:
    """All deprecations of the modules that are loaded."""
    return tuple(_DEPRECATIONS)


def version(text: str) -> tuple[int, int]:
    """Major and minor number of a version, ``(0, 2)`` of ``"0.2.1"``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
