"""Names that nothing has yet; and other names of parameters, by which programs for some releases of TVM give them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import inspect

F = TypeVar("F", bound=Callable[..., Any])


def unused_name(hint: str, taken: Container[str], separator: str = "_") -> str:
    """Return the hint, or the first of ``hint_1``, ``hint_2``, ... that is not taken."""
    name, n = hint, 0
    while name in taken:
        n += 1
        name = f"{hint}{separator}{n}"
    return name


def take_name(hint: str, taken: set[str], separator: str = "_") -> str:
    """Return a name that is not taken, as :func:`unused_name` does, and take it."""
    name = unused_name(hint, taken, separator)
    taken.add(name)
    return name


def counted_name(hint: str, taken: dict[str, int], separator: str = "_") -> str:
    """Return a name that is not taken, and take it: `taken` has the number that was last put behind each hint."""
    name, n = hint, taken.get(hint, 0)
    while name in taken:
        n += 1
        name = f"{hint}{separator}{n}"
    taken[hint] = n
    taken.setdefault(name, 0)
    return name


def also_called(**names: str) -> Callable[[F], F]:
    """Let a function take parameters by other names, too: ``also_called(sinfo="ty")`` takes ``sinfo=`` as ``ty=``.

    >>> @also_called(x1="lhs", x2="rhs")
    ... def subtract(lhs, rhs):
    ...     return lhs - rhs
    >>> subtract(x2=3, x1=5)
    2
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            if named:
                own_names(function.__name__, names, named)
            return function(*args, **named)

        call.other_names = names  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def named(function: F, name: str, doc: str) -> F:
    """Give a function that another one has made its own name and text."""
    function.__name__, function.__qualname__, function.__doc__ = name, name, doc
    return function


def own_names(what: str, names: Mapping[str, str], named: dict[str, Any]) -> None:
    """Rename arguments in place from other names of parameters to a function's own.

    Raises
    ------
    TypeError
        When an argument is given under both.
    """
    for other in names.keys() & named.keys():
        if (own := names[other]) in named:
            raise TypeError(f"{what}() got one argument under two names, '{other}' and '{own}'")
        named[own] = named.pop(other)


def in_order(what: str, parameters: Sequence[str], args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments by position: those given so, then those given by name.

    Raises
    ------
    TypeError
        When a name is none of the parameters that are left, or one between is missing.
    """
    left = parameters[len(args) :]
    given = left[: len(named)]
    if set(given) != set(named):
        raise TypeError(f"{what}() expects {', '.join(given) or 'no more arguments'}; found {', '.join(named)}")
    return (*args, *(named[p] for p in given))


def signature(parameters: Sequence[str]) -> inspect.Signature:
    """What `help` shows of a function that `in_order` arranges arguments for."""
    import inspect  # what runs without a compiler does not need it

    return inspect.Signature([inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in parameters])
