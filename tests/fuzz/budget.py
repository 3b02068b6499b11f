"""How long fuzzers run: a few seconds in the suite, ``FUZZ_SECONDS`` under ``make fuzz``."""

import os
import time
from collections.abc import Iterator

SUITE_SECONDS = 2.0


def seeds(share: float = 1.0, start: int = 0) -> Iterator[int]:
    """Count up from `start` until the time is over; at least once.

    Parameters
    ----------
    share : float
        The part of the time that one of several fuzzers takes.
    start : int
        The first seed. Under ``make fuzz`` it moves with the clock, so that each run sees something new.
    """
    given = os.environ.get("FUZZ_SECONDS")
    end = time.monotonic() + share * float(given or SUITE_SECONDS)
    seed = start if given is None else start + int(time.time()) * 1000
    while True:
        yield seed
        seed += 1
        if time.monotonic() > end:
            return
