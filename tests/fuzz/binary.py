"""What fuzzers of binary files share: fields and mutations."""

import struct
from collections.abc import Callable

import numpy as np

import weft

INTERESTING = (-(2**63), -(2**55), -(2**31), -2, -1, 0, 1, 2, 3, 4, 7, 255, 2**31, 2**32, 2**54, 2**54 + 1, 2**62)
TENSOR, SHAPE, TEXT, SMALL_TEXT = 70, 69, 65, 11
EXPECTED = (weft.WeftError, TypeError, ValueError, RuntimeError, AttributeError, MemoryError, IndexError)

Field = tuple[str, int, str]
"""A number of a file: its group, its offset and its struct format."""


class Fields:
    """Walks through a file and lists its numbers in ``found``."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.found: list[Field] = []

    def number(self, group: str, *forms: str) -> int:
        """List numbers; return the last."""
        value = 0
        for form in forms:
            self.found.append((group, self.at, form))
            (value,) = struct.unpack_from("<" + form, self.data, self.at)
            self.at += struct.calcsize("<" + form)
        return value

    def text(self) -> None:
        """A length and bytes."""
        size = self.number("count", "Q")
        self.at += size

    def counted(self, item: Callable[[], object]) -> None:
        """A count and so many items."""
        for _ in range(self.number("count", "Q")):
            item()

    def tensor(self) -> None:
        """A record of a tensor."""
        ndim = self.number("tensor", "Q", "Q", "i", "i", "i")
        size = self.number("tensor", "B", "B", "H", *("q" * ndim), "q")
        self.at += size


def mutate_fields(data: bytes, table: list[tuple[str, int, str]], rng: np.random.Generator) -> bytes:
    """Overwrite one to three numbers, each group of fields as often as the next."""
    out = bytearray(data)
    groups = sorted({group for group, _, _ in table})
    for _ in range(int(rng.integers(1, 4))):
        group = groups[int(rng.integers(len(groups)))]
        members = [f for f in table if f[0] == group]
        _, at, form = members[int(rng.integers(len(members)))]
        size = struct.calcsize("<" + form)
        old = int.from_bytes(out[at : at + size], "little")
        kind = int(rng.integers(4))
        if kind == 0:
            new = INTERESTING[int(rng.integers(len(INTERESTING)))]
        elif kind == 1:
            new = old + int(rng.integers(-3, 4))
        elif kind == 2:
            new = old ^ 1 << int(rng.integers(8 * size))
        else:  # what stands in another field of the group: a register for a register, a jump for a jump
            _, other, form = members[int(rng.integers(len(members)))]
            new = int.from_bytes(out[other : other + struct.calcsize("<" + form)], "little")
        out[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(out)


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut, insert or repeat, one to four times; pages are lost or change places; a beginning is kept."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, kind = int(rng.integers(len(out))), int(rng.integers(11))
        if kind < 5:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 5:
            del out[at + 1 : at + int(rng.integers(2, 40))]
        elif kind == 6:
            out[at:at] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 7:
            out[at:at] = out[at : at + int(rng.integers(1, 40))]
        elif kind == 8:
            del out[at + 1 :]
        else:
            page = int(rng.choice([8, 64, 512, 4096]))
            a, b = (slice(start := int(rng.integers(len(out) // page + 1)) * page, start + page) for _ in range(2))
            out[a], out[b] = (out[b], out[a]) if kind == 9 else (bytes(len(out[a])), out[b])
    return bytes(out)
