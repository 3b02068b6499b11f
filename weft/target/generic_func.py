"""Functions that each kind of target may have of its own; the current target's keys choose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.spelling import also_called
from weft.target.target import Target


class GenericFunc:
    """A function with specializations.

    Calling it calls the specialization of the first key of the current target that has one, else the default.
    """

    def __init__(self, name: str = "", fdefault: Callable[..., Any] | None = None) -> None:
        self.name, self.fdefault = name, fdefault
        self.dispatch_dict: dict[str, Callable[..., Any]] = {}
        if fdefault is not None:
            functools.update_wrapper(self, fdefault)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is there for the current target."""
        return self.get_packed_func()(*args, **kwargs)

    @property
    def generic_func_node(self) -> GenericFunc:
        """The function itself, under TVM's name."""
        return self

    def set_default(self, func: Callable[..., Any], allow_override: bool = False) -> None:
        """Set what is called where no specialization fits.

        Raises
        ------
        InvalidArgument
            When there is a default that may not be replaced.
        """
        if self.fdefault is not None and not allow_override:
            raise InvalidArgument(f"'{self.name}' has a default", help="pass allow_override=True to replace it")
        self.fdefault = func

    @also_called(key_list="key", allow_override="override")
    def register(self, key: Any, func: Any = None, override: bool = False) -> Any:
        """Set the specialization of a key or several; without a function it makes a decorator.

        ``register(func, keys)`` is taken, too.

        Raises
        ------
        ValueError
            When a key has one that may not be replaced.
        """
        if callable(key):
            key, func = func, key

        def add(made: Callable[..., Any]) -> Callable[..., Any]:
            for k in [key] if isinstance(key, str) else key:
                if k in self.dispatch_dict and not override:
                    raise ValueError(f"'{self.name}' has a function for '{k}'; pass override=True to replace it")
                self.dispatch_dict[k] = made
            return made

        return add if func is None else add(func)

    def get_packed_func(self) -> Callable[..., Any]:
        """Return what a call would call.

        Raises
        ------
        InvalidArgument
            When there is no specialization for the current target and no default.
        """
        target = Target.current()
        keys: Sequence[str] = () if target is None else target.keys
        found = next((self.dispatch_dict[k] for k in keys if k in self.dispatch_dict), self.fdefault)
        if found is None:
            raise InvalidArgument(
                f"'{self.name}' has no function for the target",
                expected=", ".join(self.dispatch_dict) or "a default",
                found=str(target),
            )
        return found


_NATIVE: dict[str, GenericFunc] = {}


def generic_func(fdefault: Callable[..., Any]) -> GenericFunc:
    """Make a function with specializations; the decorated one is the default."""
    return GenericFunc(getattr(fdefault, "__name__", ""), fdefault)


def get_native_generic_func(name: str) -> GenericFunc:
    """Return the function with specializations of a name, made at the first request."""
    return _NATIVE.setdefault(name, GenericFunc(name))


def override_native_generic_func(func_name: str) -> Callable[[Callable[..., Any]], GenericFunc]:
    """Make the decorator that sets the default of the function of a name."""

    def decorate(fdefault: Callable[..., Any]) -> GenericFunc:
        func = get_native_generic_func(func_name)
        func.set_default(fdefault, allow_override=True)
        return func

    return decorate
