"""The table of converters: which function turns which operator of TFLite into Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CONVERTERS", "converter", "supported_operators"]

CONVERTERS: dict[str, Callable[..., Any]] = {}


def converter(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter of operators: it takes a `Node` and returns an expression, or several."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in CONVERTERS, name
            CONVERTERS[name] = fn
        return fn

    return register


def supported_operators() -> list[str]:
    """Names of the operators that are converted."""
    return sorted(CONVERTERS)
