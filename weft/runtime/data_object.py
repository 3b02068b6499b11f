"""A blob as an ELF object file, so that linking a library needs no assembler to copy its weights once more.

Nor need the linker copy them: the object can reserve their section, and they are written once, into the library.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Protocol

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LINE = 64
_PAGE = 1 << 16
"""As much as any system's."""
_PROGBITS, _SYMTAB, _STRTAB, _NOBITS = 1, 2, 3, 8
_LOAD = 1
_ALLOC, _WRITE_ALLOC = 2, 3
_SECTIONS_AT = 40
_GLOBAL_OBJECT = 0x11


class _Appends(Protocol):
    size: int

    def append_to(self, path: Path) -> None: ...


def write_data_object(path: Path, blob: _Appends, symbol: str, like: bytes, *, reserved: bool = False) -> bool:
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
    reserved : bool
        Leave the bytes out, for :func:`fill_reserved` to write.

    Returns
    -------
    bool
        False where `like` is no 64-bit little-endian ELF file; nothing is written then.
    """
    if len(like) < _HEADER.size or not like.startswith(b"\x7fELF\x02\x01"):
        return False
    ident, _, machine, version, *_, flags, _, _, _, _, _, _ = _HEADER.unpack_from(like)
    path.write_bytes(bytes(_LINE))
    if not reserved:
        blob.append_to(path)
    end = _LINE + (0 if reserved else blob.size)
    names = b"\0.weft\0.symtab\0.strtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(1, _GLOBAL_OBJECT, 0, 1, 0, blob.size)
    at = -(-end // 8) * 8
    string_at, name_at = at + len(symbols), at + len(symbols) + len(strings)
    sections_at = -(-(name_at + len(names)) // 8) * 8

    def section(name: bytes, kind: int, place: int, size: int, **rest: int) -> bytes:
        given = {"flags": 0, "link": 0, "info": 0, "align": 1, "entry": 0} | rest
        start = names.index(b"\0" + name + b"\0") + 1
        return _SECTION.pack(
            start, kind, given["flags"], 0, place, size, given["link"], given["info"], given["align"], given["entry"]
        )

    table = [
        bytes(_SECTION.size),
        section(b".weft", _NOBITS if reserved else _PROGBITS, _LINE, blob.size, flags=_WRITE_ALLOC, align=_LINE),
        section(b".symtab", _SYMTAB, at, len(symbols), link=3, info=1, align=8, entry=_SYMBOL.size),
        section(b".strtab", _STRTAB, string_at, len(strings)),
        section(b".strtab", _STRTAB, name_at, len(names)),
        section(b".note.GNU-stack", _PROGBITS, name_at, 0),
    ]
    tail = bytes(at - end) + symbols + strings + names
    header = _HEADER.pack(
        ident, 1, machine, version, 0, 0, sections_at, flags, _HEADER.size, 0, 0, _SECTION.size, len(table), 4
    )
    with path.open("rb+") as file:
        file.write(header)
        file.seek(0, 2)
        file.write(tail + bytes(sections_at - end - len(tail)) + b"".join(table))
    return True


def fill_reserved(path: Path, blob: _Appends) -> bool:
    """Write a blob where a library has a section ``.weft`` without content, which is among the last of its memory.

    The segment's part of the file grows to the section's end; what lies behind it (symbols, headers) moves on.

    Parameters
    ----------
    path : Path
        The library, as a linker left it.
    blob : Blob
        What the section was reserved for.

    Returns
    -------
    bool
        False, and nothing is written, where the linker put the section elsewhere.
    """
    data = path.read_bytes()
    *_, segments_at, sections_at, _, _, _, n_segments, _, n_sections, names_at = _HEADER.unpack_from(data)
    segments = [list(_SEGMENT.unpack_from(data, segments_at + i * _SEGMENT.size)) for i in range(n_segments)]
    sections = [list(_SECTION.unpack_from(data, sections_at + i * _SECTION.size)) for i in range(n_sections)]
    names = sections[names_at][4]
    own = [s for s in sections if data.startswith(b".weft\0", names + s[0]) and s[1] == _NOBITS and s[5] == blob.size]
    last = max((s for s in segments if s[0] == _LOAD), key=lambda s: s[2] + s[5])
    _, _, offset, base, _, in_file, in_memory, _ = last
    old_end, start = offset + in_file, own[0][3] if own else 0
    if not in_file <= start - base <= in_memory - blob.size or any(
        s[1] != _NOBITS and s[2] & _ALLOC and s[4] + s[5] > old_end for s in sections
    ):
        return False
    last[5] = start - base + blob.size
    moved = -(-(offset + last[5] - old_end) // _PAGE) * _PAGE
    for s in sections:
        if s[1] == _NOBITS and s[2] & _WRITE_ALLOC == _WRITE_ALLOC and in_file <= s[3] - base < last[5]:
            s[1], s[4] = _PROGBITS, offset + s[3] - base
        elif s[4] >= old_end and not s[2] & _ALLOC:
            s[4] += moved
    os.truncate(path, old_end)
    os.truncate(path, offset + start - base)  # zeros up to the blob
    blob.append_to(path)
    with path.open("rb+") as file:
        file.seek(old_end + moved)
        file.write(data[old_end:])
        for at, table, form in ((segments_at, segments, _SEGMENT), (sections_at + moved, sections, _SECTION)):
            file.seek(at)
            file.write(b"".join(form.pack(*row) for row in table))
        file.seek(_SECTIONS_AT)
        file.write(struct.pack("<Q", sections_at + moved))
    return True
