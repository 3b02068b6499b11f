"""The fields of a message of Protocol Buffers, found without the package of that name or the message's description.

A field is a varint ``number << 3 | wire type`` and its value; messages and bytes are a varint length and content.
Source: the encoding of Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""


def fields(data: bytes | mmap, at: int, end: int) -> Iterator[tuple[int, int, int, Any]]:
    """Yield each field of the message in ``data[at:end]``: number, wire type, where it begins, and its value.

    The value is a number without sign for varints, else the first place of the content and the one behind it.

    Raises
    ------
    ValueError, IndexError
        When it is no message.
    """
    while at < end:
        start = at
        key, at = read_varint(data, at)
        kind = key & 7
        value: Any
        if kind == VARINT:
            value, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32, BYTES):
            size, at = read_varint(data, at) if kind == BYTES else (8 if kind == FIXED64 else 4, at)
            value, at = (at, at + size), at + size
        else:
            raise ValueError(f"wire type {kind}")
        if at > end:
            raise ValueError("a field goes past the end of its message")
        yield key >> 3, kind, start, value


def read_varint(data: bytes | mmap, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a varint of more than 10 bytes")
