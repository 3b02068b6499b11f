"""When Python looks for garbage in cycles.

A compiler makes millions of objects that are freed when the last reference goes, and hardly a cycle: looking for cycles
as often as Python does by itself takes a twentieth of a compilation and finds nothing.
"""

import gc
import threading
from contextlib import ContextDecorator

_RARE = (50_000, 20, 50)


def collect_rarely() -> None:
    """Look for garbage rarely from here on, in a process that does nothing but compile."""
    gc.set_threshold(*_RARE)


class RarelyCollected(ContextDecorator):
    """Looks for garbage rarely while a block or a decorated function runs in any thread, then as often as before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._found = _RARE

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._found = gc.get_threshold()
                if 0 < self._found[0] < _RARE[0]:
                    collect_rarely()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and gc.get_threshold() == _RARE:
                gc.set_threshold(*self._found)


rarely_collected = RarelyCollected()
"""Of the process, whose thresholds there is one set of."""
