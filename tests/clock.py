"""Bounds on time that a machine which others use, and which is slow for moments, does not break."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


def soon(seconds: float, act: Callable[[], object], tries: int = 20) -> None:
    """Assert that `act` takes less than `seconds` of this thread's time at least once."""
    taken = []
    for _ in range(tries):
        start = time.thread_time()
        act()
        taken.append(time.thread_time() - start)
        if taken[-1] < seconds:
            return
    raise AssertionError(f"expected less than {seconds} s, found {min(taken)} s at best in {tries} tries")


def queued() -> dict[Path, int]:
    """For how many ns each thread of this process and of those that it started was ready to run and had to wait."""
    found: dict[Path, int] = {}
    processes = [os.getpid()]
    for pid in processes:  # those that these started are appended
        with suppress(OSError):  # the process has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):  # the thread has ended
                    found[thread] = int((thread / "schedstat").read_text().split()[1])
                    processes += map(int, (thread / "children").read_text().split())
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(done: Callable[[], Found | None], seconds: float = 20.0) -> Found:
    """What `done` returns once that is true; fail after `seconds` that other programs did not take.

    Where threads of ours wait for a processor, only a tenth of the time counts: slow work is waited for, however busy
    the machine is, and what hangs or never ends is told.
    """
    left, last, before = seconds, time.monotonic(), queued()
    while not (found := done()):
        assert left > 0, f"expected within {seconds} s that other programs do not take, and it did not happen"
        time.sleep(0.02)
        if (taken := time.monotonic() - last) > 0.5:
            last, now = last + taken, queued()
            left -= max(taken / 10, taken - sum(n - before.get(thread, n) for thread, n in now.items()) / 1e9)
            before = now
    return found


def run(
    command: Sequence[str | Path], seconds: float = 100.0, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program whose end is waited for as `eventually` does; its status and what it printed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, errors="replace", cwd=cwd, env=env) as program:

        def said() -> tuple[str, str] | None:
            with suppress(subprocess.TimeoutExpired):
                return program.communicate(timeout=0.1)
            return None

        try:
            out, err = eventually(said, seconds)
            return subprocess.CompletedProcess(command, program.returncode, out, err)
        finally:
            program.kill()


def ended(process: BaseProcess, seconds: float = 100.0) -> None:
    """Wait for a process as `eventually` does; one that hangs is ended."""
    try:
        eventually(lambda: not process.is_alive(), seconds)
    finally:
        process.kill()
