"""Python's operators as methods that one function makes: what ``a + b`` means is said once for a family of classes."""

from collections.abc import Callable
from typing import Any

Method = Callable[[Any, Any], Any]


def operator(apply: Callable[..., Any], op: Any, **options: Any) -> Method:
    """Make the method ``apply(op, self, other)``."""

    def method(self: Any, other: Any) -> Any:
        return apply(op, self, other, **options)

    return method


def operators(apply: Callable[..., Any], op: Any, **options: Any) -> tuple[Method, Method]:
    """Make the methods of an operator for an operand on its left, ``__add__``, and on its right, ``__radd__``."""

    def swapped(self: Any, other: Any) -> Any:
        return apply(op, other, self, **options)

    return operator(apply, op, **options), swapped
