"""Worker processes that run functions with a time limit; one is started anew after a function hangs or dies."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import local
from typing import Any, NamedTuple

from weft.error import WeftError

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


def _pickled(value: Any) -> bytes:
    """Pickle a function and its arguments; what is no module's own needs cloudpickle, where that is installed."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        try:
            import cloudpickle  # type: ignore[import-not-found]
        except ImportError:
            raise WeftError(
                "the function cannot be sent to a worker",
                expected="a function of a module",
                found=repr(value[0])[:200],
                help="pip install cloudpickle",
            ) from None
        return bytes(cloudpickle.dumps(value))


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
        pipe.send_bytes(_pickled((fn, tuple(args), kwargs or {})))

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


class StatusKind(IntEnum):
    """How a function of a pool ended."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


class MapResult(NamedTuple):
    """How a function ended, and its value or the exception."""

    status: StatusKind
    value: Any


class PopenPoolExecutor:
    """Threads that hand functions to a worker process each.

    Parameters
    ----------
    max_workers : int, optional
        By default one for each processor.
    timeout : float, optional
        Seconds that a function may run.
    initializer, initargs : callable and its arguments, optional
        Called once in each new process.
    maximum_process_uses : int, optional
        After so many functions a worker's next one gets a new process.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        timeout: float | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Sequence[Any] = (),
        maximum_process_uses: int | None = None,
    ) -> None:
        self._options = (initializer, initargs, maximum_process_uses)
        self._timeout, self._own = timeout, local()
        self._workers: list[PopenWorker] = []
        self._threads = ThreadPoolExecutor(max_workers or os.cpu_count())

    def _run(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not hasattr(self._own, "worker"):
            self._own.worker = PopenWorker(*self._options)
            self._workers.append(self._own.worker)
        self._own.worker.send(fn, args, kwargs, self._timeout)
        return self._own.worker.recv()

    def _caught(self, fn: Callable[..., Any], value: Any) -> MapResult:
        try:
            return MapResult(StatusKind.COMPLETE, self._run(fn, (value,), {}))
        except Exception as e:
            return MapResult(StatusKind.TIMEOUT if isinstance(e, TimeoutError) else StatusKind.EXCEPTION, e)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a function; its future raises TimeoutError or ChildProcessError as :meth:`PopenWorker.recv` does."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def map_with_error_catching(self, fn: Callable[..., Any], iterator: Iterable[Any]) -> Iterator[MapResult]:
        """Call a function with each element; how each call ended, in order."""
        return self._threads.map(lambda value: self._caught(fn, value), iterator)

    def shutdown(self, wait: bool = True) -> None:
        """Start nothing more and end the processes; with `wait` after what was submitted."""
        self._threads.shutdown(wait=wait, cancel_futures=not wait)
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def __del__(self) -> None:
        self.shutdown(wait=False)
