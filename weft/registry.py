"""Tables of functions by name that decorators fill."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Registry(dict[str, F]):
    """Functions by name: ``@TABLE.on("add", "subtract")`` enters the one below it.

    Parameters
    ----------
    prefix : str
        What stands before the names that are given.
    once : bool
        Whether a name must not be entered twice.
    """

    def __init__(self, prefix: str = "", *, once: bool = False) -> None:
        super().__init__()
        self._prefix, self._once = prefix, once

    def on(self, *names: str) -> Callable[[F], F]:
        """Enter the decorated function under these names."""

        def register(fn: F) -> F:
            full = [self._prefix + name for name in names]
            assert not (self._once and self.keys() & set(full)), names
            self.update(dict.fromkeys(full, fn))
            return fn

        return register
