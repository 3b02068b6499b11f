"""Tables from node class to function: how printers, code generators, evaluators and type inference find their rule."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakSet

from weft.error import InternalError
from weft.ir.node import kinds

F = TypeVar("F", bound=Callable[..., Any])
_TABLES: WeakSet[Dispatch] = WeakSet()
_OWN_DIALECTS = ("weft.relay",)  # their nodes never come to tables of other packages


class _Rules(dict[type, Callable[..., Any]]):
    """The rules of a table that were asked for."""

    def __init__(self, table: Dispatch) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, cls: type) -> Callable[..., Any]:
        return self.table._find(cls)


class Dispatch:
    """A table of functions by node class; calling it runs the function of the first argument's class.

    Parameters
    ----------
    name : str
        What the table does, for error messages: ``"LLVM expression"``. Where a call more costs,
        ``table.rule[type(node)](node)`` is the same.
    covers : iterable of type
        The union that the table must handle, by its base classes: all their subclasses count. Without it the table
        is open: it gets classes that are no nodes, or that users bring. :meth:`missing` lists classes without a rule.
    leaves_out : iterable of type
        Classes of the union that do not come here; a comment beside the table says why.
    default : callable, optional
        Used when neither the class nor any of its bases has a rule.
    extends : Dispatch, optional
        A table that is complete already, whose rules count where this one has none for the class itself.
    """

    __slots__ = ("__weakref__", "_known", "covers", "default", "leaves_out", "module", "name", "rule", "table")

    def __init__(
        self,
        name: str,
        covers: Iterable[type] = (),
        default: Callable[..., Any] | None = None,
        *,
        leaves_out: Iterable[type] = (),
        extends: Dispatch | None = None,
    ) -> None:
        self.name, self.covers, self.default, self.leaves_out = name, tuple(covers), default, tuple(leaves_out)
        self.module: str = sys._getframe(1).f_globals.get("__name__", "")
        _TABLES.add(self)
        self.table: dict[type, Callable[..., Any]] = dict(extends.table) if extends is not None else {}
        self.rule: dict[type, Callable[..., Any]] = _Rules(self)
        self._known: dict[type, Callable[..., Any] | None] = {}

    def on(self, *types: type) -> Callable[[F], F]:
        """Register the decorated function for `types`; a subclass without a rule of its own inherits it."""

        def register(fn: F) -> F:
            for t in types:
                self.table[t] = fn
            self.rule.clear()
            self._known.clear()
            return fn

        return register

    def __call__(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the rule for the class of `node` on it and the further arguments."""
        fn = self.rule.get(type(node)) or self._find(type(node), node)
        return fn(node, *args, **kwargs)

    def get(self, cls: type) -> Callable[..., Any] | None:
        """Return the rule for a class (its own or its nearest base's), or None."""
        try:
            return self._known[cls]
        except KeyError:
            found = self._known[cls] = next((self.table[t] for t in cls.__mro__ if t in self.table), self.default)
            return found

    def missing(self) -> list[type]:
        """List the classes of the union that have no rule and are not left out."""
        foreign = tuple(d for d in _OWN_DIALECTS if not self.module.startswith(d))
        return [
            t
            for t in kinds(*self.covers)
            if t not in self.leaves_out and self.get(t) is None and not t.__module__.startswith(foreign)
        ]

    @staticmethod
    def tables() -> list[Dispatch]:
        """List all tables that there are, by name."""
        return sorted(_TABLES, key=lambda t: t.name)

    def _find(self, cls: type, node: Any = None) -> Callable[..., Any]:
        fn = self.get(cls)
        if fn is None:
            raise InternalError(f"{self.name}: no rule for {cls.__name__}", where=getattr(node, "span", None))
        self.rule[cls] = fn
        return fn
