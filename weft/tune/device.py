"""Measuring on another machine: a device that a tracker has free, reached by remote calls."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft import error, rpc
from weft.rpc.machine import RemoteVirtualMachine
from weft.runtime import Tensor, tensor
from weft.runtime.link import link_library
from weft.runtime.worker import WorkerCrashed, WorkerError, WorkerHung
from weft.target import Target
from weft.tune.worker import Place, Service

_SESSION_SECONDS = 300.0
"""How long a session lasts at most, so that a kernel that hangs does not keep the device for ever."""

_FREE_SECONDS = 60.0
"""How long to wait for a device that is free."""

_TRIES = 2


_programs = itertools.count()


class _There(Place):
    """A session's machine: libraries are linked here and loaded there, and timed by its clock."""

    def __init__(self, session: rpc.RPCSession) -> None:
        self.session, self.cpu, self.count = session, session.cpu(), itertools.count()

    def load(self, code: bytes, name: str) -> _Kernel:
        """Link an object file, send the library and load it."""
        with tempfile.TemporaryDirectory(prefix="weft-tune-") as folder:
            path = link_library(Path(folder) / f"{name}-{next(self.count)}.so", [code], None, names=[name])
            self.session.upload(path)
        module = self.session.load_module(path.name)
        self.session.remove(path.name)  # what is open stays
        return _Kernel(module, name)

    def tensor(self, value: np.ndarray) -> Tensor:
        """Copy an array to the machine."""
        return tensor(value, self.cpu)

    def seconds(self, kernel: Any, sets: deque[list[Any]], calls: int) -> float:
        """Time a kernel there; its arguments are the same in all calls."""
        return float(kernel.module.time_evaluator(kernel.name, self.cpu, number=calls)(*sets[0]).results[0])


class _Kernel:
    """A function of a library that was loaded there."""

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name, self.function = module, name, module[name]

    def __call__(self, *args: Any) -> None:
        self.function(*args)


class TrackerDevice:
    """A device of a tracker as a worker that measures; where it is lost, the next that is free goes on.

    A request is tried again once when its session is lost, since that may be the machine's end and not the kernel's
    doing. Weights of large models are in the caches when they are measured: a session's clock repeats one call.

    Parameters
    ----------
    address : str
        ``host:port`` of the tracker.
    key : str
        The kind of device.
    priority : int
        Who asks with a higher one comes first.

    Raises
    ------
    InvalidArgument
        When the address is none.
    """

    def __init__(self, address: str, key: str, priority: int = 1) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise error.InvalidArgument("malformed address of a tracker", expected="HOST:PORT", found=address)
        if not key:
            raise error.InvalidArgument("a tracker's device needs its key", expected="the --key of its server")
        self.host, self.port, self.key, self.priority = host, int(port), key, priority
        self.session: rpc.RPCSession | None = None
        self._until = 0.0
        self._service = Service()
        self._prepared: dict[str, Any] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the session lasts in which a kernel was prepared."""
        return self.session is not None and not self.session._sess.endpoint.closed

    def start(self) -> rpc.RPCSession:
        """Ask the tracker for a device, where there is no session that lasts."""
        if not self.is_alive or self.session is None:
            tracker = rpc.connect_tracker(self.host, self.port)
            tracker._connection().request_seconds = _FREE_SECONDS
            try:
                self.session = tracker.request(self.key, self.priority, session_timeout=_SESSION_SECONDS, max_retry=1)
            finally:
                tracker.close()
            self._until = time.monotonic() + _SESSION_SECONDS
            self._service = Service()
            self._service.place = _There(self.session)
        return self.session

    def stop(self) -> None:
        """End the session; the device is free for others."""
        session, self.session = self.session, None
        if session is not None:
            session.close()

    def target(self) -> Target:
        """What the device says of itself, as a target."""
        return Target.from_device(self.start().cpu())

    def program(self, export: Callable[[Path], Any]) -> Callable[[Sequence[Any]], float]:
        """Send a program, and return what runs its ``main`` with arrays: the seconds that takes there.

        Parameters
        ----------
        export : callable
            Writes the library that is sent.
        """
        if self._until - time.monotonic() < _SESSION_SECONDS / 2:
            self.stop()
        session = self.start()
        with tempfile.TemporaryDirectory(prefix="weft-tune-") as folder:
            path = Path(folder) / f"program-{next(_programs)}.so"
            export(path)
            session.upload(path)
        machine = RemoteVirtualMachine(session.load_module(path.name), session.cpu())
        timed = machine.time_evaluator("main", session.cpu(), number=1)
        known: dict[int, list[Any]] = {}

        def seconds(arguments: Sequence[Any]) -> float:
            if id(arguments) not in known:
                known[id(arguments)] = [tensor(a, session.cpu()) for a in arguments]
            return float(timed(*known[id(arguments)]).results[0])

        return seconds

    def ask(self, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """Do what :mod:`weft.tune.worker` says under ``prepare``, ``measure`` and ``time``, on the device.

        Raises
        ------
        WorkerError
            When it failed; WorkerCrashed or WorkerHung when the session ended by it.
        """
        about = {k: v for k, v in request.items() if k != "do"} | ({"cold_bytes": 0} if "cold_bytes" in request else {})
        why = ""
        for _ in range(_TRIES):
            if time.monotonic() + (seconds or 0.0) > self._until:
                self.stop()
            fresh = not self.is_alive
            try:
                self.start()
            except (error.RPCError, OSError) as e:
                raise WorkerError(f"no device '{self.key}' of {self.host}:{self.port} is free: {e}") from e
            try:
                with self._limited(seconds):
                    if request["do"] == "prepare":
                        self._prepared = about
                    elif request["do"] == "measure" and fresh and self._prepared is not None:
                        self._service.prepare(**self._prepared)
                    return getattr(self._service, request["do"])(**about)
            except (error.WeftError, OSError, ValueError, TypeError, RuntimeError) as e:
                why = f"{type(e).__name__}: {e}"
                if isinstance(e, WorkerHung) or self.is_alive:
                    raise e if isinstance(e, WorkerError) else WorkerError(why) from e
                self.stop()
        raise WorkerCrashed(f"its session ended, {why}")

    @contextmanager
    def _limited(self, seconds: float | None) -> Generator[None]:
        """End the session where a request takes longer."""
        session, late = self.session, threading.Event()
        assert session is not None

        def end() -> None:
            late.set()
            session._sess.endpoint.link.close()

        timer = threading.Timer(seconds or _SESSION_SECONDS, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (error.RPCError, OSError) as e:
            if not late.is_set():
                raise
            self.stop()
            raise WorkerHung(f"no answer in {seconds:.0f} s") from e
        finally:
            timer.cancel()
