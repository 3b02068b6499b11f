"""Code of the Relay machine before registers and jumps have numbers: instructions on values, and labels.

Instructions are those of the machine, where registers are numbers of values (any number of them, the parameters first)
and jumps are numbers of labels. All jumps go forward: Relay's loops are calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weft.runtime.relay_instruction import RELAY_OPCODES
from weft.runtime.relay_vm import Instruction

_OPERANDS = {
    row.name: [(f, kind) for f, kind in zip(row.fields, row.operands, strict=True) if kind not in "ns"]
    for row in RELAY_OPCODES.values()
}
_JUMPS = {"Goto": ("pc_offset",), "If": ("true_offset", "false_offset")}
_ENDS = frozenset(("Ret", "Goto", "If", "Fatal"))


@dataclass(frozen=True)
class Label:
    """A place that jumps go to."""

    number: int


Row = Instruction | Label


@dataclass
class Assembly:
    """The code of one function as it is written.

    ``scalars`` are the values that hold no memory.
    """

    params: int
    rows: list[Row] = field(default_factory=list)
    values: int = 0
    labels: int = 0
    scalars: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.values = max(self.values, self.params)

    def value(self, scalar: bool = False) -> int:
        """Make a value that is not defined yet."""
        self.values += 1
        if scalar:
            self.scalars.add(self.values - 1)
        return self.values - 1

    def label(self) -> int:
        """Make a label that stands nowhere yet."""
        self.labels += 1
        return self.labels - 1

    def place(self, label: int) -> None:
        """Let a label stand here."""
        self.rows.append(Label(label))

    def emit(self, instruction: Instruction) -> None:
        """Append an instruction."""
        self.rows.append(instruction)


def definition(instruction: Instruction) -> int | None:
    """Return the value that an instruction defines."""
    return None if instruction.name == "KillRegister" else instruction.fields.get("dst")


def uses(instruction: Instruction) -> Iterator[int]:
    """Yield the values that an instruction reads, or ends."""
    for name, kind in _OPERANDS[instruction.name]:
        if kind == "a":
            yield from instruction.fields[name]
        elif kind == "r" or (kind == "d" and instruction.name == "KillRegister"):
            yield instruction.fields[name]


def jumps(instruction: Instruction) -> list[int]:
    """List the labels that an instruction may go to."""
    return [instruction.fields[f] for f in _JUMPS.get(instruction.name, ())]


def falls_through(instruction: Instruction) -> bool:
    """Whether the next instruction may come behind it."""
    return instruction.name not in _ENDS


def renamed(instruction: Instruction, registers: dict[int, int]) -> Instruction:
    """Put registers in the place of values."""
    fields = dict(instruction.fields)
    for name, kind in _OPERANDS[instruction.name]:
        if kind == "a":
            fields[name] = [registers[v] for v in fields[name]]
        elif kind in "rd":
            fields[name] = registers[fields[name]]
    return Instruction(instruction.name, **fields)


def with_jumps(instruction: Instruction, offsets: list[int]) -> Instruction:
    """Put offsets in the place of labels."""
    names = _JUMPS.get(instruction.name, ())
    return Instruction(instruction.name, **{**instruction.fields, **dict(zip(names, offsets, strict=True))})
