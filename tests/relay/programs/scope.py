"""What an expression of a random program may refer to."""

from dataclasses import dataclass, field
from typing import Any

from weft import relay


@dataclass
class Scope:
    """Variables with their types, expressions to share, and type variables."""

    variables: tuple[tuple[relay.Var, Any], ...] = ()
    shared: list[tuple[Any, Any]] = field(default_factory=list)
    types: tuple[relay.TypeVar, ...] = ()

    @staticmethod
    def of(params, types=()):
        """The scope of a function's body."""
        return Scope(tuple((p, p.ty) for p in params), types=tuple(types))

    def with_(self, *new):
        """The scope with more variables."""
        return Scope((*self.variables, *new), list(self.shared), self.types)

    def find(self, wanted):
        """Variables of types that are wanted."""
        return [(v, t) for v, t in self.variables if wanted(t)]
