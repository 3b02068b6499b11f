"""Processes that serve: started with what to serve as, they say where they listen, and end with their parent."""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, BinaryIO

from weft.error import InvalidArgument, RPCError
from weft.runtime.process import command

_PATIENCE = 60.0


class ServingProcess:
    """A process of its own, in a group of its own, that serves until it is killed or this process ends.

    Parameters
    ----------
    entry : str
        What it calls, ``"module:function"``, with `args` and a function that reports; it does not return.
    args : sequence
        Its arguments, and `call` before, are pickled.
    call : callable, optional
        Is called first, in that process.
    pass_fds : sequence of int
        Files that it inherits.
    """

    def __init__(
        self, entry: str, args: Sequence[Any], call: Callable[[], Any] | None = None, pass_fds: Sequence[int] = ()
    ) -> None:
        request = _pickled((entry, tuple(args), call))
        self._process = subprocess.Popen(
            command("weft.rpc.process", watched=False),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            pass_fds=tuple(pass_fds),
        )
        self._end = weakref.finalize(self, _kill, self._process)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(struct.pack("<Q", len(request)) + request)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._end()
            raise RPCError("the server's process could not start") from None

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def reported(self) -> Any:
        """What it reports first: where it listens.

        Raises
        ------
        RPCError
            When it ends instead. What it could not do, such as to find a free port, is raised as it was there.
        """
        assert self._process.stdout is not None
        try:
            good, value = pickle.load(self._process.stdout)
        except EOFError:
            code = self._process.wait()
            raise RPCError("the server's process ended before it served", found=f"exit code {code}") from None
        if not good:
            self.kill()
            raise value
        return value

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def join(self, timeout: float | None = None) -> None:
        """Wait until it ends."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def kill(self) -> None:
        """End it and its sessions."""
        self._end()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class Served:
    """What a process of its own serves, for as long as this object lives."""

    proc: ServingProcess | None = None

    def terminate(self) -> None:
        """End it, and the sessions that it has."""
        if self.proc is not None:
            self.proc.kill()
            self.proc = None

    def __del__(self) -> None:
        if self.proc is not None:
            self.terminate()


def _pickled(value: Any) -> bytes:
    pickler: Any = importlib.import_module("cloudpickle") if find_spec("cloudpickle") is not None else pickle
    try:
        return pickler.dumps(value)
    except Exception as e:
        raise InvalidArgument(
            "this cannot be sent to the server's process",
            found=str(e),
            help="give a function of a module, or install cloudpickle",
        ) from e


# ---- in the process --------------------------------------------------------------------------------------------------

standard_input: BinaryIO = sys.stdin.buffer if sys.stdin is not None else open(os.devnull, "rb")
"""Is closed by the parent when it ends."""


def configure_logging(name: str, silent: bool) -> logging.Logger:
    """Let a logger write to the standard error, errors alone where it shall be silent."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
        )
        logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR if silent else logging.INFO)
    return logger


def main() -> None:
    """Serve as the parent says."""
    (size,) = struct.unpack("<Q", standard_input.read(8))
    data = standard_input.read(size)
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no report

    def report(value: Any) -> None:
        reports.write(pickle.dumps((True, value)))
        reports.close()

    try:
        entry, args, call = pickle.loads(data)
        if call is not None:
            call()
        module, _, function = entry.partition(":")
        getattr(importlib.import_module(module), function)(*args, report)
    except Exception as e:
        if reports.closed:
            raise
        try:
            answer = pickle.dumps((False, e))
            pickle.loads(answer)
        except Exception:
            answer = pickle.dumps((False, RPCError(f"{type(e).__name__}: {e}")))
        reports.write(answer)
        reports.close()
        time.sleep(_PATIENCE)  # until the parent, which has read this, ends the process
