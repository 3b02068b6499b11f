"""Tables from node class to function: how printers, code generators, evaluators and type inference find their rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from weft.error import InternalError

__all__ = ["Dispatch"]

F = TypeVar("F", bound=Callable[..., Any])


class Dispatch:
    """A table of functions by node class; calling it runs the function of the first argument's class.

    Parameters
    ----------
    name : str
        What the table does, for error messages: ``"LLVM expression"``.
    covers : iterable of type
        The classes that the table must handle; :meth:`missing` lists those without a rule.
    default : callable, optional
        Used when neither the class nor any of its bases has a rule.
    """

    __slots__ = ("_cache", "covers", "default", "name", "table")

    def __init__(self, name: str, covers: Iterable[type] = (), default: Callable[..., Any] | None = None) -> None:
        self.name, self.covers, self.default = name, tuple(covers), default
        self.table: dict[type, Callable[..., Any]] = {}
        self._cache: dict[type, Callable[..., Any]] = {}

    def on(self, *types: type) -> Callable[[F], F]:
        """Register the decorated function for `types`; a subclass without a rule of its own inherits it."""

        def register(fn: F) -> F:
            for t in types:
                self.table[t] = fn
            self._cache.clear()
            return fn

        return register

    def __call__(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the rule for the class of `node` on it and the further arguments."""
        fn = self._cache.get(type(node))
        if fn is None:
            fn = self._find(type(node), node)
        return fn(node, *args, **kwargs)

    def get(self, cls: type) -> Callable[..., Any] | None:
        """Return the rule for a class (its own or its nearest base's), or None."""
        for t in cls.__mro__:
            if t in self.table:
                return self.table[t]
        return self.default

    def missing(self) -> list[type]:
        """List the classes of `covers` without a rule."""
        return [t for t in self.covers if self.get(t) is None]

    def _find(self, cls: type, node: Any) -> Callable[..., Any]:
        fn = self.get(cls)
        if fn is None:
            raise InternalError(f"{self.name}: no rule for {cls.__name__}", where=getattr(node, "span", None))
        self._cache[cls] = fn
        return fn
