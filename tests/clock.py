"""Bounds on time that a machine which others use, and which is slow for moments, does not break."""

import time
from collections.abc import Callable


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
