"""A digest at the end of a library, so that one which was damaged is refused before its code is mapped.

The system's loader believes every offset of a file, and a processor runs whatever bytes it is given. The last 96 bytes
of a sealed file are magic, offset and size of what the digest leaves out, 2**32 plus the CRC-32 of what is before, 8
zeros, BLAKE2b-256 of offset, size and the rest of the file, and magic again. Loaders ignore what follows the parts that
an ELF file announces. The entry point of a sealed library, which none of them uses, is `_MARK` behind where its section
headers are: a file whose seal was cut off is refused, one whose headers ``strip`` has moved is not. Large sections with
weights are left to the CRC, which takes a fraction of the time, and which the C entry `weft_load_module` compares too.
Earlier versions wrote 0 in its place, and nobody looks at their weights.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

from weft.error import ExecutableError
from weft.runtime.regular_file import open_regular

_MAGIC = b"WEFTSEAL\x01\x00\x00\x00\x00\x00\x00\x00"
_FOOTER = struct.Struct("<16sQQQ8x32s16s")
_WORD = 8
_MARK = 0x5EA1
_ENTRY_AT = 24
_ENTRY = {1: struct.Struct("<I4xI"), 2: struct.Struct("<I12xI")}
"""Entry point and offset of section headers, their lower 32 bits, in ELF files of 32 and 64 bits."""
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
        if (found := _entry(file)) is not None:
            file.seek(_ENTRY_AT)
            file.write(struct.pack("<I", (found[1] + _MARK) % (1 << 32)))
        size = file.seek(0, 2)
        digest, total = _digest(file, size, *left_out)
        file.seek(0, 2)
        file.write(_FOOTER.pack(_MAGIC, *left_out, total, digest, _MAGIC))


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
        found = _entry(file)
        sealed = _MAGIC[:_WORD] in footer  # one of them, or a part that a cut has left
        sealed |= found is not None and found[0] == (found[1] + _MARK) % (1 << 32)
        if sealed and not _holds(file, size, footer):
            raise damaged(path, "a file whose digest is another one")
    return sealed


def damaged(path: Path, found: str) -> ExecutableError:
    """The error of a file that is not what was exported."""
    return ExecutableError(
        "this library is damaged",
        where=str(path),
        expected="the bytes that were exported",
        found=found,
        help="compile or copy it again",
    )


def _entry(file: BinaryIO) -> tuple[int, int] | None:
    """Return the entry point of an ELF file and where its section headers are."""
    file.seek(0)
    start = file.read(64)
    if len(start) < 64 or not start.startswith(b"\x7fELF") or start[4] not in _ENTRY:
        return None
    return _ENTRY[start[4]].unpack_from(start, _ENTRY_AT)


def _holds(file: BinaryIO, size: int, footer: bytes) -> bool:
    if len(footer) < _FOOTER.size:
        return False
    begin, start, length, total, digest, end = _FOOTER.unpack(footer)
    if not begin == end == _MAGIC or start + length > size:
        return False
    found = _digest(file, size, start, length, all_of_it=total != 0)
    return found == (digest, total)


def _digest(file: BinaryIO, size: int, start: int, length: int, all_of_it: bool = True) -> tuple[bytes, int]:
    """Return the digest of all but a section, and 2**32 plus the CRC-32 of all of it, or 0."""
    digest, crc = hashlib.blake2b(struct.pack("<QQQ", size, start, length), digest_size=32), 0
    for begin, end, digested in ((0, start, True), (start, start + length, False), (start + length, size, True)):
        if not digested and not all_of_it:
            continue
        file.seek(begin)
        while begin < end and (piece := file.read(min(_PIECE, end - begin))):
            if digested:
                digest.update(piece)
            crc = zlib.crc32(piece, crc)
            begin += len(piece)
    return digest.digest(), (1 << 32) + crc if all_of_it else 0
