"""Relocatable WebAssembly files: what LLVM writes for each kernel, read into sections, symbols and relocations.

Layout: the core specification's binary format, and "WebAssembly Object File Linking" of the tool conventions
(sections ``linking`` version 2, ``reloc.CODE``, ``reloc.DATA``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.error import ExecutableError

MAGIC = b"\x00asm\x01\x00\x00\x00"
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _CODE, _DATA = 0, 1, 2, 3, 10, 11
_UNDEFINED, _EXPLICIT_NAME = 0x10, 0x40
_SEGMENT_INFO, _SYMBOL_TABLE = 5, 8
# Relocations with an addend: addresses in memory, and offsets in functions and sections.
_WITH_ADDEND = frozenset((3, 4, 5, 8, 9, 11, 14, 15, 16, 17, 21, 22, 23, 25))


@dataclass
class Symbol:
    """A name of the linker: a function (kind 0) or global (2) by index, data (1) by segment and offset."""

    kind: int
    flags: int
    name: str
    index: int = 0
    offset: int = 0

    @property
    def is_defined(self) -> bool:
        """Whether the file itself has it."""
        return not self.flags & _UNDEFINED

    @property
    def is_local(self) -> bool:
        """Whether other files cannot mean it."""
        return self.flags & 3 == 2

    @property
    def is_weak(self) -> bool:
        """Whether another definition may stand for it."""
        return self.flags & 3 == 1


@dataclass
class Relocation:
    """A place, by its offset in the section's content, that takes the value of a symbol or type."""

    kind: int
    offset: int
    index: int
    addend: int = 0


@dataclass
class Segment:
    """Initial bytes of memory, where they begin in the data section's content, and their alignment."""

    data: bytes
    at: int
    align: int = 1


@dataclass
class WasmObject:
    """One file: ``functions`` are the types of its own, ``imports`` the type of each imported function."""

    types: list[bytes] = field(default_factory=list[bytes])
    imports: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    import_names: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    functions: list[int] = field(default_factory=list[int])
    code: bytes = b""
    segments: list[Segment] = field(default_factory=list[Segment])
    symbols: list[Symbol] = field(default_factory=list[Symbol])
    relocations: dict[str, list[Relocation]] = field(default_factory=dict[str, list[Relocation]])


class _Reader:
    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def take(self, n: int) -> bytes:
        if n > self.end - self.at:
            raise ExecutableError(
                "the WebAssembly object is cut short",
                where=f"offset {self.at}",
                expected=f"{n} bytes",
                found=str(self.end - self.at),
            )
        self.at += n
        return self.data[self.at - n : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 127) << shift
            shift += 7
            if b < 128:
                return value

    def signed(self) -> int:
        start = self.at
        value = self.unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def name(self) -> str:
        return self.take(self.unsigned()).decode()


def uleb(value: int, width: int = 0) -> bytes:
    """Encode an unsigned number, in at least `width` bytes."""
    out = bytearray()
    while value > 127 or len(out) + 1 < width:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def name_bytes(text: str) -> bytes:
    """Encode a name, with its length in front."""
    data = text.encode()
    return uleb(len(data)) + data


def read_object(data: bytes) -> WasmObject:
    """Read a relocatable file.

    Raises
    ------
    ExecutableError
        When it is none, or ends too early.
    """
    if not data.startswith(MAGIC):
        raise ExecutableError("this is no WebAssembly object", expected=repr(MAGIC), found=repr(data[:8]))
    found, reader = WasmObject(), _Reader(data, len(MAGIC))
    while reader.at < reader.end:
        kind, size = reader.byte(), reader.unsigned()
        start = reader.at
        reader.take(size)
        section = _Reader(data, start, start + size)
        if kind == _CUSTOM:
            _read_custom(found, section)
        elif kind == _TYPE:
            found.types = [_function_type(section) for _ in range(section.unsigned())]
        elif kind == _IMPORT:
            _read_imports(found, section)
        elif kind == _FUNCTION:
            found.functions = [section.unsigned() for _ in range(section.unsigned())]
        elif kind == _CODE:
            found.code = section.take(size)
        elif kind == _DATA:
            for _ in range(section.unsigned()):
                _read_segment(found, section, start)
    return found


def _function_type(section: _Reader) -> bytes:
    start = section.at
    section.byte()
    for _ in range(2):
        section.take(section.unsigned())
    return section.data[start : section.at]


def _read_imports(found: WasmObject, section: _Reader) -> None:
    for _ in range(section.unsigned()):
        section.name()
        name, kind = section.name(), section.byte()
        found.import_names.setdefault(kind, []).append(name)
        if kind == 0:
            found.imports.append((name, section.unsigned()))
        elif kind == 3:  # a global: type and mutability
            section.take(2)
        elif kind == 4:  # a tag
            section.take(1)
            section.unsigned()
        else:  # a table begins with the type of its elements, a memory with its limits
            section.take(1 if kind == 1 else 0)
            for _ in range(1 + (section.byte() & 1)):
                section.unsigned()


def _read_segment(found: WasmObject, section: _Reader, start: int) -> None:
    if section.unsigned() == 0:  # active: an offset, `i32.const n end`
        section.byte()
        section.signed()
        section.byte()
    size = section.unsigned()
    at = section.at - start
    found.segments.append(Segment(section.take(size), at))


def _read_custom(found: WasmObject, section: _Reader) -> None:
    name = section.name()
    if name.startswith("reloc."):
        section.unsigned()
        rows = found.relocations.setdefault(name.removeprefix("reloc."), [])
        for _ in range(section.unsigned()):
            kind, offset, index = section.byte(), section.unsigned(), section.unsigned()
            rows.append(Relocation(kind, offset, index, section.signed() if kind in _WITH_ADDEND else 0))
    elif name == "linking":
        section.unsigned()
        while section.at < section.end:
            kind, size = section.byte(), section.unsigned()
            part = _Reader(section.data, section.at, section.at + size)
            section.take(size)
            if kind == _SEGMENT_INFO:
                for segment in found.segments[: part.unsigned()]:
                    part.name()
                    segment.align = 1 << part.unsigned()
                    part.unsigned()
            elif kind == _SYMBOL_TABLE:
                found.symbols = [_symbol(found, part) for _ in range(part.unsigned())]


def _symbol(found: WasmObject, part: _Reader) -> Symbol:
    symbol = Symbol(part.byte(), part.unsigned(), "")
    if symbol.kind == 1:
        symbol.name = part.name()
        if symbol.is_defined:
            symbol.index, symbol.offset, _ = part.unsigned(), part.unsigned(), part.unsigned()
        return symbol
    symbol.index = part.unsigned()
    if symbol.kind == 3:
        return symbol
    if symbol.is_defined or symbol.flags & _EXPLICIT_NAME:
        symbol.name = part.name()
    else:
        spaces = {0: 0, 2: 3, 4: 4, 5: 1}
        symbol.name = found.import_names[spaces[symbol.kind]][symbol.index]
    return symbol
