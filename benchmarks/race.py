"""Time contestants against each other, so that the machine's moods hit all of them alike.

Contestants take turns in short blocks. Between blocks all rest, because a runtime's worker threads spin for a while
after its last call and would take the other's cores. The first call of a block is not counted. A ratio is the median
of the ratios of neighbouring blocks; a time is the median over all calls.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

REST_SECONDS = 0.06


@dataclass(frozen=True)
class Lane:
    """What was measured of one contestant, in milliseconds: every counted call, and the median of each block."""

    calls_ms: tuple[float, ...]
    blocks_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.calls_ms)

    @property
    def best_ms(self) -> float:
        return min(self.calls_ms)


def race(
    contestants: Mapping[str, Callable[[], object]], rounds: int = 9, block_seconds: float = 0.25, max_calls: int = 200
) -> dict[str, Lane]:
    """Run all contestants in turns.

    Parameters
    ----------
    contestants : mapping of str to callable
        What to time, by name.
    rounds : int
        Blocks that each contestant gets; the order is reversed from round to round.
    block_seconds : float
        A block ends after this time, or after `max_calls` calls.
    """
    names = list(contestants)
    for call in contestants.values():
        call()
        call()
    calls: dict[str, list[float]] = {name: [] for name in names}
    blocks: dict[str, list[float]] = {name: [] for name in names}
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            block = _block(contestants[name], block_seconds, max_calls)
            calls[name] += block
            blocks[name].append(statistics.median(block))
    return {name: Lane(tuple(calls[name]), tuple(blocks[name])) for name in names}


def ratio(lanes: Mapping[str, Lane], name: str, peer: str) -> float:
    """How many times longer `name` takes than `peer`."""
    pairs = zip(lanes[name].blocks_ms, lanes[peer].blocks_ms, strict=True)
    return statistics.median(a / b for a, b in pairs)


def percentiles(values_ms: tuple[float, ...]) -> dict[str, float]:
    """Median, 90th and 99th percentile."""
    ordered = sorted(values_ms)
    return {f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 90, 99)}


def _block(call: Callable[[], object], seconds: float, max_calls: int) -> list[float]:
    time.sleep(REST_SECONDS)
    call()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or (time.perf_counter() < end and len(taken) < max_calls):
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    return taken
