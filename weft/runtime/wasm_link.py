"""Linking WebAssembly objects into one module, which JavaScript loads beside the runtime (docs/web.md).

The module takes memory, table and stack pointer from the runtime, and all functions that no object has. Addresses in it
count from 0; a custom section lists the places where the loader adds what memory and table begin at:

    weft.link      u32 bytes of memory, u32 entries of the table, u32 address of the variable that takes the module (or
                   0xFFFFFFFF), u32 n, n * (u32 kind, u32 offset in the file)
    weft.modules   the blob of ``__tvm_ffi__library_bin`` (docs/reference/executable.md); always the last section

Kinds of places: 0 an address in five bytes of signed LEB128, 1 an address in four bytes, 2 and 3 the same for table
indices, 4 an address in five bytes of unsigned LEB128.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.error import ExecutableError
from weft.runtime.wasm_object import MAGIC, Relocation, Symbol, WasmObject, name_bytes, read_object, uleb

_ENTRY, _CONTEXT = "__tvm_ffi_", "__tvm_ffi__library_ctx"
_FUNCTION, _DATA, _GLOBAL = 0, 1, 2  # kinds of symbols
_I32, _END = b"\x41", b"\x0b"  # i32.const, end
# Kinds of relocations to what they take, and how it is written.
_FUNCTION_INDEX, _TYPE_INDEX, _GLOBAL_INDEX, _TABLE_NUMBER = 0, 6, 7, 20
_TABLE_PLACES, _ADDRESS_PLACES = {1: 2, 2: 3}, {3: 4, 4: 0, 5: 1}


def _sleb5(value: int) -> bytes:
    """Encode an i32 as signed LEB128 of five bytes."""
    return bytes([*(value >> 7 * i & 127 | 128 for i in range(4)), value >> 28 & 127])


@dataclass
class _Linked:
    """The module that is made of objects; places are offsets in its code and data."""

    objects: list[WasmObject]
    types: dict[bytes, int] = field(default_factory=dict[bytes, int])
    imports: dict[str, int] = field(default_factory=dict[str, int])  # name to type
    defined: dict[tuple[int, str], tuple[int, Symbol]] = field(
        default_factory=dict[tuple[int, str], tuple[int, Symbol]]
    )
    first_function: list[int] = field(default_factory=list[int])
    addresses: list[list[int]] = field(default_factory=list[list[int]])
    table: dict[int, int] = field(default_factory=dict[int, int])  # function to its entry
    memory: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        for number, o in enumerate(self.objects):
            for symbol in o.symbols:
                if symbol.is_defined and symbol.name and not symbol.is_local:
                    self._define(number, symbol)
            for t in o.types:
                self.types.setdefault(t, len(self.types))
            self.addresses.append([self._place(s.data, s.align) for s in o.segments])
        for o in self.objects:
            for name, t in o.imports:
                if (_FUNCTION, name) not in self.defined:
                    self._import(name, self.types[o.types[t]])
        self.places = {name: i for i, name in enumerate(self.imports)}
        count = len(self.imports)
        for o in self.objects:
            self.first_function.append(count)
            count += len(o.functions)

    def _define(self, number: int, symbol: Symbol) -> None:
        _, before = self.defined.get((symbol.kind, symbol.name), (0, None))
        if before is not None and not before.is_weak and not symbol.is_weak:
            raise ExecutableError(f"two objects define '{symbol.name}'", help="give each function a name of its own")
        if before is None or before.is_weak:
            self.defined[symbol.kind, symbol.name] = number, symbol

    def _import(self, name: str, t: int) -> None:
        if self.imports.setdefault(name, t) != t:
            raise ExecutableError(f"objects disagree about the parameters of '{name}'")

    def _place(self, data: bytes, align: int) -> int:
        self.memory += bytes(-len(self.memory) % align)
        self.memory += data
        return len(self.memory) - len(data)

    def _find(self, number: int, symbol: Symbol) -> tuple[int, Symbol] | None:
        if symbol.is_local:
            return number, symbol
        return self.defined.get((symbol.kind, symbol.name))

    def function(self, number: int, symbol: Symbol) -> int:
        """The index of the function that a symbol of an object means."""
        found = self._find(number, symbol)
        if found is None:
            return self.places[symbol.name]
        number, symbol = found
        return self.first_function[number] + symbol.index - len(self.objects[number].imports)

    def address(self, number: int, symbol: Symbol) -> int:
        """The address of the data that a symbol of an object means."""
        found = self._find(number, symbol)
        if found is None:
            raise ExecutableError(f"no object has the data '{symbol.name}'")
        number, symbol = found
        return self.addresses[number][symbol.index] + symbol.offset

    def entry(self, function: int) -> int:
        """The place of a function in the table."""
        return self.table.setdefault(function, len(self.table))

    def patch(self, number: int, r: Relocation, content: bytearray, at: int) -> int | None:
        """Write the value of a relocation; return the kind of place that it is for the loader, if it is one."""
        o = self.objects[number]
        if r.kind == _TYPE_INDEX:
            content[at : at + 5] = uleb(self.types[o.types[r.index]], 5)
            return None
        symbol = o.symbols[r.index]
        if r.kind == _FUNCTION_INDEX:
            content[at : at + 5] = uleb(self.function(number, symbol), 5)
            return None
        if r.kind in (_GLOBAL_INDEX, _TABLE_NUMBER):  # the stack pointer, the only table
            if r.kind == _GLOBAL_INDEX and symbol.name != "__stack_pointer":
                raise ExecutableError(f"the global '{symbol.name}' is none of the runtime's")
            content[at : at + 5] = uleb(0, 5)
            return None
        if r.kind in _TABLE_PLACES:
            place, value = _TABLE_PLACES[r.kind], self.entry(self.function(number, symbol))
        elif r.kind in _ADDRESS_PLACES:
            place, value = _ADDRESS_PLACES[r.kind], self.address(number, symbol) + r.addend
        else:
            raise ExecutableError(f"relocation {r.kind} of WebAssembly is not known here", where=symbol.name)
        if place % 2:
            content[at : at + 4] = struct.pack("<I", value)
        else:
            content[at : at + 5] = _sleb5(value)
        return place


def link_wasm(
    path: Path, objects: Sequence[bytes], names: Sequence[str], blob: tuple[int, Callable[[Path], None]] | None
) -> Path:
    """Link objects, and a blob of modules, into a module at `path`.

    Parameters
    ----------
    path : Path
        The file to write.
    objects : sequence of bytes
        Object files for ``wasm32``.
    names : sequence of str
        The functions (``__tvm_ffi_<name>``) to offer.
    blob : (size in bytes, callable) or None
        Content of the section ``weft.modules``, and what appends it to a file.

    Raises
    ------
    ExecutableError
        When an object is for another machine or damaged, or a function is missing or there twice.
    """
    linked = _Linked([read_object(o) for o in objects])
    missing = [n for n in names if (_FUNCTION, _ENTRY + n) not in linked.defined]
    if missing:
        raise ExecutableError(f"no object has the function {', '.join(missing)}")
    content, places = _content(linked, names)
    path.write_bytes(content + _link_section(linked, places))
    if blob is not None:
        size, append = blob
        name = name_bytes("weft.modules")
        with path.open("ab") as file:
            file.write(b"\x00" + uleb(len(name) + size, 5) + name)
        append(path)
    return path


def _content(linked: _Linked, names: Sequence[str]) -> tuple[bytes, list[tuple[int, int]]]:
    """The module without custom sections, and (kind, offset in the file) of the places for the loader."""
    code, code_places = _code(linked)
    data_places = [
        (kind, at)
        for number, o in enumerate(linked.objects)
        for r in o.relocations.get("DATA", ())
        for at in [_data_place(linked, number, r)]
        if (kind := linked.patch(number, r, linked.memory, at)) is not None
    ]
    sections = [
        (1, uleb(len(linked.types)) + b"".join(linked.types)),
        (2, _import_section(linked)),
        (3, _function_section(linked)),
        (7, _export_section(linked, names)),
    ]
    out = MAGIC + b"".join(_section(kind, body) for kind, body in sections)
    places: list[tuple[int, int]] = []
    if linked.table:
        entries = b"".join(map(uleb, linked.table))
        head = b"\x01\x00" + _I32
        body = head + _sleb5(0) + _END + uleb(len(linked.table)) + entries
        places.append((2, len(out) + _header(len(body)) + len(head)))
        out += _section(9, body)
    places += [(kind, len(out) + _header(len(code)) + at) for kind, at in code_places]
    out += _section(10, code)
    if linked.memory:
        head = b"\x01\x00" + _I32
        before = head + _sleb5(0) + _END + uleb(len(linked.memory))
        start = len(out) + _header(len(before) + len(linked.memory))
        places.append((0, start + len(head)))
        places += [(kind, start + len(before) + at) for kind, at in data_places]
        out += _section(11, before + linked.memory)
    return out, places


def _header(size: int) -> int:
    """Bytes of a section in front of its content."""
    return 1 + len(uleb(size))


def _section(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + uleb(len(body)) + body


def _code(linked: _Linked) -> tuple[bytes, list[tuple[int, int]]]:
    """The content of the code section, and the places in it."""
    out = bytearray(uleb(sum(len(o.functions) for o in linked.objects)))
    places: list[tuple[int, int]] = []
    for number, o in enumerate(linked.objects):
        body = bytearray(o.code)
        skipped = len(uleb(len(o.functions)))
        shift = len(out) - skipped
        for r in o.relocations.get("CODE", ()):
            kind = linked.patch(number, r, body, r.offset)
            if kind is not None:
                places.append((kind, shift + r.offset))
        out += body[skipped:]
    return bytes(out), places


def _data_place(linked: _Linked, number: int, r: Relocation) -> int:
    for segment, address in zip(linked.objects[number].segments, linked.addresses[number], strict=True):
        if segment.at <= r.offset < segment.at + len(segment.data):
            return address + r.offset - segment.at
    raise ExecutableError("a relocation of a WebAssembly object is outside of its data", found=str(r.offset))


def _import_section(linked: _Linked) -> bytes:
    rows = [name_bytes("env") + name_bytes(name) + b"\x00" + uleb(t) for name, t in linked.imports.items()]
    rows += [
        name_bytes("env") + name_bytes("memory") + b"\x02\x01\x00" + uleb(0xFFFF),  # limited, as shared memory is
        name_bytes("env") + name_bytes("__indirect_function_table") + b"\x01\x70\x00\x00",
        name_bytes("env") + name_bytes("__stack_pointer") + b"\x03\x7f\x01",
    ]
    return uleb(len(rows)) + b"".join(rows)


def _function_section(linked: _Linked) -> bytes:
    types = [linked.types[o.types[t]] for o in linked.objects for t in o.functions]
    return uleb(len(types)) + b"".join(map(uleb, types))


def _export_section(linked: _Linked, names: Sequence[str]) -> bytes:
    rows: list[bytes] = []
    for name in names:
        number, symbol = linked.defined[_FUNCTION, _ENTRY + name]
        rows.append(name_bytes(_ENTRY + name) + b"\x00" + uleb(linked.function(number, symbol)))
    return uleb(len(rows)) + b"".join(rows)


def _link_section(linked: _Linked, places: Sequence[tuple[int, int]]) -> bytes:
    context = linked.defined.get((_DATA, _CONTEXT))
    at = linked.address(*context) if context is not None else 0xFFFFFFFF
    body = name_bytes("weft.link") + struct.pack("<4I", len(linked.memory), len(linked.table), at, len(places))
    return _section(0, body + b"".join(struct.pack("<2I", *place) for place in places))
