"""A digest at the end of a library, so that one which was damaged is refused before its code is mapped.

The system's loader believes every offset of a file, and a processor runs whatever bytes it is given. The last 96 bytes
of a sealed file are magic, offset and size of what the digest leaves out, 16 zeros, BLAKE2b-256 of these two and of the
rest of the file, and magic again. Loaders ignore what follows the parts that an ELF file announces. Large
sections with weights are left out: they are mapped, and pages of them are read when they are used.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import BinaryIO

from weft.error import ExecutableError
from weft.runtime.regular_file import open_regular

__all__ = ["check_seal", "damaged", "seal"]

_MAGIC = b"WEFTSEAL\x01\x00\x00\x00\x00\x00\x00\x00"
_FOOTER = struct.Struct("<16sQQ16x32s16s")
_WORD = 8
_LARGE = 16 << 20
_PIECE = 1 << 20


def seal(path: Path, data: tuple[int, int] | None = None) -> None:
    """Append the digest to a file.

    Parameters
    ----------
    path : Path
        A library that is complete.
    data : (int, int), optional
        Offset and size of the weights, in bytes.
    """
    left_out = data if data is not None and data[1] > _LARGE else (0, 0)
    with path.open("rb+") as file:
        size = file.seek(0, 2)
        digest = _digest(file, size, *left_out)
        file.seek(0, 2)
        file.write(_FOOTER.pack(_MAGIC, *left_out, digest, _MAGIC))


def check_seal(path: Path) -> bool:
    """Compare a file with its digest, and return whether it has one.

    Raises
    ------
    ExecutableError
        When the file is not what was sealed.
    OSError
        When it cannot be read.
    """
    with open_regular(path) as file:
        size = max(0, file.seek(0, 2) - _FOOTER.size)
        file.seek(size)
        footer = file.read(_FOOTER.size)
        sealed = _MAGIC[:_WORD] in footer  # one of them, or a part that a cut has left
        if sealed and not _holds(file, size, footer):
            raise damaged(path, "a file whose digest is another one")
    return sealed


def damaged(path: Path, found: str) -> ExecutableError:
    """The error of a file that is not what was exported."""
    return ExecutableError("this library is damaged", where=str(path), expected="the bytes that were exported",
                           found=found, help="compile or copy it again")  # fmt: skip


def _holds(file: BinaryIO, size: int, footer: bytes) -> bool:
    if len(footer) < _FOOTER.size:
        return False
    begin, start, length, digest, end = _FOOTER.unpack(footer)
    return begin == end == _MAGIC and start + length <= size and _digest(file, size, start, length) == digest


def _digest(file: BinaryIO, size: int, start: int, length: int) -> bytes:
    digest = hashlib.blake2b(struct.pack("<QQQ", size, start, length), digest_size=32)
    for begin, end in ((0, start), (start + length, size)):
        file.seek(begin)
        while begin < end and (piece := file.read(min(_PIECE, end - begin))):
            digest.update(piece)
            begin += len(piece)
    return digest.digest()
