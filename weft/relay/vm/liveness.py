"""From values to registers: what nobody reads goes, what holds memory is let go after its last use, registers are few.

Since all jumps go forward, one walk backwards over the rows knows which values live where, and the range from a value's
first definition to its last use is all that it needs a register for.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from weft.relay.vm.assembly import Assembly, Label, Row, definition, falls_through, jumps, renamed, uses, with_jumps
from weft.relay.vm.fuse_tests import fuse_tests
from weft.runtime.relay_vm import Instruction

_PURE = frozenset(
    (
        "Move AllocADT AllocClosure GetField GetTag LoadConst LoadConsti ShapeOf AllocRef ReadRef ReshapeTensor "
        "AllocTensor AllocTensorReg AllocStorage"
    ).split()
)
_COSTLY = frozenset(("Invoke", "InvokeClosure", "AllocStorage", "DeviceCopy"))  # what takes memory
_LIGHT = frozenset(("LoadConst", "LoadConsti", "Scalar", "GetTag"))
_HANDS_OVER = {"Move": "src", "GetField": "object", "AllocTensor": "storage", "AllocTensorReg": "storage"}


def assemble(code: Assembly) -> tuple[int, list[Instruction]]:
    """Give values registers and jumps offsets.

    Returns
    -------
    (int, list of Instruction)
        The number of registers, and the instructions.
    """
    rows = drop_unused(fuse_tests(code.rows))
    ends = last_uses(rows, code)
    registers = linear_scan(rows, code.params, ends)
    placed: list[Row] = []
    for at, row in enumerate(rows):
        target = None
        if isinstance(row, Instruction):
            row = renamed(row, registers)
            target = definition(row)
            if row.name == "Move" and row.src == target:
                continue
        placed.append(row)
        placed += [Instruction.kill_register(registers[v]) for v in ends.get(at, ()) if registers[v] != target]
    return max(registers.values(), default=-1) + 1, _resolve(_without_useless_kills(placed))


def drop_unused(rows: list[Row]) -> list[Row]:
    """Leave out instructions without effects whose value nobody reads."""
    used: set[int] = set()
    kept: list[Row] = []
    for row in reversed(rows):
        if isinstance(row, Instruction):
            if row.name in _PURE and definition(row) not in used:
                continue
            used.update(uses(row))
        kept.append(row)
    kept.reverse()
    return kept


def last_uses(rows: list[Row], code: Assembly) -> dict[int, list[int]]:
    """Find the rows behind which values that hold memory are not used any more, and instructions follow that take some.

    A value that one branch reads and the other does not ends at the label of the other. In front of the end of a
    function nothing ends: a frame that ends, or that a tail call takes, lets go of all.
    """
    alive: dict[int, int] = {}  # label -> the values that live there, as bits
    costly: dict[int, bool] = {}
    at_heads: dict[int, int] = {}  # label -> the values that live in front of a jump to it, but not there
    holds_memory = ~sum(1 << v for v in code.scalars | _without_memory(rows))
    live, matters, behind = 0, False, None
    ends: dict[int, list[int]] = {}
    for at in range(len(rows) - 1, -1, -1):
        row = rows[at]
        if isinstance(row, Label):
            alive[row.number], costly[row.number] = live, matters
            continue
        if not falls_through(row):
            live, matters = 0, False
        targets = jumps(row)
        for t in targets:
            live |= alive[t]
            matters |= costly[t]
        for t in targets:
            if costly[t]:
                at_heads[t] = at_heads.get(t, 0) | (live & ~alive[t])
        used = sum(1 << v for v in set(uses(row)))
        defined = definition(row)
        own = 0 if defined is None else 1 << defined
        if matters and falls_through(row):
            ends[at] = _numbers((used | own) & ~live & holds_memory)
        matters |= row.name in _COSTLY and behind != "Ret"
        live = live & ~own | used
        behind = row.name
    for at, row in enumerate(rows):
        if isinstance(row, Label) and row.number in at_heads:
            ends[at] = _numbers(at_heads[row.number] & holds_memory)
    return ends


def _without_memory(rows: list[Row]) -> set[int]:
    """The values that are numbers or constants wherever they are defined."""
    light: set[int] = set()
    heavy: set[int] = set()
    for row in rows:
        if isinstance(row, Instruction) and (defined := definition(row)) is not None:
            (light if row.name in _LIGHT else heavy).add(defined)
    return light - heavy


def _numbers(bits: int) -> list[int]:
    found: list[int] = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _without_useless_kills(rows: list[Row]) -> list[Row]:
    """Leave out kills of registers that get another value before the next costly instruction or jump."""
    kept: list[Row] = []
    overwritten: set[int] = set()
    for row in reversed(rows):
        if isinstance(row, Label) or row.name in _COSTLY or not falls_through(row):
            overwritten.clear()
        elif row.name == "KillRegister":
            if row.dst in overwritten:
                continue
        else:
            defined = definition(row)
            if defined is not None:
                overwritten.add(defined)
            overwritten.difference_update(uses(row))
        kept.append(row)
    kept.reverse()
    return kept


def linear_scan(rows: list[Row], params: int, ends: dict[int, list[int]]) -> dict[int, int]:
    """Give each value the lowest register that is free over its range; parameters have the first ones.

    A value whose range ends where it is moved, taken apart or made a tensor of gives its register to the result, where
    that begins there. The values of `ends` at labels keep their registers until there.

    Source: Poletto and Sarkar, "Linear scan register allocation", 1999.
    """
    first = dict.fromkeys(range(params), -1)
    last = dict.fromkeys(range(params), -1)
    moved: dict[int, int] = {}
    for at, row in enumerate(rows):
        if isinstance(row, Label):
            last.update(dict.fromkeys(ends.get(at, ()), at))
            continue
        defined = definition(row)
        for v in (*uses(row), *(() if defined is None else (defined,))):
            first.setdefault(v, at)
            last[v] = at
        if row.name in _HANDS_OVER:
            moved.setdefault(row.dst, row.fields[_HANDS_OVER[row.name]])
    registers = {v: v for v in range(params)}
    active = [(last[v], v) for v in range(params)]
    heapify(active)
    free: list[int] = []
    count = params
    for v in sorted(first, key=lambda v: first[v]):
        if v < params:
            continue
        while active and active[0][0] <= first[v]:
            heappush(free, registers[heappop(active)[1]])
        wanted = registers.get(moved.get(v, -1), -1)
        if wanted in free:
            free.remove(wanted)
            heapify(free)
            registers[v] = wanted
        elif free:
            registers[v] = heappop(free)
        else:
            registers[v], count = count, count + 1
        heappush(active, (last[v], v))
    return registers


def _resolve(rows: list[Row]) -> list[Instruction]:
    """Turn labels into offsets; a jump to the next instruction goes."""
    while True:
        at = 0
        places: dict[int, int] = {}
        for row in rows:
            if isinstance(row, Label):
                places[row.number] = at
            else:
                at += 1
        at, kept = 0, list[Row]()
        for row in rows:
            if not isinstance(row, Label):
                at += 1
                if row.name == "Goto" and places[row.pc_offset] == at:
                    continue
            kept.append(row)
        if len(kept) == len(rows):
            break
        rows = kept
    code = [row for row in rows if isinstance(row, Instruction)]
    return [with_jumps(i, [places[t] - at for t in jumps(i)]) for at, i in enumerate(code)]
