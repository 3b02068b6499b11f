"""A comparison whose only reader is the ``If`` right behind it becomes the test of that ``If``."""

from __future__ import annotations

from collections import Counter

from weft.relay.vm.assembly import Row, uses
from weft.runtime.relay_vm import Instruction

__all__ = ["fuse_tests"]


def fuse_tests(rows: list[Row]) -> list[Row]:
    """Turn ``t = x == y; one = 1; if t == one`` into ``if x == y``, and likewise for ``!=``."""
    read = Counter(v for row in rows if isinstance(row, Instruction) for v in uses(row))
    out: list[Row] = []
    for row in rows:
        if isinstance(row, Instruction) and row.name == "If" and len(out) >= 2:
            compare, one = out[-2:]
            if _is_test(compare, one, row) and read[row.test] == 1:
                yes, no = row.true_offset, row.false_offset
                if compare.operation == "not_equal":  # type: ignore[union-attr]
                    yes, no = no, yes
                out[-2:] = [Instruction.if_(compare.lhs, compare.rhs, yes, no)]  # type: ignore[union-attr]
                continue
        out.append(row)
    return out


def _is_test(compare: Row, one: Row, branch: Instruction) -> bool:
    return (
        isinstance(compare, Instruction)
        and isinstance(one, Instruction)
        and (compare.name, one.name) == ("Scalar", "LoadConsti")
        and compare.operation in ("equal", "not_equal")
        and compare.dst == branch.test
        and (one.dst, one.val) == (branch.target, 1)
    )
