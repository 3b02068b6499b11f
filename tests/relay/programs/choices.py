"""Numbers that a program is drawn from, kept so that the program can be drawn again, and made small."""

import random
from collections.abc import Iterator


class Choices:
    """Gives numbers of a range, random or as they were chosen before; 0, the simplest, where more are asked for."""

    def __init__(self, source: random.Random | tuple[int, ...]) -> None:
        self.source = source
        self.made: list[int] = []

    def __call__(self, low: int, high: int) -> int:
        """A number from `low` to `high`; what is chosen is its place among them, the nearest to 0 first."""
        width, at = high - low + 1, len(self.made)
        if isinstance(self.source, random.Random):
            chosen = self.source.randrange(width)
        else:
            chosen = min(self.source[at], width - 1) if at < len(self.source) else 0
        self.made.append(chosen)
        return low + chosen if low >= 0 else sorted(range(low, high + 1), key=abs)[chosen]


def smaller(made: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Choices that are fewer or simpler: pieces left out, the longest first, then pieces of zeros, then lesser ones."""
    sizes = [len(made) >> n for n in range(1, len(made).bit_length())]
    for size in sizes:
        yield from (made[:at] + made[at + size :] for at in range(0, len(made), size))
    for size in sizes:
        for at in range(0, len(made), size):
            if any(made[at : at + size]):
                yield (*made[:at], *(0,) * len(made[at : at + size]), *made[at + size :])
    for at, n in enumerate(made):
        if n > 1:
            yield from ((*made[:at], less, *made[at + 1 :]) for less in (n // 2, n - 1))
