"""The operators of the host by name; each family's file registers its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HOST_FUNCTION = "weft.host"
"""Called with a description, JSON of ``op``, ``attrs``, element types ``in`` and ``out``, and the operands."""
OPERATORS: dict[str, Callable[..., Any]] = {}


def host_operator(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register ``fn(*arrays, **attrs)``, which returns an array, list or dict, or a tuple of such.

    Strings come and go as arrays of objects. What it keeps in a list it has to copy: memory of the machine is reused.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in OPERATORS, name
        OPERATORS[name] = fn
        return fn

    return register
