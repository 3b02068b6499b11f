"""A worker process that runs functions with a time limit; it is started anew after one hangs or dies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from weft.error import WeftError

__all__ = ["PopenWorker"]

_STARTING = 30.0  # seconds more that a process and its initializer may take


def _serve(pipe: Connection, initializer: Callable[..., Any] | None, initargs: Sequence[Any]) -> None:
    if initializer is not None:
        initializer(*initargs)
    while True:
        try:
            function, args, kwargs = pipe.recv()
        except EOFError:
            return
        pipe.send(None)  # the time counts from here
        try:
            answer = (True, function(*args, **kwargs))
        except Exception as e:
            answer = (False, e)
        try:
            pipe.send(answer)
        except Exception as e:  # what does not pickle
            pipe.send((False, WeftError(f"the answer cannot be sent back: {e}", found=repr(answer[1])[:200])))


class PopenWorker:
    """A process of its own; send it a function, receive the answer.

    Parameters
    ----------
    initializer, initargs : callable and its arguments, optional
        Called once in each new process.
    maximum_uses : int, optional
        After so many functions the next one gets a new process.
    """

    def __init__(
        self,
        initializer: Callable[..., Any] | None = None,
        initargs: Sequence[Any] = (),
        maximum_uses: int | None = None,
    ) -> None:
        self._initializer, self._initargs = initializer, tuple(initargs)
        self._maximum_uses, self._uses = maximum_uses or None, 0
        self._process: Any = None
        self._pipe: Connection | None = None
        self._limit: float | None = None

    def _start(self) -> Connection:
        context = get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, self._initializer, self._initargs), daemon=True)
        self._process.start()
        far.close()
        return self._pipe

    def send(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Start ``fn(*args, **kwargs)`` in the worker; it may run for `timeout` seconds, which :meth:`recv` counts."""
        if not self.is_alive() or self._uses == self._maximum_uses:
            self.kill()
            self._uses = 0
        pipe, self._limit = self._pipe or self._start(), timeout
        self._uses += 1
        pipe.send((fn, tuple(args), kwargs or {}))

    def recv(self) -> Any:
        """Return what the function returned, or raise what it raised.

        Raises
        ------
        TimeoutError
            When it took longer than the limit; the worker is killed.
        ChildProcessError
            When the worker died.
        """
        if self._pipe is None:
            raise WeftError("nothing was sent to the worker", help="call send first")
        try:
            self._wait(_STARTING)
            self._pipe.recv()  # says that the function begins
            self._wait(0)
            good, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise ChildProcessError("the worker process died") from None
        if good:
            return value
        raise value

    def _wait(self, more: float) -> None:
        if self._limit is not None and self._pipe is not None and not self._pipe.poll(self._limit + more):
            self.kill()
            raise TimeoutError(f"no answer within {self._limit + more} s")

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the process has ended, `timeout` seconds at most."""
        if self._process is not None:
            self._process.join(timeout)

    def kill(self) -> None:
        """Stop the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def __del__(self) -> None:
        self.kill()
