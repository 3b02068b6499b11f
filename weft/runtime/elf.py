"""Checks that a shared library is all there before the dynamic linker maps it.

The linker maps segments without comparing them with the file's length; touching a page behind the end of a file that
was cut short kills the process (SIGBUS). Layout: System V ABI, ELF header, program headers, section headers.
"""

from __future__ import annotations

import platform
import struct
from pathlib import Path
from typing import BinaryIO

from weft.error import ExecutableError
from weft.runtime.regular_file import open_regular

_MAGIC = b"\x7fELF"
_HEADER_BYTES = {1: 52, 2: 64}
# e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx
_HEADER = {1: "IIIHHHHHH", 2: "QQIHHHHHH"}
_HEADER_AT = {1: 28, 2: 32}
# Where a program header has its file offset and size, and a section header its type, offset and size.
_SEGMENT = {1: (4, 16, "I"), 2: (8, 32, "Q")}
_SECTION = {1: (16, 20, "I"), 2: (24, 32, "Q")}
_NOBITS = 8


def check_complete(path: Path) -> None:
    """Compare the parts that an ELF file announces with its length; other files are left to the linker.

    Raises
    ------
    ExecutableError
        When the file ends before one of its parts does; it names the part and the offset.
    """
    size = path.stat().st_size
    with open_regular(path) as file:
        start = file.read(64)
        if not start.startswith(_MAGIC):
            return
        width = start[4] if len(start) > 5 else 0
        if width not in _HEADER_BYTES or len(start) < _HEADER_BYTES[width]:
            raise _cut_short(path, "the ELF header", 64, size)
        order = ">" if start[5] == 2 else "<"
        fields = struct.unpack_from(order + _HEADER[width], start, _HEADER_AT[width])
        segments_at, sections_at, _, _, segment_bytes, n_segments, section_bytes, n_sections, _ = fields
        segments = _table(file, path, size, "the program headers", segments_at, segment_bytes, n_segments)
        sections = _table(file, path, size, "the section headers", sections_at, section_bytes, n_sections)
    for index, entry in enumerate(segments):
        _check_extent(path, size, f"segment {index}", entry, _SEGMENT[width], order)
    for index, entry in enumerate(sections):
        if struct.unpack_from(order + "I", entry, 4)[0] != _NOBITS:
            _check_extent(path, size, f"section {index}", entry, _SECTION[width], order)


def find_section(path: Path, name: str) -> tuple[int, int] | None:
    """Return offset and size of a section of an ELF file, or None where the file is another or has no such section."""
    with open_regular(path) as file:
        start = file.read(64)
        if not start.startswith(_MAGIC) or start[4] not in _HEADER_BYTES:
            return None
        width, order = start[4], ">" if start[5] == 2 else "<"
        fields = struct.unpack_from(order + _HEADER[width], start, _HEADER_AT[width])
        _, sections_at, _, _, _, _, section_bytes, n_sections, names_index = fields
        sections = _table(
            file, path, path.stat().st_size, "the section headers", sections_at, section_bytes, n_sections
        )
        offset_at, size_at, kind = _SECTION[width]
        extents = [tuple(struct.unpack_from(order + kind, s, at)[0] for at in (offset_at, size_at)) for s in sections]
        if names_index >= len(sections):
            return None
        file.seek(extents[names_index][0])
        names = file.read(extents[names_index][1])
    for entry, (offset, size) in zip(sections, extents, strict=True):
        at = struct.unpack_from(order + "I", entry)[0]
        if names[at : names.find(b"\0", at)] == name.encode():
            return offset, size
    return None


# ELF's numbers of machines, and how a linker for Linux on them is asked for.
_MACHINES = {40: "arm-linux-gnueabihf", 62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu", 243: "riscv64-linux-gnu"}
_HERE = {"x86_64": 62, "AMD64": 62, "aarch64": 183, "arm64": 183, "armv7l": 40, "riscv64": 243}


def _machine(data: bytes) -> int | None:
    return struct.unpack_from("<H", data, 18)[0] if data[:4] == _MAGIC and len(data) > 20 else None


def is_foreign(data: bytes) -> bool:
    """Whether an object file is an ELF file for another machine than this one."""
    found, here = _machine(data), _HERE.get(platform.machine())
    return found is not None and here is not None and found != here


def linker_triple(data: bytes) -> str | None:
    """The triple to link an object file of another machine with; None for one of this machine."""
    return _MACHINES.get(_machine(data) or 0) if is_foreign(data) else None


_PREFIX = b"__tvm_ffi_"
_NO_ENTRY = (b"__tvm_ffi__library_ctx", b"__tvm_ffi__library_bin", b"__tvm_ffi__metadata_")


def entry_points(path: Path) -> list[str]:
    """List the functions in the convention of tvm-ffi that an ELF library exports; none of another file."""
    found = find_section(path, ".dynstr")
    if found is None:
        return []
    with open_regular(path) as file:
        file.seek(found[0])
        names = file.read(found[1]).split(b"\0")
    own = [n for n in names if n.startswith(_PREFIX) and not n.startswith(_NO_ENTRY)]
    return sorted(n.removeprefix(_PREFIX).decode(errors="replace") for n in own)


def _table(file: BinaryIO, path: Path, size: int, what: str, offset: int, entry_bytes: int, count: int) -> list[bytes]:
    if count == 0:
        return []
    if entry_bytes < 32:
        raise ExecutableError("this library is damaged", where=str(path), found=f"{what} of {entry_bytes} bytes each")
    end = offset + entry_bytes * count
    if end > size:
        raise _cut_short(path, what, end, size)
    file.seek(offset)
    data = file.read(entry_bytes * count)
    return [data[i * entry_bytes : (i + 1) * entry_bytes] for i in range(count)]


def _check_extent(path: Path, size: int, what: str, entry: bytes, places: tuple[int, int, str], order: str) -> None:
    offset_at, size_at, kind = places
    if size_at + struct.calcsize(kind) > len(entry):
        raise ExecutableError("this library is damaged", where=str(path), found=f"a header of {what} that is too short")
    offset = struct.unpack_from(order + kind, entry, offset_at)[0]
    length = struct.unpack_from(order + kind, entry, size_at)[0]
    if offset + length > size:
        raise _cut_short(path, f"{what} at offset {offset}", offset + length, size)


def _cut_short(path: Path, what: str, needed: int, size: int) -> ExecutableError:
    return ExecutableError(
        "this library is cut short",
        where=f"{path}, offset {size}",
        expected=f"{needed} bytes, to the end of {what}",
        found=f"{size} bytes",
        help="compile or copy it again",
    )
