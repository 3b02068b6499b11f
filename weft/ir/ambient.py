"""What ``with`` statements make current: of this thread or asyncio task alone, so that two that compile do not mix.

A new thread begins without any; a pool that works for its caller is a :class:`CallersPool`, whose work sees what is
current where it was submitted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T")


class Ambient(Generic[T]):
    """The objects of one kind whose ``with`` blocks are open, innermost last."""

    _BY_NAME: ClassVar[dict[str, Ambient[Any]]] = {}

    def __init__(self, name: str) -> None:
        Ambient._BY_NAME[name] = self
        self._open: ContextVar[tuple[T, ...]] = ContextVar(name, default=())

    def enter(self, value: T) -> T:
        """Make a value current."""
        self._open.set((*self._open.get(), value))
        return value

    def leave(self, value: T) -> None:
        """End the innermost block of a value; where none is open (a generator closed elsewhere) nothing was current."""
        now = self._open.get()
        at = next((i for i in reversed(range(len(now))) if now[i] is value), None)
        if at is not None:
            self._open.set(now[:at] + now[at + 1 :])

    @staticmethod
    def current_of(name: str) -> Any:
        """Return the innermost value of the kind that is called `name`, for whom it is defined above of."""
        known = Ambient._BY_NAME.get(name)
        return None if known is None else known.current

    @property
    def current(self) -> T | None:
        """The innermost value, or None."""
        now = self._open.get()
        return now[-1] if now else None


class CallersPool(ThreadPoolExecutor):
    """Threads that run what is submitted with the submitter's contexts."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call; a copy for each, because a context is entered by one thread at a time."""
        return super().submit(copy_context().run, fn, *args, **kwargs)
