"""What another thread makes: waited for where it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """The result of a function that a thread of its own runs; the process does not end before it has."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(make,), name="weft-later")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether there is a result, or an error."""
        return bool(self._made) or self._error is not None

    def result(self) -> T:
        """Wait for the result; what the function raised is raised here."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self, make: Callable[[], T]) -> None:
        try:
            self._made.append(make())
        except BaseException as e:  # whoever asks for the result gets it
            self._error = e
