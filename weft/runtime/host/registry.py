"""The operators of the host by name; each family's file registers its own."""

from collections.abc import Callable
from typing import Any

from weft.registry import Registry

HOST_FUNCTION = "weft.host"
"""Called with a description, JSON of ``op``, ``attrs``, element types ``in`` and ``out``, and the operands."""
OPERATORS: Registry[Callable[..., Any]] = Registry(once=True)
host_operator = OPERATORS.on
"""Register ``fn(*arrays, **attrs)``, which returns an array, list or dict, or a tuple of such.

Strings come and go as arrays of objects. What it keeps in a list it has to copy: memory of the machine is reused.
"""
