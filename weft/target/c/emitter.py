"""What C's emitter keeps besides: memory to free, errors, imported functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from weft import tir
from weft.machine import UNKNOWN, Machine
from weft.target import clike
from weft.target.clike import string

TYPES = {
    "bool": "bool",
    "float32": "float",
    "float64": "double",
    "handle": "void*",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class HostEmitter(clike.Emitter):
    """The state of emission, and the memory to free; which rules write what is added beside them."""

    target = "c"
    types = TYPES
    memory_types: ClassVar = {"bool": "uint8_t"}
    loads: ClassVar = {"bool": "({0} != 0)"}
    forms: ClassVar = {
        **clike.Emitter.forms,
        "prefetch": "__builtin_prefetch({0})",
        "isnullptr": "({0} == 0)",
        "handle_add_byte_offset": "((void*)((char*){0} + {1}))",
    }

    def __init__(self, machine: Machine = UNKNOWN) -> None:
        super().__init__()
        self.machine = machine
        self.cleanup: list[str] = []
        self.result = ""  # the pointer to where a returned value goes, where the function returns one
        self.imported: set[str] = set()  # functions of the modules that this one imports
        self.siblings: Mapping[str, tir.PrimFunc] = {}  # functions of the same module

    def leave(self, unless: str, kind: str, message: str, values: Sequence[str] = ()) -> None:
        """Free memory and raise, unless a condition holds; with `values`, the message is a format for them."""
        arguments = [string(message), *(f"(long long)({v})" for v in values)] if values else ['"%s"', string(message)]
        fail = f"return weft_fail({string(kind)}, {', '.join(arguments)});"
        self.emit(f"if (!({unless})) {{ {self.freed()}{fail} }}")

    def freed(self) -> str:
        """What frees the memory that is held here."""
        return "".join(f"free({p}); " for p in reversed(self.cleanup))
