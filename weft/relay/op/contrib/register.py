"""The table of patterns of each external compiler, which ``MergeComposite`` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TABLES: dict[str, Callable[[], Any]] = {}


def register_pattern_table(compiler: str, table: Callable[[], Any] | None = None) -> Any:
    """Register the function that returns the patterns of a compiler; also a decorator.

    Parameters
    ----------
    compiler : str
        The compiler.
    table : callable, optional
        Returns a list as ``MergeComposite`` takes it: ``(name, pattern)`` or ``(name, pattern, check)``.
    """

    def register(fn: Callable[[], Any]) -> Callable[[], Any]:
        _TABLES[compiler] = fn
        return fn

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Any:
    """Return the patterns of a compiler; None where none are registered."""
    return _TABLES[compiler]() if compiler in _TABLES else None
