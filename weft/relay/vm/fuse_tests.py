"""A comparison whose only reader is the ``If`` right behind it becomes the test of that ``If``."""

from collections import Counter

from weft.relay.vm.assembly import Row, uses
from weft.runtime.relay_vm import Instruction


def fuse_tests(rows: list[Row]) -> list[Row]:
    """Turn ``t = x == y; if t == 1`` into ``if x == y``, and likewise for ``!=``; numbers may be loaded between."""
    read = Counter(v for row in rows if isinstance(row, Instruction) for v in uses(row))
    ones = {row.dst for row in rows if isinstance(row, Instruction) and row.name == "LoadConsti" and row.val == 1}
    out: list[Row] = []
    for row in rows:
        if isinstance(row, Instruction) and row.name == "If" and row.target in ones and read[row.test] == 1:
            at = len(out) - 1
            while at >= 0 and _is_load(out[at]):
                at -= 1
            compare = out[at] if at >= 0 else None
            if isinstance(compare, Instruction) and _is_comparison(compare) and compare.dst == row.test:
                yes, no = row.true_offset, row.false_offset
                if compare.operation == "not_equal":
                    yes, no = no, yes
                del out[at]
                row = Instruction.if_(compare.lhs, compare.rhs, yes, no)
        out.append(row)
    return out


def _is_load(row: Row) -> bool:
    return isinstance(row, Instruction) and row.name == "LoadConsti"


def _is_comparison(row: Instruction) -> bool:
    return row.name == "Scalar" and row.operation in ("equal", "not_equal")
