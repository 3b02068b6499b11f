"""The Relax instruction set as data: opcode numbers, operand kinds, argument words.

The table comes from ``native/src/relax_ops.def`` through the library, so that the loop, the verifier, the
disassembler and the builder cannot disagree. An argument word has its kind in bits 63..56 and a 56-bit signed value
below (see ``docs/reference/executable.md``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from weft.error import InvalidArgument
from weft.ffi import get_global_func


class OpcodeInfo(NamedTuple):
    """One row of the instruction table."""

    name: str
    number: int
    operands: str
    """One letter a word: d destination, f function, n argument count, a arguments, r register, o jump offset."""
    meaning: str


_opcode_table: Any = get_global_func("weft.opcodes")

OPCODES: tuple[OpcodeInfo, ...] = tuple(
    OpcodeInfo(str(name), int(number), str(operands), str(meaning))
    for name, number, operands, meaning in _opcode_table()
)
"""The table."""

Opcode: Any = IntEnum(
    "Opcode", [pair for row in OPCODES for pair in ((row.name.upper(), row.number), (row.name, row.number))]
)
"""Opcode numbers: ``CALL``, ``RET``, ``GOTO``, ``IF`` (and ``Call``, ``Ret``, ``Goto``, ``If``)."""


class ArgKind(IntEnum):
    """What the value of an argument word is."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


class FuncKind(IntEnum):
    """Kinds of entries of the function table."""

    PACKED_FUNC = 0
    VM_FUNC = 1
    VMTIR_FUNC = 2


class MatchShapeCode(IntEnum):
    """Codes of ``vm.builtin.match_shape``; the first four are TVM's."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3
    AT_LEAST_IMM = 4
    AT_LEAST_LOAD = 5
    AT_MOST_IMM = 6
    AT_MOST_LOAD = 7


class MakeShapeCode(IntEnum):
    """Codes of ``vm.builtin.make_shape``."""

    USE_IMM = 0
    LOAD_SHAPE = 1


VOID_REGISTER = 1 << 54
"""A destination that nobody reads; as an argument it reads as None."""
VM_REGISTER = (1 << 54) + 1
"""The virtual machine itself, as an argument."""

_LIMIT = 1 << 55


def encode_arg(kind: ArgKind | int, value: int) -> int:
    """The argument word of a kind and a value, as a signed 64-bit integer.

    >>> hex(encode_arg(ArgKind.CONSTANT, 5))
    '0x200000000000005'
    >>> decode_arg(encode_arg(ArgKind.IMMEDIATE, -3))
    (<ArgKind.IMMEDIATE: 1>, -3)
    """
    if not -_LIMIT <= value < _LIMIT:
        raise InvalidArgument("the value of an argument word has 56 bits", found=str(value))
    return (int(kind) << 56) | (value & ((1 << 56) - 1))


def decode_arg(word: int) -> tuple[ArgKind, int]:
    """Kind and value of an argument word."""
    value = word & ((1 << 56) - 1)
    return ArgKind((word >> 56) & 0xFF), value - (1 << 56) if value >= _LIMIT else value


def register_arg(index: int) -> int:
    """Argument word of a register."""
    return encode_arg(ArgKind.REGISTER, index)


def imm_arg(value: int) -> int:
    """Argument word of an integer."""
    return encode_arg(ArgKind.IMMEDIATE, value)


def const_arg(index: int) -> int:
    """Argument word of a constant."""
    return encode_arg(ArgKind.CONSTANT, index)


def func_arg(index: int) -> int:
    """Argument word of a function."""
    return encode_arg(ArgKind.FUNCTION, index)
