"""What another thread makes: waited for where it is needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """The result of a function that a thread of its own runs; the process does not end before it has.

    A process that is forked meanwhile, which does not have the thread, begins one of its own when it asks.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="weft-later")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether there is a result, or an error."""
        done = bool(self._made) or self._error is not None
        if not done and self._process != os.getpid():
            self._start()
        return done

    def wait(self) -> None:
        """Wait until there is a result, or an error."""
        while not self.is_done:
            self._thread.join()

    def result(self) -> T:
        """Wait for the result; what the function raised is raised here."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        make = self._make
        if make is None:  # two asked at once in a process that was forked
            return
        try:
            self._made.append(make())
        except BaseException as e:  # whoever asks for the result gets it
            self._error = e
        self._make = None  # with what it holds, such as a model


def side_by_side(makes: Sequence[Callable[[], T]]) -> list[T]:
    """The results of functions that run in threads, the first in this one; all have ended when one's error is raised.

    An executor does as much; its import takes 4 ms, which who only reads a compiled model would wait for.
    """
    others = [Later(make) for make in makes[1:]]
    try:
        first = [make() for make in makes[:1]]
    finally:
        for other in others:
            other.wait()
    return first + [other.result() for other in others]
