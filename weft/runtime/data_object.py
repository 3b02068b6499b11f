"""A blob as an ELF object file, so that linking a library needs no assembler to copy its weights once more."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Protocol

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LINE = 64
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_WRITE_ALLOC = 3
_GLOBAL_OBJECT = 0x11


class _Appends(Protocol):
    size: int

    def append_to(self, path: Path) -> None: ...


def write_data_object(path: Path, blob: _Appends, symbol: str, like: bytes) -> bool:
    """Write an object file whose section ``.weft`` is `blob` under a symbol, on a cache line.

    Parameters
    ----------
    path : Path
        The file, which is made.
    blob : Blob
        Has a ``size`` and is appended to a file by ``append_to``.
    symbol : str
        Its name.
    like : bytes
        An object file for the same machine.

    Returns
    -------
    bool
        False where `like` is no 64-bit little-endian ELF file; nothing is written then.
    """
    if len(like) < _HEADER.size or not like.startswith(b"\x7fELF\x02\x01"):
        return False
    ident, _, machine, version, *_, flags, _, _, _, _, _, _ = _HEADER.unpack_from(like)
    path.write_bytes(bytes(_LINE))
    blob.append_to(path)
    end = _LINE + blob.size
    names = b"\0.weft\0.symtab\0.strtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(1, _GLOBAL_OBJECT, 0, 1, 0, blob.size)
    at = -(-end // 8) * 8
    string_at, name_at = at + len(symbols), at + len(symbols) + len(strings)
    sections_at = -(-(name_at + len(names)) // 8) * 8

    def section(name: bytes, kind: int, place: int, size: int, **rest: int) -> bytes:
        given = {"flags": 0, "link": 0, "info": 0, "align": 1, "entry": 0} | rest
        start = names.index(b"\0" + name + b"\0") + 1
        return _SECTION.pack(start, kind, given["flags"], 0, place, size, given["link"], given["info"],
                             given["align"], given["entry"])  # fmt: skip

    table = [
        bytes(_SECTION.size),
        section(b".weft", _PROGBITS, _LINE, blob.size, flags=_WRITE_ALLOC, align=_LINE),
        section(b".symtab", _SYMTAB, at, len(symbols), link=3, info=1, align=8, entry=_SYMBOL.size),
        section(b".strtab", _STRTAB, string_at, len(strings)),
        section(b".strtab", _STRTAB, name_at, len(names)),
        section(b".note.GNU-stack", _PROGBITS, name_at, 0),
    ]
    tail = bytes(at - end) + symbols + strings + names
    header = _HEADER.pack(ident, 1, machine, version, 0, 0, sections_at, flags, _HEADER.size, 0, 0, _SECTION.size,
                          len(table), 4)  # fmt: skip
    with path.open("rb+") as file:
        file.write(header)
        file.seek(0, 2)
        file.write(tail + bytes(sections_at - end - len(tail)) + b"".join(table))
    return True
