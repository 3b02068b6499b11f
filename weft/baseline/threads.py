"""How many threads NumPy's products take while a compiler works beside them."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

_MAPPED = re.compile(r"/\S*openblas\S*\.so\S*$")

_LOCK = threading.Lock()
_BEFORE: list[int] = []
"""How many threads there were before, once for each block that is under way."""


@contextmanager
def few_threads() -> Generator[None]:
    """Leave half of the cores to others in the block.

    A thread of OpenBLAS spins until all have their part: where one waits for a core that another process has, a product
    takes up to twenty times as long (MiniLM's: 1.6 instead of 0.09 s of CPU).
    """
    count, change = _controls()
    if count is None or change is None:
        yield
        return
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else count())
        change(max(1, min(_BEFORE[0], len(os.sched_getaffinity(0)) // 2)))
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                change(before)


@cache
def _controls() -> tuple[Callable[[], int] | None, Callable[[int], Any] | None]:
    """What asks for and sets the threads of the OpenBLAS that NumPy has loaded; None where it has another library."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            found = _MAPPED.search(line)
            library = ctypes.CDLL(found[0]) if found is not None else None
            for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
                names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
                if library is not None and all(hasattr(library, n) for n in names):
                    return getattr(library, names[0]), getattr(library, names[1])
    return None, None
