"""From values to registers: what nobody reads goes, what holds memory is let go after its last use, registers are few.

Since all jumps go forward, one walk backwards over the rows knows which values live where, and the range from a value's
first definition to its last use is all that it needs a register for.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from weft.relay.vm.assembly import Assembly, Label, Row, definition, falls_through, jumps, renamed, uses, with_jumps
from weft.relay.vm.fuse_tests import fuse_tests
from weft.runtime.relay_vm import Instruction

__all__ = ["assemble", "drop_unused", "kill_dead", "linear_scan"]

_PURE = frozenset(
    ("Move", "AllocADT", "AllocClosure", "GetField", "GetTag", "LoadConst", "LoadConsti", "ShapeOf", "AllocRef",
     "ReadRef", "ReshapeTensor", "AllocTensor", "AllocTensorReg", "AllocStorage")
)  # fmt: skip
_COSTLY = frozenset(
    ("Invoke", "InvokeClosure", "InvokePacked", "AllocStorage", "AllocTensor", "AllocTensorReg", "DeviceCopy")
)  # behind which memory that is not let go would matter


def assemble(code: Assembly) -> tuple[int, list[Instruction]]:
    """Give values registers and jumps offsets.

    Returns
    -------
    (int, list of Instruction)
        The number of registers, and the instructions.
    """
    rows = kill_dead(drop_unused(fuse_tests(code.rows)), code)
    registers = linear_scan(rows, code.params)
    placed: list[Row] = []
    for row in rows:
        if isinstance(row, Instruction):
            row = renamed(row, registers)
            if row.name == "Move" and row.src == row.dst:
                continue
        placed.append(row)
    return max(registers.values(), default=-1) + 1, _resolve(placed)


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


def kill_dead(rows: list[Row], code: Assembly) -> list[Row]:
    """Insert ``KillRegister`` where a value that holds memory has its last use and costly instructions follow.

    A value that one branch reads and the other does not ends at the head of the other. In front of the end of a
    function nothing is killed: a frame that ends, or that a tail call takes, lets go of all.
    """
    alive: dict[int, int] = {}  # label -> the values that live there, as bits
    costly: dict[int, bool] = {}
    at_heads: dict[int, int] = {}  # label -> the values that live in front of a jump to it, but not there
    holds_memory = ~sum(1 << v for v in code.scalars)
    live, matters = 0, False
    out: list[Row] = []
    for row in reversed(rows):
        if isinstance(row, Label):
            alive[row.number], costly[row.number] = live, matters
            out.append(row)
            continue
        targets = jumps(row)
        if not falls_through(row):
            live, matters = 0, False
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
            out += _kills((used | own) & ~live & holds_memory)
        is_tail_call = bool(out) and isinstance(out[-1], Instruction) and out[-1].name == "Ret"
        matters |= row.name in _COSTLY and not is_tail_call
        live = live & ~own | used
        out.append(row)
    placed: list[Row] = []
    for row in reversed(out):
        placed.append(row)
        if isinstance(row, Label):
            placed += _kills(at_heads.get(row.number, 0) & holds_memory)
    return placed


def _kills(values: int) -> list[Row]:
    found: list[Row] = []
    while values:
        low = values & -values
        found.append(Instruction.kill_register(low.bit_length() - 1))
        values ^= low
    return found


def linear_scan(rows: list[Row], params: int) -> dict[int, int]:
    """Give each value the lowest register that is free over its range; parameters have the first ones.

    A value that a ``Move`` ends gives its register to what it is moved to, where that begins there.

    Source: Poletto and Sarkar, "Linear scan register allocation", 1999.
    """
    first = dict.fromkeys(range(params), -1)
    last = dict.fromkeys(range(params), -1)
    moved: dict[int, int] = {}
    for at, row in enumerate(rows):
        if isinstance(row, Label):
            continue
        defined = definition(row)
        for v in (*uses(row), *(() if defined is None else (defined,))):
            first.setdefault(v, at)
            last[v] = at
        if row.name == "Move":
            moved.setdefault(row.dst, row.src)
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
