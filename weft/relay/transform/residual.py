"""Values of partial evaluation, and the bindings that are left of a program.

A value is what is known of it and the atom that stands for it in what is left. Bindings are kept in lists, one for
each scope, and made only if something needs them: a list is finished from its end, so that everything which a binding
uses is asked for before its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.relay.adt import Constructor
from weft.relay.expr import Constant, Function, Var, lets
from weft.relay.types import TypeVar

_SMALL = 64  # bytes of constants whose elements tell calls apart


class Binding:
    """A variable of what is left, and how its value is made; ``needed`` says whether it will be."""

    __slots__ = ("make", "needed", "var")

    def __init__(self, var: Var, make: Callable[[], Any], needed: bool) -> None:
        self.var, self.make, self.needed = var, make, needed


class Environment:
    """The values of variables in one call, those around the function, and what type variables stand for."""

    __slots__ = ("outer", "types", "values")

    def __init__(self, outer: Environment | None = None, types: Mapping[TypeVar, Any] | None = None) -> None:
        self.outer = outer
        self.values: dict[Var, Value] = {}
        around = outer.types if outer is not None else {}
        self.types: Mapping[TypeVar, Any] = {**around, **types} if types else around

    def find(self, var: Var) -> Value | None:
        """Return the value of a variable; None where it has none."""
        env: Environment | None = self
        while env is not None:
            value = env.values.get(var)
            if value is not None:
                return value
            env = env.outer
        return None


class Value:
    """What is known, and what stands for it.

    ``known`` is a Constant, a tuple of values, a :class:`KnownCall`, :class:`KnownClosure`, :class:`KnownRef` or None.
    """

    __slots__ = ("binding", "known", "name")

    def __init__(self, name: Any, known: Any = None, binding: Binding | None = None) -> None:
        self.name, self.known, self.binding = name, known, binding

    def atom(self) -> Any:
        """Return what stands for the value in what is left, which needs it from now on."""
        if self.binding is not None:
            self.binding.needed = True
        return self.name


@dataclass(frozen=True, eq=False)
class KnownCall:
    """A value of a data type."""

    constructor: Constructor
    fields: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class KnownClosure:
    """A function and the variables around it."""

    func: Function
    env: Environment


class KnownRef:
    """A cell that was made here; what it holds is known as long as nothing unknown may have written it."""


class Scope:
    """The bindings of one scope of what is left."""

    __slots__ = ("bindings",)

    def __init__(self) -> None:
        self.bindings: list[Binding] = []

    def add(self, hint: str, make: Callable[[], Any], known: Any = None, needed: bool = False, ty: Any = None) -> Value:
        """Add a binding whose value ``make()`` gives if it is needed."""
        binding = Binding(Var(hint, ty), make, needed)
        self.bindings.append(binding)
        return Value(binding.var, known, binding)

    def has_effects(self) -> bool:
        """Whether something must be done whatever the result is used for."""
        return any(b.needed for b in self.bindings)

    def finish(self, result: Value) -> Any:
        """Return the lets that compute a result."""
        tail = result.atom()
        made: list[tuple[Var, Any]] = []
        for b in reversed(self.bindings):
            if b.needed:
                made.append((b.var, b.make()))
        return lets(made[::-1], tail)


def arrays_of(value: Value) -> Any:
    """Return the array, or tuple of arrays, that a value is known to be; None otherwise."""
    if type(value.known) is Constant:
        return value.known.data.numpy()
    if type(value.known) is not tuple:
        return None
    fields = tuple(map(arrays_of, value.known))
    return None if any(f is None for f in fields) else fields


def signature(args: list[Value]) -> tuple[Any, ...]:
    """Describe what is known of arguments; equal for calls that nothing known tells apart."""
    return tuple(map(_described, args))


def _described(value: Value) -> Any:
    if type(value.known) is Constant:
        array: np.ndarray[Any, Any] = value.known.data.numpy()
        return (str(array.dtype), array.shape, array.tobytes()) if array.nbytes <= _SMALL else value.known
    return value.known
