"""Placing object files in this process without a compiler: sections into memory, relocations, read-only and executable.

It is for the objects that Weft's code generator makes for x86-64 ELF: position independent code that calls functions
of the runtime and of the C library. Whatever it does not know is left to the just-in-time linker of the compiler.
Layout: System V ABI, ELF-64 object files and its AMD64 supplement.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

_PREFIX = "__tvm_ffi_"
_CONTEXT = "__tvm_ffi__library_ctx"
_PAGE = 4096
_MACHINE_X86_64 = 62
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _EXEC = 1, 2, 4
_UNDEFINED, _ABSOLUTE, _FIRST_RESERVED = 0, 0xFFF1, 0xFF00
_LOCAL, _WEAK = 0, 2
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 41, 42
_SLOT_BYTES = 16
"""Of an external function: its address, then a jump to it."""


class NotPlaced(Exception):
    """These objects need a real linker."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_bytes: int


class _Symbol(NamedTuple):
    name: str
    binding: int
    section: int
    value: int


class _Object:
    """An object file, read."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, _MACHINE_X86_64):
            raise NotPlaced("not an x86-64 ELF object")
        self.data = data
        (at,) = struct.unpack_from("<Q", data, 40)
        count = struct.unpack_from("<H", data, 60)[0]
        self.sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * i)) for i in range(count)]
        self.symbols: list[_Symbol] = []
        for s in self.sections:
            if s.type == _SYMTAB:
                self.symbols = [self._symbol(o, self.sections[s.link].offset) for o in _entries(s)]
        self.at: dict[int, int] = {}
        """Where each section that code needs is placed."""

    def _symbol(self, at: int, names: int) -> _Symbol:
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
        end = self.data.index(b"\0", names + name)
        return _Symbol(self.data[names + name : end].decode(), info >> 4, section, value)

    def placed(self, writable: bool) -> list[int]:
        """The sections that are in memory when the code runs."""
        return [
            i for i, s in enumerate(self.sections) if s.flags & _ALLOC and bool(s.flags & _WRITE) == writable and s.size
        ]


def _entries(section: _Section) -> range:
    return range(section.offset, section.offset + section.size, section.entry_bytes or 24)


class _Placement:
    """Code of some objects in memory of its own, for as long as this lives."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        self.objects = [_Object(o) for o in objects]
        self.external = self._undefined()
        size = self._lay_out()
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.defined = self._definitions()
        for name, slot in self.external.items():
            target = self.defined.get(name) or _process_symbol(name)
            # mov through the slot's first half: jmp *-14(%rip)
            self._memory[slot : slot + _SLOT_BYTES] = struct.pack("<Q", target) + b"\xff\x25\xf2\xff\xff\xff\x90\x90"
        for o in self.objects:
            for i in [*o.placed(False), *o.placed(True)]:
                s = o.sections[i]
                if s.type != _NOBITS:
                    self._memory[o.at[i] : o.at[i] + s.size] = o.data[s.offset : s.offset + s.size]
        for o in self.objects:
            self._relocate(o)
        mprotect, allowed = ctypes.CDLL(None).mprotect, mmap.PROT_READ | mmap.PROT_EXEC
        if mprotect(ctypes.c_void_p(self._base), self._code_bytes, allowed) != 0:
            raise NotPlaced("this system does not let memory become executable")

    def address(self, name: str) -> int:
        """Where a function or variable is."""
        if name not in self.defined:
            raise NotPlaced(f"no object defines '{name}'")
        return self.defined[name]

    def _undefined(self) -> dict[str, int]:
        names = {s.name for o in self.objects for s in o.symbols if s.section == _UNDEFINED and s.name}
        return {name: _SLOT_BYTES * i for i, name in enumerate(sorted(names))}

    def _lay_out(self) -> int:
        """Give each section a place: slots, code and constants, then on pages of their own what is written."""
        end = _SLOT_BYTES * len(self.external)
        for writable in (False, True):
            for o in self.objects:
                for i in o.placed(writable):
                    s = o.sections[i]
                    if s.align > _PAGE:
                        raise NotPlaced(f"a section is aligned to {s.align} bytes")
                    o.at[i] = _up(end, max(s.align, 16))
                    end = o.at[i] + s.size
            end = _up(max(end, 1), _PAGE)
            if not writable:
                self._code_bytes = end
        if end >= 1 << 31:
            raise NotPlaced("the code is larger than its jumps can reach")
        return end

    def _definitions(self) -> dict[str, int]:
        strong: dict[str, int] = {}
        weak: dict[str, int] = {}
        for o in self.objects:
            for s in o.symbols:
                if s.binding == _LOCAL or not s.name or s.section == _UNDEFINED:
                    continue
                if s.section >= _FIRST_RESERVED or s.section not in o.at:
                    raise NotPlaced(f"'{s.name}' has no place")
                where = self._base + o.at[s.section] + s.value
                if s.binding == _WEAK:
                    weak.setdefault(s.name, where)
                elif strong.setdefault(s.name, where) != where:
                    raise NotPlaced(f"'{s.name}' is defined twice")
        return weak | strong

    def _relocate(self, o: _Object) -> None:
        for s in o.sections:
            if s.type != _RELA or s.info not in o.at:
                continue
            for entry in _entries(s):
                offset, info, addend = struct.unpack_from("<QQq", o.data, entry)
                kind, symbol = info & 0xFFFFFFFF, o.symbols[info >> 32]
                place = o.at[s.info] + offset
                if kind == _R_64:
                    struct.pack_into("<Q", self._memory, place, self._value(o, symbol) + addend)
                    continue
                if kind in (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX):
                    if symbol.section != _UNDEFINED:
                        raise NotPlaced("an address table of its own symbols")
                    target = self.external[symbol.name]  # the slot begins with the address
                elif kind == _R_PLT32 and symbol.section == _UNDEFINED:
                    target = self.external[symbol.name] + 8
                elif kind in (_R_PC32, _R_PLT32) and symbol.section in o.at:
                    target = o.at[symbol.section] + symbol.value
                else:
                    raise NotPlaced(f"relocation {kind} of '{symbol.name}'")
                struct.pack_into("<i", self._memory, place, target + addend - place)

    def _value(self, o: _Object, symbol: _Symbol) -> int:
        if symbol.section in o.at:
            return self._base + o.at[symbol.section] + symbol.value
        if symbol.section == _UNDEFINED and symbol.name:
            return self.defined.get(symbol.name) or _process_symbol(symbol.name)
        raise NotPlaced(f"the address of '{symbol.name}'")


def _up(n: int, align: int) -> int:
    return (n + align - 1) // align * align


def _process_symbol(name: str) -> int:
    for library in (None, "libm.so.6", "libgcc_s.so.1"):
        try:
            found = ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
        except (AttributeError, OSError):
            continue
        if found:
            return found
    raise NotPlaced(f"nothing in this process is called '{name}'")


class PlacedCode(NamedTuple):
    """Where the functions are, what keeps them there, and the address of the code's variable for its module, or 0."""

    addresses: list[int]
    owner: Any
    context: int


def place_objects(objects: Sequence[bytes], names: Sequence[str]) -> PlacedCode:
    """Place object files in this process.

    Parameters
    ----------
    objects : sequence of bytes
        Object files of Weft's code generator.
    names : sequence of str
        The functions (``__tvm_ffi_<name>``) to find.

    Raises
    ------
    NotPlaced
        When something about them asks for a linker: another platform, an unknown relocation, a missing function.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotPlaced("only x86-64 Linux")
    try:
        code = _Placement(objects)
    except (struct.error, LookupError, ValueError, OSError) as e:
        raise NotPlaced(f"the objects are damaged: {e}") from e
    return PlacedCode([code.address(_PREFIX + name) for name in names], code, code.defined.get(_CONTEXT, 0))
