"""How long the parts of tuning take."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from weft.ir import Ambient


class Profiler:
    """Adds up seconds by name, inside ``with profiler:``; ``Total`` is all of it."""

    _open: Ambient[Profiler] = Ambient("meta_schedule.Profiler")

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._start = 0.0

    def get(self) -> dict[str, float]:
        """Return the seconds by name."""
        return dict(self._seconds)

    def table(self) -> str:
        """Return the seconds as a table."""
        total = self._seconds.get("Total", 0.0)
        rows = sorted(self._seconds.items(), key=lambda r: -r[1])
        return "\n".join(f"{n:30} {s:10.4f} s {100 * s / total if total else 0:6.2f} %" for n, s in rows)

    def __enter__(self) -> Profiler:
        self._start = time.perf_counter()
        return Profiler._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        Profiler._open.leave(self)
        self._add("Total", time.perf_counter() - self._start)

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @staticmethod
    def current() -> Profiler | None:
        """Return the innermost profiler of a ``with`` statement."""
        return Profiler._open.current

    @staticmethod
    @contextmanager
    def timeit(name: str) -> Generator[None]:
        """Add the time of a ``with`` statement to a name; nothing is timed outside of a profiler."""
        profiler, start = Profiler.current(), time.perf_counter()
        try:
            yield
        finally:
            if profiler is not None:
                profiler._add(name, time.perf_counter() - start)
