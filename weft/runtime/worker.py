"""Processes that work for this one: one protocol, one main, and what they do in a class of its own module.

A request is a dict whose ``do`` names a method of the module's ``Service``, the rest its arguments; it is answered by
the dict that the method returns, or ``{"error": ...}``, in the order of the requests. ``{"progress": (...)}`` may come
before. Both ways each is pickled, behind its length, on the standard input and output of the process. What a service
prints goes where errors go, and is lost.

A service is a class without arguments, or with the function that reports progress. ``patience`` is how many seconds
without a request end its process (None: none do), ``longest`` how many a request may take.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import pickle
import select
import selectors
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Queue
from typing import IO, Any

from weft._start import watch
from weft.environment import JIT
from weft.error import WeftError
from weft.runtime.process import command

_TICK = 0.25
_STACK_BYTES = 1 << 26  # programs nest deeply
_MAIN = "weft.runtime.worker"


class WorkerError(WeftError):
    """A request could not be answered; the process lives."""


class WorkerCrashed(WorkerError):
    """The process ended while it worked on a request."""


class WorkerHung(WorkerError):
    """The process did not answer in time and was ended."""


class Process:
    """A process that answers one request after another; started when it is needed, again after it crashed or hung.

    Parameters
    ----------
    program : str
        The module whose ``Service`` it has, or a ``.py`` file that speaks the protocol.
    environment : mapping of str to str, optional
        Variables besides those of this process.
    idle : bool
        Whether it takes the time that no other process of the machine wants.
    """

    def __init__(self, program: str, environment: Mapping[str, str] | None = None, *, idle: bool = False) -> None:
        self.environment = {**os.environ, JIT.name: "0", **(environment or {})}
        self.program, self.idle = program, idle
        self.process: subprocess.Popen[bytes] | _Copy | None = None
        self._end: Any = None

    def start_copy(self) -> None:
        """Start the process as a copy of this one, which has loaded what it needs, where this is such a process itself.

        To be called while no other thread of this process works: what it holds would never be given back in the copy.
        Another process is started as ever.
        """
        if _PIPES and hasattr(os, "fork"):
            self.process = _copy(self.program)
            self._end = weakref.finalize(self, _end, self.process)
        else:
            self.start()

    def start(self) -> subprocess.Popen[bytes] | _Copy:
        """Start the process where there is none."""
        if self.process is None:
            file = self.program.endswith(".py")
            self.process = subprocess.Popen(
                command(self.program) if file else command(_MAIN, self.program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self.environment,
                process_group=0,  # an interrupt from the keyboard is for this process
            )
            if self.idle:
                _schedule(self.process, os.SCHED_IDLE)
            self._end = weakref.finalize(self, _end, self.process)
        return self.process

    @property
    def is_alive(self) -> bool:
        """Whether there is a process, and it runs."""
        return self.process is not None and self.process.poll() is None

    def ask(
        self, request: Mapping[str, Any], seconds: float | None, progress: Callable[..., None] | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for the reply, for ever where `seconds` is None.

        Raises
        ------
        WorkerError
            When it failed; WorkerCrashed or WorkerHung when that took the process along.
        """
        self.tell(request)
        return self.reply(seconds, progress)

    def tell(self, request: Mapping[str, Any]) -> None:
        """Send a request."""
        stdin = self.start().stdin
        assert stdin is not None
        try:
            _send(stdin, dict(request))
        except BrokenPipeError as e:
            raise WorkerCrashed(f"the process ended, {self._ended()}") from e

    def reply(self, seconds: float | None, progress: Callable[..., None] | None = None) -> dict[str, Any]:
        """Wait for the reply to the first request that has none."""
        while True:
            (size,) = struct.unpack("<q", self._read(8, seconds))
            reply = pickle.loads(self._read(size, seconds))
            if "error" in reply:
                raise WorkerError(reply["error"])
            if "progress" not in reply:
                return reply
            if progress is not None:
                progress(*reply["progress"])

    def _read(self, size: int, seconds: float | None) -> bytes:
        """Read what the process writes; time in which this one was stopped too does not count."""
        assert self.process is not None and self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        data, left = bytearray(), float("inf") if seconds is None else seconds
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while len(data) < size:
                if not ready.select(min(left, _TICK)):
                    left -= _TICK
                    if left > 0:
                        continue
                    self.stop()
                    raise WorkerHung(f"no answer in {seconds:.0f} s")
                part = os.read(pipe, min(size - len(data), 1 << 20))
                if not part:
                    raise WorkerCrashed(f"the process ended, {self._ended()}")
                data += part
        return bytes(data)

    def _ended(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        self.stop()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process = None
            self._end()

    def kill(self) -> None:
        """End the process from another thread than the one that asks it, which hears of it."""
        process = self.process
        if process is not None:
            _kill(process)


class _Copy:
    """A process that was forked, as `subprocess.Popen` shows one."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative where a signal ended it; None while it runs."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the exit code."""
        code = self._waited(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _waited(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def _copy(program: str) -> _Copy:
    """Fork a process that serves requests by the service of `program`."""
    asked, ask = os.pipe()
    reply, replies = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid:
        os.close(asked)
        os.close(replies)
        return _Copy(pid, os.fdopen(ask, "wb"), os.fdopen(reply, "rb"))
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for pipe in (*_PIPES, ask, reply):  # their numbers stay taken: objects of this process know them
            os.dup2(nowhere, pipe)
        os.dup2(asked, 0)
        os.dup2(replies, 1)
        threading.Thread(target=watch, args=(parent,), daemon=True).start()
        _serve(program)
    finally:
        os._exit(0)  # nothing of the parent's is to be cleaned up here


def _end(process: subprocess.Popen[bytes] | _Copy) -> None:
    _kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not sent yet
            if pipe is not None:
                pipe.close()


def _kill(process: subprocess.Popen[bytes] | _Copy) -> None:
    _schedule(process, os.SCHED_OTHER)  # to end at once also where others want all cores
    process.kill()


def _schedule(process: subprocess.Popen[bytes] | _Copy, policy: int) -> None:
    with suppress(OSError):  # it is gone, or the system forbids it
        os.sched_setscheduler(process.pid, policy, os.sched_param(0))


def _send(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    pipe.write(struct.pack("<q", len(data)) + data)
    pipe.flush()


# ---- in the process --------------------------------------------------------------------------------------------------


def _receive(pipe: int) -> Any:
    """Read a request; None at the end, also where that is in the middle of one."""
    head = _exactly(pipe, 8)
    size = struct.unpack("<q", head)[0] if len(head) == 8 else 0
    data = _exactly(pipe, size)
    return pickle.loads(data) if data and len(data) == size else None


def _exactly(pipe: int, size: int) -> bytes:
    """Read `size` bytes, less at the end; without a buffer, which could not be waited for."""
    data = bytearray()
    while len(data) < size and (part := os.read(pipe, min(size - len(data), 1 << 20))):
        data += part
    return bytes(data)


def _answer(service: Any, requests: Queue[Any], replies: IO[bytes]) -> None:
    """Answer requests on a thread of its own, so that the next is there when one is done."""
    while (request := requests.get()) is not None:
        signal.alarm(getattr(service, "longest", 0))  # whatever it hangs in, when the other process is gone
        try:
            reply: dict[str, Any] = getattr(service, request.pop("do"))(**request)
        except Exception as e:
            reply = {"error": f"{type(e).__name__}: {e}"}
        signal.alarm(0)
        _send(replies, reply)
        requests.task_done()


def _has_request(pipe: int, requests: Queue[Any], patience: float | None) -> bool:
    """Wait for the next request; False when none comes for too long while nothing is to be done."""
    while not select.select([pipe], [], [], patience)[0]:
        if not requests.unfinished_tasks:
            return False
    return True


_PIPES: list[int] = []
"""Of requests and replies, in a process that serves."""


def main() -> None:
    """Serve requests, by the service of the module that the first argument names, until there are no more."""
    _serve(sys.argv[1])


def _serve(program: str) -> None:
    """Serve requests that come by the standard input; replies go to what is the standard output at the start."""
    gc.disable()  # there is nothing to be found in modules, an eighth of whose imports looking for it takes
    kind = importlib.import_module(program).Service
    from weft.garbage import collect_rarely  # a process that asks does without

    gc.freeze()
    collect_rarely()
    gc.enable()
    asked, replies = os.dup(0), os.fdopen(os.dup(1), "wb")
    _PIPES[:] = [asked, replies.fileno()]
    os.dup2(2, 1)  # what is printed is no reply
    takes_progress = bool(inspect.signature(kind).parameters)
    service = kind(lambda *now: _send(replies, {"progress": now})) if takes_progress else kind()
    requests: Queue[Any] = Queue()
    threading.stack_size(_STACK_BYTES)
    answering = threading.Thread(target=_answer, args=(service, requests, replies), daemon=True)
    answering.start()
    threading.stack_size(0)
    while answering.is_alive() and _has_request(asked, requests, getattr(service, "patience", None)):
        request = _receive(asked)
        requests.put(request)
        if request is None:
            answering.join()
