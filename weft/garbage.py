"""When Python looks for garbage in cycles.

A compiler makes millions of objects that are freed when the last reference goes, and hardly a cycle: looking for cycles
as often as Python does by itself takes a twentieth of a compilation and finds nothing.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_RARE = (50_000, 20, 50)


def collect_rarely() -> None:
    """Look for garbage rarely from here on, in a process that does nothing but compile."""
    gc.set_threshold(*_RARE)


@contextmanager
def rarely_collected() -> Generator[None]:
    """Look for garbage rarely meanwhile, then as often as before; of blocks at once the first to begin restores."""
    found = gc.get_threshold()
    if not 0 < found[0] < _RARE[0]:  # somebody has chosen
        yield
        return
    collect_rarely()
    try:
        yield
    finally:
        if gc.get_threshold() == _RARE:
            gc.set_threshold(*found)
